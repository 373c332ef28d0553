//! Operations on the outputs of routers: the same bits everywhere.

use super::exp::exp;
use crate::isa::{Isa, compiled_for};

compiled_for! {
    /// `x[i] = e^x[i] / sum of e^x`. An empty `x` stays empty.
    pub fn softmax(isa: Isa, x: &mut [f32]) {
        let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for x in x.iter_mut() {
            *x = exp::<false>(*x - largest);
        }
        let sum: f32 = x.iter().sum();
        x.iter_mut().for_each(|x| *x /= sum);
    }

    /// `x[i] = 1 / (1 + e^-x[i])`.
    pub fn sigmoid(isa: Isa, x: &mut [f32]) {
        x.iter_mut().for_each(|x| *x = 1.0 / (1.0 + exp::<false>(-*x)));
    }

    /// `x[i] = ln(1 + e^x[i])`.
    pub fn softplus(isa: Isa, x: &mut [f32]) {
        for x in x.iter_mut() {
            let t = exp::<false>(-x.abs());
            // ln(1 + t) is twice the area tangent of z, which is at most 1/3: the terms left out are below 2e-9 of it.
            let z = t / (2.0 + t);
            let square = z * z;
            let series = (0..7).fold(1.0 / 15.0, |sum, term| sum * square + 1.0 / (13 - 2 * term) as f32);
            *x = x.max(0.0) + 2.0 * z * series;
        }
    }

    /// `x[i] = e^x[i]`.
    pub fn exp_all(isa: Isa, x: &mut [f32]) {
        x.iter_mut().for_each(|x| *x = exp::<false>(*x));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, each_isa};

    #[test]
    fn scores_are_those_of_the_formulas_and_the_same_bits_everywhere() {
        let mut random = Random::new(31);
        for len in [1, 2, 8, 60, 128, 129] {
            let x: Vec<f32> = random.floats(len).iter().map(|x| x * 20.0).collect();
            let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = x.iter().map(|x| f64::from(x - largest).exp()).sum();
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let mut first: Option<[Vec<u32>; 3]> = None;
            for isa in each_isa() {
                let (mut soft, mut gate, mut plus) = (x.clone(), x.clone(), x.clone());
                softmax(isa, &mut soft);
                sigmoid(isa, &mut gate);
                softplus(isa, &mut plus);
                for i in 0..len {
                    let truth = f64::from(x[i] - largest).exp() / sum;
                    // The errors: the exponential within 1.5, a sum of `len` rounded terms, and the quotient.
                    assert!((f64::from(soft[i]) - truth).abs() <= (3.0 + len as f64) * 6e-8 * truth, "{isa} {len} {i}");
                    let truth = 1.0 / (1.0 + (-f64::from(x[i])).exp());
                    assert!((f64::from(gate[i]) - truth).abs() <= 4e-7 * truth, "{isa} {len} {i}");
                    let truth = f64::from(x[i]).exp().ln_1p();
                    assert!((f64::from(plus[i]) - truth).abs() <= 6e-7 * truth, "{isa} {len} {i}");
                }
                let all = [bits(&soft), bits(&gate), bits(&plus)];
                assert_eq!(first.get_or_insert_with(|| all.clone()), &all, "{isa} {len}");
            }
        }
    }
}
