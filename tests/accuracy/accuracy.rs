//! Every fixture against the float64 truth of its logits, and the error of the reference program on the same file.
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; tables are for reading

use crate::common;

use common::given::on_gpu;
use common::{FileExpectation, Fixture, relative_l2, top};
use model_factory::diagnostics::DType;
use model_factory::diagnostics::capability::{DeviceEngine, tier};
use model_factory::diagnostics::family::{Encoder, REGISTRY};
use model_factory::{DeviceChoice, KvDtype, Model, UnifiedModelFactory};
use std::collections::{BTreeMap, BTreeSet};

/// How far from the truth a file may be, and why.
fn bound(file: &FileExpectation, case: &str) -> (f64, &'static str) {
    let transformers = file.transformers_error.as_ref().unwrap_or(&file.reference_error);
    match file.dtype.as_str() {
        // Another order of the same f32 sums is as far from the truth as transformers' order, give or take.
        "F32" => (2.0 * transformers[case], "2 x transformers F32"),
        // Activations are rounded less often than transformers rounds them.
        "BF16" => (transformers[case], "transformers BF16"),
        // As for BF16; llama.cpp's cache and activations are F16 too.
        "F16" => (transformers[case], "transformers F16"),
        // Activations of experts keep 16 bits where transformers rounds them to BF16.
        "MXFP4" if file.reference == "transformers" => (0.6 * transformers[case], "0.6 x transformers BF16"),
        // llama.cpp quantises the same activations with coarser scales; a tenth covers the other order of sums.
        _ => (1.1 * file.reference_error[case], "1.1 x llama.cpp"),
    }
}

/// Whether there are keys and values to round.
fn attends(model: &Model) -> bool {
    model.spec().attentions().next().is_some()
}

fn logits(model: &Model, tokens: &[u32], first_kept: usize) -> Vec<f32> {
    let logits = model.all_logits(tokens).expect("the case computes");
    logits[first_kept * logits.columns()..].to_vec()
}

