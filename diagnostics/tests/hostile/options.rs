//! Options of blocks other than Llama's: windows in a pattern, caps, factors, layers that do not rotate, a language model within
//! a model that sees.

use crate::build::{ARRAY, BOOL, F32, Tree, U8, array};
use crate::edit::{Files, Gguf};
use crate::table::Table;
use serde_json::{Value, json};

const CONFIG: &str = "config.json";

pub fn cases(table: &mut Table) {
    config(table);
    gguf(table);
    within(table);
}

fn config(table: &mut Table) {
    let [gemma2, gemma3, smollm3, granite, olmo3] =
        ["gemma-2/f32", "gemma-3/bf16", "smollm3/f32", "granite/bf16", "olmo-3/bf16"]
            .map(|folder| (folder, Files::fixture(folder)));
    for (name, files) in [&gemma2, &gemma3, &smollm3, &granite, &olmo3] {
        table.accepts(name, &files.tree(), "");
    }
    let mut case = |(name, files): &(&str, Files), key: &str, value: Value, code: u8, says: &str| {
        let edited = files.json(CONFIG, |config| drop(config.insert(key.into(), value.clone())));
        table.refuses(&format!("{name}: {key} is {value}"), &edited.tree(), "", code, &[CONFIG, says]);
    };
    for cap in ["attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"] {
        for value in [json!(0), json!(-1), json!(1e30), json!("50")] {
            case(&gemma2, cap, value, 10, cap);
        }
    }
    case(&gemma2, "layer_types", json!(["sliding_attention"]), 15, "layer_types");
    case(&gemma2, "layer_types", json!(["chunked_attention", "full_attention"]), 10, "layer_types[0]");
    case(&gemma2, "layer_types", json!("full_attention"), 10, "layer_types");
    case(&gemma2, "sliding_window", json!(0), 10, "sliding_window");
    case(&gemma2, "use_bidirectional_attention", json!(true), 11, "use_bidirectional_attention");
    case(&gemma2, "hidden_activation", json!("gelu"), 11, "hidden_activation");
    case(&gemma3, "sliding_window_pattern", json!(0), 10, "sliding_window_pattern");
    case(&gemma3, "rope_local_base_freq", json!(0), 10, "rope_local_base_freq");
    case(&gemma3, "rope_parameters", json!({"full_attention": 1}), 10, "rope_parameters.full_attention");
    case(&smollm3, "no_rope_layers", json!([1, 1, 1]), 15, "no_rope_layers");
    case(&smollm3, "no_rope_layers", json!([1, 1, 1, 2]), 10, "no_rope_layers[3]");
    case(&smollm3, "use_sliding_window", json!(true), 11, "use_sliding_window");
    for factor in ["embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"] {
        case(&granite, factor, json!(0), 10, factor);
    }
    case(&olmo3, "model_type", json!("olmo2"), 11, "Olmo3ForCausalLM");
    let longer = smollm3.1.json(CONFIG, |config| config["no_rope_layers"] = json!([1, 1, 1, 0, 1, 1]));
    table.accepts("no_rope_layers of more layers than there are", &longer.tree(), "");
    let wrong = smollm3.1.json(CONFIG, |config| config["no_rope_layers"] = json!([1, 1, 1, 0, 1, 2]));
    table.refuses("no_rope_layers with a 2 behind the last layer", &wrong.tree(), "", 10, &["no_rope_layers[5]"]);
    // transformers reads this key in Gemma 3 alone.
    let pattern = gemma2.1.json(CONFIG, |config| drop(config.insert("sliding_window_pattern".into(), json!(0))));
    table.accepts("gemma-2 with a key of Gemma 3", &pattern.tree(), "");
    let headless = olmo3.1.json(CONFIG, |config| drop(config.remove("rope_theta")));
    table.refuses("OLMo without rope_theta", &headless.tree(), "", 10, &[CONFIG, "rope_theta"]);
    let ministral3 = Files::fixture("ministral-3/bf16");
    let unscaled = ministral3.json(CONFIG, |config| drop(config.remove("rope_parameters")));
    table.refuses("Ministral 3 without rope_parameters", &unscaled.tree(), "", 10, &[CONFIG, "rope_theta"]);
    let phi = Files::fixture("phi-3.5-moe/f32");
    table.accepts("Phi-3.5-MoE", &phi.tree(), "");
    let mut magnitude = |key: &str, value: Value, code: u8, says: &str| {
        let edited = phi.json(CONFIG, |config| config["rope_parameters"][key] = value.clone());
        table.refuses(&format!("Phi-3.5-MoE: {key} is {value}"), &edited.tree(), "", code, &[CONFIG, says]);
    };
    for key in ["short_mscale", "long_mscale"] {
        magnitude(key, Value::Null, 10, &format!("rope_parameters.{key}"));
        magnitude(key, json!(0), 10, &format!("rope_parameters.{key}"));
    }
    magnitude("rope_type", json!("yarn"), 11, "default or longrope");
    let nested = Files::fixture("gemma-3/f32");
    let longrope = nested.json(CONFIG, |config| {
        let list = json!([1, 1, 1, 1, 1, 1, 1, 1]);
        config["rope_parameters"]["sliding_attention"] = json!({"rope_type": "longrope", "rope_theta": 10000.0,
            "original_max_position_embeddings": 64, "short_factor": list, "long_factor": list});
    });
    table.refuses("longrope in layers with a window", &longrope.tree(), "", 11, &[CONFIG, "sliding_attention"]);
    let scaled = nested.json(CONFIG, |config| {
        config["rope_parameters"]["sliding_attention"] = json!({"rope_type": "linear", "factor": 8.0});
    });
    table.refuses("a scaling in layers with a window without its base", &scaled.tree(), "", 10, &["rope_theta"]);
    // The base of such layers stands elsewhere then.
    let elsewhere = nested.json(CONFIG, |config| {
        config["rope_parameters"]["sliding_attention"] = json!({"rope_type": "default"});
    });
    table.accepts("layers with a window without a base of their own", &elsewhere.tree(), "");
}

