//! What the kernels for GPUs lack of a block is refused by its name.

use super::*;

/// Options of newer dense families, each by itself on a model that the GPU computes.
#[test]
fn options_of_heads_and_activations_that_gpus_lack_are_refused_by_name() {
    let (plain, input) = safetensors(&LLAMA_31_8B, DType::BF16);
    let norm = |elements: u64| {
        let mut norm = plain.weights.final_norm.clone().unwrap();
        norm.width = elements as usize;
        Some(norm)
    };
    let attention = |change: &dyn Fn(&mut AttentionWeights)| {
        let mut spec = plain.clone();
        let Mixer::Attention(attention) = &mut spec.weights.layers[3].mixer.as_mut().unwrap().layer else {
            unreachable!()
        };
        change(attention);
        spec
    };
    let activation = |activation| {
        let mut spec = plain.clone();
        let FeedForwardLayer::Dense(dense) = &mut spec.weights.layers[3].feed_forward.as_mut().unwrap().layer else {
            unreachable!()
        };
        dense.activation = activation;
        spec
    };
    for (option, spec) in [
        ("gated attention", attention(&|of| of.gates = of.heads)),
        ("norms of heads after their rotation", attention(&|of| (of.norms_rotated, of.q_norm) = (true, norm(128)))),
        ("norms over all heads together", attention(&|of| (of.norms_each_head, of.q_norm) = (true, norm(4096)))),
        ("another activation", activation(Activation::ReluSquared)),
        ("another activation", activation(Activation::XIelu)),
    ] {
        let report = assess(&spec, &input, &machine("h100"), &Policy::default());
        assert!(report.reason.contains(option), "expected a refusal that names {option}, found: {}", report.reason);
    }
}

/// Where a processor alone computes the block, no dtype and no smaller file makes a GPU do it.
#[test]
fn an_option_of_the_block_that_gpus_lack_is_mended_by_a_processor_alone() {
    let (mut spec, input) = safetensors(&LLAMA_31_8B, DType::BF16);
    let on = |spec: &ModelSpec, profile| assess(spec, &input, &machine(profile), &Policy::default());
    // It does not fit, and is stored in what this GPU does not multiply.
    assert!(on(&spec, "rtx-2060").remedies.len() > 1);
    spec.multipliers.logit_cap = Some(30.0);
    let report = on(&spec, "rtx-2060");
    assert_eq!((report.verdict, report.remedies), (Verdict::HardwareInsufficient, vec![Remedy::SomeProcessor]));
}

