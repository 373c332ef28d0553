//! Vision towers that are asked for, with one thing wrong: a Gemma 3 and a Mistral 3 of one layer with a tower of one, made of the names
//! and shapes of their tensors.

use crate::edit::Files;
use crate::single::{made, named};
use crate::table::Table;
use serde_json::{Map, Value, json};

const CONFIG: &str = "config.json";
const PROCESSOR: &str = "preprocessor_config.json";
const WHOLE_PROCESSOR: &str = "processor_config.json";
const MODEL: &str = "model.safetensors";

/// Those of a text of width 32 and of a tower of width 16, whose images are 4 by 4 patches.
fn tensors() -> impl Iterator<Item = (String, Vec<u64>)> {
    let text: [(&str, &[u64]); 15] = [
        ("embed_tokens.weight", &[272, 32]),
        ("norm.weight", &[32]),
        ("layers.0.input_layernorm.weight", &[32]),
        ("layers.0.post_attention_layernorm.weight", &[32]),
        ("layers.0.pre_feedforward_layernorm.weight", &[32]),
        ("layers.0.post_feedforward_layernorm.weight", &[32]),
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
    let input: [(&str, &[u64]); 3] = [
        ("patch_embedding.weight", &[16, 3, 14, 14]),
        ("patch_embedding.bias", &[16]),
        ("position_embedding.weight", &[16, 16]),
    ];
    let projector: [(&str, &[u64]); 2] =
        [("mm_input_projection_weight", &[16, 32]), ("mm_soft_emb_norm.weight", &[16])];
    let text = named("language_model.model.", &text);
    let tower = [named("vision_tower.vision_model.embeddings.", &input), siglip_block("vision_tower.vision_model.")];
    [text, tower.concat(), named("multi_modal_projector.", &projector)].concat().into_iter()
}

/// The block of a SigLIP of width 16, and the norm after it.
pub fn siglip_block(front: &str) -> Vec<(String, Vec<u64>)> {
    let shapes: [(&str, &[u64]); 18] = [
        ("encoder.layers.0.layer_norm1.weight", &[16]),
        ("encoder.layers.0.layer_norm1.bias", &[16]),
        ("encoder.layers.0.self_attn.q_proj.weight", &[16, 16]),
        ("encoder.layers.0.self_attn.q_proj.bias", &[16]),
        ("encoder.layers.0.self_attn.k_proj.weight", &[16, 16]),
        ("encoder.layers.0.self_attn.k_proj.bias", &[16]),
        ("encoder.layers.0.self_attn.v_proj.weight", &[16, 16]),
        ("encoder.layers.0.self_attn.v_proj.bias", &[16]),
        ("encoder.layers.0.self_attn.out_proj.weight", &[16, 16]),
        ("encoder.layers.0.self_attn.out_proj.bias", &[16]),
        ("encoder.layers.0.layer_norm2.weight", &[16]),
        ("encoder.layers.0.layer_norm2.bias", &[16]),
        ("encoder.layers.0.mlp.fc1.weight", &[24, 16]),
        ("encoder.layers.0.mlp.fc1.bias", &[24]),
        ("encoder.layers.0.mlp.fc2.weight", &[16, 24]),
        ("encoder.layers.0.mlp.fc2.bias", &[16]),
        ("post_layernorm.weight", &[16]),
        ("post_layernorm.bias", &[16]),
    ];
    named(front, &shapes)
}

fn sound() -> Files {
    let text = json!({
        "model_type": "gemma3_text", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "head_dim": 16,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 272, "max_position_embeddings": 512,
        "sliding_window": 64, "query_pre_attn_scalar": 16, "rms_norm_eps": 1e-6,
    });
    let vision = json!({
        "model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 56, "patch_size": 14,
    });
    let config = json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "mm_tokens_per_image": 4,
        "boi_token_index": 268, "eoi_token_index": 269, "image_token_index": 270,
        "text_config": text, "vision_config": vision,
    });
    let processor = json!({
        "image_processor_type": "Gemma3ImageProcessor", "size": {"height": 56, "width": 56}, "image_seq_length": 4,
    });
    made(&config, tensors()).with(PROCESSOR, processor.to_string())
}

