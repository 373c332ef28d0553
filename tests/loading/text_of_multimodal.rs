//! The language model of a checkpoint that also sees: its bits are those of the same model by itself, and what belongs to images
//! is named and left alone.
#![allow(clippy::expect_used)] // a test that cannot go on says why

use crate::common;

use common::Fixture;
use model_factory::Model;
use model_factory::diagnostics::DType;
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};
use std::path::Path;

type Keys = Map<String, Value>;

/// A file of images next to the language model `fixture`, whose tensors `rename` moves to where such checkpoints have them.
fn wrap(fixture: &Fixture, folder: &Path, wrapper: [&str; 2], edit: impl Fn(&mut Keys), rename: fn(&str) -> String) {
    let text = fixture.folder.join("bf16");
    for file in std::fs::read_dir(&text).expect("a folder") {
        let file = file.expect("an entry");
        if !["config.json", "model.safetensors"].iter().any(|name| file.file_name() == *name) {
            std::fs::copy(file.path(), folder.join(file.file_name())).expect("a copy");
        }
    }
    let config = std::fs::read(text.join("config.json")).expect("config.json");
    let mut config: Value = serde_json::from_slice(&config).expect("JSON");
    let keys = config.as_object_mut().expect("an object");
    let stops = keys.remove("eos_token_id");
    edit(keys);
    let [class, model_type] = wrapper;
    let whole = json!({"architectures": [class], "model_type": model_type, "eos_token_id": stops, "text_config": config,
        "vision_config": {"hidden_size": 8}});
    std::fs::write(folder.join("config.json"), whole.to_string()).expect("a file");

    let bytes = std::fs::read(text.join("model.safetensors")).expect("weights");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("valid weights");
    let eye = [0; 16];
    let eye = TensorView::new(safetensors::Dtype::BF16, vec![2, 4], &eye).expect("a tensor");
    let renamed = tensors.tensors().into_iter().map(|(name, tensor)| (rename(&name), tensor));
    let all = renamed.chain([("vision_tower.encoder.layers.9.weight".to_owned(), eye)]);
    safetensors::serialize_to_file(all, None, &folder.join("model.safetensors")).expect("a file");
}

fn in_front(name: &str) -> String {
    format!("language_model.{name}")
}

fn as_it_is(name: &str) -> String {
    name.to_owned()
}

fn behind(name: &str) -> String {
    name.strip_prefix("model.").map_or(name.to_owned(), |rest| format!("model.language_model.{rest}"))
}

#[test]
fn has_the_bits_of_the_language_model_alone() {
    let gemma = ["Gemma3ForConditionalGeneration", "gemma3"];
    let gemma4 = ["Gemma4ForConditionalGeneration", "gemma4"];
    let mistral = ["Mistral3ForConditionalGeneration", "mistral3"];
    for (fixture, wrapper, rename) in [
        ("gemma-3", gemma, in_front as fn(&str) -> String),
        ("gemma-3", gemma, behind),
        ("gemma-4-31b", gemma4, behind),
        ("gemma-4-e2b", gemma4, behind),
        ("gemma-3n", ["Gemma3nForConditionalGeneration", "gemma3n"], behind),
        ("mistral-7b", mistral, in_front),
        ("ministral-3", mistral, behind),
        ("deepseek-v3", ["KimiVLForConditionalGeneration", "kimi_vl"], in_front),
        ("llama-4", ["Llama4ForConditionalGeneration", "llama4"], in_front),
        ("mistral-4", mistral, behind),
    ] {
        let [alone, within] = compare(fixture, wrapper, |_| (), rename);
        assert_eq!((&alone.spec().variant, alone.spec().family), (&within.spec().variant, within.spec().family));
    }
}