/// Options of the classic families, each by itself on a model that the GPU computes.
#[test]
fn options_of_attention_and_of_matrices_that_gpus_lack_are_refused_by_name() {
    let (plain, input) = safetensors(&LLAMA_31_8B, DType::BF16);
    let attention = |spec: &mut ModelSpec, change: &dyn Fn(&mut AttentionWeights)| {
        let mixer = spec.weights.layers[3].mixer.as_mut().map(|mixer| &mut mixer.layer);
        let Some(Mixer::Attention(attention)) = mixer else { unreachable!("made by hand") };
        change(attention);
    };
    let joined = |attention: &mut AttentionWeights| {
        if let KeysValues::Own(own) = &mut attention.kv {
            own.projections = KeyValueProjections::ByHeads;
        }
    };
    type Change<'a> = &'a dyn Fn(&mut ModelSpec);
    let norm = |spec: &mut ModelSpec, change: &dyn Fn(&mut NormWeights)| {
        change(spec.weights.final_norm.as_mut().expect("a norm"));
    };
    let dense = |spec: &mut ModelSpec, change: &dyn Fn(&mut DenseWeights)| {
        let layer = spec.weights.layers[3].feed_forward.as_mut().map(|of| &mut of.layer);
        let Some(FeedForwardLayer::Dense(dense)) = layer else { unreachable!("made by hand") };
        change(dense);
    };
    let grows = QueryScale { beta: 0.1, period: 1024, first: 0 };
    let options: [(&str, Change<'_>); 17] = [
        ("norms without weights", &|spec| norm(spec, &|of| of.weight = None)),
        ("norms stored as offsets from one", &|spec| {
            norm(spec, &|of| of.kind = Norm::Layer { eps: 1e-5, offset: true, bias: None });
        }),
        ("layers that are passed several times", &|spec| spec.passes = 2),
        ("feed-forward layers of other widths", &|spec| dense(spec, &|of| of.up.weight.shape[0] /= 2)),
        ("several residual streams", &|spec| {
            spec.weights.altup = Some(Box::new(AltUpWeights { inputs: Vec::new(), outputs: Vec::new() }));
        }),
        ("a residual beside attention", &|spec| {
            let (matrix, norm) = (spec.weights.embedding.clone(), spec.weights.final_norm.clone());
            let laurel = LaurelWeights { down: matrix.clone(), up: matrix, norm: norm.expect("a norm") };
            spec.weights.layers[3].mixer.as_mut().expect("a mixer").laurel = Some(Box::new(laurel));
        }),
        ("another activation", &|spec| dense(spec, &|of| of.activation = Activation::ReluSquared)),
        ("factors of products", &|spec| attention(spec, &|of| of.q.multipliers = vec![(4096, 0.5)])),
        ("gates of which only the largest count", &|spec| dense(spec, &|of| of.sparsity = Some(1.0))),
        ("ALiBi", &|spec| attention(spec, &|of| of.alibi = Some(8.0))),
        ("attention within chunks", &|spec| attention(spec, &|of| (of.window, of.chunked) = (Some(1024), true))),
        ("queries that grow with their position", &|spec| attention(spec, &|of| of.query_scale = Some(grows))),
        ("a limit of queries, keys and values", &|spec| attention(spec, &|of| of.qkv_limit = Some(8.0))),
        ("queries, keys and values in one matrix by heads", &|spec| attention(spec, &joined)),
        ("matrices that are stored by inputs", &|spec| attention(spec, &|of| of.q.transposed = true)),
        ("a norm for each part of a parallel block", &|spec| spec.weights.layers[3].parallel = true),
        ("a norm or positions at its input", &|spec| {
            let (positions, token_types, projection, distances, relative) = Default::default();
            let norm = spec.weights.final_norm.clone();
            let input = InputWeights { positions, token_types, projection, norm, distances, relative };
            spec.weights.input = Some(Box::new(input));
        }),
    ];
    for (option, change) in options {
        let mut spec = plain.clone();
        change(&mut spec);
        let report = assess(&spec, &input, &machine("h100"), &Policy::default());
        assert!(report.reason.contains(option), "{option}: {}", report.reason);
    }
}

/// No profile's GPU has registers for them, so another GPU is no remedy; the processor takes heads of any width.
#[test]
fn heads_that_are_too_wide_for_the_kernels_of_gpus_are_refused_there() {
    let (mut spec, input) = safetensors(&TINY_LLAMA, DType::BF16);
    for (head_dim, runs) in [(256, true), (257, false)] {
        spec.head_dim = head_dim;
        for profile in ["l4", "h200"] {
            let report = assess(&spec, &input, &machine(profile), &Policy::default());
            let refused = report.verdict == Verdict::HardwareInsufficient;
            assert_eq!(refused, !runs, "{profile}, {head_dim}: {}", report.first_line());
        }
        let report = assess(&spec, &input, &machine("cpu-bf16-512gb"), &Policy::default());
        assert_ne!(report.verdict, Verdict::HardwareInsufficient, "{head_dim}: {}", report.first_line());
    }
}

/// Each option that GPUs lack has a name.
#[test]
fn gpus_refuse_layers_of_other_kinds_by_name() {
    let (spec, input) = safetensors(&LLAMA_31_8B, DType::BF16);
    let says = |words: &str, change: &dyn Fn(&mut LayerWeights)| {
        let mut spec = spec.clone();
        change(&mut spec.weights.layers[3]);
        let report = assess(&spec, &input, &machine("h100"), &on(DeviceChoice::Cuda(0)));
        assert!(!report.verdict.runs() && report.to_string().contains(words), "{words}: {report}");
    };
    says("layers of one sub-layer", &|layer| layer.mixer = None);
    says("layers of one sub-layer", &|layer| layer.feed_forward = None);
}