/// The image processor of Gemma 3, with one thing wrong.
fn processors(table: &mut Table, sound: &Files) {
    let cases: &[(&str, Value, u8, &str)] = &[
        ("size", json!({"height": 56, "width": 70}), 15, "images are resized to 70 by 56"),
        ("size", json!({"height": 0, "width": 56}), 10, "size"),
        ("image_seq_length", json!(9), 15, "an image is 9 tokens"),
        ("image_processor_type", json!(null), 10, "image_processor_type"),
        ("image_processor_type", json!("SiglipImageProcessor"), 11, "SiglipImageProcessor"),
        ("image_processor_type", json!("NoImageProcessor"), 11, "NoImageProcessor"),
        ("do_pan_and_scan", json!(true), 11, "pan and scan"),
        ("do_resize", json!(false), 11, "do_resize"),
        ("resample", json!(0), 11, "nearest"),
        ("image_std", json!([0.5, 0.0, 0.5]), 10, "image_std"),
        ("zoom", json!(2), 11, "zoom"),
    ];
    for (key, value, code, says) in cases {
        let edited = sound.json(PROCESSOR, |processor| {
            processor.insert((*key).to_owned(), value.clone());
        });
        table.refuses(&format!("a processor whose {key} is {value}"), &edited.tree(), "", *code, &[says]);
    }
    table.refuses("a processor that is no JSON", &sound.with(PROCESSOR, "{").tree(), "", 10, &[PROCESSOR]);
}

fn in_section(section: &str, config: &mut Map<String, Value>, key: &str, value: &Value) {
    let keys = if section.is_empty() { config } else { config[section].as_object_mut().unwrap() };
    keys.insert(key.to_owned(), value.clone());
}

pub fn cases(table: &mut Table) {
    let sound = sound();
    table.accepts("a tower that is not asked for", &sound.tree(), "");
    table.vision = true;
    table.accepts("a tower", &sound.tree(), "");
    processors(table, &sound);
    let vision = "vision_config";
    let cases: &[(&str, &str, Value, u8, &str)] = &[
        ("", "boi_token_index", json!(272), 15, "boi_token_index is 272"),
        ("", "eoi_token_index", json!(null), 15, "eoi_token_index is 256000"),
        ("", "image_token_index", json!(-1), 10, "image_token_index"),
        (vision, "hidden_size", json!(null), 10, "vision_config.hidden_size"),
        (vision, "hidden_size", json!(0), 10, "vision_config.hidden_size"),
        (vision, "hidden_size", json!("16"), 10, "vision_config.hidden_size"),
        (vision, "hidden_size", json!(1u64 << 40), 10, "vision_config.hidden_size"),
        (vision, "hidden_size", json!(32), 15, "patch_embedding.weight has shape [16, 3, 14, 14]"),
        (vision, "hidden_size", json!(17), 15, "no divisor"),
        (vision, "num_attention_heads", json!(0), 10, "vision_config.num_attention_heads"),
        (vision, "num_attention_heads", json!(3), 15, "num_attention_heads is 3"),
        (vision, "intermediate_size", json!(32), 15, "mlp.fc1.weight"),
        (vision, "intermediate_size", json!(null), 10, "vision_config.intermediate_size"),
        (vision, "num_hidden_layers", json!(2), 15, "encoder.layers.1.layer_norm1.weight"),
        (vision, "num_hidden_layers", json!(2147483647), 15, "encoder.layers.1.layer_norm1.weight"),
        (vision, "num_hidden_layers", json!(0), 10, "vision_config.num_hidden_layers"),
        (vision, "image_size", json!(null), 10, "vision_config.image_size"),
        (vision, "image_size", json!(13), 15, "vision_config.image_size is 13"),
        (vision, "image_size", json!([56, 56]), 10, "vision_config.image_size"),
        (vision, "image_size", json!(70), 15, "position_embedding.weight"),
        (vision, "image_size", json!(112), 15, "position_embedding.weight"),
        (vision, "image_size", json!(2147483647), 15, "position_embedding.weight"),
        (vision, "patch_size", json!(28), 15, "patch_embedding.weight"),
        (vision, "patch_size", json!(0), 10, "vision_config.patch_size"),
        (vision, "patch_size", json!(14.5), 10, "vision_config.patch_size"),
        (vision, "num_channels", json!(1), 15, "patch_embedding.weight"),
        (vision, "layer_norm_eps", json!(0), 10, "vision_config.layer_norm_eps"),
        (vision, "layer_norm_eps", json!("small"), 10, "vision_config.layer_norm_eps"),
        (vision, "hidden_act", json!("relu"), 11, "vision_config.hidden_act"),
        (vision, "hidden_act", json!(1), 10, "vision_config.hidden_act"),
        (vision, "is_causal", json!(true), 11, "vision_config.is_causal"),
        (vision, "model_type", json!("clip_vision_model"), 11, "vision_config.model_type clip_vision_model"),
        (vision, "model_type", json!(7), 10, "vision_config.model_type"),
        ("", "vision_config", json!(null), 11, "config.json has no vision_config"),
        ("", "vision_config", json!([]), 10, "vision_config"),
        ("", "mm_tokens_per_image", json!(5), 15, "mm_tokens_per_image is 5"),
        ("", "mm_tokens_per_image", json!(9), 15, "mm_tokens_per_image is 9"),
        ("", "mm_tokens_per_image", json!(null), 15, "mm_tokens_per_image is 256"),
        ("", "mm_tokens_per_image", json!(0), 10, "mm_tokens_per_image"),
        ("", "mm_tokens_per_image", json!("all"), 10, "mm_tokens_per_image"),
    ];
    for (section, key, value, code, says) in cases {
        let edited = sound.json(CONFIG, |config| in_section(section, config, key, value));
        table.refuses(&format!("a tower whose {key} is {value}"), &edited.tree(), "", *code, &[says]);
    }
    for (key, value) in [("layer_norm_eps", json!(null)), ("hidden_act", json!(null)), ("vision_use_head", json!(true))]
    {
        let edited = sound.json(CONFIG, |config| in_section(vision, config, key, &value));
        table.accepts(&format!("a tower whose {key} is {value}"), &edited.tree(), "");
    }
    for (name, _) in tensors().filter(|(name, _)| !name.starts_with("language_model.")) {
        let without = sound.header(MODEL, |header| {
            let tensor = header.remove(&name).unwrap();
            header.insert("vision_tower.another".to_owned(), tensor);
        });
        table.refuses(&format!("no {name}"), &without.tree(), "", 15, &["is missing", &name]);
        let integers = sound.header(MODEL, |header| header[&name]["dtype"] = json!("I16"));
        table.refuses(&format!("{name} of I16"), &integers.tree(), "", 15, &[&name, "I16"]);
        let flat = sound.header(MODEL, |header| {
            let shape = header[&name]["shape"].as_array_mut().unwrap();
            shape.insert(0, json!(1));
        });
        table.refuses(&format!("{name} of another shape"), &flat.tree(), "", 15, &[&name, "has shape"]);
    }
    mistral3(table);
    table.vision = false;
}

