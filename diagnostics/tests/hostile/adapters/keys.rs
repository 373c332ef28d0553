//! The keys of `adapter_config.json`: each absent, of another type, out of range, or of what is not computed.

use super::{CONFIG, Cases};
use crate::edit::Files;
use serde_json::{Value, json};

const RANK: &str = "r";
const LAYERS: &str = "layers_to_transform";

pub(super) fn cases(cases: &mut Cases, sound: &Files) {
    let with = |key: &str, value: &Value| sound.json(CONFIG, |keys| drop(keys.insert(key.into(), value.clone())));
    // Of another type: any that the key does not have.
    let (flag, whole, text, list, object) = (json!(true), json!(7), json!("x"), json!([1]), json!({"a": 1}));
    let types: &[(&[&str], &[&Value])] = &[
        (
            &["base_model_name_or_path", "megatron_core", "peft_version", "revision", "task_type", "peft_type", "bias"],
            &[&flag, &whole, &list, &object],
        ),
        (&["fan_in_fan_out", "inference_mode", "use_rslora"], &[&whole, &text, &list, &object]),
        (&["lora_dropout", "lora_alpha"], &[&flag, &text, &list, &object]),
        (&["qalora_group_size", RANK], &[&flag, &text, &list, &object, &json!(-1), &json!(1.5), &json!(1e30)]),
        (&["auto_mapping", "runtime_config", "rank_pattern", "alpha_pattern"], &[&flag, &whole, &text, &list]),
        (
            &["target_modules", "exclude_modules", "layers_pattern"],
            &[&flag, &whole, &list, &object, &json!(["a", null])],
        ),
        (&[LAYERS], &[&flag, &text, &object, &json!([-1]), &json!([1.5]), &json!(["0"]), &json!(-1), &json!(1.5)]),
    ];
    for (keys, values) in types {
        for (key, value) in keys.iter().flat_map(|key| values.iter().map(move |value| (key, value))) {
            cases.refuses(&format!("{key} is {value}"), &with(key, value).tree(), "", 10, &[CONFIG, key]);
        }
    }
    for key in ["peft_type", RANK, "lora_alpha"] {
        let says = [CONFIG, &format!("key {key} is missing")];
        let absent = sound.json(CONFIG, |keys| drop(keys.remove(key)));
        cases.refuses(&format!("no {key}"), &absent.tree(), "", 10, &says);
        cases.refuses(&format!("{key} is null"), &with(key, &Value::Null).tree(), "", 10, &says);
    }
    let values: &[(&str, Value, u8, &str)] = &[
        (RANK, json!(0), 10, "r is 0"),
        (RANK, json!(5), 15, "expected [5, 96]"),
        (RANK, json!(u64::MAX), 15, "has shape"),
        ("lora_alpha", json!(1e40), 10, "lora_alpha is 1e40, expected"),
        ("lora_alpha", json!(-1e300), 10, "finite float32"),
        ("bias", json!("all"), 11, "expected none"),
        ("bias", json!("lora_only"), 11, "expected none"),
        ("bias", json!(""), 11, "expected none"),
        ("target_modules", json!(["q_proj"]), 15, "target_modules does not name its layer"),
        ("target_modules", json!([]), 15, "target_modules does not name its layer"),
        ("target_modules", json!(["j_proj"]), 15, "target_modules does not name its layer"),
        ("target_modules", json!(["", "."]), 15, "target_modules does not name its layer"),
        ("target_modules", json!(["proj"]), 15, "target_modules does not name its layer"),
        ("target_modules", json!(["model.layers"]), 15, "target_modules does not name its layer"),
        ("exclude_modules", json!(["q_proj"]), 15, "exclude_modules names its layer"),
        ("exclude_modules", json!(["model.layers.0.self_attn.q_proj"]), 15, "layers.0.self_attn.q_proj.lora_A"),
        (LAYERS, json!([0]), 15, "layers_to_transform is without layer 1"),
        (LAYERS, json!(1), 15, "layers_to_transform is without layer 0"),
        (LAYERS, json!([7, 8]), 15, "layers_to_transform is without layer"),
    ];
    for (key, value, code, says) in values {
        cases.refuses(&format!("{key} is {value}"), &with(key, value).tree(), "", *code, &[CONFIG_OR_TENSORS, says]);
    }
    for pattern in [json!("blocks"), json!(["h", "blocks"]), json!(["self_attn"])] {
        let edited = with(LAYERS, &json!([0, 1]))
            .json(CONFIG, |keys| drop(keys.insert("layers_pattern".into(), pattern.clone())));
        cases.refuses(
            &format!("layers_pattern is {pattern}"),
            &edited.tree(),
            "",
            15,
            &[CONFIG, "name no layer of it"],
        );
    }
    for kind in ["IA3", "ADALORA", "LOHA", "PROMPT_TUNING", "lora", ""] {
        let says = [CONFIG, "peft_type", "expected LORA"];
        cases.refuses(&format!("peft_type {kind:?}"), &with("peft_type", &json!(kind)).tree(), "", 11, &says);
    }
    patterns(cases, sound);
    asks_for_more(cases, sound);
    json_of_keys(cases, sound);
    // What changes nothing of what is computed.
    for (key, value) in [
        ("lora_dropout", json!(0.5)),
        ("fan_in_fan_out", json!(true)),
        ("init_lora_weights", json!("gaussian")),
        ("target_modules", Value::Null),
        ("target_modules", json!("all-linear")),
        ("target_modules", json!(r".*\.(?!x)[a-z_]+")),
        ("exclude_modules", json!(["lm_head", "j_proj", "proj"])),
        ("exclude_modules", json!(r".*\.lm_head")),
        ("modules_to_save", json!([])),
        ("use_dora", json!(false)),
        ("a_key_of_tomorrow", Value::Null),
        ("a_flag_of_tomorrow", json!(false)),
        (LAYERS, json!([0, 1])),
    ] {
        cases.accepts(&format!("{key} is {value}"), &with(key, &value).tree(), "");
    }
}

