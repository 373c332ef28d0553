//! Options of families with gates of attention's output, norms of other kinds, and sizes by layer.

use crate::build::{ARRAY, BOOL, Tree, U32, array};
use crate::edit::Gguf;
use crate::table::Table;
use serde_json::{Value, json};

/// A checkpoint, a key of its `config.json`, a value that is refused, the code, and what the report says.
fn configs() -> Vec<crate::WrongValue> {
    vec![
        ("olmo-1", "clip_qkv", json!(-1), 10, "clip_qkv"),
        ("olmo-1", "hidden_act", json!("gelu"), 11, "gelu"),
        ("nemotron-4", "norm_eps", json!(2), 10, "norm_eps"),
        ("nemotron-4", "hidden_act", json!("silu"), 11, "silu"),
        ("nemotron-4", "mlp_bias", json!(true), 15, "up_proj.bias"),
        ("jais-2", "attention_bias", json!("yes"), 10, "attention_bias"),
        ("jais-2", "hidden_act", json!("silu"), 11, "silu"),
        ("codegen", "n_head", json!(2), 15, "heads lie in 4 groups"),
        ("granite-swa", "layer_rope_theta", json!([0, 5000.0, 10000.0, 10000.0]), 11, "a rotary base of its own"),
        ("granite-swa", "layer_rope_theta", json!([0]), 15, "layer_rope_theta"),
        ("muse-glimmer", "text_config", json!({"model_type": "muse_glimmer_text"}), 10, "hidden_size"),
        ("trinity", "route_norm", json!(false), 11, "weights of experts as they are"),
        ("trinity", "score_func", json!("softmax"), 11, "other scores of experts"),
        ("trinity", "n_group", json!(2), 11, "experts in groups"),
        ("trinity", "mup_enabled", json!(1), 10, "mup_enabled"),
        ("laguna-xs", "gating", json!("per-layer"), 10, "per-head or per-element"),
        ("laguna-xs", "gating", json!("per-element"), 15, "g_proj"),
        ("laguna-xs", "num_attention_heads_per_layer", json!([4]), 15, "num_attention_heads_per_layer"),
        ("laguna-xs", "num_attention_heads_per_layer", json!([4, 5, 2]), 15, "no divisor"),
        ("laguna-xs", "num_attention_heads_per_layer", json!([4, -1, 2]), 10, "num_attention_heads_per_layer[1]"),
        ("laguna-xs", "moe_apply_router_weight_on_input", json!(true), 11, "on their inputs"),
        ("laguna-xs", "moe_router_logit_softcapping", json!(30.0), 11, "a cap on the outputs of routers"),
        ("laguna-xs", "mlp_layer_types", json!(["dense"]), 15, "mlp_layer_types"),
        ("laguna-xs", "rope_parameters", Value::Null, 10, "rope_parameters"),
    ]
}

pub fn cases(table: &mut Table) {
    crate::refuses_values(table, configs());
    let [olmo, granite, laguna] =
        ["olmo-1", "granite-swa", "laguna-xs"].map(|name| Gguf::fixture(&format!("{name}/q8_0.gguf")));
    let heads = |heads: [u32; 3]| heads.iter().flat_map(|heads| heads.to_le_bytes()).collect::<Vec<_>>();
    let laguna_heads = |of| laguna.set("laguna.attention.head_count", ARRAY, array(U32, 3, heads(of)));
    for (name, gguf, code, says) in [
        ("OLMo without an epsilon", olmo.without("olmo.attention.layer_norm_epsilon"), 10, "layer_norm_epsilon"),
        ("Granite without a window", granite.without("granite_swa.attention.sliding_window"), 10, "sliding_window"),
        ("flags of one layer", granite.set(ROTATED, ARRAY, array(BOOL, 1, [1])), 15, ROTATED),
        ("heads that are no multiple", laguna_heads([4, 5, 2]), 15, "no divisor"),
        ("heads unlike the tensors", laguna_heads([4, 4, 2]), 15, "blk.1.attn_q"),
    ] {
        table.refuses(name, &Tree::new().with("m.gguf", gguf.build()), "m.gguf", code, &[says]);
    }
}

const ROTATED: &str = "granite_swa.attention.rope_pattern";
