//! Packed integers of compressed-tensors, whose activations keep 16 bits, and floats of 8 bits, whose activations are F32, against
//! float64 of the weights as they are stored.

#![allow(clippy::expect_used, clippy::print_stdout)]

use super::int8::copy_with;
use crate::common::{self, fixtures};
use model_factory::kernels::Isa;
use model_factory::{ActivationDtype, ModelBuilder, UnifiedModelFactory};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde::Deserialize;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Expected {
    tokens: Vec<u32>,
    stride: usize,
    #[serde(
        alias = "compressed_tensors_error",
        alias = "transformers_error",
        alias = "bf16_error",
        alias = "mlx_error"
    )]
    theirs: f64,
}

/// At least `least` checkpoints in this folder of fixtures, sorted by name.
fn checkpoints(folder: &str, least: usize) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(fixtures().join(folder)).expect("a folder of fixtures");
    let folders = folders.map(|entry| entry.expect("an entry").path());
    let mut folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
    folders.sort();
    assert!(folders.len() >= least, "only {} checkpoints", folders.len());
    folders
}

fn error(folder: &Path, builder: &ModelBuilder) -> (f64, Expected) {
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let expected: Expected = serde_json::from_slice(&read("expected.json")).expect("expected.json is valid");
    let file = read("expected.safetensors");
    let tensors = SafeTensors::deserialize(&file).expect("valid");
    let truth = tensors.tensor("truth").expect("the truth");
    let truth = truth.data().as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
    let model = builder.load(folder).expect("it loads");
    assert_eq!(model.report().casts, 0);
    let logits = model.all_logits(&expected.tokens).expect("logits");
    let kept = logits.rows().flat_map(|row| row.iter().step_by(expected.stride));
    let squares = kept.zip(truth).map(|(x, truth)| ((f64::from(*x) - truth).powi(2), truth.powi(2)));
    let (distance, size) = squares.fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    ((distance / size).sqrt(), expected)
}

/// Whether the level multiplies BF16, and rounds activations for it.
fn multiplies_bf16(isa: &Isa) -> bool {
    isa.features().iter().any(|feature| feature.contains("bf16"))
}

/// Holds the best level without the BF16 instruction to `bound`: with it a head in BF16 adds the rounding of its activations.
fn assert_near(folder: &str, least: usize, bound: f64) {
    let level = Isa::available().into_iter().rev().find(|isa| !multiplies_bf16(isa)).expect("a level");
    for folder in checkpoints(folder, least) {
        let (error, expected) = error(&folder, &common::builder().isa(level));
        println!("{}: {error:.2e}, theirs {:.2e}", folder.display(), expected.theirs);
        assert!(error < bound, "{}: {error:e}", folder.display());
    }
}

/// The worst was 1.1e-4. That level's bits are everyone's in packed products.
#[test]
fn weights_are_exact_and_activations_keep_sixteen_bits() {
    assert_near("packed", 9, 3e-4);
}

/// As for packed integers: the worst was 1.1e-4.
#[test]
fn floats_of_four_bits_are_exact_and_activations_keep_sixteen_bits() {
    assert_near("fp4", 5, 3e-4);
}

/// Rounded to int8 on request, as for GGUF's blocks, with the same bits in threads and parts of any number.
#[test]
fn activations_are_int8_where_that_is_asked_for() {
    for folder in checkpoints("packed", 9) {
        let int8 = common::builder().activations(ActivationDtype::Int8).isa(Isa::available()[0]);
        let (error, _) = error(&folder, &int8);
        println!("{}: {error:.2e}", folder.display());
        // They were 2.7e-2 to 2.9e-2, and 0.1 where other experts are chosen.
        assert!((1e-3..0.2).contains(&error), "{}: {error:e}", folder.display());
        let said = |builder: &ModelBuilder, what: &str| builder.diagnose(&folder).to_string().contains(what);
        assert!(said(&int8, "native, activations int8") && said(&common::builder(), "native, activations int16"));
    }
    // NF4 is multiplied with floats whatever is asked for.
    let int8 = common::builder().activations(ActivationDtype::Int8).isa(Isa::available()[0]);
    let nf4 = fixtures().join("bnb/llama-nf4-nested");
    assert!(error(&nf4, &int8).0 < 5e-6 && int8.diagnose(&nf4).to_string().contains("widened"));
    // Weights by columns and floats of 4 bits are multiplied with 16 bits only.
    for other in ["columns/llama-awq-128", "fp4/llama-nvfp4"] {
        let int8 = common::builder().activations(ActivationDtype::Int8).isa(Isa::available()[0]);
        let report = int8.diagnose(fixtures().join(other)).to_string();
        assert!(report.contains("native, activations int16"), "{report}");
        assert!(error(&fixtures().join(other), &int8).0 < 3e-4, "{other}");
    }
    let ids: Vec<u32> = (0..40).map(|id| id * 7 % 320).collect();
    let bits = |threads, parts: usize| -> Vec<u32> {
        let builder = common::builder().activations(ActivationDtype::Int8).threads(threads);
        let model = builder.load(fixtures().join("packed/llama-w4-32-asymmetric")).expect("it loads");
        let mut session = model.session();
        let of_part = |ids: &[u32]| session.all_logits(ids).expect("logits").rows().flatten().copied().collect();
        let all: Vec<Vec<f32>> = ids.chunks(parts).map(of_part).collect();
        all.iter().flatten().map(|x| x.to_bits()).collect()
    };
    assert!(bits(1, 40) == bits(3, 40) && bits(2, 3) == bits(2, 40) && bits(1, 1) == bits(1, 40));
}