#[test]
fn logits_are_as_near_to_the_truth_as_the_reference() {
    let mut failures = Vec::new();
    let mut compared = 0;
    println!("{:<48} {:<14} {:>10} {:>10} {:>6}  bound", "file", "case", "error", "bound", "ratio");
    for fixture in common::all() {
        for (name, file) in &fixture.expected.files {
            let path = fixture.folder.join(name);
            let Some(model) = common::load_where_it_runs(&path) else { continue };
            for case in file.reference_error.keys() {
                let tokens = &fixture.expected.cases[case];
                let truth = fixture.truth(&file.truth, case);
                let computed = logits(&model, &tokens.tokens, tokens.first_kept);
                let error = relative_l2(&computed, &truth);
                let (bound, why) = bound(file, case);
                let label = format!("{}/{name}", fixture.name());
                let ratio = error / bound;
                println!("{label:<48} {case:<14} {error:>10.2e} {bound:>10.2e} {ratio:>6.2}  {why}");
                compared += 1;
                if error.is_nan() || error > bound {
                    failures.push(format!("{label} {case}: {error:.3e} is more than {bound:.3e} ({why})"));
                }
                failures.extend(wrong_choices(&label, case, &computed, &truth, model.spec().vocab));
            }
        }
    }
    println!("{compared} comparisons");
    let least = if on_gpu() { 90 } else { 280 };
    assert!(compared >= least, "only {compared} comparisons of {least}");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// transformers' F16 keeps its keys and values in F16 as well, so its error is the bound here too.
#[test]
fn keys_and_values_in_f16_are_as_near_to_the_truth_as_transformers_in_f16() {
    let mut compared = 0;
    println!("{:<40} {:<14} {:>10} {:>10} {:>10}", "file", "case", "F32 cache", "F16 cache", "bound");
    for fixture in common::all() {
        for (name, file) in fixture.expected.files.iter().filter(|(_, file)| file.dtype == "F16") {
            let path = fixture.folder.join(name);
            let load = |dtype| common::load_built_where_it_runs(&common::builder().kv_cache(dtype), &path);
            let (Some(exact), Some(rounded)) = (load(KvDtype::F32), load(KvDtype::F16)) else { continue };
            if !attends(&exact) {
                continue;
            }
            for case in file.reference_error.keys() {
                let tokens = &fixture.expected.cases[case];
                let truth = fixture.truth(&file.truth, case);
                let error = |model| relative_l2(&logits(model, &tokens.tokens, tokens.first_kept), &truth);
                let (exact, rounded) = (error(&exact), error(&rounded));
                let (bound, why) = bound(file, case);
                let label = format!("{}/{name}", fixture.name());
                println!("{label:<40} {case:<14} {exact:>10.2e} {rounded:>10.2e} {bound:>10.2e}");
                assert!(rounded <= bound, "{label} {case}: {rounded:.3e} is more than {bound:.3e} ({why})");
                assert_ne!(exact, rounded, "{label} {case}: nothing was rounded");
                compared += 1;
            }
        }
    }
    let least = if on_gpu() { 10 } else { 60 };
    assert!(compared >= least, "only {compared} comparisons of {least}");
}

/// llama.cpp computes a file in Q8_0 with activations of every product rounded to blocks of the same kind. Rounding keys and
/// values alone is less, so that file's error, which is of the same model and case, is the bound.
#[test]
fn keys_and_values_in_q8_0_cost_less_than_llama_cpps_activations_in_q8_0() {
    let mut compared = 0;
    println!(
        "{:<40} {:<14} {:>10} {:>10} {:>10} {:>10}",
        "file", "case", "F32 cache", "F16 cache", "Q8_0 cache", "bound"
    );
    for fixture in common::all() {
        let Some(in_blocks) = fixture.expected.files.get("q8_0.gguf") else { continue };
        for (name, file) in fixture.expected.files.iter().filter(|(_, file)| file.dtype == "F16") {
            let path = fixture.folder.join(name);
            let builder = |dtype| UnifiedModelFactory::builder().device(DeviceChoice::Cpu).kv_cache(dtype);
            let load = |dtype| builder(dtype).load(&path).expect("a fixture loads");
            let models = [KvDtype::F32, KvDtype::F16, KvDtype::Q8_0].map(load);
            if !attends(&models[0]) {
                continue;
            }
            for case in file.reference_error.keys() {
                let tokens = &fixture.expected.cases[case];
                let truth = fixture.truth(&file.truth, case);
                let error = |model| relative_l2(&logits(model, &tokens.tokens, tokens.first_kept), &truth);
                let [exact, half, blocks] = models.each_ref().map(error);
                // llama.cpp does not compute the window of Mistral.
                let Some(&bound) = in_blocks.reference_error.get(case) else { continue };
                let label = format!("{}/{name}", fixture.name());
                println!("{label:<40} {case:<14} {exact:>10.2e} {half:>10.2e} {blocks:>10.2e} {bound:>10.2e}");
                assert!(blocks <= bound, "{label} {case}: {blocks:.3e} is more than {bound:.3e} (llama.cpp in Q8_0)");
                assert!(blocks > half, "{label} {case}: {blocks:.3e} is no error of blocks, F16 has {half:.3e}");
                compared += 1;
            }
        }
    }
    assert!(compared >= 12, "only {compared} comparisons");
}

/// Positions where the truth's choice is clear and ours is another.
fn wrong_choices(label: &str, case: &str, computed: &[f32], truth: &[f32], vocab: usize) -> Vec<String> {
    let rows = computed.chunks_exact(vocab).zip(truth.chunks_exact(vocab)).enumerate();
    rows.filter_map(|(position, (computed, truth))| {
        let errors = computed.iter().zip(truth).map(|(a, t)| (f64::from(*a) - f64::from(*t)).abs());
        let largest = errors.fold(0.0, f64::max);
        let (expected, gap) = top(truth);
        let (found, _) = top(computed);
        (gap > 2.0 * largest && found != expected).then(|| {
            format!("{label} {case}: kept position {position} chose {found}, the truth {expected} by {gap:.3}")
        })
    })
    .collect()
}

/// GGUF stores the q and k rows of `llama` permuted and rope frequency factors in F32; otherwise the weights are the same
/// numbers, so two formats of one model differ only by the order of sums.
#[test]
fn formats_of_the_same_weights_agree() {
    let mut pairs = 0;
    for fixture in common::all() {
        let both = |dtype: &&&str| {
            let files = &fixture.expected.files;
            files.contains_key(**dtype) && files.contains_key(&format!("{dtype}.gguf"))
        };
        for dtype in ["f32", "bf16", "f16"].iter().filter(both) {
            let load = |name: &str| common::load_where_it_runs(fixture.folder.join(name));
            let Some((folder, gguf)) = load(dtype).zip(load(&format!("{dtype}.gguf"))) else { continue };
            let case = &fixture.expected.cases["short"];
            let a = logits(&folder, &case.tokens, case.first_kept);
            let b = logits(&gguf, &case.tokens, case.first_kept);
            let bound = match *dtype {
                // Twice the bound that holds for each against the truth.
                "f32" => 4.0 * fixture.expected.files["f32"].reference_error["short"],
                // A last-bit difference in a sum can move an activation to the neighbouring BF16, or a stored F16.
                _ => fixture.expected.files[*dtype].reference_error["short"],
            };
            let distance = relative_l2(&a, &b);
            assert!(distance <= bound, "{} {dtype}: {distance:.2e} apart, bound {bound:.2e}", fixture.name());
            pairs += 1;
        }
    }
    let least = if on_gpu() { 5 } else { 25 };
    assert!(pairs >= least, "only {pairs} pairs of {least}");
}

/// Along the truth's own greedy text our choice is the truth's wherever its lead is larger than any error here.
#[test]
fn greedy_text_is_the_truths() {
    let mut steps = 0;
    for fixture in common::all() {
        for (name, file) in &fixture.expected.files {
            let Some(model) = common::load_where_it_runs(fixture.folder.join(name)) else { continue };
            let error = largest_error(&model, &fixture, file);
            let greedy = &fixture.expected.greedy[&file.truth];
            let mut session = model.session();
            let mut next = session.next_logits(&greedy.prompt).expect("the prompt computes");
            for (step, (token, gap)) in greedy.tokens.iter().zip(&greedy.gaps).enumerate() {
                let (found, _) = top(&next);
                if *gap > 2.0 * error {
                    assert_eq!(found, *token as usize, "{}/{name} step {step}, gap {gap:.3}", fixture.name());
                    steps += 1;
                }
                next = session.next_logits(&[*token]).expect("a token computes");
            }
        }
    }
    println!("{steps} clear steps");
    let least = if on_gpu() { 1000 } else { 3700 };
    assert!(steps >= least, "only {steps} clear steps of {least}");
}

/// The largest absolute error of any logit in the short case: the scale that a greedy step's lead is measured by.
fn largest_error(model: &Model, fixture: &Fixture, file: &FileExpectation) -> f64 {
    let name = file.reference_error.keys().find(|case| case.starts_with("short")).expect("a short case");
    let case = &fixture.expected.cases[name];
    let computed = logits(model, &case.tokens, case.first_kept);
    let truth = fixture.truth(&file.truth, name);
    computed.iter().zip(&truth).map(|(a, t)| f64::from((a - t).abs())).fold(0.0, f64::max)
}

/// Families that are Qwen2, Qwen3 and Llama by other names (`text_of_multimodal.rs`, `expert_layouts.rs`), and two whose GGUF files
/// are those of other tables.
const BY_OTHER_NAMES: [usize; 2] = [4, 2];

/// Families that continue texts. The vectors of encoders are compared in `embeddings.rs`.
const DECODERS: usize = decoders(false);

/// Those of them that llama.cpp has too.
const IN_GGUF: usize = decoders(true);

const fn decoders(in_gguf: bool) -> usize {
    let (mut family, mut decoders) = (0, 0);
    while family < REGISTRY.len() {
        // What is in GGUF alone is compared with llama.cpp by `benches/architectures.py`.
        let counts = !in_gguf || !REGISTRY[family].gguf_architectures.is_empty();
        let in_folders = !REGISTRY[family].model_types.is_empty();
        decoders +=
            (counts && in_folders && !matches!(REGISTRY[family].head.encoder, Encoder::Yes { .. } | Encoder::Flag(_)))
                as usize;
        family += 1;
    }
    decoders - BY_OTHER_NAMES[0] - if in_gguf { 0 } else { BY_OTHER_NAMES[1] }
}

/// The formats of the comparisons, and how many families have a file in each at least: all, but for folders in shards, which
/// are read by what no family changes, for F16 of those that llama.cpp does not have, and for Q4_K_M, which archives do not have.
const FORMATS: [(&str, usize); 7] = [
    ("F32", DECODERS),
    ("F16", IN_GGUF),
    ("BF16", DECODERS),
    ("sharded", 3),
    ("GGUF F16", IN_GGUF),
    ("Q8_0", IN_GGUF),
    ("Q4_K_M", 25),
];

/// The format of a file by what it holds, not only by what it is called; `None` for one that is not on the list.
fn format(model: &Model, gguf: bool, called: &str) -> Option<&'static str> {
    // Routers and positions are F32 in every GGUF file.
    let routers = model.spec().weights.layers.iter().filter_map(|layer| layer.experts());
    let routers = routers.flat_map(|experts| {
        let shared = experts.shared.iter().filter_map(|shared| shared.router.as_ref());
        std::iter::once(&experts.router).chain(shared)
    });
    let positions = model.spec().weights.input.iter().filter_map(|input| input.positions.as_ref());
    let routers = routers.chain(positions.map(|positions| &positions.rows));
    let routers: BTreeSet<&str> = routers.map(|router| router.weight.name.as_str()).collect();
    let stored: Vec<_> = model.spec().matrices().filter(|tensor| !routers.contains(&*tensor.name)).collect();
    let dtypes: BTreeSet<DType> = stored.iter().map(|tensor| tensor.dtype).collect();
    let files: BTreeSet<usize> = stored.iter().map(|tensor| tensor.file).collect();
    match (gguf, Vec::from_iter(dtypes.iter().copied()).as_slice()) {
        (false, _) if files.len() > 1 => Some("sharded"),
        (false, [DType::F32]) => Some("F32"),
        (false, [DType::F16]) => Some("F16"),
        (false, [DType::BF16]) => Some("BF16"),
        (true, [DType::F16]) => Some("GGUF F16"),
        (true, [DType::Q8_0]) => Some("Q8_0"),
        // The mix, with blocks of 256: a model whose rows are all too narrow for them has Q5_0 and Q8_0 instead.
        (true, _) if called == "Q4_K_M" && dtypes.contains(&DType::Q4_K) && dtypes.contains(&DType::Q6_K) => {
            Some("Q4_K_M")
        }
        _ => None,
    }
}