/// Every error of these names one of the two files, which [`Cases::refuses`] checks.
const CONFIG_OR_TENSORS: &str = "adapter_";

/// The values of single layers, and the patterns that name them.
fn patterns(cases: &mut Cases, sound: &Files) {
    let entry = |key: &str, name: &str, value: &Value| {
        sound.json(CONFIG, |keys| drop(keys.insert(key.into(), json!({ name: value }))))
    };
    let ranks = [json!(0), json!(-1), json!(1.5), json!("3"), json!([3]), json!({}), json!(null), json!(true)];
    let alphas = [json!("3"), json!([3]), json!({}), json!(null), json!(true)];
    for (key, values) in [("rank_pattern", &ranks[..]), ("alpha_pattern", &alphas[..])] {
        for value in values {
            let says = [CONFIG, &format!("{key}.q_proj is {value}")];
            cases.refuses(&format!("{key}.q_proj is {value}"), &entry(key, "q_proj", value).tree(), "", 10, &says);
        }
        for name in [
            "(",
            "[",
            "*",
            "q_proj)",
            "(?!k)q_proj",
            r"(q)\1",
            "(?<=x)q_proj",
            "(a{1000}){1000}",
            "\u{7}(",
            &"(".repeat(9000),
        ] {
            let case = format!("{key} of {}", name.escape_debug().take(20).collect::<String>());
            cases.refuses(&case, &entry(key, name, &json!(3)).tree(), "", 10, &[CONFIG, key, "without look-around"]);
        }
        let many = |keys: &mut serde_json::Map<String, Value>| {
            keys.insert(key.into(), (0..5000).map(|layer| (format!("l{layer}"), json!(3))).collect());
        };
        cases.refuses(&format!("many {key}"), &sound.json(CONFIG, many).tree(), "", 10, &[CONFIG, "5000"]);
    }
    let wrong = entry("rank_pattern", "q_proj", &json!(4));
    cases.refuses("rank_pattern of another rank", &wrong.tree(), "", 15, &["expected [4, 64]", "q_proj.lora_A.weight"]);
    let other = entry("rank_pattern", "no_such_layer", &json!(3));
    cases.refuses(
        "rank_pattern without its layers",
        &other.tree(),
        "",
        15,
        &["has shape", "layers.0.self_attn.q_proj"],
    );
    let large = entry("alpha_pattern", "q_proj", &json!(1e300));
    cases.refuses("alpha_pattern beyond float32", &large.tree(), "", 10, &[CONFIG, "alpha_pattern", "finite float32"]);
}

