//! What a `config.json` means that leaves a key out, says null, or says 0, as transformers 5.23 reads it.
#![allow(clippy::unwrap_used, unreachable_pub)] // a sample that cannot be written is a broken test

#[path = "formats/build.rs"]
#[allow(dead_code)] // this file uses its part
mod build;
#[path = "hostile/edit.rs"]
#[allow(dead_code)] // this file uses its part
mod edit;

use edit::Files;
use model_factory_diagnostics::Error;
use model_factory_diagnostics::error::IncompleteKind;
use model_factory_diagnostics::family::REGISTRY;
use model_factory_diagnostics::header::Header;
use model_factory_diagnostics::source::probe;
use model_factory_diagnostics::spec::{ImageRows, LayerWeights, ModelSpec, RopeScaling, inspect};
use serde_json::{Map, Value, json};

/// The spec of a fixture whose `config.json` is edited.
fn edited(fixture: &str, edit: impl Fn(&mut Map<String, Value>)) -> Result<ModelSpec, Error> {
    let tree = Files::fixture(&format!("{fixture}/bf16")).json("config.json", |config| edit(config)).tree();
    Header::read(probe(&tree.path(""))?).and_then(|header| inspect(&header, REGISTRY))
}

fn windows(spec: &ModelSpec) -> Vec<Option<usize>> {
    let attentions = spec.weights.layers.iter().map(LayerWeights::attention);
    attentions.map(|attention| attention.and_then(|attention| attention.window)).collect()
}

#[test]
fn a_scaling_without_its_original_context_takes_the_models() {
    let yarn = |original: Value| {
        edited("qwen3", |config| {
            let original = original.clone();
            config["rope_parameters"] = json!({"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
                "original_max_position_embeddings": original});
        })
        .unwrap()
    };
    let (absent, said) = (yarn(Value::Null), yarn(json!(40960)));
    assert_eq!(absent.rope().unwrap().scaling, said.rope().unwrap().scaling);
    assert!(absent.assumptions.iter().any(|line| line.contains("original context 40960")), "{:?}", absent.assumptions);
}

