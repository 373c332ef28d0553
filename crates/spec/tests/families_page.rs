//! The list of families in `docs/families.md` is written by this test from the tables: `UPDATE_DOCS=1 cargo test -p
//! model-factory-spec --test families_page`. Without that it fails where the two differ.
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why

use model_factory_spec::block::{Activation, ExpertInput, ImageRows, QkvOrder, RopeLayout, RouterScore};
use model_factory_spec::family::{
    Bias, BlockTable, Encoder, ExpertTable, Factor, FactorOf, Family, HeadNorms, HeadTable, NormKind, Normalized,
    Parallel, REGISTRY, Role, RopeTable, StateLayers, StateMixer, TensorName, Window,
};
use std::fmt::Write;
use std::path::Path;

const BEGIN: &str = "<!-- written by crates/spec/tests/families_page.rs -->\n";
const END: &str = "<!-- end -->\n";

#[test]
fn the_page_has_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/families.md");
    let Ok(page) = std::fs::read_to_string(&path) else {
        println!("skipped: {} is not there", path.display());
        return;
    };
    let (before, rest) = page.split_once(BEGIN).expect("the mark of the list's begin");
    let (_, after) = rest.split_once(END).expect("the mark of the list's end");
    let written = format!("{before}{BEGIN}{}{END}{after}", rows());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, written).expect("the page is written");
    } else {
        assert!(
            page == written,
            "docs/families.md is not what the tables say: UPDATE_DOCS=1 cargo test --release -p model-factory-spec --test families_page"
        );
    }
}

fn rows() -> String {
    let mut rows =
        "| table | models | GGUF architecture | `model_type` | beside Llama's block |\n|---|---|---|---|---|\n"
            .to_owned();
    let code = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    for family in REGISTRY {
        let types: Vec<&str> = family.model_types.iter().map(|(model_type, _)| *model_type).collect();
        let mut options = options(family);
        if !family.wrappers.is_empty() {
            let classes: Vec<&str> = family.wrappers.iter().map(|(class, _)| *class).collect();
            options.push(format!("in {}", code(&classes)));
        }
        let mut models: Vec<&str> = family.variants.iter().map(|variant| variant.name).collect();
        models.push(family.name);
        let (architectures, types) = (code(family.gguf_architectures), code(&types));
        let cells = [format!("`{}`", family.id), models.join(", "), architectures, types, options.join("; ")];
        writeln!(rows, "| {} |", cells.join(" | ")).expect("a string takes what is written");
    }
    rows
}

/// What a table has beside Llama's block. Structures are taken apart in full, so that a new field is not forgotten.
fn options(family: &Family) -> Vec<String> {
    let mut said = Vec::new();
    let has = |role: Role| family.tensors.iter().any(|list| list.iter().any(|name| name.role == role));
    if family.biases.iter().any(|(roles, bias)| matches!(bias, Bias::Always) && roles.contains(&Role::Q)) {
        said.push("biases".into());
    }
    head(&family.head, &has, &mut said);
    block(&family.block, &has, &mut said);
    let weightless = |name: &TensorName| name.role == Role::FinalNorm && (name.gguf, name.config) == ("", "");
    if family.tensors.iter().copied().flatten().any(weightless) {
        said.push("norms without weights".into());
    }
    match family.window {
        Window::Unused => {}
        Window::Honoured => said.push("a window in all layers".into()),
        Window::OfModelTypes(types, _) => said.push(format!("a window in all layers of {}", types.join(", "))),
        Window::Pattern(pattern) => {
            let types = pattern.model_types;
            let some = types.len() < family.model_types.len() && !types.is_empty();
            let of = if some { format!(" of {}", types.join(", ")) } else { String::new() };
            said.push(match pattern.full_every {
                0 => format!("windows by `layer_types`{of}"),
                every => format!("a window in {} of {every} layers{of}", every - 1),
            });
        }
        Window::Flagged { flag: "", .. } => said.push("windows by `max_window_layers`".into()),
        Window::Flagged { flag, .. } => said.push(format!("a window by `{flag}`")),
        Window::Chunks { .. } => said.push("chunks in layers that rotate".into()),
        _ => said.push("a window".into()),
    }
    rope(&family.rope, &mut said);
    if let Some(experts) = &family.experts {
        said.push(experts_of(experts, &has));
    }
    said
}

fn head(head: &HeadTable, has: &dyn Fn(Role) -> bool, said: &mut Vec<String>) {
    let &HeadTable {
        tied: _,
        tied_keys: _,
        encoder,
        embedding_by_root_of_width,
        embedding_root_flag: _,
        embedding_width: _,
        positions_flag: _,
        first_position,
        padding,
        token_types,
        classifier: _,
        dense,
        predictors,
        predictors_after: _,
        images,
    } = head;
    let words = [
        (matches!(encoder, Encoder::Yes { .. }), "an encoder: attention to the whole text, no cache"),
        (matches!(encoder, Encoder::Flag(_)), "an encoder by a flag"),
        (embedding_by_root_of_width, "embeddings by the root of the width"),
        (first_position > 0, "positions begin some rows later"),
        (padding.is_some(), "positions begin after the padding token"),
        (token_types.is_some(), "token types"),
        (!dense.is_empty(), "dense layers after the pooling"),
        (predictors.is_some() && has(Role::NextProjection), "MTP heads on request"),
        (images == Some(ImageRows::Causal), "images as vectors"),
        (matches!(images, Some(ImageRows::BothSides { .. })), "images as vectors, whose rows attend to each other"),
    ];
    said.extend(words.iter().filter(|(has, _)| *has).map(|(_, words)| (*words).to_owned()));
}

