//! A Qwen2.5-VL with its tower, asked for, with one thing wrong: in safetensors one layer and a tower of two blocks, made of the names
//! and shapes of their tensors; in GGUF a fixture and the file of its tower.

use crate::build::{BOOL, Tree};
use crate::edit::{Files, Gguf};
use crate::mmproj::{TOWER, every_tensor};
use crate::single::{made, named};
use crate::table::Table;
use serde_json::{Value, json};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const PROCESSOR: &str = "preprocessor_config.json";
const MODEL: &str = "m.gguf";
const EVERY: &str = "clip.vision.n_wa_pattern";

/// Those of a tower of width 16.
fn seeing() -> Vec<(String, Vec<u64>)> {
    let outside = named(
        "model.visual.",
        &[
            ("patch_embed.proj.weight", &[16, 3, 2, 4, 4]),
            ("merger.ln_q.weight", &[16]),
            ("merger.mlp.0.weight", &[64, 64]),
            ("merger.mlp.0.bias", &[64]),
            ("merger.mlp.2.weight", &[32, 64]),
            ("merger.mlp.2.bias", &[32]),
        ],
    );
    let of_block = |block: u64| {
        named(
            &format!("model.visual.blocks.{block}."),
            &[
                ("norm1.weight", &[16]),
                ("norm2.weight", &[16]),
                ("attn.qkv.weight", &[48, 16]),
                ("attn.qkv.bias", &[48]),
                ("attn.proj.weight", &[16, 16]),
                ("attn.proj.bias", &[16]),
                ("mlp.gate_proj.weight", &[24, 16]),
                ("mlp.gate_proj.bias", &[24]),
                ("mlp.up_proj.weight", &[24, 16]),
                ("mlp.up_proj.bias", &[24]),
                ("mlp.down_proj.weight", &[16, 24]),
                ("mlp.down_proj.bias", &[16]),
            ],
        )
    };
    outside.into_iter().chain((0..2).flat_map(of_block)).collect()
}

fn sound() -> Files {
    let text = named(
        "model.language_model.",
        &[
            ("embed_tokens.weight", &[272, 32]),
            ("norm.weight", &[32]),
            ("layers.0.input_layernorm.weight", &[32]),
            ("layers.0.post_attention_layernorm.weight", &[32]),
            ("layers.0.self_attn.q_proj.weight", &[32, 32]),
            ("layers.0.self_attn.q_proj.bias", &[32]),
            ("layers.0.self_attn.k_proj.weight", &[16, 32]),
            ("layers.0.self_attn.k_proj.bias", &[16]),
            ("layers.0.self_attn.v_proj.weight", &[16, 32]),
            ("layers.0.self_attn.v_proj.bias", &[16]),
            ("layers.0.self_attn.o_proj.weight", &[32, 32]),
            ("layers.0.mlp.gate_proj.weight", &[48, 32]),
            ("layers.0.mlp.up_proj.weight", &[48, 32]),
            ("layers.0.mlp.down_proj.weight", &[32, 48]),
        ],
    );
    let config = json!({
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "image_token_id": 270,
        "tie_word_embeddings": false,
        "text_config": {
            "model_type": "qwen2_5_vl_text", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 272, "max_position_embeddings": 512,
            "rms_norm_eps": 1e-6, "hidden_act": "silu", "use_sliding_window": false,
            "rope_parameters": {"rope_theta": 1e6, "rope_type": "default", "mrope_section": [2, 3, 3]},
        },
        "vision_config": {
            "model_type": "qwen2_5_vl", "hidden_size": 16, "intermediate_size": 24, "depth": 2, "num_heads": 2, "in_channels": 3,
            "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 32, "hidden_act": "silu",
            "window_size": 16, "fullatt_block_indexes": [1],
        },
    });
    let processor = json!({
        "image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4, "temporal_patch_size": 2, "merge_size": 2,
        "min_pixels": 256, "max_pixels": 65536, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    });
    let head = [("lm_head.weight".to_owned(), vec![272, 32])];
    made(&config, text.into_iter().chain(head).chain(seeing())).with(PROCESSOR, processor.to_string())
}

pub fn cases(table: &mut Table) {
    let sound = sound();
    table.accepts("a Qwen2.5-VL whose tower is not asked for", &sound.tree(), "");
    table.vision = true;
    folders(table, &sound);
    ggufs(table);
    without_windows(table);
    table.vision = false;
}