/// llama.cpp's definition of these products: activations have 8 bits.
#[test]
fn floats_of_four_bits_and_the_narrowest_integers_of_gguf_are_exact() {
    assert_near("fp4-gguf", 3, 3e-2);
}

/// The worst was 1.1e-4, as of other packed integers.
#[test]
fn fields_of_mlx_are_exact_and_activations_keep_sixteen_bits() {
    assert_near("mlx", 9, 3e-4);
}

/// The bound of plain F32.
#[test]
fn floats_of_eight_bits_are_exact() {
    assert_near("fp8", 5, 5e-6);
}

/// The bound of plain F32 again for codes of 4 bits, and that of 16 bits for LLM.int8.
#[test]
fn weights_of_bitsandbytes_are_exact() {
    assert_near("bnb", 5, 3e-4);
    for folder in checkpoints("bnb", 5).into_iter().filter(|folder| !folder.ends_with("llama-int8")) {
        for isa in Isa::available().into_iter().filter(|isa| !multiplies_bf16(isa)) {
            let (error, _) = error(&folder, &common::builder().isa(isa));
            assert!(error < 5e-6, "{} {isa}: {error:e}", folder.display());
        }
    }
}

/// The last scale of each kind in every checkpoint, which is a number: those that no sound model has are refused when the model is
/// loaded, with the tensor.
#[test]
fn scales_are_numbers() {
    const WHOLE: [&str; 2] = ["weight_global_scale", "weight_scale_2"];
    const SCALES: [&str; 8] =
        ["weight_scale", "weight_scale_inv", "scales", "biases", "SCB", "absmax", "nested_absmax", "nested_quant_map"];
    // NaN, both infinities, 0, -1, the least and the largest number, with the bits of the sound ones.
    let (halves, floats) =
        ([0x7e00, 0x7c00, 0xfc00, 0, 0xbc00, 1, 0x7bff], [0x7fc0, 0x7f80, 0xff80, 0, 0xbf80, 1, 0x7f7f]);
    let singles =
        [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -1.0, 1e-45, f32::MAX].map(|x| x.to_le_bytes().to_vec());
    let two = |bits: [u16; 7]| bits.map(|bits| bits.to_le_bytes().to_vec());
    // Floats of 8 bits: NaN, the same with a sign, -1, 0, the largest. Exponents: NaN, the least, the largest.
    let (e4m3, e8m0) = ([0x7f, 0xff, 0xb8, 0, 0x7e], [0xff, 0, 0xfe]);
    let bytes = |all: &[u8]| all.iter().map(|byte| vec![*byte]).collect::<Vec<_>>();
    let (mut refused, mut loaded, mut failures) = (0, 0, Vec::new());
    let folders = [("packed", 9), ("columns", 7), ("fp8", 5), ("fp4", 5), ("mlx", 9), ("int8", 4), ("bnb", 5)];
    let folders = folders.iter().flat_map(|(folder, least)| checkpoints(folder, *least));
    for folder in folders.filter(|folder| folder.join("model.safetensors").exists()) {
        let file = std::fs::read(folder.join("model.safetensors")).expect("the model");
        let tensors = SafeTensors::deserialize(&file).expect("valid");
        for end in SCALES.iter().chain(&WHOLE) {
            let last = tensors.names().into_iter().filter(|name| name.rsplit('.').next() == Some(end)).max();
            let Some(name) = last else { continue };
            let stored = tensors.tensor(name).expect("the scales");
            let is_e4m3 = stored.dtype() == Dtype::F8_E4M3 || folder.ends_with("llama-nvfp4") && *end == "scales";
            let (values, sound, expected): (Vec<_>, &[bool], _) = match stored.dtype() {
                // Nested scales are places in a table.
                Dtype::U8 if *end == "absmax" => continue,
                _ if is_e4m3 => (bytes(&e4m3), &[false, false, false, true, true], "a number, 0 or more"),
                Dtype::U8 if folder.ends_with("qwen3-mxfp8") => (bytes(&e8m0), &[false, true, true], "a finite number"),
                Dtype::U8 => (bytes(&e8m0), &[false, true, true], "a number, 0 or more"),
                dtype => {
                    let values = match dtype {
                        Dtype::F32 => singles.to_vec(),
                        Dtype::F16 => two(halves).to_vec(),
                        _ => two(floats).to_vec(),
                    };
                    match WHOLE.contains(end) {
                        true => (values, &[false; 7], "a number above 0"),
                        false => (values, &[false, false, false, true, true, true, true], "a finite number"),
                    }
                }
            };
            let at = stored.data().as_ptr().addr() - file.as_ptr().addr();
            for (bytes, sound) in values.iter().zip(sound) {
                let mut damaged = file.clone();
                damaged[at..at + bytes.len()].copy_from_slice(bytes);
                let result = UnifiedModelFactory::load(copy_with(&folder, &damaged).path());
                let said = result.err().map(|error| (error.code(), error.to_string()));
                let right = match &said {
                    None => *sound,
                    Some((code, said)) => {
                        !sound && *code == 15 && said.contains(name) && said.contains(&format!("expected {expected}"))
                    }
                };
                *(if *sound { &mut loaded } else { &mut refused }) += 1;
                if !right {
                    failures.push(format!("{} {name} {bytes:x?}: {said:?}", folder.display()));
                }
            }
        }
    }
    println!("{refused} scales were refused, {loaded} were loaded");
    assert!(failures.is_empty(), "{} of them wrong:\n{}", failures.len(), failures.join("\n"));
    assert!(refused >= 180, "only {refused} were refused");
}

