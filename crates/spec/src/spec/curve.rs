//! The numbers of xIELU, an activation that each layer learns (arXiv 2411.13010).

use super::reader::missing;
use super::tensors::Tensors;
use super::weights::{MapWeights, Stored, WeightTypes};
use crate::error::Result;
use crate::family::Role;

/// The numbers of a layer's xIELU. Complete.
#[derive(Clone, Debug)]
pub enum Curve<W: WeightTypes = Stored> {
    /// `alpha_p` and `alpha_n` before their softplus, `beta` and `eps`: a tensor of one number each.
    Stored(Box<[W::Numbers; 4]>),
    /// The same numbers, by keys of a GGUF file.
    Given([f32; 4]),
}

/// What the names of the numbers end in.
const NUMBERS: [&str; 4] = ["alpha_p", "alpha_n", "beta", "eps"];

impl<W: WeightTypes> Curve<W> {
    pub(super) fn try_map<'w, M: MapWeights<'w, W>>(&'w self, map: &mut M) -> Result<Curve<M::To>, M::Error> {
        Ok(match self {
            Curve::Stored(numbers) => {
                let [alpha_p, alpha_n, beta, eps] = &**numbers;
                let numbers = [map.numbers(alpha_p)?, map.numbers(alpha_n)?, map.numbers(beta)?, map.numbers(eps)?];
                Curve::Stored(Box::new(numbers))
            }
            Curve::Given(numbers) => Curve::Given(*numbers),
        })
    }
}

impl<W: WeightTypes<Numbers = Vec<f32>>> Curve<W> {
    /// The factors of the square above 0 and of the rest below it, of the linear part, and the last number whose exponential
    /// is taken.
    pub fn numbers(&self) -> [f32; 4] {
        let [alpha_p, alpha_n, beta, eps] = match self {
            Curve::Stored(numbers) => numbers.each_ref().map(|number| number[0]),
            Curve::Given(numbers) => *numbers,
        };
        let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        let alpha_n = f64::from(beta) + softplus(alpha_n.into());
        [softplus(alpha_p.into()) as f32, alpha_n as f32, beta, eps]
    }
}

impl Tensors<'_> {
    /// The numbers of the activation of `layer`, in families that name them.
    pub(super) fn curve(&mut self, layer: Option<usize>) -> Result<Option<Curve>> {
        if !self.names(Role::Curve) {
            return Ok(None);
        }
        let stem = self.stem(Role::Curve, layer);
        let names = NUMBERS.map(|number| format!("{stem}.{number}"));
        let Some(metadata) = self.reader.gguf() else {
            let [alpha_p, alpha_n, beta, eps] = names.map(|name| {
                let number = self.single(&name, "one number of an activation")?;
                self.check_float(&number, "F32, F16 or BF16 (an activation)").map(|()| number)
            });
            return Ok(Some(Curve::Stored(Box::new([alpha_p?, alpha_n?, beta?, eps?]))));
        };
        let mut given = [0.0; 4];
        for (number, key) in given.iter_mut().zip(names) {
            let layers = self.sizes.layers;
            let listed = match metadata.array_len(&key) {
                Some(count) if count != layers => return Err(self.reader.entries(&key, count, layers)),
                Some(_) => metadata.floats(&key)?.and_then(|list| list.get(layer?).copied()),
                None => self.reader.fields().number(&key)?.map(|number| number as f32),
            };
            let found = listed.ok_or_else(|| missing(self.reader.fields(), &key, "an activation needs it"))?;
            if !found.is_finite() {
                return Err(self.reader.value(&key, found, "a finite number".into()));
            }
            *number = found;
        }
        Ok(Some(Curve::Given(given)))
    }
}
