//! Adapters that are damaged, ask for what is not computed, or are of other models: refused by file, key and tensor.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::{self, adapters};

use model_factory::{Error, Model};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";
const Q: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";

/// The code and the text of the error that loading gives.
fn refused(model: &Model, path: &Path) -> (u8, String) {
    match model.load_adapter(path) {
        Ok(adapter) => panic!("{} was loaded: {adapter:?}", path.display()),
        Err(error @ Error::Files(_)) => (error.code(), error.to_string()),
        Err(other) => panic!("{}: {other}", path.display()),
    }
}

/// A copy of an adapter, changed.
struct Copied {
    folder: tempfile::TempDir,
    tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
    config: Value,
}

impl Copied {
    fn new(path: &Path) -> Copied {
        let bytes = fs::read(path.join(TENSORS)).unwrap();
        let stored = SafeTensors::deserialize(&bytes).unwrap();
        let each = stored
            .iter()
            .map(|(name, tensor)| (name.to_owned(), tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec()));
        let config = serde_json::from_slice(&fs::read(path.join(CONFIG)).unwrap()).unwrap();
        Copied { tensors: each.collect(), config, folder: tempfile::tempdir().unwrap() }
    }

    fn write(&self) -> &Path {
        let path = self.folder.path();
        fs::write(path.join(CONFIG), serde_json::to_vec(&self.config).unwrap()).unwrap();
        let views = self
            .tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
        safetensors::serialize_to_file(views, None, &path.join(TENSORS)).unwrap();
        path
    }

    fn tensor(&mut self, name: &str) -> &mut (String, Dtype, Vec<usize>, Vec<u8>) {
        self.tensors.iter_mut().find(|tensor| tensor.0 == name).expect("a tensor")
    }
}