#[test]
fn texts_by_another_name_have_the_same_bits() {
    let sections = |keys: &mut Keys, kind: &str, rope: Value| {
        keys.insert("model_type".into(), kind.into());
        let heads = keys["num_attention_heads"].as_u64().expect("a number");
        let width = keys["hidden_size"].as_u64().expect("a number");
        keys.entry("head_dim").or_insert((width / heads).into());
        let rope = rope.as_object().cloned().expect("an object");
        let place = if keys.contains_key("rope_scaling") { "rope_scaling" } else { "rope_parameters" };
        match keys[place].as_object_mut() {
            Some(known) => known.extend(rope),
            None => drop(keys.insert(place.into(), rope.into())),
        }
    };
    let qwen2 = json!({"type": "mrope", "mrope_section": [2, 3, 3]});
    let qwen3 = json!({"mrope_section": [6, 5, 5], "mrope_interleaved": true});
    for (fixture, wrapper, kind, rope, rename, family) in [
        (
            "qwen2.5",
            ["Qwen2VLForConditionalGeneration", "qwen2_vl"],
            "qwen2_vl_text",
            &qwen2,
            behind as fn(&str) -> String,
            "qwen2vl",
        ),
        (
            "qwen2.5",
            ["Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl"],
            "qwen2_5_vl_text",
            &qwen2,
            as_it_is,
            "qwen2vl",
        ),
        ("qwen3", ["Qwen3VLForConditionalGeneration", "qwen3_vl"], "qwen3_vl_text", &qwen3, behind, "qwen3vl"),
        (
            "gemma-4-31b",
            ["Gemma4UnifiedForConditionalGeneration", "gemma4_unified"],
            "gemma4_unified_text",
            &json!({}),
            behind,
            "gemma4unified",
        ),
        (
            "hunyuan",
            ["HunYuanVLForConditionalGeneration", "hunyuan_vl"],
            "hunyuan_vl_text",
            &json!({"rope_type": "xdrope", "mrope_section": [2, 2, 2, 2]}),
            behind,
            "hunyuan",
        ),
        (
            "llama-3",
            ["PaddleOCRVLForConditionalGeneration", "paddleocr_vl"],
            "paddleocr_vl_text",
            &qwen2,
            behind,
            "paddleocr",
        ),
        (
            "exaone-4-32b",
            ["Exaone4_5_ForConditionalGeneration", "exaone4_5"],
            "exaone4_5_text",
            &json!({}),
            behind,
            "exaone4",
        ),
    ] {
        let [_, within] = compare(fixture, wrapper, |keys| sections(keys, kind, rope.clone()), rename);
        assert_eq!(within.spec().family, family);
    }
}

#[test]
fn llama_by_another_name_has_the_same_bits() {
    let fixture = common::named("llama-3.2").folder.join("f32");
    let folder = tempfile::tempdir().expect("a folder");
    for file in std::fs::read_dir(&fixture).expect("a folder") {
        let file = file.expect("an entry");
        std::fs::copy(file.path(), folder.path().join(file.file_name())).expect("a copy");
    }
    let config = std::fs::read(fixture.join("config.json")).expect("config.json");
    let mut config: Value = serde_json::from_slice(&config).expect("JSON");
    config["model_type"] = "iquestcoder".into();
    config["architectures"] = json!(["IQuestCoderForCausalLM"]);
    std::fs::write(folder.path().join("config.json"), config.to_string()).expect("a file");
    let (llama, named) = (common::load(&fixture), common::load(folder.path()));
    assert_eq!(named.spec().family, "iquestcoder");
    let tokens: Vec<u32> = (5..60).collect();
    let logits = |model: &Model| -> Vec<Vec<f32>> { model.logits(&tokens).expect("logits").to_vec2().expect("F32") };
    assert_eq!(logits(&named), logits(&llama));
}

/// Loads a fixture alone and within such a checkpoint, whose bits must be the same.
fn compare(fixture: &str, wrapper: [&str; 2], edit: impl Fn(&mut Keys), rename: fn(&str) -> String) -> [Model; 2] {
    let fixture = common::named(fixture);
    let folder = tempfile::tempdir().expect("a folder");
    wrap(&fixture, folder.path(), wrapper, edit, rename);
    let (alone, within) = (common::load(fixture.folder.join("bf16")), common::load(folder.path()));
    assert_eq!(within.spec().architecture, wrapper[0]);
    assert_eq!(within.spec().unused_tensors, ["vision_tower.encoder.layers.9.weight"]);
    assert!(within.report().to_string().contains("1 stored tensor is not used"), "{}", within.report());
    assert_eq!(within.spec().tokenizer.stop_ids, alone.spec().tokenizer.stop_ids);
    assert!(within.spec().matrices().all(|tensor| tensor.dtype == DType::BF16));
    let tokens: Vec<u32> = (5..60).collect();
    let logits = |model: &Model| -> Vec<Vec<f32>> { model.logits(&tokens).expect("logits").to_vec2().expect("F32") };
    assert_eq!(logits(&within), logits(&alone), "{}", fixture.name());
    [alone, within]
}

/// Published files of Gemma 3 leave out what is a default of transformers. Here the tensors contradict it.
#[test]
fn keys_that_are_absent_have_the_defaults_of_transformers() {
    let folder = tempfile::tempdir().expect("a folder");
    let wrapper = ["Gemma3ForConditionalGeneration", "gemma3"];
    let edit = |keys: &mut Keys| drop(keys.remove("num_attention_heads"));
    wrap(&common::named("gemma-3"), folder.path(), wrapper, edit, in_front);
    let report = model_factory::UnifiedModelFactory::diagnose(folder.path()).to_string();
    assert!(report.contains("8 heads of 16 elements"), "{report}");
}