fn block(block: &BlockTable, has: &dyn Fn(Role) -> bool, said: &mut Vec<String>) {
    let &BlockTable {
        rms_key: _,
        norm,
        plain_final_norm: _,
        output_norm_eps: _,
        activation: (activation, _),
        other_activations: _,
        parallel,
        qkv_order,
        first_unnormed,
        factors,
        head_norms,
        head_norm_flag: _,
        norms_rotated,
        plain_head_norms,
        value_norm,
        gated_attention,
        attention_gate,
        softplus_gates,
        sizes_by_layer,
        full_attention,
        passes,
        shared_layers,
        layer_embedding,
        layer_vocabulary: _,
        altup,
        laurel_rank,
        sparse_gates,
        scores_by_head: _,
        gguf_score_scale: _,
        states,
        latent_eps: _,
        disentangled,
    } = block;
    said.extend(match norm {
        NormKind::Rms => None,
        NormKind::RmsFromOne => Some("norms as offsets from one in safetensors".into()),
        NormKind::Layer => Some("LayerNorm".into()),
        NormKind::LayerFromOne => Some("LayerNorm, as offsets from one in safetensors".into()),
        NormKind::PlainLayer => Some("LayerNorm without biases".into()),
    });
    let after = has(Role::AttentionOutputNorm) || has(Role::MlpOutputNorm);
    let norms_of_heads = match head_norms {
        HeadNorms::OfAllHeads => "norms over all heads of q and k",
        HeadNorms::OfHead | HeadNorms::OfEachHead => "norms of q and k",
    };
    let words = [
        (has(Role::KvDown), "latent attention (MLA)"),
        (parallel != Parallel::No, "attention and feed-forward in parallel"),
        (qkv_order != QkvOrder::AfterQueries, "queries, keys and values by heads in one matrix"),
        (first_unnormed, "no norm before the first attention"),
        (after && has(Role::AttentionNorm), "norms before and after sub-layers"),
        (after && !has(Role::AttentionNorm), "norms only after sub-layers"),
        (has(Role::AttentionSumNorm), "norms after each sum"),
        (has(Role::QNorm), norms_of_heads),
        (plain_head_norms.is_some(), "norms of q and k without weights"),
        (norms_rotated, "after the rotation"),
        (value_norm, "norms of values"),
        (gated_attention || attention_gate.is_some(), "gates of attention's output"),
        (softplus_gates, "by softplus"),
        (sizes_by_layer.is_some(), "heads and widths by layer"),
        (full_attention.is_some(), "other heads in layers without a window"),
        (passes.is_some(), "layers that are passed several times"),
        (shared_layers.is_some(), "shared keys and values"),
        (layer_embedding.is_some(), "embeddings of layers"),
        (altup.is_some(), "several residual streams (AltUp)"),
        (laurel_rank.is_some(), "a low-rank residual beside attention (LAuReL)"),
        (sparse_gates.is_some(), "gates of which only the largest count"),
        (has(Role::LayerScale), "a factor after each layer"),
        (has(Role::Sinks), "attention sinks"),
        (has(Role::Positions), "learned positions"),
        (has(Role::EmbeddingNorm), "a norm after the embedding"),
        (has(Role::Distances), "scores by the distance of positions"),
        (disentangled, "disentangled attention"),
    ];
    said.extend(words.iter().filter(|(has, _)| *has).map(|(_, words)| (*words).to_owned()));
    said.extend(
        match activation {
            Activation::SwiGlu { .. } => None,
            Activation::GeGlu { .. } => Some("GELU (tanh) with a gate"),
            Activation::GeGluErf { .. } => Some("GELU with a gate"),
            Activation::ReGlu { .. } => Some("ReLU with a gate"),
            Activation::ClampedSwiGlu { .. } => Some("clamped SiLU with a gate"),
            Activation::GeluTanh => Some("GELU (tanh), no gate"),
            Activation::Gelu => Some("GELU, no gate"),
            Activation::QuickGelu => Some("quick GELU, no gate"),
            Activation::Relu => Some("ReLU, no gate"),
            Activation::XIelu => Some("xIELU, no gate"),
            Activation::ReluSquared => Some("squared ReLU, no gate"),
        }
        .map(str::to_owned),
    );
    let mut of_factors: Vec<_> = factors.iter().filter_map(|&Factor { of, .. }| Some(factor(of)?.to_owned())).collect();
    of_factors.dedup();
    said.extend(of_factors);
    said.extend(states.map(|states| {
        let kind = match states.mixer {
            StateMixer::ShortConv => "layers of a short convolution",
            StateMixer::Mamba(_) => "layers of Mamba",
            StateMixer::Mamba2 { .. } => "layers of Mamba-2",
            StateMixer::DeltaNet(_) => "layers of gated delta nets",
            other => panic!("{other:?} has no words here"),
        };
        match states.layers {
            StateLayers::Single { .. } => format!("layers of one sub-layer each; {kind}"),
            StateLayers::Beside => format!("{kind} with attention beside it"),
            StateLayers::Only => kind.replace("layers of", "only layers of"),
            _ => kind.to_owned(),
        }
    }));
}