#[test]
fn wrong_keys_are_refused_by_name() {
    let of = adapters::named("llama-3.2");
    let model = common::load(of.base("bf16"));
    let path = of.path("first", "bf16");
    model.load_adapter(Copied::new(&path).write()).unwrap();
    model.load_adapter(path.join(CONFIG)).unwrap();
    model.load_adapter(path.join(TENSORS)).unwrap();
    // The value, the code, and what the message says.
    let cases = [
        ("peft_type", json!("IA3"), 11, "expected LORA"),
        ("peft_type", json!(null), 10, "key peft_type is missing"),
        ("peft_type", json!(7), 10, "peft_type is the number 7"),
        ("r", json!(null), 10, "key r is missing"),
        ("r", json!(0), 10, "r is 0"),
        ("r", json!(-4), 10, "r is the number -4"),
        ("r", json!("4"), 10, "r is the string"),
        ("r", json!(5), 15, "expected [5, 96]"),
        ("r", json!(u64::MAX), 15, "has shape"),
        ("lora_alpha", json!(null), 10, "key lora_alpha is missing"),
        ("lora_alpha", json!("8"), 10, "lora_alpha is the string"),
        ("lora_alpha", json!([8]), 10, "lora_alpha is a list"),
        ("rank_pattern", json!({"q_proj": 4}), 15, "expected [4, 64]"),
        ("rank_pattern", json!({"q_proj": -1}), 10, "rank_pattern.q_proj is -1"),
        ("rank_pattern", json!({"q_proj": "3"}), 10, "rank_pattern.q_proj"),
        ("rank_pattern", json!({"(": 3}), 10, "rank_pattern is ("),
        ("rank_pattern", json!({"(?!k)q_proj": 3}), 10, "without look-around"),
        ("rank_pattern", json!({"(a{1000}){1000}": 3}), 10, "rank_pattern is (a{1000}){1000}"),
        ("rank_pattern", json!(["q_proj"]), 10, "rank_pattern is a list"),
        ("alpha_pattern", json!({"q_proj": "3"}), 10, "alpha_pattern.q_proj"),
        ("alpha_pattern", json!({"q_proj": {}}), 10, "alpha_pattern.q_proj"),
        ("alpha_pattern", json!({"[": 3}), 10, "alpha_pattern is ["),
        ("alpha_pattern", json!(3), 10, "alpha_pattern is the number 3"),
        ("use_rslora", json!("yes"), 10, "use_rslora"),
        ("use_dora", json!(true), 11, "use_dora true"),
        ("use_qalora", json!(true), 11, "use_qalora true"),
        ("lora_bias", json!(true), 11, "lora_bias true"),
        ("bias", json!("all"), 11, "bias \"all\""),
        ("bias", json!("lora_only"), 11, "expected none"),
        ("bias", json!(true), 10, "bias is the truth value"),
        ("modules_to_save", json!(["lm_head"]), 11, "modules_to_save [\"lm_head\"]"),
        ("trainable_token_indices", json!([1]), 11, "trainable_token_indices"),
        ("layer_replication", json!([[0, 1]]), 11, "layer_replication"),
        ("alora_invocation_tokens", json!([1]), 11, "alora_invocation_tokens"),
        ("target_parameters", json!(["experts.gate_up_proj"]), 11, "target_parameters"),
        ("megatron_config", json!({"a": 1}), 11, "megatron_config"),
        ("init_lora_weights", json!("pissa"), 11, "init_lora_weights \"pissa\""),
        ("init_lora_weights", json!("olora"), 11, "gaussian or orthogonal"),
        ("arrow_config", json!({"top_k": 1}), 11, "arrow_config"),
        ("a_key_of_tomorrow", json!(1), 11, "a_key_of_tomorrow 1"),
        ("target_modules", json!(["q_proj"]), 15, "target_modules does not name its layer"),
        ("target_modules", json!(["j_proj"]), 15, "target_modules does not name its layer"),
        ("target_modules", json!([1]), 10, "target_modules"),
        ("target_modules", json!({"q_proj": 1}), 10, "target_modules"),
        ("layers_to_transform", json!([0]), 15, "layers_to_transform is without layer 1"),
        ("layers_to_transform", json!(1), 15, "layers_to_transform is without layer 0"),
        ("layers_to_transform", json!("0"), 10, "layers_to_transform"),
        ("layers_to_transform", json!([-1]), 10, "layers_to_transform"),
        ("layers_pattern", json!([3]), 10, "layers_pattern"),
    ];
    for (key, value, code, says) in cases {
        let mut copy = Copied::new(&path);
        copy.config[key] = value.clone();
        let (found, text) = refused(&model, copy.write());
        assert!(found == code && text.contains(says), "{key} {value}: {found}, {text}");
        assert!(text.contains(CONFIG) || text.contains(TENSORS), "{key} {value}: no file in {text}");
    }
    let mut copy = Copied::new(&path);
    (copy.config["layers_to_transform"], copy.config["layers_pattern"]) = (json!([0, 1]), json!("blocks"));
    let (found, text) = refused(&model, copy.write());
    assert!(found == 15 && text.contains("name no layer of it"), "{found}, {text}");
    // What changes nothing of what is computed.
    for (key, value) in [
        ("lora_dropout", json!(0.5)),
        ("inference_mode", json!(false)),
        ("init_lora_weights", json!("gaussian")),
        ("target_modules", json!("all-linear")),
        ("target_modules", json!(r".*\.(?!x)[a-z_]+")),
        ("exclude_modules", json!(["lm_head"])),
        ("modules_to_save", json!([])),
        ("a_key_of_tomorrow", json!(null)),
        ("layers_pattern", json!("layers")),
        ("layers_to_transform", json!([0, 1])),
    ] {
        let mut copy = Copied::new(&path);
        copy.config[key] = value.clone();
        model.load_adapter(copy.write()).unwrap_or_else(|error| panic!("{key} {value}: {error}"));
    }
}