/// What describes codes of 4 bits says the same as the tensors next to it, or is refused when the model is loaded.
#[test]
fn descriptions_of_codes_are_judged() {
    let name = "model.layers.1.mlp.down_proj.weight.quant_state.bitsandbytes__nf4";
    let folder = fixtures().join("bnb/llama-nf4-nested");
    let file = std::fs::read(folder.join("model.safetensors")).expect("the model");
    let tensors = SafeTensors::deserialize(&file).expect("valid");
    let stored = tensors.tensor(name).expect("the description").data();
    let (at, stored) = (stored.as_ptr().addr() - file.as_ptr().addr(), std::str::from_utf8(stored).expect("text"));
    #[rustfmt::skip]
    let cases = [
        ("bfloat16", "float16 ", true, ""),
        ("{", " ", false, "no JSON"),
        ("nf4", "fp4", false, "quant_type \"fp4\""),
        ("quant_type", "quant_tipe", false, "quant_type null"),
        (": 64", ": 32", false, "blocksize 32"),
        ("blocksize", "blocksizf", false, "blocksize null"),
        ("[96, 200]", "[200, 96]", false, "shape [200,96]"),
        ("[96, 200]", "[19200]  ", false, "shape [19200]"),
        (": 256", ": 128", false, "nested_blocksize 128"),
        ("float32", "float16", false, "nested_dtype \"float16\""),
        ("nested_offset", "nested_offsit", false, "nested_offset null"),
        ("nested_offset\": 0", "nested_offset\":[0", false, "no JSON"),
    ];
    for (from, to, sound, says) in cases {
        assert!(stored.contains(from), "{stored}");
        let mut changed = file.clone();
        changed[at..at + stored.len()].copy_from_slice(stored.replacen(from, to, 1).as_bytes());
        match UnifiedModelFactory::load(copy_with(&folder, &changed).path()) {
            Ok(_) => assert!(sound, "{to} was loaded"),
            Err(error) => {
                let said = error.to_string();
                assert!(!sound && error.code() == 15, "{to}: {said}");
                assert!(said.contains(name) && said.contains(says), "{said}");
            }
        }
    }
    // What codes stand for, and how integers are arranged.
    let of_table = "model.layers.0.mlp.down_proj.weight.quant_map";
    let cases = [(-1.0, true), (-1.0000001, true), (-0.999, false), (f32::NAN, false)]
        .map(|(value, sound)| ("bnb/llama-nf4-nested", of_table, value.to_le_bytes().to_vec(), sound));
    let of_rows = "model.layers.0.mlp.down_proj.weight_format";
    let orders = [(0, true), (1, false)].map(|(order, sound)| ("bnb/llama-int8", of_rows, vec![order], sound));
    for (folder, name, bytes, sound) in cases.into_iter().chain(orders) {
        let folder = fixtures().join(folder);
        let mut file = std::fs::read(folder.join("model.safetensors")).expect("the model");
        let stored = SafeTensors::deserialize(&file).expect("valid").tensor(name).expect("the tensor").data().as_ptr();
        let at = stored.addr() - file.as_ptr().addr();
        file[at..at + bytes.len()].copy_from_slice(&bytes);
        let error = UnifiedModelFactory::load(copy_with(&folder, &file).path()).err();
        let said = error.map(|error| error.to_string());
        assert!(said.as_ref().map_or(sound, |said| !sound && said.contains(name)), "{bytes:x?}: {said:?}");
    }
    // JSON has no infinity, but numbers beyond F32.
    let offset = stored.rsplit_once(": ").expect("an offset").1;
    let huge = format!("1e{:<width$}}}", 99, width = offset.len() - 3);
    let mut changed = file.clone();
    changed[at..at + stored.len()].copy_from_slice(stored.replace(offset, &huge).as_bytes());
    let error =
        UnifiedModelFactory::load(copy_with(&folder, &changed).path()).map(drop).expect_err("a refusal").to_string();
    assert!(error.contains(name) && error.contains("nested_offset 1e"), "{error}");
}