fn factor(of: FactorOf) -> Option<&'static str> {
    Some(match of {
        FactorOf::Embedding => "a factor of embeddings",
        FactorOf::Residual | FactorOf::ResidualByRootOfLayers => "a factor of residuals",
        FactorOf::Scores | FactorOf::ScoresTimes | FactorOf::ScoresByRoot => "a factor of scores",
        FactorOf::ScoreCap => "a cap on scores",
        FactorOf::Logits | FactorOf::LogitDivisor | FactorOf::LogitWidth => "a factor of logits",
        FactorOf::Alibi => "ALiBi",
        FactorOf::QkvLimit => "a limit of queries, keys and values",
        FactorOf::Products(_) | FactorOf::StateInput(_) => "factors of products",
        FactorOf::LogitCap => "a cap on logits",
        // Said with the activation and the experts.
        FactorOf::GateLimit | FactorOf::GateAlpha | FactorOf::Experts => return None,
        _ => panic!("{of:?} has no words here"),
    })
}

fn rope(rope: &RopeTable, said: &mut Vec<String>) {
    let &RopeTable {
        gguf_layout: _,
        config_layout,
        theta: _,
        rotary_part,
        rotary_dim,
        sections,
        window,
        unrotated,
        never,
        by_layers,
        unrotated_by_null,
        switch,
        query_scale,
        scores_by_magnitude: _,
        alpha,
        ntk: _,
        aliases: _,
        unsaid_scaling: _,
        original_context: _,
        gguf_original_is_context: _,
        longrope_magnitudes,
        gguf_freqs_expected: _,
        gguf_freqs_needed: _,
        gguf_yarn_truncate: _,
    } = rope;
    let words = [
        (config_layout == RopeLayout::Interleaved, "adjacent pairs rotated"),
        (rotary_part.is_some() || rotary_dim.is_some(), "a part of each head rotated"),
        (sections.is_some(), "three positions for rows of images"),
        (window.is_some(), "another rotation in layers with a window"),
        (unrotated.is_some(), "layers without rotation"),
        (never, "no rotation"),
        (by_layers.is_some(), "rotation or ALiBi by the number of layers"),
        (unrotated_by_null, "no rotation where the base is null"),
        (switch.is_some(), "rotation or none by a key"),
        (query_scale.is_some(), "queries scaled by position"),
        (alpha, "a base raised by `alpha`"),
        (longrope_magnitudes.is_some(), "longrope with a magnitude for each list"),
    ];
    said.extend(words.iter().filter(|(has, _)| *has).map(|(_, words)| (*words).to_owned()));
}

fn experts_of(experts: &ExpertTable, has: &dyn Fn(Role) -> bool) -> String {
    let &ExpertTable {
        flag: _,
        count: _,
        optional,
        chosen: _,
        feed_forward: _,
        shared_feed_forward,
        shared_count,
        with_shared,
        score,
        scores,
        groups,
        normalized,
        added_to_sum: _,
        least_sum: _,
        interleaved: _,
        by_inputs: _,
        by_root_of_width: _,
        input,
        dense_layers,
    } = experts;
    let mut said = match score {
        _ if scores.is_some_and(|(key, _)| !key.is_empty()) => "experts by softmax or sigmoid".to_owned(),
        RouterScore::Softmax => "experts by softmax".to_owned(),
        RouterScore::SoftmaxOfChosen => "experts, softmax of the chosen".to_owned(),
        RouterScore::Sigmoid => "experts by sigmoid".to_owned(),
        RouterScore::SparseMixer { .. } => "experts by the sparse mixer".to_owned(),
    };
    let words = [
        (has(Role::ChoiceBias), "with a bias that chooses"),
        (matches!(normalized, Normalized::Fixed(true) | Normalized::Flag { .. }), "normalized"),
        (groups.is_some(), "by groups"),
        (
            shared_feed_forward.is_some() || shared_count.is_some(),
            if has(Role::SharedRouter) { "a shared one with a gate" } else { "a shared one" },
        ),
        (with_shared != 1.0, "averaged"),
        (input == ExpertInput::RouterBefore, "chosen before attention"),
        (input == ExpertInput::Weighed, "weights on their inputs"),
        (input == ExpertInput::Before, "next to attention and a dense layer"),
        (dense_layers.is_some(), "layers without"),
        (optional, "or none"),
    ];
    for words in words.iter().filter(|(has, _)| *has).map(|(_, words)| words) {
        let _ = write!(said, ", {words}");
    }
    said
}