fn folders(table: &mut Table, sound: &Files) {
    table.accepts("a Qwen2.5-VL", &sound.tree(), "");
    let with = |key: &str, value: &Value| {
        sound.json(CONFIG, |config| {
            let vision = config["vision_config"].as_object_mut().unwrap();
            vision.insert(key.to_owned(), value.clone());
        })
    };
    for (key, value) in [
        ("window_size", json!(null)),
        ("window_size", json!(8)),
        ("window_size", json!(i32::MAX)),
        ("fullatt_block_indexes", json!(null)),
        ("fullatt_block_indexes", json!([])),
        ("fullatt_block_indexes", json!([0, 1])),
    ] {
        table.accepts(&format!("a Qwen2.5-VL whose {key} is {value}"), &with(key, &value).tree(), "");
    }
    for (key, value, code, says) in [
        ("window_size", json!(7), 15, "window_size is 7"),
        ("window_size", json!(0), 10, "window_size"),
        ("window_size", json!(-112), 10, "window_size"),
        ("window_size", json!(1u64 << 40), 10, "window_size"),
        ("window_size", json!("wide"), 10, "window_size"),
        ("fullatt_block_indexes", json!([2]), 10, "fullatt_block_indexes[0]"),
        ("fullatt_block_indexes", json!([0, -1]), 10, "fullatt_block_indexes[1]"),
        ("fullatt_block_indexes", json!([0.5]), 10, "fullatt_block_indexes[0]"),
        ("fullatt_block_indexes", json!(1), 10, "fullatt_block_indexes"),
        ("depth", json!(0), 10, "vision_config.depth"),
        ("depth", json!(3), 15, "blocks.2.norm1.weight"),
        ("num_heads", json!(8), 15, "heads have 2 elements"),
        ("num_heads", json!(3), 15, "num_heads is 3"),
        ("intermediate_size", json!(32), 15, "gate_proj.weight"),
        ("patch_size", json!(0), 10, "vision_config.patch_size"),
        ("patch_size", json!(2), 15, "patch_embed.proj.weight"),
        ("patch_size", json!(16), 15, "window_size is 16"),
        ("temporal_patch_size", json!(1), 15, "patch_embed.proj.weight"),
        ("spatial_merge_size", json!(4), 15, "merger.mlp.0.weight"),
        ("spatial_merge_size", json!(0), 10, "spatial_merge_size"),
        ("spatial_merge_size", json!(i32::MAX), 15, "window_size is 16"),
        ("out_hidden_size", json!(16), 15, "vision_config.out_hidden_size is 16"),
        ("hidden_act", json!("gelu"), 11, "vision_config.hidden_act"),
        ("rope_parameters", json!({"rope_type": "yarn"}), 11, "a rotation yarn"),
        ("model_type", json!("qwen3_vl"), 11, "vision_config.model_type qwen3_vl"),
    ] {
        let case = format!("a Qwen2.5-VL whose {key} is {value}");
        table.refuses(&case, &with(key, &value).tree(), "", code, &[says]);
    }
    for (key, value, code, says) in [
        ("patch_size", json!(8), 15, "2 by 2 patches of 8 by 8 pixels and 2 frames, but the tower has 2 by 2"),
        ("merge_size", json!(4), 15, "4 by 4 patches of 4 by 4 pixels and 2 frames"),
        ("max_pixels", json!(0), 10, "max_pixels"),
    ] {
        let edited = sound.json(PROCESSOR, |config| drop(config.insert(key.to_owned(), value.clone())));
        table.refuses(&format!("images of a Qwen2.5-VL whose {key} is {value}"), &edited.tree(), "", code, &[says]);
    }
    for (name, _) in seeing() {
        let without = sound.header(WEIGHTS, |header| {
            let tensor = header.remove(&name).unwrap();
            header.insert("model.visual.another".to_owned(), tensor);
        });
        table.refuses(&format!("a Qwen2.5-VL without {name}"), &without.tree(), "", 15, &["is missing", &name]);
        let integers = sound.header(WEIGHTS, |header| header[&name]["dtype"] = json!("I16"));
        table.refuses(&format!("a Qwen2.5-VL with {name} of I16"), &integers.tree(), "", 15, &[&name, "I16"]);
    }
}