fn mistral3(table: &mut Table) {
    let text: [(&str, &[u64]); 12] = [
        ("model.embed_tokens.weight", &[272, 32]),
        ("lm_head.weight", &[272, 32]),
        ("model.norm.weight", &[32]),
        ("model.layers.0.input_layernorm.weight", &[32]),
        ("model.layers.0.post_attention_layernorm.weight", &[32]),
        ("model.layers.0.self_attn.q_proj.weight", &[32, 32]),
        ("model.layers.0.self_attn.k_proj.weight", &[16, 32]),
        ("model.layers.0.self_attn.v_proj.weight", &[16, 32]),
        ("model.layers.0.self_attn.o_proj.weight", &[32, 32]),
        ("model.layers.0.mlp.gate_proj.weight", &[48, 32]),
        ("model.layers.0.mlp.up_proj.weight", &[48, 32]),
        ("model.layers.0.mlp.down_proj.weight", &[32, 48]),
    ];
    let seeing: [(&str, &[u64]); 15] = [
        ("vision_tower.patch_conv.weight", &[16, 3, 14, 14]),
        ("vision_tower.ln_pre.weight", &[16]),
        ("vision_tower.transformer.layers.0.attention_norm.weight", &[16]),
        ("vision_tower.transformer.layers.0.ffn_norm.weight", &[16]),
        ("vision_tower.transformer.layers.0.attention.q_proj.weight", &[16, 16]),
        ("vision_tower.transformer.layers.0.attention.k_proj.weight", &[16, 16]),
        ("vision_tower.transformer.layers.0.attention.v_proj.weight", &[16, 16]),
        ("vision_tower.transformer.layers.0.attention.o_proj.weight", &[16, 16]),
        ("vision_tower.transformer.layers.0.feed_forward.gate_proj.weight", &[24, 16]),
        ("vision_tower.transformer.layers.0.feed_forward.up_proj.weight", &[24, 16]),
        ("vision_tower.transformer.layers.0.feed_forward.down_proj.weight", &[16, 24]),
        ("multi_modal_projector.norm.weight", &[16]),
        ("multi_modal_projector.patch_merger.merging_layer.weight", &[16, 64]),
        ("multi_modal_projector.linear_1.weight", &[32, 16]),
        ("multi_modal_projector.linear_2.weight", &[32, 32]),
    ];
    let text = text.map(|(name, shape)| (format!("language_model.{name}"), shape.to_vec()));
    let named = seeing.map(|(name, shape)| (name.to_owned(), shape.to_vec()));
    let config = json!({
        "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "image_token_index": 270,
        "text_config": {
            "model_type": "mistral", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "head_dim": 16,
            "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 272, "max_position_embeddings": 512,
            "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": false,
        },
        "vision_config": {
            "model_type": "pixtral", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "head_dim": 8,
            "num_attention_heads": 2, "image_size": 56, "patch_size": 14, "hidden_act": "silu", "rope_theta": 1e4,
        },
    });
    let processor = json!({
        "image_processor": {"image_processor_type": "PixtralImageProcessorFast", "size": {"longest_edge": 56}},
        "patch_size": 14, "spatial_merge_size": 2,
    });
    let sound = made(&config, text.into_iter().chain(named.clone())).with(WHOLE_PROCESSOR, processor.to_string());
    table.accepts("a Pixtral", &sound.tree(), "");
    let vision = "vision_config";
    let cases: &[(&str, &str, Value, u8, &str)] = &[
        ("", "vision_feature_layer", json!(-2), 11, "vision_feature_layer -2"),
        ("", "vision_feature_layer", json!([-1, -2]), 11, "vision_feature_layer"),
        ("", "projector_hidden_act", json!("silu"), 11, "projector_hidden_act"),
        ("", "spatial_merge_size", json!(0), 10, "spatial_merge_size"),
        ("", "spatial_merge_size", json!(5), 15, "spatial_merge_size is 5"),
        ("", "spatial_merge_size", json!(4), 15, "merging_layer.weight"),
        ("", "multimodal_projector_bias", json!(true), 15, "linear_1.bias"),
        ("", "multimodal_projector_bias", json!("no"), 10, "multimodal_projector_bias"),
        (vision, "hidden_act", json!("relu"), 11, "vision_config.hidden_act"),
        (vision, "head_dim", json!(6), 15, "heads have 6 elements"),
        (vision, "rope_theta", json!(1), 10, "rope_theta"),
        (vision, "rope_theta", json!("10000"), 10, "rope_theta"),
        (vision, "rope_parameters", json!({"rope_type": "yarn"}), 11, "a rotation yarn"),
        (vision, "image_size", json!(14), 15, "spatial_merge_size is 2"),
    ];
    for (section, key, value, code, says) in cases {
        let edited = sound.json(CONFIG, |config| in_section(section, config, key, value));
        table.refuses(&format!("a Pixtral whose {key} is {value}"), &edited.tree(), "", *code, &[says]);
    }
    for (key, value, code, says) in [
        ("patch_size", json!(16), 15, "patches of 16 pixels"),
        ("spatial_merge_size", json!(4), 15, "squares of 4 by 4"),
        ("image_processor", json!(null), 15, PROCESSOR),
    ] {
        let edited = sound.json(WHOLE_PROCESSOR, |processor| {
            processor.insert(key.to_owned(), value.clone());
        });
        table.refuses(&format!("a processor of Pixtral whose {key} is {value}"), &edited.tree(), "", code, &[says]);
    }
    let large = sound.json(WHOLE_PROCESSOR, |processor| {
        processor["image_processor"]["size"]["longest_edge"] = json!(64);
    });
    table.refuses("a processor of larger images", &large.tree(), "", 15, &["up to 6 by 6 patches", "takes 4 by 4"]);
    let odd = sound.json(CONFIG, |config| in_section(vision, config, "image_size", &json!(70)));
    table.accepts("a Pixtral whose largest image has a row of patches too many", &odd.tree(), "");
    for (name, _) in named {
        let without = sound.header(MODEL, |header| {
            let tensor = header.remove(&name).unwrap();
            header.insert("vision_tower.another".to_owned(), tensor);
        });
        table.refuses(&format!("no {name}"), &without.tree(), "", 15, &["is missing", &name]);
    }
}