/// What the comparisons above stand on: no format without its families, no block type without a file, all block
/// types in one family.
#[test]
fn every_family_has_its_formats_and_one_has_every_block_type() {
    let mut cells: BTreeMap<(String, &str), Vec<String>> = BTreeMap::new();
    let mut blocks: BTreeMap<String, BTreeSet<DType>> = BTreeMap::new();
    for fixture in common::all() {
        for (name, file) in &fixture.expected.files {
            let path = fixture.folder.join(name);
            let processor = UnifiedModelFactory::builder().device(DeviceChoice::Cpu);
            let model = processor.load(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let family = model.spec().family.to_owned();
            assert_eq!(family, fixture.expected.family, "{}/{name}", fixture.name());
            if let Some(format) = format(&model, name.ends_with(".gguf"), &file.dtype) {
                cells.entry((family.clone(), format)).or_default().push(fixture.name());
            }
            blocks.entry(family).or_default().extend(model.spec().matrices().map(|tensor| tensor.dtype));
        }
    }
    println!("{:<8}{}", "family", FORMATS.map(|(format, _)| format!("{format:<16}")).concat());
    let mut counts = [0; FORMATS.len()];
    for family in REGISTRY {
        print!("{:<8}", family.id);
        for ((format, _), count) in FORMATS.iter().zip(&mut counts) {
            let files = cells.get(&(family.id.to_owned(), format)).map_or(&[][..], Vec::as_slice);
            let first = files.first().map_or("-", String::as_str);
            let more = if files.len() > 1 { format!(" +{}", files.len() - 1) } else { String::new() };
            print!("{:<16}", format!("{first}{more}"));
            *count += usize::from(!files.is_empty());
        }
        println!();
    }
    for ((format, least), count) in FORMATS.iter().zip(counts) {
        assert!(count >= *least, "{count} families of {least} have {format}");
    }

    // These have files of their own (`packed.rs`).
    const OTHERS: [DType; 7] = [DType::NVFP4, DType::Q1_0, DType::Q2_0, DType::U2, DType::U3, DType::U5, DType::U6];
    let runs = |dtype: &DType| !OTHERS.contains(dtype) && tier(*dtype, &DeviceEngine::Cpu { features: &[] }).is_ok();
    let all: BTreeSet<DType> = DType::all().filter(runs).filter(|dtype| dtype.block_len() > 2).collect();
    assert!(all.len() >= 22, "only {} block types", all.len());
    let missing = blocks.values().map(|found| all.difference(found).collect::<Vec<_>>()).min_by_key(Vec::len);
    assert_eq!(missing, Some(Vec::new()), "no family has a file of these");
}
