//! A Qwen3-VL with its tower, asked for, with one thing wrong: one layer and a tower of two, made of the names and shapes of their
//! tensors.

use crate::edit::Files;
use crate::single::made;
use crate::table::Table;
use serde_json::{Value, json};

const CONFIG: &str = "config.json";
const MODEL: &str = "model.safetensors";
const PROCESSOR: &str = "preprocessor_config.json";

/// Those of a tower of width 16, whose position embeddings are 4 by 4.
fn seeing() -> Vec<(String, Vec<u64>)> {
    let outside: [(&str, &[u64]); 15] = [
        ("patch_embed.proj.weight", &[16, 3, 2, 4, 4]),
        ("patch_embed.proj.bias", &[16]),
        ("pos_embed.weight", &[16, 16]),
        ("merger.norm.weight", &[16]),
        ("merger.norm.bias", &[16]),
        ("merger.linear_fc1.weight", &[64, 64]),
        ("merger.linear_fc1.bias", &[64]),
        ("merger.linear_fc2.weight", &[32, 64]),
        ("merger.linear_fc2.bias", &[32]),
        ("deepstack_merger_list.0.norm.weight", &[64]),
        ("deepstack_merger_list.0.norm.bias", &[64]),
        ("deepstack_merger_list.0.linear_fc1.weight", &[64, 64]),
        ("deepstack_merger_list.0.linear_fc1.bias", &[64]),
        ("deepstack_merger_list.0.linear_fc2.weight", &[32, 64]),
        ("deepstack_merger_list.0.linear_fc2.bias", &[32]),
    ];
    let of_blocks: [(&str, &[u64]); 12] = [
        ("norm1.weight", &[16]),
        ("norm1.bias", &[16]),
        ("norm2.weight", &[16]),
        ("norm2.bias", &[16]),
        ("attn.qkv.weight", &[48, 16]),
        ("attn.qkv.bias", &[48]),
        ("attn.proj.weight", &[16, 16]),
        ("attn.proj.bias", &[16]),
        ("mlp.linear_fc1.weight", &[24, 16]),
        ("mlp.linear_fc1.bias", &[24]),
        ("mlp.linear_fc2.weight", &[16, 24]),
        ("mlp.linear_fc2.bias", &[16]),
    ];
    let of_block = |block: u64| of_blocks.map(move |(name, shape)| (format!("blocks.{block}.{name}"), shape.to_vec()));
    let outside = outside.map(|(name, shape)| (name.to_owned(), shape.to_vec()));
    let all = outside.into_iter().chain((0..2).flat_map(of_block));
    all.map(|(name, shape)| (format!("model.visual.{name}"), shape)).collect()
}

fn sound() -> Files {
    let text: [(&str, &[u64]); 13] = [
        ("embed_tokens.weight", &[272, 32]),
        ("norm.weight", &[32]),
        ("layers.0.input_layernorm.weight", &[32]),
        ("layers.0.post_attention_layernorm.weight", &[32]),
        ("layers.0.self_attn.q_proj.weight", &[32, 32]),
        ("layers.0.self_attn.k_proj.weight", &[16, 32]),
        ("layers.0.self_attn.v_proj.weight", &[16, 32]),
        ("layers.0.self_attn.o_proj.weight", &[32, 32]),
        ("layers.0.self_attn.q_norm.weight", &[16]),
        ("layers.0.self_attn.k_norm.weight", &[16]),
        ("layers.0.mlp.gate_proj.weight", &[48, 32]),
        ("layers.0.mlp.up_proj.weight", &[48, 32]),
        ("layers.0.mlp.down_proj.weight", &[32, 48]),
    ];
    let config = json!({
        "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "image_token_id": 270,
        "tie_word_embeddings": false,
        "text_config": {
            "model_type": "qwen3_vl_text", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "head_dim": 16,
            "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 272, "max_position_embeddings": 512,
            "rms_norm_eps": 1e-6, "hidden_act": "silu",
            "rope_parameters": {
                "rope_theta": 5e6, "rope_type": "default", "mrope_section": [3, 3, 2], "mrope_interleaved": true,
            },
        },
        "vision_config": {
            "model_type": "qwen3_vl", "hidden_size": 16, "intermediate_size": 24, "depth": 2, "num_heads": 2, "in_channels": 3,
            "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "num_position_embeddings": 16,
            "out_hidden_size": 32, "deepstack_visual_indexes": [0], "hidden_act": "gelu_pytorch_tanh",
        },
    });
    let processor = json!({
        "image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 4, "temporal_patch_size": 2, "merge_size": 2,
        "size": {"shortest_edge": 256, "longest_edge": 65536}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    });
    let text = text.map(|(name, shape)| (format!("model.language_model.{name}"), shape.to_vec()));
    let head = [("lm_head.weight".to_owned(), vec![272, 32])];
    made(&config, text.into_iter().chain(head).chain(seeing())).with(PROCESSOR, processor.to_string())
}

