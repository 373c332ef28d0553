//! Models whose images are cut into tiles, with their towers, asked for, with one thing wrong: an Idefics 3 and an LFM2-VL of one layer
//! with a tower of one, made of the names and shapes of their tensors.

use crate::build::Tree;
use crate::edit::{Files, Gguf};
use crate::single::{made, named};
use crate::table::Table;
use crate::vision::siglip_block;
use serde_json::{Value, json};

const CONFIG: &str = "config.json";
const MODEL: &str = "model.safetensors";
const PROCESSOR: &str = "processor_config.json";

/// What is wrong: the section of `config.json`, the key, its value, the exit code and what the error says.
type Wrong<'a> = (&'a str, &'a str, Value, u8, &'a str);

/// The tower of an Idefics 3 of width 32, whose squares are 4 by 4 patches of 8 pixels.
fn squares() -> Vec<(String, Vec<u64>)> {
    let input = named(
        "model.vision_model.embeddings.",
        &[
            ("patch_embedding.weight", &[16, 3, 8, 8]),
            ("patch_embedding.bias", &[16]),
            ("position_embedding.weight", &[16, 16]),
        ],
    );
    let projector = named("model.connector.", &[("modality_projection.proj.weight", &[32, 64])]);
    [input, siglip_block("model.vision_model."), projector].concat()
}

/// That of an LFM2-VL of width 32, with 4 by 4 position embeddings.
fn tiles() -> Vec<(String, Vec<u64>)> {
    let input = named(
        "model.vision_tower.vision_model.embeddings.",
        &[
            ("patch_embedding.weight", &[16, 192]),
            ("patch_embedding.bias", &[16]),
            ("position_embedding.weight", &[16, 16]),
        ],
    );
    let projector = named(
        "model.multi_modal_projector.",
        &[
            ("layer_norm.weight", &[64]),
            ("layer_norm.bias", &[64]),
            ("linear_1.weight", &[40, 64]),
            ("linear_1.bias", &[40]),
            ("linear_2.weight", &[32, 40]),
            ("linear_2.bias", &[32]),
        ],
    );
    [input, siglip_block("model.vision_tower.vision_model."), projector].concat()
}

fn idefics3() -> Files {
    let text = named(
        "model.text_model.",
        &[
            ("embed_tokens.weight", &[272, 32]),
            ("norm.weight", &[32]),
            ("layers.0.input_layernorm.weight", &[32]),
            ("layers.0.post_attention_layernorm.weight", &[32]),
            ("layers.0.self_attn.q_proj.weight", &[32, 32]),
            ("layers.0.self_attn.k_proj.weight", &[16, 32]),
            ("layers.0.self_attn.v_proj.weight", &[16, 32]),
            ("layers.0.self_attn.o_proj.weight", &[32, 32]),
            ("layers.0.mlp.gate_proj.weight", &[48, 32]),
            ("layers.0.mlp.up_proj.weight", &[48, 32]),
            ("layers.0.mlp.down_proj.weight", &[32, 48]),
        ],
    );
    let head = named("", &[("lm_head.weight", &[272, 32])]);
    let config = json!({
        "architectures": ["Idefics3ForConditionalGeneration"], "model_type": "idefics3", "image_token_id": 270, "scale_factor": 2,
        "tie_word_embeddings": false,
        "text_config": {
            "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "head_dim": 16,
            "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 272, "max_position_embeddings": 512,
            "rms_norm_eps": 1e-5, "rope_theta": 1e4,
        },
        "vision_config": {
            "model_type": "idefics3", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
            "num_attention_heads": 2, "image_size": 32, "patch_size": 8,
        },
    });
    let processor = json!({
        "image_processor": {
            "image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 64},
            "max_image_size": {"longest_edge": 32},
        },
        "image_seq_len": 4,
    });
    made(&config, [text, head, squares()].concat()).with(PROCESSOR, processor.to_string())
}

