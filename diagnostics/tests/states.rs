//! Layers with a state: what the specs of Qwen3.5, LFM2 and Granite 4 say in each format, and of models made from their files.
#![allow(clippy::unwrap_used, unreachable_pub)] // a sample that cannot be written is a broken test

#[path = "formats/build.rs"]
#[allow(dead_code)] // this file uses its part
mod build;
#[path = "hostile/edit.rs"]
#[allow(dead_code)] // this file uses its part
mod edit;

use build::{ARRAY, BOOL, F32, Tree, array, safetensors};
use edit::{Files, Gguf, fixture};
use model_factory_diagnostics::family::REGISTRY;
use model_factory_diagnostics::hardware::profiles::Profile;
use model_factory_diagnostics::header::Header;
use model_factory_diagnostics::plan::state_bytes;
use model_factory_diagnostics::source::probe;
use model_factory_diagnostics::spec::{
    DeltaInput, KeySharing, LayerWeights, Mixer, ModelSpec, Normalization, RouterScore, Routing, Weight, inspect,
};
use model_factory_diagnostics::{Policy, Report, diagnose};
use serde_json::{Map, Value, json};
use std::path::Path;

const FORMATS: [&str; 6] = ["f32", "f16", "bf16", "f16.gguf", "q8_0.gguf", "q4_k_m.gguf"];

