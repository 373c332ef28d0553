//! Mamba-2 of Granite 4: models made from a fixture, whose bits or errors others tell.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::{self, tokens};

use common::relative_l2;
use model_factory::{Model, Session};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tempfile::TempDir;

/// Heads of the fixture's Mamba-2.
const HEADS: usize = 4;

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The fixture in F32 with other tensors and another config.json.
fn made(change: impl Fn(&mut Tensors, &mut Map<String, Value>)) -> TempDir {
    let (source, folder) = (common::archives::path("granite-4-h/f32"), tempfile::tempdir().unwrap());
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        std::fs::copy(source.join(file), folder.path().join(file)).unwrap();
    }
    let bytes = std::fs::read(source.join("model.safetensors")).unwrap();
    let float = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    let of = |tensor: TensorView<'_>| (tensor.shape().to_vec(), tensor.data().chunks_exact(4).map(float).collect());
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Tensors = stored.tensors().into_iter().map(|(name, tensor)| (name, of(tensor))).collect();
    let mut config = serde_json::from_slice(&std::fs::read(source.join("config.json")).unwrap()).unwrap();
    change(&mut tensors, &mut config);
    let bytes = |data: &[f32]| data.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let data: BTreeMap<_, _> =
        tensors.iter().map(|(name, (shape, data))| (name, (shape.clone(), bytes(data)))).collect();
    let views = data.iter().map(|(name, (shape, data))| {
        (name.as_str(), TensorView::new(safetensors::Dtype::F32, shape.clone(), data).unwrap())
    });
    safetensors::serialize_to_file(views, None, &folder.path().join("model.safetensors")).unwrap();
    std::fs::write(folder.path().join("config.json"), Value::Object(config).to_string()).unwrap();
    folder
}

fn logits(model: &Model) -> Vec<f32> {
    model.all_logits(&tokens(90, 256)).unwrap().into_vec()
}

/// Steps that are limited to one length have it, whatever the product and its bias are.
#[test]
fn steps_keep_their_limits() {
    const STEP: f64 = 0.2;
    let limit = |limit: Value| {
        move |_: &mut Tensors, config: &mut Map<String, Value>| {
            drop(config.insert("time_step_limit".into(), limit.clone()))
        }
    };
    let of = |folder: TempDir| logits(&common::load(folder.path()));
    let (limited, free) = (of(made(limit(json!([STEP, STEP])))), of(made(limit(json!(null)))));
    let fixed = of(made(|tensors, _| {
        let (_, rows) = tensors.get_mut("model.layers.0.mamba.in_proj.weight").unwrap();
        let steps = rows.len() - HEADS * 32;
        rows[steps..].fill(0.0);
        // The softplus of this is the step.
        tensors.get_mut("model.layers.0.mamba.dt_bias").unwrap().1.fill(STEP.exp_m1().ln() as f32);
    }));
    // The bias is rounded to F32, a step by some 1e-8 of it.
    assert!(relative_l2(&limited, &fixed) < 1e-5, "{}", relative_l2(&limited, &fixed));
    assert!(relative_l2(&free, &fixed) > 1e-2, "steps of the fixture are others");
    let wide = of(made(limit(json!([0.0, {"__float__": "Infinity"}]))));
    assert_eq!(wide, free);
    // As published files of few steps have it.
    let most = of(made(limit(json!([0.0, 1e-3]))));
    assert!(relative_l2(&most, &free) > 1e-2);
}

/// No layer attends: there is nothing to cache but states.
#[test]
fn a_model_may_have_no_attention() {
    let folder = made(|tensors, config| {
        tensors.retain(|name, _| !name.starts_with("model.layers.1."));
        config.insert("num_hidden_layers".into(), json!(1));
        config.insert("layer_types".into(), json!(["mamba"]));
    });
    let bits = |session: &mut Session, chunk: &[u32]| -> Vec<u32> {
        let logits = session.next_logits(chunk).unwrap();
        logits.iter().map(|logit| logit.to_bits()).collect()
    };
    let (model, tokens) = (common::load(folder.path()), tokens(300, 256));
    let whole = bits(&mut model.session(), &tokens);
    let mut session = model.session();
    session.next_logits(&tokens[..21]).unwrap();
    let mut fork = session.fork().unwrap();
    assert_eq!(bits(&mut session, &tokens[21..]), whole);
    assert_eq!(bits(&mut fork, &tokens[21..]), whole);
    fork.truncate(100);
    assert_eq!(bits(&mut fork, &tokens[100..]), whole);
    assert!(model.report().plan.as_ref().is_some_and(|plan| plan.states > 0));
}

/// A bias of the steps' rows is as good as `dt_bias`; one of the convolution that is zero is as good as none.
#[test]
fn biases_are_where_the_flags_say() {
    const IN: &str = "model.layers.0.mamba.in_proj";
    const STEPS: &str = "model.layers.0.mamba.dt_bias";
    const CONV: &str = "model.layers.0.mamba.conv1d.bias";
    let of = |folder: TempDir| logits(&common::load(folder.path()));
    let plain = of(made(|_, _| ()));
    let biased = of(made(|tensors, config| {
        config.insert("mamba_proj_bias".into(), json!(true));
        let rows = tensors[&format!("{IN}.weight")].0[0];
        let hidden = tensors["model.layers.0.mamba.out_proj.weight"].0[0];
        let steps = std::mem::replace(&mut tensors.get_mut(STEPS).unwrap().1, vec![0.0; HEADS]);
        let mut bias = vec![0.0; rows];
        bias[rows - HEADS..].copy_from_slice(&steps);
        tensors.insert(format!("{IN}.bias"), (vec![rows], bias));
        tensors.insert("model.layers.0.mamba.out_proj.bias".into(), (vec![hidden], vec![0.0; hidden]));
    }));
    // The bias is added in F32 here and in double there.
    assert!(relative_l2(&biased, &plain) < 1e-5, "{}", relative_l2(&biased, &plain));
    let zero = of(made(|tensors, _| tensors.get_mut(CONV).unwrap().1.fill(0.0)));
    let without = of(made(|tensors, config| {
        tensors.remove(CONV);
        config.insert("mamba_conv_bias".into(), json!(false));
    }));
    assert_eq!(zero, without);
    assert!(relative_l2(&zero, &plain) > 1e-2, "the fixture has a bias");
}

#[test]
fn the_kinds_of_layers_have_two_names() {
    let of = |folder: TempDir| logits(&common::load(folder.path()));
    let renamed = of(made(|_, config| {
        let kinds = config.remove("layer_types").unwrap();
        config.insert("layers_block_type".into(), kinds);
    }));
    assert_eq!(renamed, of(made(|_, _| ())));
}