fn lfm2_vl() -> Files {
    let text = named(
        "model.language_model.",
        &[
            ("embed_tokens.weight", &[272, 32]),
            ("embedding_norm.weight", &[32]),
            ("layers.0.operator_norm.weight", &[32]),
            ("layers.0.ffn_norm.weight", &[32]),
            ("layers.0.conv.in_proj.weight", &[96, 32]),
            ("layers.0.conv.conv.weight", &[32, 1, 3]),
            ("layers.0.conv.out_proj.weight", &[32, 32]),
            ("layers.0.feed_forward.w1.weight", &[48, 32]),
            ("layers.0.feed_forward.w2.weight", &[32, 48]),
            ("layers.0.feed_forward.w3.weight", &[48, 32]),
        ],
    );
    let config = json!({
        "architectures": ["Lfm2VlForConditionalGeneration"], "model_type": "lfm2_vl", "image_token_id": 270,
        "downsample_factor": 2, "projector_hidden_size": 40, "projector_hidden_act": "gelu", "tie_word_embeddings": true,
        "text_config": {
            "model_type": "lfm2", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 272, "max_position_embeddings": 512,
            "norm_eps": 1e-5, "conv_L_cache": 3, "conv_bias": false, "block_auto_adjust_ff_dim": false,
            "layer_types": ["conv"], "rope_theta": 1e6,
        },
        "vision_config": {
            "model_type": "siglip2_vision_model", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_patches": 16, "patch_size": 8,
        },
    });
    let processor = json!({
        "image_processor": {
            "image_processor_type": "Lfm2VlImageProcessorFast", "encoder_patch_size": 8, "downsample_factor": 2,
            "tile_size": 32, "min_tiles": 2, "max_tiles": 4, "min_image_tokens": 1, "max_image_tokens": 9,
        },
    });
    made(&config, [text, tiles()].concat()).with(PROCESSOR, processor.to_string())
}