fn spec(path: &Path) -> ModelSpec {
    let spec = Header::read(probe(path).unwrap()).and_then(|header| inspect(&header, REGISTRY));
    spec.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A letter for each layer: a delta net, a short convolution, Mamba-2, attention, gated attention, experts or a dense layer alone.
fn kinds(spec: &ModelSpec) -> String {
    let kind = |layer: &LayerWeights| match layer.mixers().next() {
        Some(Mixer::DeltaNet(_)) => 'd',
        Some(Mixer::ShortConv(_)) => 'c',
        Some(Mixer::Mamba(_)) => 'm',
        Some(Mixer::Attention(attention)) if attention.gated => 'g',
        Some(Mixer::Attention(_)) => 'a',
        None if layer.experts().is_some() => 'e',
        None => 'f',
    };
    spec.weights.layers.iter().map(kind).collect()
}

#[test]
fn qwen35_has_delta_nets_and_gated_attention_in_every_format() {
    for format in FORMATS {
        let spec = spec(&fixture("qwen3.5").join(format));
        let gguf = format.ends_with(".gguf");
        assert_eq!((spec.family, spec.variant.as_str(), kinds(&spec).as_str()), ("qwen35", "Qwen3.5", "dddg"));
        assert_eq!(spec.unused_tensors, Vec::<String>::new(), "{format}");
        assert_eq!(spec.rope().unwrap().dimensions, 8);
        let layers = &spec.weights.layers;
        let Some(Mixer::DeltaNet(net)) = layers[0].mixers().next() else { panic!("{format}") };
        assert_eq!((net.key_heads, net.value_heads, net.key_dim, net.value_dim), (2, 4, 16, 16));
        assert_eq!(net.sharing, if gguf { KeySharing::Strided } else { KeySharing::Neighbours });
        assert_eq!(net.decay_is_log, !gguf);
        let shapes = |input: &DeltaInput| -> Vec<Vec<u64>> {
            input.linears().iter().map(|linear| linear.weight.shape.clone()).collect()
        };
        assert_eq!(shapes(&net.qkvz), [vec![128, 32], vec![64, 32]]);
        assert_eq!((shapes(&net.ba), net.out.weight.shape.as_slice()), (vec![vec![4, 32]; 2], &[32, 64][..]));
        assert_eq!((net.conv.channels, net.conv.kernel, net.conv.weights[0].shape.len()), (128, 4, 2));
        assert_eq!((net.dt_bias.shape.as_slice(), net.decay.shape.as_slice()), (&[4][..], &[4][..]));
        assert_eq!(layers[0].mixers().next().unwrap().projected(), 128 + 64 + 2 * 4);
        // The norm of a delta net's output is stored as it is, all others as offsets in safetensors.
        assert!(!net.norm.is_from_one());
        let norms = layers.iter().flat_map(|layer| layer.list()).filter_map(|weight| match weight {
            Weight::Norm(norm) if norm.width == 32 => Some(norm),
            _ => None,
        });
        assert!(norms.chain(&spec.weights.final_norm).all(|norm| norm.is_from_one() != gguf), "{format}");
        let attention = layers[3].attention().unwrap();
        assert_eq!(attention.q.weight.shape, [2 * 4 * 16, 32]);
        assert_eq!(layers[3].mixers().next().unwrap().projected(), (2 * 4 + 2 * 2) * 16);
        assert_ne!(attention.q_norm.as_ref().unwrap().is_from_one(), gguf);
    }
}

#[test]
fn lfm2_has_short_convolutions_in_every_format() {
    for format in FORMATS {
        let spec = spec(&fixture("lfm2").join(format));
        let small = format.starts_with("q4");
        assert_eq!((spec.family, spec.variant.as_str()), ("lfm2", "LFM2"));
        assert_eq!(kinds(&spec), if small { "ca" } else { "ccac" }, "{format}");
        // 96 in config.json, of which two thirds are rounded up to a multiple of 32.
        assert_eq!(spec.feed_forward, if small { 256 } else { 64 });
        assert_eq!(spec.unused_tensors, Vec::<String>::new(), "{format}");
        let Some(Mixer::ShortConv(conv)) = spec.weights.layers[0].mixers().next() else { panic!("{format}") };
        assert_eq!(
            (conv.bcx.weight.shape.as_slice(), conv.out.weight.shape.as_slice()),
            (&[96, 32][..], &[32, 32][..])
        );
        assert_eq!((conv.conv.channels, conv.conv.kernel, conv.conv.bias.is_some()), (32, 3, false));
        assert!(
            spec.weights.final_norm.as_ref().unwrap().weight.as_ref().unwrap().name.contains("embd_norm")
                || !format.ends_with(".gguf")
        );
    }
}

#[test]
fn granite_4_has_mamba_2_with_experts_or_without() {
    for (format, gguf) in [("f32", false), ("bf16", false), ("q8_0.gguf", true), ("q4_k_m.gguf", true)] {
        let spec = spec(&fixture("granite-4-h").join(format));
        assert_eq!((spec.family, spec.variant.as_str(), kinds(&spec).as_str()), ("granitehybrid", "Granite 4", "ma"));
        assert_eq!(spec.unused_tensors, Vec::<String>::new(), "{format}");
        let layers = &spec.weights.layers;
        let Some(Mixer::Mamba(mamba)) = layers[0].mixers().next() else { panic!("{format}") };
        assert_eq!((mamba.heads, mamba.groups, mamba.head_dim, mamba.state_dim), (4, 1, 16, 16));
        assert_eq!((mamba.decay_is_log, mamba.step_limit), (!gguf, [0.0, f64::INFINITY]));
        // Rows of one stored matrix: gates, values, keys and queries, steps.
        let gate = mamba.gate.as_ref().unwrap();
        let rows = [gate, &mamba.input, &mamba.step].map(|linear| linear.weight.shape[0]);
        assert_eq!(rows, [64, 64 + 2 * 16, 4]);
        assert_eq!(mamba.input.weight.offset, gate.weight.offset + gate.weight.bytes);
        assert_eq!(mamba.step.weight.offset, mamba.input.weight.offset + mamba.input.weight.bytes);
        assert_eq!((mamba.conv.channels, mamba.conv.kernel, mamba.conv.bias.is_some()), (96, 4, true));
        let norm = mamba.norm.as_ref().unwrap();
        for (vector, length) in
            [(&mamba.step_bias, 4), (&mamba.decay, 4), (&mamba.skip, 4), (norm.weight.as_ref().unwrap(), 64)]
        {
            assert_eq!(vector.shape, [length], "{format}: {}", vector.name);
        }
        assert_eq!(
            (layers[0].mixers().next().unwrap().projected(), layers[0].mixers().next().unwrap().mixed()),
            (96 + 64 + 4, 64)
        );
        assert!(spec.ropes.is_empty() && layers[1].attention().unwrap().rope.is_none(), "{format}");
        let experts = layers[0].experts().unwrap();
        assert_eq!((experts.routing.experts, experts.routing.chosen), (3, 2));
        let shared = experts.shared.as_ref().unwrap();
        assert_eq!(shared.dense.up.weight.shape[0], if format.starts_with("q4") { 256 } else { 32 });
        assert!(shared.router.is_none());
    }
    for format in ["f16", "f16.gguf"] {
        let spec = spec(&fixture("granite-4-h-dense").join(format));
        assert_eq!((spec.variant.as_str(), kinds(&spec).as_str()), ("Granite 4", "am"));
        assert!(spec.unused_tensors.is_empty() && spec.weights.layers.iter().all(|layer| layer.experts().is_none()));
        let Some(Mixer::Mamba(mamba)) = spec.weights.layers[1].mixers().next() else { panic!("{format}") };
        assert_eq!((mamba.groups, mamba.state_dim, mamba.norm.as_ref().unwrap().width), (2, 8, 64));
    }
}

/// A state is there twice, as of the chunk's begin and of the last position; no head attends.
#[test]
fn mamba_alone_has_states_and_no_heads() {
    for (name, files) in
        [("mamba", Files::fixture("mamba/bf16")), ("falcon-mamba", Files::fixture("falcon-mamba/bf16"))]
    {
        let spec = spec(&files.tree().path(""));
        assert_eq!((spec.heads, spec.kv_heads, spec.feed_forward, spec.ropes.len()), (0, 0, 0, 0), "{name}");
        assert!(spec.unused_tensors.is_empty() && kinds(&spec).chars().all(|kind| kind == 'm'), "{name}");
        let elements = 64 * (3 + 16) + 2 * 64 * 8 + 16 * (8 + 2 * 64) + 1;
        assert_eq!(state_bytes(&spec), (spec.layers() * elements * 4) as u64, "{name}");
        let Some(Mixer::Mamba(mamba)) = spec.weights.layers[0].mixers().next() else { panic!("{name}") };
        let plain = mamba.selection.as_ref().and_then(|selection| selection.norm_eps);
        assert_eq!(plain, (name == "falcon-mamba").then_some(1e-6));
    }
}

/// The fixture is transformers' own copy, whose three parts of a convolution are equal; published ones are as wide as queries, keys
/// and values.
#[test]
fn parts_of_olmos_convolution_are_even_or_as_published() {
    let files = Files::fixture("olmo-hybrid/bf16");
    let published = reshaped(&files, |header| {
        for (part, rows) in [("q", 24), ("k", 24), ("v", 48)] {
            header.insert(format!("model.layers.0.linear_attn.{part}_conv1d.weight"), bf16(&[rows, 1, 4]));
        }
    });
    let ends = |files: &Files| {
        let spec = spec(&files.tree().path(""));
        let Some(Mixer::DeltaNet(net)) = spec.weights.layers[0].mixers().next() else { panic!("a delta net") };
        assert_eq!(kinds(&spec), "dda");
        net.conv.ends.clone()
    };
    assert_eq!(ends(&files), [32, 64, 96]);
    assert_eq!(ends(&files.with("model.safetensors", published)), [24, 48, 96]);
}

/// A head keeps its matrix, and for each position of a chunk a key, a correction and as many decays as a key has elements.
#[test]
fn kimi_has_a_decay_for_each_element_of_a_key() {
    for file in ["bf16", "f16.gguf", "q8_0.gguf"] {
        let name = format!("kimi-linear/{file}");
        let (tree, path) = match file.ends_with(".gguf") {
            true => (Tree::new().with("m.gguf", Gguf::fixture(&name).build()), "m.gguf"),
            false => (Files::fixture(&name).tree(), ""),
        };
        let spec = spec(&tree.path(path));
        assert_eq!((spec.family, kinds(&spec).as_str(), spec.ropes.len()), ("kimi-linear", "dda", 0), "{file}");
        assert_eq!(spec.unused_tensors, Vec::<String>::new(), "{file}");
        let mixer = spec.weights.layers[1].mixers().next().unwrap();
        let Mixer::DeltaNet(net) = mixer else { panic!("{file}") };
        assert_eq!((net.key_heads, net.value_heads, net.key_dim, net.value_dim, net.decays()), (2, 2, 16, 16, 16));
        assert_eq!((net.decay.shape.as_slice(), net.dt_bias.shape.as_slice()), (&[2][..], &[32][..]), "{file}");
        assert_eq!(net.conv.ends, [32, 64, 96], "{file}");
        let second = net.second.as_ref().unwrap();
        assert_eq!([&second.gate, &second.alpha].map(|matrix| matrix.weight.shape.clone()), [[32, 16], [32, 16]]);
        // Queries, keys, values; what gates and decays are made of; corrections; gates and decays.
        assert_eq!(mixer.projected(), 96 + 2 * 16 + 2 + 2 * 32);
        let elements = 96 * (3 + 16) + 2 * (16 * 16 + 16 * (16 + 16 + 16));
        assert_eq!(state_bytes(&spec), (2 * elements * 4) as u64, "{file}");
    }
}

/// The ones with attention alone: llama.cpp's converter calls them `granite`, with the keys of Mamba-2 all the same.
#[test]
fn granite_4_with_attention_alone_rotates() {
    let alone = spec(&fixture("granite-4/bf16"));
    assert_eq!((alone.family, kinds(&alone).as_str()), ("granitehybrid", "a"));
    assert_eq!((alone.rope().unwrap().theta, alone.weights.layers[0].attention().unwrap().rope), (1e4, Some(0)));
    let sound = spec(&fixture("granite/q8_0.gguf"));
    let file = Gguf::fixture("granite/q8_0.gguf");
    let heads = array(build::I32, 2, [2i32, 2].into_iter().flat_map(i32::to_le_bytes).collect::<Vec<_>>());
    let converted = file
        .set("granite.attention.head_count_kv", ARRAY, heads)
        .set("granite.rope.scaling.finetuned", BOOL, [1])
        .u32("granite.expert_count", 0)
        .u32("granite.expert_used_count", 0)
        .u32("granite.expert_shared_feed_forward_length", 96)
        .u32("granite.ssm.conv_kernel", 4)
        .u32("granite.ssm.inner_size", 64)
        .u32("granite.ssm.time_step_rank", 3);
    let tree = Tree::new().with("m.gguf", converted.build());
    let found = spec(&tree.path("m.gguf"));
    assert_eq!((found.family, found.parameters, found.kv_heads), ("granite", sound.parameters, 2));
}

/// What the diagnosis says on a described processor.
fn report(path: &Path) -> Report {
    diagnose(path, &Profile::find("cpu-8gb").unwrap().hardware(), &Policy::default())
}

#[test]
fn a_report_counts_layers_by_kind() {
    let text = report(&fixture("qwen3.5/q8_0.gguf")).to_string();
    assert!(text.contains("3 layers of gated delta net, 1 of attention"), "{text}");
    let text = report(&fixture("lfm2/bf16")).to_string();
    assert!(text.contains("3 layers of short convolution, 1 of attention"), "{text}");
    let text = report(&fixture("granite-4-h/q8_0.gguf")).to_string();
    assert!(text.contains("1 layer of Mamba-2, 1 of attention"), "{text}");
    let text = report(&fixture("llama-3.1/bf16")).to_string();
    assert!(!text.contains("of attention"), "{text}");
}

#[test]
fn a_gpu_refuses_layers_with_a_state_by_name() {
    let gpu = Profile::find("h100").unwrap().hardware();
    let policy = Policy { device: model_factory_diagnostics::DeviceChoice::Cuda(0), ..Policy::default() };
    for model in ["qwen3.5/bf16", "lfm2/q8_0.gguf", "granite-4-h/bf16"] {
        let report = diagnose(&fixture(model), &gpu, &policy);
        assert!(!report.verdict.runs() && report.to_string().contains("layers with a state"), "{report}");
    }
}

/// The blocks behind the decoder's, which predict further tokens.
#[test]
fn what_predicts_further_tokens_is_named_and_not_used() {
    let flags = array(BOOL, 5, [1, 1, 1, 0, 0]);
    let file = Gguf::fixture("qwen3.5/q8_0.gguf").u32("qwen35.block_count", 5).u32("qwen35.nextn_predict_layers", 1);
    let file = file.set("qwen35.attention.recurrent_layers", ARRAY, flags);
    let file = file.with_tensor("blk.4.nextn.eh_proj.weight", &[64, 32], F32).with_tensor(
        "blk.4.attn_norm.weight",
        &[32],
        F32,
    );
    let tree = Tree::new().with("m.gguf", file.build());
    let spec = spec(&tree.path("m.gguf"));
    assert_eq!(kinds(&spec), "dddg");
    assert_eq!(spec.unused_tensors, ["blk.4.attn_norm.weight", "blk.4.nextn.eh_proj.weight"]);
    let said = "multi-token prediction layers are not used: qwen35.nextn_predict_layers is 1";
    let line = spec.assumptions.iter().find(|line| line.starts_with(said));
    assert!(line.is_some_and(|line| line.ends_with("(ModelBuilder::mtp)")), "{:?}", spec.assumptions);
}

/// The tensors of a safetensors file as `change` leaves their dtypes and shapes; the data is zeros.
fn reshaped(files: &Files, change: impl FnOnce(&mut Map<String, Value>)) -> Vec<u8> {
    let bytes = files.get("model.safetensors");
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let mut header: Map<String, Value> = serde_json::from_slice(&rest[..u64::from_le_bytes(*length) as usize]).unwrap();
    header.remove("__metadata__");
    change(&mut header);
    let mut end = 0;
    for tensor in header.values_mut() {
        let elements: u64 = tensor["shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).product();
        tensor["data_offsets"] = json!([end, end + 2 * elements]);
        end += 2 * elements;
    }
    safetensors(&Value::Object(header).to_string(), end as usize)
}

fn bf16(shape: &[u64]) -> Value {
    json!({"dtype": "BF16", "shape": shape})
}

/// A repository as published: the text within a model that also sees, and layers that predict further tokens.
#[test]
fn the_text_of_qwen35_within_a_model_that_sees_is_the_same() {
    let text = Files::fixture("qwen3.5/bf16");
    let weights = reshaped(&text, |header| {
        let moved =
            |name: &str| name.strip_prefix("model.").map_or(name.into(), |rest| format!("model.language_model.{rest}"));
        *header = std::mem::take(header).into_iter().map(|(name, tensor)| (moved(&name), tensor)).collect();
        header.insert("model.visual.blocks.0.attn.qkv.weight".into(), bf16(&[3, 1]));
        header.insert("mtp.layers.0.self_attn.q_proj.weight".into(), bf16(&[4, 1]));
    });
    let mut config: Value = serde_json::from_slice(text.get("config.json")).unwrap();
    let keys = config.as_object_mut().unwrap();
    keys.remove("architectures");
    // Published files say every how many layers attend, and that attention is gated.
    keys.remove("layer_types");
    keys.insert("full_attention_interval".into(), json!(4));
    keys.insert("attn_output_gate".into(), json!(true));
    keys.insert("mtp_num_hidden_layers".into(), json!(1));
    let whole = json!({"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": config,
        "tie_word_embeddings": true, "vision_config": {"depth": 1}});
    let tree = text.with("config.json", whole.to_string()).with("model.safetensors", weights).tree();
    let (within, alone) = (spec(&tree.path("")), spec(&fixture("qwen3.5/bf16")));
    assert_eq!((within.family, kinds(&within)), (alone.family, kinds(&alone)));
    assert_eq!(within.parameters, alone.parameters);
    let unused = ["model.visual.blocks.0.attn.qkv.weight", "mtp.layers.0.self_attn.q_proj.weight"];
    assert_eq!(within.unused_tensors, unused);
    assert!(within.assumptions.iter().any(|line| line.contains("multi-token prediction layers are not used")));
}

/// Qwen3.5 with 4 experts of 32 and one for every token, in safetensors.
fn experts_in_a_folder() -> Tree {
    let dense = Files::fixture("qwen3.5/bf16");
    let weights = reshaped(&dense, |header| {
        header.retain(|name, _| !name.contains(".mlp."));
        for layer in 0..4 {
            for (name, shape) in [
                ("gate.weight", &[4, 32][..]),
                ("experts.gate_up_proj", &[4, 64, 32]),
                ("experts.down_proj", &[4, 32, 32]),
                ("shared_expert.gate_proj.weight", &[48, 32]),
                ("shared_expert.up_proj.weight", &[48, 32]),
                ("shared_expert.down_proj.weight", &[32, 48]),
                ("shared_expert_gate.weight", &[1, 32]),
            ] {
                header.insert(format!("model.layers.{layer}.mlp.{name}"), bf16(shape));
            }
        }
    });
    let config = dense.json("config.json", |config| {
        config.remove("intermediate_size");
        let keys = json!({"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", "num_experts": 4,
            "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48});
        config.extend(keys.as_object().unwrap().clone());
    });
    config.with("model.safetensors", weights).tree()
}

/// The same in GGUF.
fn experts_in_gguf() -> Tree {
    let mut file = Gguf::fixture("qwen3.5/q8_0.gguf").text("general.architecture", "qwen35moe");
    for pair in &mut file.pairs {
        pair.key = pair.key.replace("qwen35.", "qwen35moe.");
    }
    let mut file = file.without("qwen35moe.feed_forward_length");
    for (key, value) in
        [("count", 4), ("used_count", 2), ("feed_forward_length", 32), ("shared_feed_forward_length", 48)]
    {
        file = file.u32(&format!("qwen35moe.expert_{key}"), value);
    }
    for layer in 0..4 {
        for name in ["gate", "up", "down"] {
            file = file.without_tensor(&format!("blk.{layer}.ffn_{name}.weight"));
        }
        for (name, shape) in [
            ("gate_inp", &[32, 4][..]),
            ("gate_exps", &[32, 32, 4]),
            ("up_exps", &[32, 32, 4]),
            ("down_exps", &[32, 32, 4]),
            ("gate_shexp", &[32, 48]),
            ("up_shexp", &[32, 48]),
            ("down_shexp", &[48, 32]),
            ("gate_inp_shexp", &[32]),
        ] {
            file = file.with_tensor(&format!("blk.{layer}.ffn_{name}.weight"), shape, F32);
        }
    }
    Tree::new().with("m.gguf", file.build())
}

#[test]
fn qwen35_with_experts_has_them_in_every_format() {
    for format in FORMATS {
        let spec = spec(&fixture("qwen3.5-moe").join(format));
        assert_eq!((spec.family, spec.variant.as_str(), kinds(&spec).as_str()), ("qwen35moe", "Qwen3.5 MoE", "dg"));
        assert_eq!(spec.unused_tensors, Vec::<String>::new(), "{format}");
        assert!(
            spec.weights.layers.iter().all(|layer| layer.experts().is_some_and(|experts| experts.shared.is_some()))
        );
    }
}

/// Made of the files without experts: a shared expert of a width that no block type divides.
#[test]
fn qwen35_with_experts_has_the_same_layers() {
    for (tree, name) in [(experts_in_a_folder(), ""), (experts_in_gguf(), "m.gguf")] {
        let spec = spec(&tree.path(name));
        assert_eq!((spec.family, spec.variant.as_str(), kinds(&spec).as_str()), ("qwen35moe", "Qwen3.5 MoE", "dddg"));
        assert_eq!(spec.unused_tensors, Vec::<String>::new());
        for layer in &spec.weights.layers {
            let experts = layer.experts().unwrap();
            assert_eq!(
                (experts.routing.experts, experts.routing.chosen, experts.routing.normalized),
                (4, 2, Some(Normalization { added: 0.0, least: 0.0 }))
            );
            let shared = experts.shared.as_ref().unwrap();
            assert_eq!((shared.dense.up.weight.shape.as_slice(), shared.router.is_some()), (&[48, 32][..], true));
        }
    }
}

#[test]
fn qwen3_next_reads_rows_by_heads_of_keys() {
    for format in FORMATS {
        let spec = spec(&fixture("qwen3-next").join(format));
        assert_eq!((spec.family, spec.variant.as_str(), kinds(&spec).as_str()), ("qwen3next", "Qwen3-Next", "dg"));
        assert_eq!(spec.unused_tensors, Vec::<String>::new());
        let Some(Mixer::DeltaNet(net)) = spec.weights.layers[0].mixers().next() else { panic!("{format}") };
        let gguf = format.ends_with("gguf");
        assert_eq!((net.qkvz.by_key_head(), net.ba.by_key_head()), (!gguf, true), "{format}");
        assert_eq!(net.sharing, KeySharing::Neighbours);
        let [both] = net.ba.linears() else { panic!("{format}") };
        assert_eq!(both.weight.shape, [8, 32]);
    }
}

#[test]
fn lfm2_has_experts_behind_its_first_layers() {
    for format in FORMATS {
        let spec = spec(&fixture("lfm2-moe").join(format));
        assert_eq!((spec.family, spec.variant.as_str()), ("lfm2moe", "LFM2 MoE"));
        assert_eq!(spec.unused_tensors, Vec::<String>::new());
        let of_layers: Vec<_> = spec.weights.layers.iter().map(LayerWeights::experts).collect();
        assert!(of_layers[0].is_none() && of_layers.len() >= 2, "{format}");
        for experts in of_layers[1..].iter().flatten() {
            let Routing { chosen, score, normalized, scale, .. } = experts.routing;
            assert_eq!(
                (chosen, score, normalized, scale),
                (2, RouterScore::Sigmoid, Some(Normalization { added: 1e-6, least: 0.0 }), 1.0)
            );
            assert!(experts.choice_bias.is_some(), "{format}");
        }
    }
    let scaled = spec(&fixture("lfm2-moe-scaled/bf16"));
    let Routing { normalized, scale, .. } = scaled.weights.layers[1].experts().unwrap().routing;
    assert_eq!((normalized, scale), (None, 2.5));
}
