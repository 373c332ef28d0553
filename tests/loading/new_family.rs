//! A family that does not exist, added as the guide says: one table, and a registry one line longer.
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; tables are for reading

use crate::common;

use model_factory::Model;
use model_factory::UnifiedModelFactory;
use model_factory::diagnostics::family::{BlockTable, Family, Key, LLAMA_LIKE, REGISTRY, Role, TensorName, Variant};
use safetensors::tensor::TensorView;
use serde_json::Value;
use std::path::Path;

static HERON: Family = Family {
    id: "heron",
    gguf_architectures: &["heron"],
    model_types: &[("heron", &["HeronForCausalLM"])],
    tensors: &[&[
        TensorName { role: Role::Embedding, gguf: "token_embd", config: "heron.words" },
        TensorName { role: Role::FinalNorm, gguf: "output_norm", config: "heron.last_norm" },
        TensorName { role: Role::Head, gguf: "output", config: "heron.head" },
        TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm", config: "heron.{}.norm_a" },
        TensorName { role: Role::Q, gguf: "blk.{}.attn_q", config: "heron.{}.query" },
        TensorName { role: Role::K, gguf: "blk.{}.attn_k", config: "heron.{}.key" },
        TensorName { role: Role::V, gguf: "blk.{}.attn_v", config: "heron.{}.value" },
        TensorName { role: Role::O, gguf: "blk.{}.attn_output", config: "heron.{}.mix" },
        TensorName { role: Role::MlpNorm, gguf: "blk.{}.ffn_norm", config: "heron.{}.norm_b" },
        TensorName { role: Role::Gate, gguf: "blk.{}.ffn_gate", config: "heron.{}.gate" },
        TensorName { role: Role::Up, gguf: "blk.{}.ffn_up", config: "heron.{}.up" },
        TensorName { role: Role::Down, gguf: "blk.{}.ffn_down", config: "heron.{}.down" },
    ]],
    variants: &[Variant { name: "Grey Heron", any: &[&[]] }],
    name: "Heron",
    ..LLAMA_LIKE
};

/// Llama's layers, passed as often as a key says.
static RING: Family = Family {
    id: "ring",
    gguf_architectures: &[],
    model_types: &[("ring", &["RingForCausalLM"])],
    block: BlockTable { passes: Some((Key::config("passes"), Key::config("plain"))), ..LLAMA_LIKE.block },
    name: "Ring",
    ..LLAMA_LIKE
};

/// The Llama 3 fixture under the names of the new family.
fn write_heron(folder: &Path) {
    let llama = common::named("llama-3").folder.join("bf16");
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        std::fs::copy(llama.join(file), folder.join(file)).expect("a copy");
    }
    let config = std::fs::read_to_string(llama.join("config.json")).expect("config.json");
    let config = config.replace("LlamaForCausalLM", "HeronForCausalLM").replace("\"llama\"", "\"heron\"");
    std::fs::write(folder.join("config.json"), config).expect("a file");

    let bytes = std::fs::read(llama.join("model.safetensors")).expect("weights");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("valid weights");
    let renamed = tensors.tensors().into_iter().map(|(name, tensor)| (heron_name(&name), tensor));
    safetensors::serialize_to_file(renamed, None, &folder.join("model.safetensors")).expect("a file");
}

fn heron_name(llama: &str) -> String {
    let renames = [
        ("model.embed_tokens", "heron.words"),
        ("model.norm", "heron.last_norm"),
        ("lm_head", "heron.head"),
        ("model.layers.", "heron."),
        ("input_layernorm", "norm_a"),
        ("post_attention_layernorm", "norm_b"),
        ("self_attn.q_proj", "query"),
        ("self_attn.k_proj", "key"),
        ("self_attn.v_proj", "value"),
        ("self_attn.o_proj", "mix"),
        ("mlp.gate_proj", "gate"),
        ("mlp.up_proj", "up"),
        ("mlp.down_proj", "down"),
    ];
    renames.iter().fold(llama.to_owned(), |name, (from, to)| name.replace(from, to))
}