fn all(table: &mut Table, name: &str, sound: &Files, tower: &[(String, Vec<u64>)], wrong: &[Wrong<'_>]) {
    table.vision = false;
    table.accepts(&format!("{name} whose tower is not asked for"), &sound.tree(), "");
    table.vision = true;
    table.accepts(name, &sound.tree(), "");
    for (section, key, value, code, says) in wrong {
        let file = if ["image_processor", PROCESSOR].contains(section) { PROCESSOR } else { CONFIG };
        let edited = sound.json(file, |config| {
            let keys = match *section {
                "" | PROCESSOR => config,
                section => config[section].as_object_mut().unwrap(),
            };
            keys.insert((*key).to_owned(), value.clone());
        });
        table.refuses(&format!("{name} whose {key} is {value}"), &edited.tree(), "", *code, &[says]);
    }
    for (tensor, _) in tower {
        let without = sound.header(MODEL, |header| {
            let stored = header.remove(tensor).unwrap();
            header.insert("vision_tower.another".to_owned(), stored);
        });
        table.refuses(&format!("{name}: no {tensor}"), &without.tree(), "", 15, &["is missing", tensor]);
        let integers = sound.header(MODEL, |header| header[tensor]["dtype"] = json!("I16"));
        table.refuses(&format!("{name}: {tensor} of I16"), &integers.tree(), "", 15, &[tensor, "I16"]);
        let flat = sound.header(MODEL, |header| {
            header[tensor]["shape"].as_array_mut().unwrap().insert(0, json!(1));
        });
        table.refuses(&format!("{name}: {tensor} of another shape"), &flat.tree(), "", 15, &[tensor, "has shape"]);
    }
    table.vision = false;
}

pub fn cases(table: &mut Table) {
    let vision = "vision_config";
    let images = "image_processor";
    let wrong = [
        ("", "image_token_id", json!(272), 15, "image_token_id is 272"),
        ("", "image_token_id", json!(null), 15, "image_token_id is 128257"),
        ("", "scale_factor", json!(0), 10, "scale_factor"),
        ("", "scale_factor", json!(5), 15, "scale_factor is 5"),
        ("", "scale_factor", json!(4), 15, "modality_projection.proj.weight"),
        ("", "scale_factor", json!(3), 15, "modality_projection.proj.weight"),
        ("", "scale_factor", json!("two"), 10, "scale_factor"),
        (vision, "hidden_size", json!(null), 15, "patch_embedding.weight"),
        (vision, "hidden_size", json!(0), 10, "vision_config.hidden_size"),
        (vision, "num_hidden_layers", json!(null), 15, "encoder.layers.1."),
        (vision, "num_hidden_layers", json!(2147483647), 15, "encoder.layers.1."),
        (vision, "intermediate_size", json!(null), 15, "mlp.fc1.weight"),
        (vision, "num_attention_heads", json!(3), 15, "num_attention_heads is 3"),
        (vision, "image_size", json!(40), 15, "position_embedding.weight"),
        (vision, "image_size", json!([32, 32]), 10, "vision_config.image_size"),
        (vision, "image_size", json!(7), 15, "vision_config.image_size is 7"),
        (vision, "patch_size", json!(16), 15, "patch_embedding.weight"),
        (vision, "hidden_act", json!("relu"), 11, "vision_config.hidden_act"),
        (vision, "model_type", json!("idefics2"), 11, "vision_config.model_type idefics2"),
        (images, "max_image_size", json!({"longest_edge": 48}), 15, "images are resized to 48 by 48 pixels"),
        (images, "max_image_size", json!({"longest_edge": 8}), 10, "max_image_size.longest_edge"),
        (images, "size", json!({"longest_edge": 0}), 10, "size.longest_edge"),
        (images, "image_processor_type", json!("SiglipImageProcessor"), 11, "SiglipImageProcessor"),
        (PROCESSOR, "image_seq_len", json!(9), 15, "an image is 9 tokens, but the tower makes 4 rows of it"),
        (PROCESSOR, "image_seq_len", json!(null), 15, "an image is 169 tokens"),
    ];
    all(table, "an Idefics 3", &idefics3(), &squares(), &wrong);
    let wrong = [
        ("", "image_token_id", json!(272), 15, "image_token_id is 272"),
        ("", "image_token_id", json!(null), 15, "image_token_id is 396"),
        ("", "downsample_factor", json!(0), 10, "downsample_factor"),
        ("", "downsample_factor", json!(3), 15, "layer_norm.weight"),
        ("", "projector_hidden_size", json!(48), 15, "linear_1.weight"),
        ("", "projector_hidden_size", json!(0), 10, "projector_hidden_size"),
        ("", "projector_hidden_size", json!(null), 15, "linear_1.weight"),
        ("", "projector_hidden_act", json!("silu"), 11, "projector_hidden_act"),
        ("", "projector_use_layernorm", json!("yes"), 10, "projector_use_layernorm"),
        ("", "projector_bias", json!(1), 10, "projector_bias"),
        ("", "vision_feature_layer", json!(-2), 11, "vision_feature_layer -2"),
        (vision, "num_patches", json!(15), 10, "vision_config.num_patches"),
        (vision, "num_patches", json!(25), 15, "position_embedding.weight"),
        (vision, "num_patches", json!(null), 15, "position_embedding.weight"),
        (vision, "patch_size", json!(16), 15, "patch_embedding.weight"),
        (vision, "num_channels", json!(1), 15, "patch_embedding.weight"),
        (vision, "model_type", json!("siglip_vision_model"), 11, "vision_config.model_type siglip_vision_model"),
        (
            images,
            "encoder_patch_size",
            json!(16),
            15,
            "squares of 2 by 2 patches of 16 pixels, but the tower has 2 by 2 of 8",
        ),
        (images, "downsample_factor", json!(1), 15, "squares of 1 by 1 patches of 8 pixels"),
        (images, "tile_size", json!(40), 15, "tile_size is 40, but 16 pixels become a row"),
        (images, "tile_size", json!(12), 15, "tile_size is 12"),
        (images, "min_tiles", json!(5), 15, "min_tiles is 5"),
        (images, "max_tiles", json!(65), 10, "max_tiles"),
        (images, "max_image_tokens", json!(0), 10, "max_image_tokens"),
        (images, "image_processor_type", json!("Siglip2ImageProcessor"), 11, "Siglip2ImageProcessor"),
    ];
    let sound = lfm2_vl();
    all(table, "an LFM2-VL", &sound, &tiles(), &wrong);
    table.vision = true;
    let plain = sound.json(CONFIG, |config| drop(config.insert("projector_use_layernorm".into(), json!(false))));
    table.accepts("an LFM2-VL whose projector has no norm, though one is stored", &plain.tree(), "");
    let whole = sound.json(PROCESSOR, |config| config[images]["do_image_splitting"] = json!(false));
    table.accepts("an LFM2-VL that cuts no image", &whole.tree(), "");
    mmproj(table);
    table.vision = false;
}

/// Both in GGUF.
fn mmproj(table: &mut Table) {
    const TOWER: &str = "mmproj-m.gguf";
    let with = |text: &Gguf, tower: &Gguf| Tree::new().with("m.gguf", text.build()).with(TOWER, tower.build());
    let scale = "clip.vision.projector.scale_factor";
    for (name, numbers) in [
        (
            "idefics-3",
            &[
                ("clip.vision.image_size", 40, 15, "v.position_embd.weight"),
                ("clip.vision.preproc_image_size", 0, 10, "clip.vision.preproc_image_size"),
                ("clip.vision.preproc_image_size", 8193, 10, "clip.vision.preproc_image_size"),
                (scale, 4, 15, "mm.model.fc.weight"),
                (scale, 5, 15, "scale_factor is 5"),
                (scale, 0, 10, "scale_factor"),
            ][..],
        ),
        (
            "lfm2-vl",
            &[
                ("clip.vision.image_size", 15, 15, "clip.vision.image_size is 15"),
                ("clip.vision.image_size", 128, 15, "v.position_embd.weight"),
                (scale, 4, 15, "mm.input_norm.weight"),
                (scale, 65, 10, "scale_factor"),
                (scale, 0, 10, "scale_factor"),
            ][..],
        ),
    ] {
        let text = Gguf::seeing(name, "gguf/f32.gguf");
        let tower = Gguf::seeing(name, "gguf/mmproj-f16.gguf");
        table.accepts(&format!("{name} in GGUF with its tower"), &with(&text, &tower), "m.gguf");
        let mut refuses = |case: &str, edited: &Gguf, code: u8, says: &[&str]| {
            table.refuses(&format!("mmproj of {name}: {case}"), &with(&text, edited), "m.gguf", code, says);
        };
        for (key, value, code, says) in numbers {
            refuses(&format!("{key} is {value}"), &tower.u32(key, *value), *code, &[TOWER, says]);
        }
        for info in &tower.tensors {
            let name = info.name.as_str();
            // A projector may have no biases.
            if !["mm.1.bias", "mm.2.bias"].contains(&name) {
                // A norm of the projector is there where it is stored: without its weight its bias is left.
                let (code, says) = if name == "mm.input_norm.weight" { (12, "mm.input_norm.bias") } else { (15, name) };
                refuses(&format!("no {name}"), &tower.without_tensor(name), code, &[TOWER, says]);
            }
            let longer = tower.tensor(name, |info| *info.shape.last_mut().unwrap() += 1);
            refuses(&format!("{name} of another shape"), &longer, 15, &[TOWER, "has shape"]);
            refuses(&format!("{name} of I32"), &tower.tensor(name, |info| info.kind = 26), 15, &[TOWER, name, "I32"]);
        }
        let gemma = Gguf::seeing("gemma-3", "gguf/q8_0.gguf");
        let says = [TOWER, "do not belong together"];
        table.refuses(&format!("a Gemma 3 with the tower of {name}"), &with(&gemma, &tower), "m.gguf", 15, &says);
    }
}