/// What is not computed.
fn asks_for_more(cases: &mut Cases, sound: &Files) {
    let with = |key: &str, value: &Value| sound.json(CONFIG, |keys| drop(keys.insert(key.into(), value.clone())));
    for key in [
        "alora_invocation_tokens",
        "arrow_config",
        "corda_config",
        "ensure_weight_tying",
        "eva_config",
        "kasa_config",
        "layer_replication",
        "loftq_config",
        "lora_bias",
        "lora_ga_config",
        "megatron_config",
        "modules_to_save",
        "monteclora_config",
        "target_parameters",
        "trainable_token_indices",
        "use_bdlora",
        "use_dora",
        "use_qalora",
        "velora_config",
        "a_key_of_tomorrow",
    ] {
        for value in [json!(true), json!(["lm_head"]), json!({"a": [1]}), json!("yes"), json!(0)] {
            let says = [CONFIG, key, &value.to_string()];
            cases.refuses(&format!("{key} is {value}"), &with(key, &value).tree(), "", 11, &says);
        }
    }
    for value in ["pissa", "pissa_niter_4", "olora", "loftq", "eva", "corda", "lora_ga", "Gaussian", ""] {
        let says = [CONFIG, "init_lora_weights", "gaussian or orthogonal"];
        let case = format!("init_lora_weights {value:?}");
        cases.refuses(&case, &with("init_lora_weights", &json!(value)).tree(), "", 11, &says);
    }
    for value in [json!(7), json!([]), json!({"a": 1}), json!(1.5)] {
        let case = format!("init_lora_weights is {value}");
        cases.refuses(&case, &with("init_lora_weights", &value).tree(), "", 11, &[CONFIG, "init_lora_weights"]);
    }
    // Names that would write elsewhere on a terminal, or fill it.
    for name in ["line\nline", "\u{1b}[2J", "\u{202e}", &"long".repeat(10_000)] {
        let case = format!("a key of {}", name.escape_debug().take(12).collect::<String>());
        cases.refuses(&case, &with(name, &json!(1)).tree(), "", 11, &[CONFIG]);
    }
}

/// The file of the keys, which is no JSON or no object of keys.
fn json_of_keys(cases: &mut Cases, sound: &Files) {
    let deep = format!("{{\"r\": {}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let texts: &[(&str, &[u8])] = &[
        ("empty", b""),
        ("a list", b"[]"),
        ("null", b"null"),
        ("cut off", b"{"),
        ("NaN", b"{\"r\": NaN}"),
        ("Infinity", b"{\"lora_alpha\": Infinity}"),
        ("a number beyond floats", b"{\"lora_alpha\": 1e999}"),
        ("a key twice", b"{\"r\": 4, \"r\": 4}"),
        ("a key twice within another", b"{\"rank_pattern\": {\"q\": 4, \"q\": 3}}"),
        ("a comma at the end", b"{\"r\": 4,}"),
        ("a comment", b"{\"r\": 4} // ranks"),
        ("no UTF-8", b"{\"r\": \"\xff\"}"),
        ("zeros", &[0; 64]),
        ("deep", deep.as_bytes()),
    ];
    for (what, text) in texts {
        cases.refuses(&format!("keys that are {what}"), &sound.with(CONFIG, text).tree(), "", 10, &[CONFIG]);
    }
}