fn ggufs(table: &mut Table) {
    let text = Gguf::seeing("qwen2.5-vl", "gguf/f32.gguf");
    let tower = Gguf::seeing("qwen2.5-vl", "gguf/mmproj-f16.gguf");
    let with = |text: &Gguf, tower: &Gguf| Tree::new().with(MODEL, text.build()).with(TOWER, tower.build());
    for (case, edited) in [
        ("as it is", tower.clone()),
        ("with the side of squares", tower.u32("clip.vision.spatial_merge_size", 2)),
        ("whose blocks all attend to whole images", tower.u32(EVERY, 1)),
        ("whose blocks all attend within windows", tower.u32(EVERY, 4)),
    ] {
        table.accepts(&format!("the tower of a Qwen2.5-VL {case}"), &with(&text, &edited), MODEL);
    }
    let mut refuses = |case: &str, edited: &Gguf, code: u8, says: &[&str]| {
        table.refuses(&format!("mmproj of Qwen2.5-VL: {case}"), &with(&text, edited), MODEL, code, says);
    };
    for (key, value, code, says) in [
        (EVERY, 0, 10, EVERY),
        (EVERY, u32::MAX, 10, EVERY),
        ("clip.vision.spatial_merge_size", 0, 10, "clip.vision.spatial_merge_size"),
        ("clip.vision.spatial_merge_size", 4, 15, "mm.0.weight"),
        ("clip.vision.spatial_merge_size", 9, 15, "window_size is 112"),
        ("clip.vision.patch_size", 16, 15, "v.patch_embd.weight"),
        ("clip.vision.patch_size", 60, 15, "window_size is 112"),
        ("clip.vision.attention.head_count", 16, 15, "heads have 2 elements"),
        ("clip.vision.projection_dim", 64, 15, "the language model is 32 wide: these files do not belong together"),
    ] {
        refuses(&format!("{key} is {value}"), &tower.u32(key, value), code, &[TOWER, says]);
    }
    refuses("no pattern of windows", &tower.without(EVERY), 10, &[TOWER, EVERY, "is missing"]);
    refuses("a pattern by a text", &tower.text(EVERY, "each"), 10, &[TOWER, EVERY]);
    refuses("another activation", &tower.set("clip.use_silu", BOOL, [0]), 11, &[TOWER, "quick GELU"]);
    refuses("two activations", &tower.set("clip.use_gelu", BOOL, [1]), 15, &[TOWER, "clip.use_silu"]);
    every_tensor(&tower, &mut refuses);
    for name in [
        "v.patch_embd.weight.2",
        "v.patch_embd.bias",
        "v.blk.0.attn_qkv.weight",
        "v.blk.0.ln1.bias",
        "v.position_embd.weight",
    ] {
        refuses(&format!("{name} too"), &tower.with_tensor(name, &[32], 0), 12, &[TOWER, name]);
    }
    let other = Gguf::seeing("qwen3-vl", "gguf/f32.gguf");
    let says = ["for language models of qwen2vl", "do not belong together"];
    table.refuses("a Qwen3-VL with the tower of a Qwen2.5-VL", &with(&other, &tower), MODEL, 15, &says);
}

/// A Qwen2-VL, whose feed-forward layers are four times as wide as the blocks, and whose file in GGUF says another width.
fn without_windows(table: &mut Table) {
    let folder = Files::seeing("qwen2-vl", "bf16");
    table.accepts("a Qwen2-VL", &folder.tree(), "");
    for (key, value, code, says) in [
        ("mlp_ratio", json!(2), 11, "mlp_ratio"),
        ("mlp_ratio", json!("wide"), 11, "mlp_ratio"),
        ("embed_dim", json!(null), 10, "embed_dim"),
        ("embed_dim", json!(64), 15, "patch_embed.proj.weight"),
        ("hidden_size", json!(64), 15, "vision_config.hidden_size is 64"),
        ("hidden_act", json!("gelu"), 11, "vision_config.hidden_act"),
        ("num_heads", json!(16), 15, "heads have 2 elements"),
        ("model_type", json!("qwen2_5_vl"), 11, "vision_config.model_type qwen2_5_vl"),
    ] {
        let edited = folder.json(CONFIG, |config| {
            let vision = config["vision_config"].as_object_mut().unwrap();
            vision.insert(key.to_owned(), value.clone());
        });
        table.refuses(&format!("a Qwen2-VL whose {key} is {value}"), &edited.tree(), "", code, &[says]);
    }
    let text = Gguf::seeing("qwen2-vl", "gguf/f32.gguf");
    let tower = Gguf::seeing("qwen2-vl", "gguf/mmproj-f16.gguf");
    let with = |tower: &Gguf| Tree::new().with(MODEL, text.build()).with(TOWER, tower.build());
    table.accepts("a Qwen2-VL in GGUF with its tower", &with(&tower), MODEL);
    let width = tower.u32("clip.vision.feed_forward_length", 7);
    table.accepts("a width of feed-forward layers that is not theirs", &with(&width), MODEL);
    for (case, edited, code, says) in [
        ("another activation", tower.set("clip.use_silu", BOOL, [1]), 11, "clip.use_silu"),
        ("no epsilon", tower.without("clip.vision.attention.layer_norm_epsilon"), 10, "layer_norm_epsilon"),
        ("another width", tower.u32("clip.vision.embedding_length", 64), 15, "v.patch_embd.weight"),
        (
            "the tower of a Qwen2.5-VL",
            Gguf::seeing("qwen2.5-vl", "gguf/mmproj-f16.gguf").u32("clip.vision.projection_dim", 48),
            15,
            "projection_dim is 48",
        ),
    ] {
        table.refuses(&format!("mmproj of Qwen2-VL: {case}"), &with(&edited), MODEL, code, &[TOWER, says]);
    }
    for info in &tower.tensors {
        let name = info.name.as_str();
        table.refuses(
            &format!("mmproj of Qwen2-VL: no {name}"),
            &with(&tower.without_tensor(name)),
            MODEL,
            15,
            &[TOWER, name, "is missing"],
        );
    }
}