/// Vision tables are read only where towers are asked for.
pub fn cases(table: &mut Table) {
    let sound = sound();
    table.accepts("a Qwen3-VL whose tower is not asked for", &sound.tree(), "");
    table.vision = true;
    table.accepts("a Qwen3-VL", &sound.tree(), "");
    let vision = "vision_config";
    let cases: &[(&str, &str, Value, u8, &str)] = &[
        (vision, "hidden_size", json!(null), 10, "vision_config.hidden_size"),
        (vision, "hidden_size", json!(32), 15, "patch_embed.proj.weight has shape [16, 3, 2, 4, 4]"),
        (vision, "depth", json!(0), 10, "vision_config.depth"),
        (vision, "depth", json!(null), 10, "vision_config.depth"),
        (vision, "depth", json!(2147483647), 15, "blocks.2.norm1.weight"),
        (vision, "num_heads", json!(3), 15, "num_heads is 3"),
        (vision, "num_heads", json!(8), 15, "heads have 2 elements"),
        (vision, "intermediate_size", json!(32), 15, "linear_fc1.weight"),
        (vision, "patch_size", json!(8), 15, "patch_embed.proj.weight"),
        (vision, "patch_size", json!([4, 4]), 10, "vision_config.patch_size"),
        (vision, "patch_size", json!(0), 10, "vision_config.patch_size"),
        (vision, "in_channels", json!(1), 15, "patch_embed.proj.weight"),
        (vision, "temporal_patch_size", json!(1), 15, "patch_embed.proj.weight"),
        (vision, "temporal_patch_size", json!(0), 10, "vision_config.temporal_patch_size"),
        (vision, "temporal_patch_size", json!(2147483647), 15, "patch_embed.proj.weight"),
        (vision, "spatial_merge_size", json!(4), 15, "merger.linear_fc1.weight"),
        (vision, "spatial_merge_size", json!(0), 10, "vision_config.spatial_merge_size"),
        (vision, "spatial_merge_size", json!(2147483647), 15, "merger.linear_fc1.weight"),
        (vision, "num_position_embeddings", json!(15), 10, "vision_config.num_position_embeddings"),
        (vision, "num_position_embeddings", json!(25), 15, "pos_embed.weight"),
        (vision, "num_position_embeddings", json!(null), 15, "pos_embed.weight"),
        (vision, "out_hidden_size", json!(16), 15, "vision_config.out_hidden_size is 16"),
        (vision, "out_hidden_size", json!("wide"), 10, "out_hidden_size"),
        (vision, "deepstack_visual_indexes", json!([2]), 10, "deepstack_visual_indexes[0]"),
        (vision, "deepstack_visual_indexes", json!([-1]), 10, "deepstack_visual_indexes[0]"),
        (vision, "deepstack_visual_indexes", json!([0.5]), 10, "deepstack_visual_indexes[0]"),
        (vision, "deepstack_visual_indexes", json!([0, 0]), 10, "blocks in ascending order"),
        (vision, "deepstack_visual_indexes", json!([1, 0]), 10, "blocks in ascending order"),
        (vision, "deepstack_visual_indexes", json!([0, 1]), 15, "deepstack_visual_indexes has 2 blocks"),
        (vision, "deepstack_visual_indexes", json!(0), 10, "deepstack_visual_indexes"),
        (vision, "deepstack_visual_indexes", json!(null), 15, "deepstack_visual_indexes is [8, 16, 24]"),
        (vision, "hidden_act", json!("silu"), 11, "vision_config.hidden_act"),
        (vision, "rope_parameters", json!({"rope_type": "yarn"}), 11, "a rotation yarn"),
        (vision, "rope_parameters", json!({"rope_theta": 0}), 10, "rope_theta"),
        (vision, "model_type", json!("qwen2_5_vl"), 11, "vision_config.model_type qwen2_5_vl"),
        ("", "image_token_id", json!(272), 15, "image_token_id is 272"),
        ("", "image_token_id", json!(null), 15, "image_token_id is 151655"),
        ("", "image_token_id", json!("<|image_pad|>"), 10, "image_token_id"),
    ];
    for (section, key, value, code, says) in cases {
        let edited = sound.json(CONFIG, |config| {
            let keys = if section.is_empty() { config } else { config[*section].as_object_mut().unwrap() };
            keys.insert((*key).to_owned(), value.clone());
        });
        table.refuses(&format!("a Qwen3-VL whose {key} is {value}"), &edited.tree(), "", *code, &[says]);
    }
    for (key, value, code, says) in [
        ("patch_size", json!(8), 15, "2 by 2 patches of 8 by 8 pixels and 2 frames, but the tower has 2 by 2"),
        ("merge_size", json!(1), 15, "1 by 1 patches of 4 by 4 pixels and 2 frames"),
        ("merge_size", json!(64), 15, "64 by 64 patches"),
        ("temporal_patch_size", json!(1), 15, "2 by 2 patches of 4 by 4 pixels and 1 frames"),
        ("image_processor_type", json!("SiglipImageProcessor"), 11, "SiglipImageProcessor"),
        ("size", json!({"shortest_edge": 256, "longest_edge": 0}), 10, "max_pixels"),
        ("size", json!({"shortest_edge": 256, "longest_edge": 1u64 << 40}), 10, "max_pixels"),
    ] {
        let edited = sound.json(PROCESSOR, |config| drop(config.insert(key.to_owned(), value.clone())));
        table.refuses(&format!("images of a Qwen3-VL whose {key} is {value}"), &edited.tree(), "", code, &[says]);
    }
    for (name, _) in seeing() {
        let without = sound.header(MODEL, |header| {
            let tensor = header.remove(&name).unwrap();
            header.insert("model.visual.another".to_owned(), tensor);
        });
        table.refuses(&format!("no {name}"), &without.tree(), "", 15, &["is missing", &name]);
        let integers = sound.header(MODEL, |header| header[&name]["dtype"] = json!("I16"));
        table.refuses(&format!("{name} of I16"), &integers.tree(), "", 15, &[&name, "I16"]);
    }
    let none = sound.json(CONFIG, |config| config[vision]["deepstack_visual_indexes"] = json!([]));
    table.accepts("a Qwen3-VL that adds no rows of blocks", &none.tree(), "");
    table.vision = false;
}