#[test]
fn wrong_tensors_are_refused_by_name() {
    let of = adapters::named("llama-3.2");
    let model = common::load(of.base("bf16"));
    let path = of.path("first", "bf16");
    let b = Q.replace("lora_A", "lora_B");
    type Change<'c> = &'c dyn Fn(&mut Copied);
    let renamed = |from: &'static str, to: &'static str| {
        move |copy: &mut Copied| {
            let tensor = copy.tensor(Q);
            tensor.0 = tensor.0.replace(from, to);
        }
    };
    let shaped = |shape: &'static [usize]| {
        move |copy: &mut Copied| {
            let tensor = copy.tensor(Q);
            (tensor.2, tensor.3) = (shape.to_vec(), vec![0; 2 * shape.iter().product::<usize>()]);
        }
    };
    let typed = |dtype: Dtype, bytes: usize| {
        move |copy: &mut Copied| {
            let tensor = copy.tensor(Q);
            (tensor.1, tensor.3) = (dtype, vec![0; bytes * tensor.2.iter().product::<usize>()]);
        }
    };
    let cases: [(Change<'_>, u8, &str); 21] = [
        (&|copy| copy.tensors.retain(|tensor| tensor.0 != Q), 15, "q_proj.lora_A.weight is missing"),
        (&|copy| copy.tensors.retain(|tensor| tensor.0 != b), 15, "q_proj.lora_B.weight is missing"),
        (&|copy| copy.tensors.clear(), 15, "is missing"),
        (&renamed("q_proj", "x_proj"), 15, "q_proj.lora_A.weight is missing"),
        (&renamed("layers.0", "layers.7"), 15, "missing"),
        (&renamed("base_model.model.", ""), 11, "tensor model.layers.0.self_attn.q_proj.lora_A.weight"),
        (&renamed("lora_A.weight", "lora_A.default.weight"), 11, "lora_A.default.weight"),
        (&renamed("lora_A.weight", "lora_embedding_A"), 11, "lora_embedding_A"),
        (&renamed("lora_A.weight", "lora_magnitude_vector"), 11, "lora_magnitude_vector"),
        (&renamed("lora_A.weight", "base_layer.weight"), 11, "base_layer.weight"),
        (&renamed("lora_A.weight", "lora_B.bias"), 11, "lora_B.bias"),
        (&renamed("lora_A.weight", "modules_to_save.weight"), 11, "modules_to_save.weight"),
        (&shaped(&[3, 63]), 15, "has shape [3, 63], expected [3, 64]"),
        (&shaped(&[2, 64]), 15, "has shape [2, 64], expected [3, 64]"),
        (&shaped(&[3 * 64]), 15, "has shape [192], expected [3, 64]"),
        (&shaped(&[1, 3, 64]), 15, "has shape [1, 3, 64], expected [3, 64]"),
        (&shaped(&[0, 64]), 15, "has shape [0, 64], expected [3, 64]"),
        (&typed(Dtype::I8, 1), 15, "is I8, expected F32, F16 or BF16"),
        (&typed(Dtype::F64, 8), 15, "is F64, expected F32, F16 or BF16"),
        (&typed(Dtype::F8_E4M3, 1), 15, "is F8_E4M3, expected F32, F16 or BF16"),
        (&typed(Dtype::I64, 8), 15, "is I64, expected F32, F16 or BF16"),
    ];
    for (index, (change, code, says)) in cases.into_iter().enumerate() {
        let mut copy = Copied::new(&path);
        change(&mut copy);
        let (found, text) = refused(&model, copy.write());
        assert!(found == code && text.contains(says), "{index}: {found}, {text}");
        assert!(text.contains("adapter_"), "{index}: no file in {text}");
    }
    // Both matrices of a layer that the model does not have.
    for (from, to) in
        [("layers.1.", "layers.9."), ("model.layers", "vision_tower.layers"), ("self_attn.k_proj", "k_proj.k_proj")]
    {
        let mut copy = Copied::new(&path);
        copy.tensors.iter_mut().for_each(|tensor| tensor.0 = tensor.0.replace(from, to));
        let (code, text) = refused(&model, copy.write());
        assert!(code == 15 && text.contains("no linear layer of the model"), "{text}");
    }
    // One layer under two names.
    let mut copy = Copied::new(&path);
    let twice: Vec<_> = copy.tensors.iter().filter(|tensor| tensor.0.contains("0.self_attn.q_proj")).cloned().collect();
    copy.tensors.extend(twice.into_iter().map(|(name, dtype, shape, bytes)| {
        (name.replace("model.layers", "model.language_model.layers"), dtype, shape, bytes)
    }));
    let (code, text) = refused(&model, copy.write());
    assert!(code == 15 && text.contains("for the same layer"), "{text}");
}