#[test]
fn a_family_of_the_same_block_is_one_table_and_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    write_heron(folder.path());

    let unknown = UnifiedModelFactory::diagnose(folder.path());
    assert_eq!(unknown.exit_code, 11, "{unknown}");

    let mut families = REGISTRY.to_vec();
    families.push(&HERON);
    let heron = common::builder().families(&families).load(folder.path()).expect("a heron loads");
    assert_eq!((heron.spec().family, heron.spec().variant.as_str()), ("heron", "Grey Heron"));

    let llama = common::load(common::named("llama-3").folder.join("bf16"));
    let logits = |model: &model_factory::Model| -> Vec<Vec<f32>> {
        model.logits(&[5, 6, 7, 8]).expect("logits").to_vec2().expect("F32")
    };
    assert_eq!(logits(&heron), logits(&llama));
}

/// The Llama 3 fixture with other keys, and each of its layers `copies` times, all of them one after the other.
fn write_llama(folder: &Path, keys: Value, copies: usize) {
    let llama = common::named("llama-3").folder.join("bf16");
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        std::fs::copy(llama.join(file), folder.join(file)).expect("a copy");
    }
    let config = std::fs::read(llama.join("config.json")).expect("config.json");
    let mut config: Value = serde_json::from_slice(&config).expect("JSON");
    let layers = config["num_hidden_layers"].as_u64().expect("a number") as usize;
    config["num_hidden_layers"] = (layers * copies).into();
    config.as_object_mut().expect("an object").extend(keys.as_object().cloned().expect("an object"));
    std::fs::write(folder.join("config.json"), config.to_string()).expect("a file");
    let bytes = std::fs::read(llama.join("model.safetensors")).expect("weights");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("valid weights");
    let mut all: Vec<(String, TensorView<'_>)> = Vec::new();
    for (name, tensor) in tensors.tensors() {
        let Some((layer, rest)) = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')) else {
            all.push((name, tensor));
            continue;
        };
        let layer: usize = layer.parse().expect("a number");
        let again = (0..copies).map(|copy| format!("model.layers.{}.{rest}", copy * layers + layer));
        all.extend(again.map(|name| (name, tensor.clone())));
    }
    safetensors::serialize_to_file(all, None, &folder.join("model.safetensors")).expect("a file");
}

#[test]
fn layers_that_are_passed_again_are_more_layers_of_the_same_weights() {
    let families = [REGISTRY, &[&RING]].concat();
    let load = |keys: Value, copies: usize| -> Model {
        let folder = tempfile::tempdir().expect("a folder");
        write_llama(folder.path(), keys, copies);
        common::builder().families(&families).load(folder.path()).expect("it loads")
    };
    let ring = |passes: usize, plain: bool| {
        let class = ["RingForCausalLM"];
        load(serde_json::json!({"model_type": "ring", "architectures": class, "passes": passes, "plain": plain}), 1)
    };
    let tokens: Vec<u32> = (5..80).collect();
    let logits = |model: &Model| -> Vec<Vec<f32>> { model.logits(&tokens).expect("logits").to_vec2().expect("F32") };
    let plan = |model: &Model| model.report().plan.as_ref().map(|plan| plan.kv_cache);
    let (llama, twice, once) = (load(serde_json::json!({}), 2), ring(2, true), ring(1, false));
    assert_eq!(logits(&twice), logits(&llama));
    // All passes have a cache of their own, and one file.
    assert_eq!(plan(&twice), plan(&llama));
    assert_eq!((twice.spec().parameters, twice.spec().layers()), (once.spec().parameters, llama.spec().layers()));
    assert_eq!(twice.spec().active_bytes(), llama.spec().active_bytes());
    // A norm between the passes.
    let normed = ring(2, false);
    assert!(normed.spec().weights.layers.iter().filter(|layer| layer.norms_sums()).count() == 1);
    assert_ne!(logits(&normed), logits(&twice));
    let unknown = |passes| {
        let folder = tempfile::tempdir().expect("a folder");
        let class = ["RingForCausalLM"];
        let keys = serde_json::json!({"model_type": "ring", "architectures": class, "passes": passes});
        write_llama(folder.path(), keys, 1);
        common::builder().families(&families).load(folder.path()).expect_err("it is refused").to_string()
    };
    for passes in [0, 1000, 1_000_000_000] {
        assert!(unknown(passes).contains("passes"), "{passes}");
    }
}