fn gguf(table: &mut Table) {
    let [gemma2, olmo3, ministral3] =
        ["gemma-2", "olmo-3", "ministral-3"].map(|name| Gguf::fixture(&format!("{name}/f16.gguf")));
    let mut case = |name: &str, gguf: &Gguf, code: u8, says: &str| {
        table.refuses(name, &Tree::new().with("m.gguf", gguf.build()), "m.gguf", code, &["m.gguf", says]);
    };
    let pattern = "olmo2.attention.sliding_window_pattern";
    case("a pattern of two layers", &olmo3.set(pattern, ARRAY, array(BOOL, 2, [1, 0])), 15, pattern);
    case("a pattern of bytes", &olmo3.set(pattern, ARRAY, array(U8, 4, [1, 0, 1, 0])), 10, pattern);
    case("a window in every 0th layer", &olmo3.u32(pattern, 0), 10, pattern);
    let cap = "gemma2.attn_logit_softcapping";
    for value in [-50.0, f32::NAN, f32::INFINITY, 1e20] {
        case(&format!("a cap of {value}"), &gemma2.f32(cap, value), 10, cap);
    }
    let granite = Gguf::fixture("granite/f16.gguf");
    for (name, file, key) in [
        ("granite", &granite, "granite.logit_scale"),
        ("gpt-oss", &Gguf::fixture("gpt-oss/mxfp4.gguf"), "gpt-oss.attention.sliding_window"),
    ] {
        case(&format!("{name} without {key}"), &file.without(key), 10, key);
    }
    let biased = gemma2.with_tensor("blk.0.attn_q.bias", &[1], F32);
    case("a bias that nothing adds", &biased, 15, "blk.0.attn_q.bias");
    let finetuned = "granite.rope.scaling.finetuned";
    case("a switch of the rotation", &granite.set(finetuned, BOOL, vec![0]), 11, finetuned);
    let causal = "granite.attention.causal";
    case("attention to all positions", &granite.set(causal, BOOL, vec![0]), 11, causal);
    case("norms behind are missing", &gemma2.without_tensor("blk.0.post_ffw_norm.weight"), 15, "post_ffw_norm");
    let temperature = "mistral3.attention.temperature_scale";
    case("queries shrink", &ministral3.f32(temperature, -0.1), 10, temperature);
    let multiplier = "mistral3.rope.scaling.yarn_log_multiplier";
    case("a negative yarn multiplier", &ministral3.f32(multiplier, -1.0), 10, multiplier);
}

fn within(table: &mut Table) {
    let text = Files::fixture("gemma-3/bf16");
    let wrapped = |change: &dyn Fn(&mut Value)| {
        text.json(CONFIG, |config| {
            let mut whole = json!({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3"});
            whole["text_config"] = Value::Object(config.clone());
            change(&mut whole);
            *config = whole.as_object().unwrap().clone();
        })
    };
    table.accepts("a language model within", &wrapped(&|_| {}).tree(), "");
    let mut case = |name: &str, key: &str, value: Value, code: u8, says: &str| {
        let tree = wrapped(&|whole| *whole.pointer_mut(key).unwrap() = value.clone()).tree();
        table.refuses(name, &tree, "", code, &[CONFIG, says]);
    };
    case("a list for a language model", "/text_config", json!([]), 10, "text_config");
    case(
        "a language model of another kind",
        "/text_config/model_type",
        json!("t5"),
        11,
        "Gemma3ForConditionalGeneration",
    );
    case("a class of another kind", "/architectures", json!(["Mistral3ForConditionalGeneration"]), 11, "Mistral3");
    case("a window of none within", "/text_config/sliding_window", json!(0), 10, "sliding_window");
}
