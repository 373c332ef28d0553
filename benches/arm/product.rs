//! One product, for `count.py` to follow instruction by instruction, or to be timed in the caches:
//! `product DTYPE ISA TOKENS ROWS INPUTS [SECONDS]`. Prints where `begin` lies, or seconds a product.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use model_factory::kernels::{Input, Isa, Kernel};
use model_factory_diagnostics::DType;
use std::hint::black_box;
use std::time::Instant;

/// What is counted comes after this.
#[inline(never)]
fn begin() {
    black_box(1);
}

/// And before this.
#[inline(never)]
fn end() {
    black_box(2);
}

fn main() {
    // Cargo adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [dtype, isa, tokens, rows, inputs, rest @ ..] = args.as_slice() else {
        println!("usage: product DTYPE ISA TOKENS ROWS INPUTS [SECONDS]");
        return;
    };
    let [tokens, rows, inputs] = [tokens, rows, inputs].map(|number| number.parse::<usize>().unwrap());
    let dtype = Kernel::dtypes().find(|known: &DType| known.to_string() == *dtype).unwrap();
    let isa = Isa::named(isa).unwrap();
    let kernel = Kernel::select(dtype, isa).unwrap();
    // Finite numbers in every dtype.
    let weight = vec![0x35; rows * kernel.row_bytes(inputs)];
    let x: Vec<f32> = (0..tokens * inputs).map(|i| (i % 251) as f32 - 125.0).collect();
    let input = Input::prepare(isa, kernel.form, &x, inputs);
    let mut y = vec![0.0; tokens * rows];
    // The first product makes room for what it unpacks.
    kernel.matmul(&weight, &input, &mut y).unwrap();
    if let [seconds] = rest {
        let (seconds, start, mut products) = (seconds.parse::<f64>().unwrap(), Instant::now(), 0);
        let mut best = f64::INFINITY;
        while start.elapsed().as_secs_f64() < seconds {
            let start = Instant::now();
            kernel.matmul(black_box(&weight), &input, &mut y).unwrap();
            best = best.min(start.elapsed().as_secs_f64());
            products += 1;
        }
        println!("{} {best} {products}", kernel.name);
        return;
    }
    println!("{:#x} {}", begin as fn() as usize, kernel.name);
    begin();
    kernel.matmul(black_box(&weight), &input, &mut y).unwrap();
    end();
}
