//! Models made by hand on described machines: every verdict that `assess` can reach, and what it says.

mod common;

use common::{Geometry, LLAMA_31_8B, LLAMA_32_1B, PHI_3_MINI_128K, TINY_LLAMA, gguf, safetensors};
use model_factory_diagnostics::hardware::profiles::Profile;
use model_factory_diagnostics::hardware::{Gpu, Memory};
use model_factory_diagnostics::plan::{self, KvDtype, WeightStorage};
use model_factory_diagnostics::report::{DeviceList, InputSummary, NextStep, Remedy, Status};
use model_factory_diagnostics::spec::ModelSpec;
use model_factory_diagnostics::tokenizer::TokenizerKind;
use model_factory_diagnostics::{DType, DeviceChoice, DtypePolicy, Hardware, Policy, Report, Verdict, assess};

fn machine(profile: &str) -> Hardware {
    Profile::find(profile).unwrap_or_else(|| panic!("no profile {profile}")).hardware()
}

fn judge((spec, input): &(ModelSpec, InputSummary), profile: &str) -> Report {
    assess(spec, input, &machine(profile), &Policy::default())
}

#[test]
fn verdicts_of_models_on_machines() {
    use Verdict::{Compatible, CompatibleWithWarnings as Slow, DoesNotFit, UnsupportedDtype};
    let cases = [
        ("tiny bf16", safetensors(&TINY_LLAMA, DType::BF16), "cpu-2gb", DoesNotFit),
        ("tiny bf16", safetensors(&TINY_LLAMA, DType::BF16), "cpu-4gb", Slow),
        ("tiny f32", safetensors(&TINY_LLAMA, DType::F32), "cpu-4gb", DoesNotFit),
        ("tiny f32", safetensors(&TINY_LLAMA, DType::F32), "cpu-8gb", Slow),
        ("tiny q4_k_m", gguf(&TINY_LLAMA, "Q4_K_M"), "cpu-2gb", Slow),
        ("tiny q8_0", gguf(&TINY_LLAMA, "Q8_0"), "cpu-2gb", Slow),
        ("tiny f64", safetensors(&TINY_LLAMA, DType::F64), "cpu-32gb", UnsupportedDtype),
        ("tiny q5_0", gguf(&TINY_LLAMA, "Q5_0"), "cpu-32gb", Slow),
        ("tiny q5_1", gguf(&TINY_LLAMA, "Q5_1"), "cpu-32gb", Slow),
        ("tiny iq4_nl", gguf(&TINY_LLAMA, "IQ4_NL"), "cpu-32gb", Slow),
        ("tiny nvfp4", gguf(&TINY_LLAMA, "NVFP4"), "cpu-32gb", Slow),
        ("tiny q1_0", gguf(&TINY_LLAMA, "Q1_0"), "cpu-32gb", Slow),
        ("tiny q2_0", gguf(&TINY_LLAMA, "Q2_0"), "cpu-32gb", Slow),
        ("tiny i8", safetensors(&TINY_LLAMA, DType::I8), "cpu-32gb", UnsupportedDtype),
        ("1b bf16", safetensors(&LLAMA_32_1B, DType::BF16), "cpu-4gb", Slow),
        ("8b bf16", safetensors(&LLAMA_31_8B, DType::BF16), "cpu-16gb", DoesNotFit),
        ("8b bf16", safetensors(&LLAMA_31_8B, DType::BF16), "cpu-32gb", Slow),
        ("8b q4_k_m", gguf(&LLAMA_31_8B, "Q4_K_M"), "cpu-4gb", DoesNotFit),
        ("8b q4_k_m", gguf(&LLAMA_31_8B, "Q4_K_M"), "cpu-8gb", Slow),
        ("8b q4_k_m", gguf(&LLAMA_31_8B, "Q4_K_M"), "cpu-bf16-512gb", Compatible),
    ];
    let mut wrong = Vec::new();
    for (model, case, profile, expected) in &cases {
        let report = judge(case, profile);
        let consistent = report.exit_code == report.verdict.exit_code() && report.casts == 0;
        let fits = report.plan.as_ref().is_some_and(|plan| plan.fits() == (plan.total <= plan.available));
        if report.verdict != *expected || !consistent || !fits {
            wrong.push(format!("{model} on {profile}: {}", report.first_line()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn too_little_memory_names_what_would_fit() {
    let report = judge(&safetensors(&TINY_LLAMA, DType::BF16), "cpu-2gb");
    assert_eq!(report.exit_code, 14);
    assert!(
        report.remedies.iter().any(|remedy| remedy.to_string().contains("Q8_0 GGUF file")),
        "{:?}",
        report.remedies
    );
    assert!(
        report.remedies.iter().any(|remedy| remedy.to_string().contains("Q4_K_M GGUF file")),
        "{:?}",
        report.remedies
    );
    assert!(!report.remedies.iter().any(|remedy| remedy.to_string().contains("F32")), "{:?}", report.remedies);
}

#[test]
fn a_context_that_does_not_fit_is_refused_with_the_one_that_does() {
    let (spec, input) = gguf(&LLAMA_31_8B, "Q4_K_M");
    let machine = machine("cpu-8gb");
    let ask = |context| assess(&spec, &input, &machine, &Policy { context: Some(context), ..Policy::default() });
    let refused = ask(131072);
    assert_eq!(refused.verdict, Verdict::DoesNotFit);
    let largest = refused.plan.as_ref().map(|plan| plan.max_context).expect("a plan");
    assert_eq!(refused.remedies[0], Remedy::SmallerContext(largest));
    assert_eq!(ask(largest).verdict, Verdict::CompatibleWithWarnings);
    assert_eq!(ask(largest + plan::KV_PAGE).verdict, Verdict::DoesNotFit);
}

#[test]
fn no_context_at_all_makes_no_room_for_the_weights() {
    let (spec, input) = safetensors(&TINY_LLAMA, DType::BF16);
    let policy = Policy { context: Some(0), ..Policy::default() };
    assert_eq!(assess(&spec, &input, &machine("cpu-2gb"), &policy).verdict, Verdict::DoesNotFit);
}

#[test]
fn without_a_request_the_plan_takes_the_largest_context_that_fits() {
    let plan = judge(&gguf(&LLAMA_31_8B, "Q4_K_M"), "cpu-8gb").plan.expect("a plan");
    assert_eq!(plan.context, plan.max_context);
    assert!(plan.context > 512 && plan.context < 131072);
    assert!(plan.total <= plan.available && plan.available - plan.total < plan.kv_per_token * plan::KV_PAGE as u64);
    let plan = judge(&gguf(&LLAMA_31_8B, "Q4_K_M"), "cpu-bf16-512gb").plan.expect("a plan");
    assert_eq!((plan.context, plan.max_context), (131072, 131072));
}

#[test]
fn the_plan_counts_to_the_byte() {
    let (spec, input) = safetensors(&TINY_LLAMA, DType::BF16);
    let plan = judge(&(spec.clone(), input.clone()), "cpu-8gb").plan.expect("a plan");
    assert_eq!(plan.weights_file, input.bytes());
    assert_eq!(plan.weights_resident, 0);
    assert_eq!(plan.kv_per_token, 22 * 2 * 4 * 64 * 4);
    assert_eq!(plan.kv_cache, plan.kv_per_token * 2048);
    assert_eq!(plan::kv_bytes(&spec, 1, KvDtype::F32), plan.kv_per_token * 256);
    assert_eq!(plan.total, plan.load_peak + plan.kv_cache + plan.activations);
}

/// The input of o may be the widest row of a product.
#[test]
fn wide_heads_count_as_the_input_of_a_product() {
    let (spec, _) = safetensors(&TINY_LLAMA, DType::BF16);
    let (wide, _) = safetensors(&Geometry { head_dim: 4 * TINY_LLAMA.head_dim, ..TINY_LLAMA }, DType::BF16);
    assert!(wide.heads * wide.head_dim > wide.feed_forward);
    let elements = |spec: &ModelSpec| (plan::CpuBuffers::new(spec).bytes(2) - plan::CpuBuffers::new(spec).bytes(1)) / 4;
    let attention = |spec: &ModelSpec| (2 * (spec.heads + spec.kv_heads) * spec.head_dim) as u64;
    let input = (wide.heads * wide.head_dim - spec.feed_forward) as u64;
    assert_eq!(elements(&wide) - elements(&spec), attention(&wide) - attention(&spec) + input);
}

/// Its full context would take 96 GiB of cache.
#[test]
fn the_cache_of_a_long_context_model_is_what_was_asked_for() {
    let (spec, input) = gguf(&PHI_3_MINI_128K, "Q4_K_M");
    let machine = machine("cpu-8gb");
    let ask = |context| assess(&spec, &input, &machine, &Policy { context: Some(context), ..Policy::default() });
    let report = ask(4096);
    assert_eq!(report.verdict, Verdict::CompatibleWithWarnings);
    let plan = report.plan.expect("a plan");
    assert_eq!((plan.context, plan.kv_cache), (4096, 4096 * 32 * 2 * 32 * 96 * 4));
    assert_eq!(ask(131_072).verdict, Verdict::DoesNotFit);
    // 8192 tokens of 768 KiB do not fit, of half as much they do.
    // 16384 do in Q8_0, at 34 bytes for 32 elements of 4.
    let smaller = |context| {
        let remedies = ask(context).remedies;
        remedies.into_iter().find(|remedy| matches!(remedy, Remedy::CacheDtype(..)))
    };
    assert_eq!(smaller(8192), Some(Remedy::CacheDtype(KvDtype::F16, Some(8192))));
    assert_eq!(smaller(16_384), Some(Remedy::CacheDtype(KvDtype::Q8_0, Some(16_384))));
    assert_eq!(smaller(131_072), None);
    let policy = Policy { context: Some(16_384), kv_dtype: KvDtype::Q8_0, ..Policy::default() };
    let report = assess(&spec, &input, &machine, &policy);
    assert_eq!(report.verdict, Verdict::CompatibleWithWarnings);
    assert_eq!(report.plan.map(|plan| plan.kv_cache), Some(16_384 * 32 * 2 * 32 * 96 * 34 / 32));
    let policy = Policy { context: Some(8192), kv_dtype: KvDtype::F16, ..Policy::default() };
    assert_eq!(assess(&spec, &input, &machine, &policy).verdict, Verdict::CompatibleWithWarnings);
}

/// The kernels for GPUs keep F32 and F16.
#[test]
fn a_cache_without_kernels_is_refused() {
    let (spec, input) = gguf(&TINY_LLAMA, "Q4_K_M");
    let ask = |kv_dtype| assess(&spec, &input, &machine("t4"), &Policy { kv_dtype, ..Policy::default() });
    assert!(ask(KvDtype::F16).verdict.runs());
    let report = ask(KvDtype::Q8_0);
    assert_eq!((report.verdict, report.exit_code), (Verdict::UnsupportedDtype, 12));
    assert!(report.reason.contains("Q8_0") && report.reason.contains("T4"), "{}", report.reason);
    assert_eq!(report.remedies[..2], [Remedy::CacheDtype(KvDtype::F16, None), Remedy::SomeProcessor]);
    assert_eq!(report.remedies[0].to_string(), "keep keys and values in F16");
}

#[test]
fn a_limit_below_the_machines_memory_counts() {
    let (spec, input) = safetensors(&TINY_LLAMA, DType::BF16);
    let machine = machine("cpu-8gb");
    let policy = |limit| Policy { memory_limit: Some(limit), ..Policy::default() };
    assert_eq!(assess(&spec, &input, &machine, &policy(2 << 30)).verdict, Verdict::DoesNotFit);
    assert_eq!(assess(&spec, &input, &machine, &policy(u64::MAX)).plan.map(|plan| plan.available), Some(7 << 30));
    let mut machine = machine;
    machine.memory.anonymous = Some(64 << 20);
    let report = assess(&spec, &input, &machine, &Policy::default());
    assert_eq!(report.verdict, Verdict::DoesNotFit);
    assert!(report.check("memory").is_some_and(|check| check.evidence.contains("RLIMIT_DATA")));
}

#[test]
fn the_plan_counts_the_caches_of_all_sessions() {
    let (spec, input) = gguf(&PHI_3_MINI_128K, "Q4_K_M");
    let machine = machine("cpu-8gb");
    let ask = |context, sessions| assess(&spec, &input, &machine, &Policy { context, sessions, ..Policy::default() });
    let plan = |context, sessions| ask(context, sessions).plan.expect("a plan");
    let (one, two) = (plan(Some(1024), None), plan(Some(1024), Some(2)));
    assert_eq!((one.sessions, two.sessions), (1, 2));
    assert_eq!((two.kv_cache, two.total), (2 * one.kv_cache, one.total + one.kv_cache));
    assert_eq!(two.kv_per_token, one.kv_per_token);
    // Told, the caches have what was counted; untold, all that the rest leaves.
    assert_eq!((two.cache_budget, plan(Some(1024), Some(1)).cache_budget), (two.kv_cache, one.kv_cache));
    assert_eq!(one.cache_budget, one.available - (one.total - one.kv_cache));
    // The largest context is that of each of them.
    let (one, three) = (plan(None, Some(1)), plan(None, Some(3)));
    let pages = |plan: &plan::Plan| plan.max_context / plan::KV_PAGE;
    assert_eq!(pages(&three), pages(&one) / 3);
    assert!(three.fits() && three.total <= three.available && three.context == three.max_context);
    assert_eq!(ask(Some(4096), Some(1)).verdict, Verdict::CompatibleWithWarnings);
    let refused = ask(Some(4096), Some(3));
    assert_eq!(refused.verdict, Verdict::DoesNotFit);
    assert!(matches!(refused.remedies[0], Remedy::SmallerContext(_)), "{:?}", refused.remedies);
    let text = |sessions| ask(Some(1024), sessions).to_string();
    assert!(text(Some(2)).contains("2 sessions of 1024 tokens") && !text(Some(1)).contains("sessions"));
}

#[test]
fn the_plan_counts_a_draft_model() {
    let (spec, input) = gguf(&PHI_3_MINI_128K, "Q4_K_M");
    let (small, small_input) = gguf(&TINY_LLAMA, "Q8_0");
    let machine = machine("cpu-8gb");
    let draft = plan::DraftSize::new(&small, small_input.bytes(), KvDtype::F32);
    let ask = |policy: Policy| assess(&spec, &input, &machine, &policy);
    let plan = |policy| ask(policy).plan.expect("a plan");
    let own = assess(&small, &small_input, &machine, &Policy::default()).plan.expect("a plan");
    let context = Some(1024);
    let alone = plan(Policy { context, ..Policy::default() });
    let both = plan(Policy { context, draft: Some(draft), ..Policy::default() });
    let cache = 1024 * own.kv_per_token;
    assert_eq!(
        (both.draft_weights, both.draft_memory, both.draft()),
        (small_input.bytes(), draft.activations + cache, small_input.bytes() + draft.activations + cache)
    );
    assert_eq!((alone.draft(), both.total), (0, alone.total + both.draft()));
    assert_eq!(both.load_peak, alone.load_peak + small_input.bytes());
    assert_eq!(both.anonymous(), alone.anonymous() + both.draft_memory);
    assert_eq!(both.cache_budget, both.available - (both.total - both.kv_cache));
    let two = plan(Policy { context, sessions: Some(2), draft: Some(draft), ..Policy::default() });
    assert_eq!(two.draft_memory, both.draft_memory + cache);
    // The largest context leaves less than a page of both; beyond what the draft was trained for it takes no more.
    for (trained, page) in [(draft.context, 0), (1 << 20, draft.kv.page)] {
        let draft = plan::DraftSize { context: trained, weights_file: 1 << 20, ..draft };
        let largest = plan(Policy { draft: Some(draft), ..Policy::default() });
        assert!(largest.fits() && largest.context == largest.max_context && largest.context > 2048);
        let page = page + largest.kv_per_token * plan::KV_PAGE as u64;
        assert!(largest.total <= largest.available && largest.available - largest.total < page, "{largest:?}");
        let more = Some(largest.context + 1);
        assert!(!plan(Policy { context: more, draft: Some(draft), ..Policy::default() }).fits());
    }
    // One that leaves too little is told, and what goes without it.
    let large = plan::DraftSize { weights_file: 5 << 30, ..draft };
    let refused = ask(Policy { context, draft: Some(large), ..Policy::default() });
    assert_eq!(refused.verdict, Verdict::DoesNotFit);
    assert!(refused.check("memory").is_some_and(|check| check.evidence.contains("draft model 5.")), "{refused}");
    assert_eq!(refused.remedies[0].to_string(), "load it without the draft model");
    let runs = ask(Policy { context, draft: Some(draft), ..Policy::default() }).to_string();
    assert!(runs.contains("draft model 1."), "{runs}");
}

#[test]
fn weights_that_are_read_into_memory_count_as_memory_of_the_process() {
    let (spec, input) = safetensors(&TINY_LLAMA, DType::BF16);
    let machine = machine("cpu-8gb");
    let policy = |weights| Policy { weights, ..Policy::default() };
    let plan = |machine: &Hardware, weights| assess(&spec, &input, machine, &policy(weights)).plan.expect("a plan");
    let (mapped, resident) = (plan(&machine, WeightStorage::Mapped), plan(&machine, WeightStorage::Resident));
    assert_eq!((mapped.weights_resident, resident.weights_resident), (0, input.bytes()));
    assert_eq!(
        (mapped.total, mapped.load_peak),
        (resident.total, resident.load_peak),
        "the files are not counted twice"
    );
    assert_eq!((mapped.weights(), resident.weights()), (input.bytes(), input.bytes()));
    assert_eq!(resident.anonymous(), mapped.anonymous() + input.bytes());
    // A limit on what is no mapped file leaves room beside mapped weights, and not for their copies.
    let mut limited = machine;
    limited.memory.anonymous = Some(input.bytes());
    assert!(plan(&limited, WeightStorage::Mapped).fits());
    assert!(!plan(&limited, WeightStorage::Resident).fits());
    limited.memory.anonymous = Some(input.bytes() + mapped.anonymous());
    assert!(plan(&limited, WeightStorage::Resident).fits());
    let text = assess(&spec, &input, &limited, &policy(WeightStorage::Resident)).to_string();
    assert!(text.contains("read into memory"), "{text}");
}

#[test]
fn a_refused_dtype_is_named_with_its_first_tensor() {
    let report = judge(&safetensors(&TINY_LLAMA, DType::F64), "cpu-8gb");
    assert!(report.reason.contains("F64"), "{}", report.reason);
    let check = report.check("dtype").expect("the check");
    assert_eq!(check.status, Status::Fail);
    assert!(check.evidence.contains("model.embed_tokens.weight"), "{}", check.evidence);
    let remedy = report.remedies[0].to_string();
    assert!(remedy.contains("Q8_0") && remedy.contains("BF16"), "{remedy}");
    assert_eq!(report.model.map(|model| model.dtypes[0].tier), Some(None));
}

#[test]
fn native_only_refuses_what_would_be_widened() {
    let (spec, input) = safetensors(&TINY_LLAMA, DType::BF16);
    let policy = Policy { dtypes: DtypePolicy::NativeOnly, ..Policy::default() };
    assert_eq!(assess(&spec, &input, &machine("cpu-8gb"), &policy).verdict, Verdict::UnsupportedDtype);
    assert_eq!(assess(&spec, &input, &machine("cpu-bf16-64gb"), &policy).verdict, Verdict::Compatible);
}

#[test]
fn a_gpu_is_insufficient_hardware_without_driver_gpu_or_engine() {
    let (spec, input) = safetensors(&TINY_LLAMA, DType::BF16);
    let mut machine = machine("cpu-avx2-16gb");
    let ask = |machine: &Hardware, index| {
        let policy = Policy { device: DeviceChoice::Cuda(index), ..Policy::default() };
        assess(&spec, &input, machine, &policy)
    };
    machine.gpu_note = Some("no NVIDIA driver library".into());
    let report = ask(&machine, 0);
    assert_eq!(report.exit_code, 13);
    assert!(report.reason.contains("no NVIDIA driver library"), "{}", report.reason);
    // Main memory is no GPU's.
    assert!(report.plan.is_none() && report.check("memory").is_some_and(|check| check.status == Status::Skipped));
    machine.gpus.push(Gpu::described("Tesla T4", (7, 5), 16 << 30));
    machine.gpus[0].cuda = Some((13, 0));
    assert!(ask(&machine, 0).reason.contains("Tesla T4"));
    assert!(ask(&machine, 1).reason.contains("no GPU 1"));
    let report = assess(&spec, &input, &machine, &Policy::default());
    assert_eq!((report.verdict, report.device.as_str()), (Verdict::Compatible, "cpu"));
    assert!(report.check("hardware").is_some_and(|check| check.evidence.contains("Tesla T4 is not used")));
}

#[test]
fn a_processor_without_vector_kernels_is_slow() {
    let model = gguf(&TINY_LLAMA, "Q4_K_M");
    for (profile, slow) in [("raspberry-pi-5", false), ("cpu-32gb", true), ("cpu-avx2-16gb", false), ("t4", false)] {
        let (spec, input) = &model;
        let policy = Policy { device: DeviceChoice::Cpu, ..Policy::default() };
        let report = assess(spec, input, &machine(profile), &policy);
        assert_eq!(report.verdict == Verdict::CompatibleWithWarnings, slow, "{profile}: {}", report.first_line());
        assert_eq!(report.reason.contains("portable kernels"), slow, "{profile}: {}", report.first_line());
        assert_eq!(report.exit_code, 0);
    }
}

/// What a command goes on with warns of nothing that a remedy has mended.
#[test]
fn a_context_beyond_the_trained_one_is_not_asked_for_again() {
    let (spec, input) = gguf(&TINY_LLAMA, "Q4_K_M");
    let mut machine = machine("cpu-avx2-16gb");
    machine.profile = None;
    let report = assess(&spec, &input, &machine, &Policy { context: Some(100_000), ..Policy::default() });
    assert_eq!(report.verdict, Verdict::CompatibleWithWarnings);
    assert_eq!(report.remedies, [Remedy::TrainedContext(2048)]);
    assert_eq!(report.next, [NextStep::Run]);
}

#[test]
fn a_casting_environment_is_refused() {
    let (spec, input) = gguf(&TINY_LLAMA, "Q4_K_M");
    let mut machine = machine("cpu-8gb");
    machine.casting_variables = vec!["CANDLE_DEQUANTIZE_ALL"];
    let report = assess(&spec, &input, &machine, &Policy::default());
    assert_eq!(report.exit_code, 12);
    assert_eq!(report.remedies, ["unset CANDLE_DEQUANTIZE_ALL".into()]);
}

#[test]
fn a_missing_tokenizer_is_incomplete_unless_the_user_brings_one() {
    let (mut spec, input) = safetensors(&TINY_LLAMA, DType::BF16);
    spec.tokenizer.kind = TokenizerKind::Missing;
    let machine = machine("cpu-8gb");
    assert_eq!(assess(&spec, &input, &machine, &Policy::default()).exit_code, 15);
    let policy = Policy { tokenizer: Some("tokenizer.json".into()), ..Policy::default() };
    assert_eq!(assess(&spec, &input, &machine, &policy).exit_code, 0);
}

#[test]
fn warnings_keep_it_compatible() {
    let (mut spec, input) = safetensors(&TINY_LLAMA, DType::BF16);
    spec.unused_tensors = vec!["mtp.extra".into()];
    let mut machine = machine("cpu-8gb");
    let warned = assess(&spec, &input, &machine, &Policy::default());
    assert_eq!((warned.verdict, warned.exit_code), (Verdict::CompatibleWithWarnings, 0));
    spec.unused_tensors.clear();
    machine.cpu.missing = vec!["avx512f"];
    assert_eq!(assess(&spec, &input, &machine, &Policy::default()).verdict, Verdict::CompatibleWithWarnings);
    machine.cpu.missing.clear();
    let long = Policy { context: Some(4096), ..Policy::default() };
    let report = assess(&spec, &input, &machine, &long);
    assert_eq!(report.verdict, Verdict::CompatibleWithWarnings);
    assert_eq!(report.plan.map(|plan| plan.context), Some(2048));
    spec.tokenizer.tokens += 1;
    assert_eq!(assess(&spec, &input, &machine, &Policy::default()).verdict, Verdict::CompatibleWithWarnings);
    spec.tokenizer.tokens -= 1;
    spec.tokenizer.stop_ids.clear();
    assert_eq!(assess(&spec, &input, &machine, &Policy::default()).verdict, Verdict::CompatibleWithWarnings);
}

#[test]
fn the_dtype_decides_before_the_memory() {
    let report = judge(&safetensors(&LLAMA_31_8B, DType::F64), "cpu-2gb");
    assert_eq!(report.exit_code, 12);
    assert_eq!(report.check("memory").map(|check| check.status), Some(Status::Fail));
}

#[test]
fn absurd_sizes_saturate() {
    let (mut spec, mut input) = safetensors(&TINY_LLAMA, DType::BF16);
    (spec.kv_heads, spec.feed_forward, spec.vocab) = (usize::MAX, usize::MAX, usize::MAX);
    (spec.context_trained, spec.tokenizer.tokens) = (usize::MAX, usize::MAX);
    input.files[0].bytes = u64::MAX;
    let report = assess(&spec, &input, &machine("cpu-2gb"), &Policy::default());
    assert_eq!(report.verdict, Verdict::DoesNotFit);
    assert!(!report.to_string().is_empty() && !report.to_json().is_empty());
}

/// As on Linux without `/proc`: the verdict is a warning, and no amount is named.
#[test]
fn unknown_memory_is_a_warning_and_no_amount() {
    let model = gguf(&TINY_LLAMA, "Q8_0");
    let mut unknown = machine("cpu-bf16-512gb");
    let memory = |bytes, hardware: &mut Hardware| (hardware.memory.total, hardware.memory.available) = (bytes, bytes);
    memory(Memory::UNKNOWN, &mut unknown);
    let report = assess(&model.0, &model.1, &unknown, &Policy::default());
    assert_eq!(report.verdict, Verdict::CompatibleWithWarnings, "{}", report.first_line());
    let check = report.checks.iter().find(|check| check.id == "memory").expect("a check");
    assert!(check.status == Status::Warn && check.summary.contains("could not be checked"), "{}", check.summary);
    let plan = report.plan.as_ref().expect("a plan");
    assert_eq!((plan.context, plan.available), (model.0.context_trained, Memory::UNKNOWN));
    assert_eq!(plan.cache_budget, plan.kv_cache, "what is there for more is not known");
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
    for pointer in ["/plan/available", "/hardware/memory/available", "/hardware/memory/total"] {
        assert_eq!(json.pointer(pointer), Some(&serde_json::Value::Null), "{pointer}");
    }
    let text = report.to_string();
    assert!(text.contains("of an unknown amount") && !text.contains("GiB free"), "{text}");
    unknown.profile = None;
    let devices = DeviceList::new(&unknown);
    assert!(devices.devices[0].memory.is_none() && !devices.to_string().contains("17179869184"), "{devices}");
    // A limit of the user's is known, and counts.
    let limited = |bytes| {
        let policy = Policy { memory_limit: Some(bytes), ..Policy::default() };
        assess(&model.0, &model.1, &unknown, &policy)
    };
    assert_eq!(limited(1 << 20).verdict, Verdict::DoesNotFit);
    let enough = limited(64 << 30);
    let check = enough.checks.iter().find(|check| check.id == "memory").expect("a check");
    assert_eq!((check.status, enough.plan.expect("a plan").available), (Status::Pass, 64 << 30));
}