/// As of integers in rows.
#[test]
fn words_by_columns_are_exact_too() {
    assert_near("columns", 8, 3e-4);
}

/// What only values tell of words by columns is refused when the model is loaded, by tensor and place.
#[test]
fn values_next_to_columns_are_judged() {
    let middles = [0x88, 0x77, 0x78, 0x98].map(|byte: u8| [byte, 0x88, 0x88, 0x88]);
    let words = |numbers: [i32; 3]| numbers.map(i32::to_le_bytes);
    type Case<'a> = (&'a str, &'a str, &'a [[u8; 4]], &'a [bool], &'a str);
    #[rustfmt::skip]
    let cases: [Case<'_>; 6] = [
        ("qwen2-auto-round-gptq", "mlp.up_proj.qzeros", &middles, &[true, true, true, false], "the middle of the integers"),
        ("qwen3-gptq-shuffled", "mlp.up_proj.qzeros", &[[0x77; 4], [0x77, 0xf7, 0x77, 0x77]], &[true, false], "below the largest integer"),
        ("qwen3-gptq-shuffled", "mlp.down_proj.g_idx", &words([0, 2, -1]), &[true, true, false], "one of the groups"),
        // The largest integer as the third field, which is in two bytes.
        ("llama-gptq-3-bits", "mlp.up_proj.qzeros", &[[0xc0, 0, 0, 0], [0xc0, 1, 0, 0]], &[true, false], "below the largest integer"),
        ("llama-awq-128", "mlp.down_proj.scales", &[[0x00, 0xbf, 0, 0], [0xc0, 0x7f, 0, 0], [0x80, 0xff, 0, 0]], &[true, false, false], "a finite number"),
        ("llama-gptq-8-bits", "self_attn.k_proj.qzeros", &[[0x80, 0x7f, 0x80, 0x80], [0x80, 0x80, 0x81, 0x80]], &[true, false], "the middle of the integers"),
    ];
    for (folder, end, values, sound, expected) in cases {
        let folder = fixtures().join("columns").join(folder);
        let file = std::fs::read(folder.join("model.safetensors")).expect("the model");
        let name = format!("model.layers.1.{end}");
        let tensors = SafeTensors::deserialize(&file).expect("valid");
        let at = tensors.tensor(&name).expect("the tensor").data().as_ptr().addr() - file.as_ptr().addr();
        for (value, sound) in values.iter().zip(sound) {
            let mut damaged = file.clone();
            damaged[at..at + 4].copy_from_slice(value);
            match UnifiedModelFactory::load(copy_with(&folder, &damaged).path()) {
                Ok(_) => assert!(sound, "{name} {value:x?} was loaded"),
                Err(error) => {
                    let said = error.to_string();
                    assert!(!sound && error.code() == 15, "{name} {value:x?}: {said}");
                    assert!(said.contains(&name) && said.contains(expected), "{said}");
                }
            }
        }
    }
    // A bias that the family does not have counts for nothing, and must hold nothing.
    let folder = fixtures().join("columns/qwen2-auto-round-gptq");
    let file = std::fs::read(folder.join("model.safetensors")).expect("the model");
    let tensors = SafeTensors::deserialize(&file).expect("valid");
    let name = "model.layers.0.mlp.up_proj.bias";
    for (value, sound) in [(0u8, true), (0x3c, false)] {
        let bias = [0, value].repeat(128);
        let bias = TensorView::new(Dtype::F16, vec![128], &bias).expect("a tensor");
        let all = tensors.tensors().into_iter().chain([(name.to_owned(), bias)]);
        let file = safetensors::serialize(all, None).expect("it serializes");
        match UnifiedModelFactory::load(copy_with(&folder, &file).path()) {
            Ok(_) => assert!(sound, "a bias was loaded"),
            Err(error) => assert!(!sound && error.to_string().contains(name), "{error}"),
        }
    }
}