/// As the cards of Qwen2.5 and Qwen3 say to write it, with `max_position_embeddings` as it was.
#[test]
fn yarn_extends_the_context() {
    let context = |factor: f64, original: u64| {
        let spec = edited("qwen3", |config| {
            config["rope_parameters"] = json!({"rope_type": "yarn", "rope_theta": 1e6, "factor": factor,
                "original_max_position_embeddings": original});
        })
        .unwrap();
        (spec.context_trained, spec.assumptions.iter().any(|line| line.starts_with("context ")))
    };
    assert_eq!(context(4.0, 32768), (131_072, true));
    assert_eq!(context(1.5, 32768), (49152, true));
    assert_eq!(context(1.25, 32768), (40960, false), "what max_position_embeddings says");
    assert_eq!(context(1.0, 1024), (40960, false));
    assert_eq!(context(1e15, 32768), (i32::MAX as usize, true));
    // A window beyond max_position_embeddings is one all the same.
    let spec = edited("qwen3", |config| {
        config["rope_parameters"] = json!({"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0});
        for (key, value) in [
            ("use_sliding_window", json!(true)),
            ("sliding_window", json!(50000)),
            ("layer_types", Value::Null),
            ("max_window_layers", json!(1)),
        ] {
            config.insert(key.into(), value);
        }
    });
    assert_eq!(windows(&spec.unwrap()), [None, Some(50000)]);
}

#[test]
fn a_family_with_a_scaling_of_its_own_is_refused_without_one() {
    for fixture in ["gpt-oss", "ministral-3"] {
        let plain = edited(fixture, |config| {
            config.remove("rope_parameters");
            config.remove("rope_scaling");
            config.insert("rope_theta".into(), json!(150_000.0));
        });
        let said = plain.map(|spec| spec.family).unwrap_err().to_string();
        assert!(said.contains("rope_parameters") && said.contains("YaRN"), "{said}");
    }
}

#[test]
fn zero_of_a_weight_of_yarn_is_as_good_as_none() {
    let with = |value: Value| {
        edited("ministral-3", |config| {
            config["rope_parameters"]["mscale"] = value.clone();
            config["rope_parameters"]["llama_4_scaling_beta"] = value.clone();
        })
        .unwrap()
    };
    let (zero, none) = (with(json!(0)), with(Value::Null));
    assert!(zero.attentions().all(|attention| attention.query_scale.is_none()));
    let (zero, none) = (zero.rope().unwrap(), none.rope().unwrap());
    assert_eq!(zero.magnitude, none.magnitude);
    assert!(zero.magnitude > 1.0, "that of the factor alone");
}

#[test]
fn null_rounds_the_ends_of_yarn_to_no_whole_pair() {
    let truncates = |edit: fn(&mut Map<String, Value>)| {
        let spec = edited("ministral-3", |config| edit(config["rope_parameters"].as_object_mut().unwrap())).unwrap();
        let RopeScaling::Yarn { truncate, .. } = spec.rope().unwrap().scaling else { panic!("YaRN") };
        truncate
    };
    assert!(truncates(|_| ()));
    assert!(!truncates(|rope| drop(rope.insert("truncate".into(), Value::Null))));
    assert!(!truncates(|rope| drop(rope.insert("truncate".into(), json!(false)))));
}

#[test]
fn qwen_has_windows_where_its_flag_is_on() {
    let with = |keys: &[(&str, Value)]| {
        let spec = edited("qwen3", |config| {
            config.remove("layer_types");
            config.insert("use_sliding_window".into(), json!(true));
            config.insert("sliding_window".into(), json!(16));
            for (key, value) in keys {
                config.insert((*key).into(), value.clone());
            }
        });
        windows(&spec.unwrap())
    };
    assert_eq!(with(&[]), [None, None], "from layer 28 on");
    assert_eq!(with(&[("max_window_layers", json!(1))]), [None, Some(16)]);
    assert_eq!(with(&[("max_window_layers", json!(0))]), [Some(16); 2]);
    assert_eq!(with(&[("max_window_layers", json!(0)), ("sliding_window", Value::Null)]), [None; 2]);
    assert_eq!(with(&[("max_window_layers", json!(0)), ("use_sliding_window", json!(false))]), [None; 2]);
    let listed = json!(["sliding_attention", "full_attention"]);
    assert_eq!(with(&[("layer_types", listed)]), [Some(16), None]);
    let experts = edited("qwen3-moe", |config| {
        config.insert("use_sliding_window".into(), json!(true));
        config.insert("sliding_window".into(), json!(16));
    });
    assert!(windows(&experts.unwrap()).iter().all(|window| *window == Some(16)), "of experts all have one");
}

#[test]
fn a_shared_expert_of_no_width_is_none() {
    let spec = edited("granite-moe", |config| {
        config.insert("model_type".into(), json!("granitemoeshared"));
        config.insert("architectures".into(), json!(["GraniteMoeSharedForCausalLM"]));
        config.insert("shared_intermediate_size".into(), json!(0));
    })
    .unwrap();
    for layer in &spec.weights.layers {
        assert!(layer.experts().expect("experts").shared.is_none());
    }
}

/// The first files of Qwen2-VL and Qwen2.5-VL have no `text_config`.
#[test]
fn the_text_of_qwen2_vl_may_have_its_keys_at_the_top() {
    for (class, kind) in
        [("Qwen2VLForConditionalGeneration", "qwen2_vl"), ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl")]
    {
        let spec = edited("qwen2.5", |config| {
            config.insert("architectures".into(), json!([class]));
            config.insert("model_type".into(), json!(kind));
            config.remove("rope_parameters");
            config.insert("rope_scaling".into(), json!({"type": "mrope", "mrope_section": [2, 3, 3]}));
            config.insert("rope_theta".into(), json!(1e6));
        });
        let spec = spec.unwrap();
        assert_eq!((spec.family, &spec.rope().unwrap().scaling), ("qwen2vl", &RopeScaling::Default));
    }
    let other = edited("qwen2.5", |config| {
        config.insert("rope_parameters".into(), json!({"rope_type": "mrope", "rope_theta": 1e6}));
    });
    assert!(other.map(|spec| spec.family).unwrap_err().to_string().contains("mrope"), "of Qwen2 it is not known");
}

/// Which pairs turn by an image's position in time, height and width: where no key says it, or says what fits, text is the same.
#[test]
fn sections_of_a_rotation_are_read_or_the_familys() {
    let qwen2 = |section: Value| {
        edited("qwen2.5", |config| {
            config.insert("architectures".into(), json!(["Qwen2VLForConditionalGeneration"]));
            config.insert("model_type".into(), json!("qwen2_vl"));
            config["rope_parameters"]["mrope_section"] = section.clone();
        })
    };
    let axes = |spec: &ModelSpec, pairs: usize| {
        let sections = spec.rope().unwrap().sections.unwrap();
        (0..pairs).map(|pair| sections.axis(pair)).collect::<Vec<_>>()
    };
    let spec = qwen2(json!([2, 3, 3])).unwrap();
    assert_eq!((axes(&spec, 8), spec.images), (vec![0, 0, 1, 1, 1, 2, 2, 2], Some(ImageRows::Causal)));
    // The default is of heads of 128.
    let spec = qwen2(Value::Null).unwrap();
    assert_eq!((spec.rope().unwrap().sections, spec.images), (None, None));
    for wrong in [
        json!([2, 3, 4]),
        json!([8]),
        json!([2, 3, 3, 1]),
        json!([]),
        json!("2"),
        json!([2.5, 3, 3]),
        json!([-1, 3, 3]),
    ] {
        let error = qwen2(wrong.clone()).map(|spec| spec.family).unwrap_err().to_string();
        assert!(error.contains("rope_parameters.mrope_section"), "{wrong}: {error}");
    }
    let spec = edited("qwen3.5", |config| config["rope_parameters"]["mrope_section"] = json!([11, 11, 10])).unwrap();
    assert_eq!(axes(&spec, 8), [0, 1, 2, 0, 1, 2, 0, 1]);
    assert_eq!(axes(&edited("qwen3.5", |_| ()).unwrap(), 4), [0, 1, 2, 0]);
    assert_eq!(edited("qwen3-next", |_| ()).unwrap().images, None);
}

#[test]
fn a_layer_that_attends_may_be_listed_again_and_again() {
    let with = |times: usize| {
        let spec = edited("lfm2", |config| {
            let once = config["full_attn_idxs"].as_array().unwrap().clone();
            let listed: Vec<Value> = once.into_iter().flat_map(|layer| vec![layer; times]).collect();
            config.insert("full_attn_idxs".into(), json!(listed));
        });
        format!("{:?}", spec.unwrap().weights)
    };
    assert!(with(1) == with(9));
}

/// The keys of sizes that a default stands in for: a shape that follows from one names it, and no other does.
#[test]
fn a_shape_that_follows_from_a_default_names_the_absent_key() {
    let because_of = |fixture: &str, edit: &dyn Fn(&mut Map<String, Value>)| match edited(fixture, edit) {
        Err(Error::Incomplete { kind: IncompleteKind::TensorShape { name, because, .. }, .. }) => (name, because),
        other => panic!("{fixture}: {other:?}"),
    };
    for (fixture, absent, tensor, taken) in [
        ("llama-3.1", "num_key_value_heads", "self_attn.k_proj", "num_attention_heads, 4"),
        ("qwen3", "head_dim", "self_attn.q_proj", "hidden_size / num_attention_heads, 16"),
        ("gemma-3", "num_attention_heads", "self_attn.q_proj", "8 ("),
        ("gemma-3", "num_key_value_heads", "self_attn.k_proj", "4 ("),
        ("gemma-3", "vocab_size", "embed_tokens", "262208 ("),
        ("gemma-4-31b", "global_head_dim", "self_attn.q_proj", "512 ("),
        ("qwen3.5", "linear_key_head_dim", "linear_attn", "128 ("),
        ("granite-4-h", "mamba_d_state", "mamba", "256 ("),
    ] {
        for value in [None, Some(Value::Null)] {
            let edit = |config: &mut Map<String, Value>| {
                drop(match value.clone() {
                    None => config.remove(absent),
                    Some(value) => config.insert(absent.into(), value),
                })
            };
            let (name, because) = because_of(fixture, &edit);
            assert!(name.contains(tensor), "{absent}: {name}");
            assert!(because.contains(&format!("{absent} is absent and was taken as {taken}")), "{name}: {because}");
        }
    }
    // The width of feed-forward layers has nothing to do with heads, and what is said is no default.
    let (name, because) = because_of("llama-3.1", &|config| {
        config.remove("head_dim");
        config["intermediate_size"] = json!(96);
    });
    assert!(name.contains("mlp") && !because.contains("absent"), "{name}: {because}");
    let (name, because) = because_of("qwen3", &|config| config["num_key_value_heads"] = json!(4));
    assert!(name.contains("k_proj") && !because.contains("absent"), "{name}: {because}");
}

#[test]
fn a_flag_that_is_taken_as_set_is_told_once() {
    let spec = edited("gemma-3n", |config| drop(config.remove("altup_correct_scale"))).unwrap();
    let told: Vec<&String> = spec.assumptions.iter().filter(|told| told.contains("altup_correct_scale")).collect();
    assert!(told.len() == 1 && told[0].starts_with("altup_correct_scale true: it is absent"), "{told:?}");
    let spec = edited("gemma-3n", |_| {}).unwrap();
    assert!(!spec.assumptions.iter().any(|told| told.contains("altup_correct_scale")), "{:?}", spec.assumptions);
}