#[test]
fn damaged_files_and_adapters_of_other_models_are_refused() {
    let of = adapters::named("llama-3.2");
    let path = of.path("first", "bf16");
    let model = common::load(of.base("bf16"));
    let bytes = fs::read(path.join(TENSORS)).unwrap();
    let copy = Copied::new(&path);
    let written = copy.write();
    for len in [0, 1, 7, 8, 100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(written.join(TENSORS), &bytes[..len]).unwrap();
        let (code, text) = refused(&model, written);
        assert!([10, 15].contains(&code) && text.contains(TENSORS), "{len}: {code}, {text}");
    }
    fs::remove_file(written.join(TENSORS)).unwrap();
    assert!(refused(&model, written).1.contains("adapter_model.safetensors is missing"));
    fs::write(written.join(TENSORS), &bytes).unwrap();
    for config in ["", "[]", "{", "{\"r\": NaN}", "{\"r\": 4, \"r\": 4}"] {
        fs::write(written.join(CONFIG), config).unwrap();
        assert_eq!(refused(&model, written).0, 10, "{config}");
    }
    fs::remove_file(written.join(CONFIG)).unwrap();
    assert!(refused(&model, written).1.contains("adapter_config.json is missing"));
    // Other widths, other layers, another format.
    for (other, says) in [("smollm2/bf16", "has shape"), ("gemma-3/bf16", "has shape"), ("phi-3.5/bf16", "has shape")] {
        let other = common::load(common::archives::path(other));
        let (code, text) = refused(&other, &path);
        assert!(code == 15 && text.contains(says), "{text}");
    }
    let gguf = common::load(common::archives::path("llama-3.2/q8_0.gguf"));
    let (code, text) = refused(&gguf, &path);
    assert!(code == 15 && text.contains("convert_lora_to_gguf.py"), "{text}");
    let (code, text) = refused(&model, &of.folder.join("converted.gguf"));
    assert!(code == 15 && text.contains("is no folder of PEFT"), "{text}");
    let (code, text) = refused(&gguf, &of.base("bf16").join("model.safetensors"));
    assert!(code == 10 && text.contains("model.safetensors"), "{text}");
    let (code, text) = refused(&gguf, &common::archives::path("llama-3.2/q8_0.gguf"));
    assert!(code == 10 && text.contains("general.type is model, expected adapter"), "{text}");
}

#[test]
fn damaged_gguf_adapters_are_refused() {
    let of = adapters::named("llama-3.2");
    let model = common::load(common::archives::path("llama-3.2/q8_0.gguf"));
    let bytes = fs::read(of.folder.join("converted.gguf")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.gguf");
    let write = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let (mut changed, at) = (bytes.clone(), bytes.windows(from.len()).position(|part| part == from.as_bytes()));
        changed[at.expect("it is there")..][..to.len()].copy_from_slice(to.as_bytes());
        fs::write(&path, changed).unwrap();
        refused(&model, &path)
    };
    for (from, to, code, says) in [
        ("adapter.lora.alpha", "adapter.lora.alphX", 10, "key adapter.lora.alpha is missing"),
        ("adapter.type", "adapter.typX", 10, "key adapter.type is missing"),
        ("general.type", "general.typX", 10, "key general.type is missing"),
        ("blk.0.attn_q.weight.lora_a", "blk.7.attn_q.weight.lora_a", 15, "is missing"),
        ("blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_x", 11, "lora_x"),
        ("blk.0.attn_q.weight.lora_a", "blk.0.attn_k.weight.lora_a", 10, "twice"),
    ] {
        let (found, text) = write(from, to);
        assert!(found == code && text.contains(says) && text.contains("adapter.gguf"), "{from} {to}: {found}, {text}");
    }
    for len in (0..bytes.len()).step_by(bytes.len() / 40) {
        fs::write(&path, &bytes[..len]).unwrap();
        let (code, text) = refused(&model, &path);
        assert!([10, 15].contains(&code) && text.contains("adapter.gguf"), "{len}: {code}, {text}");
    }
}
