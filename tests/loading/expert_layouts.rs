//! Experts of a layer in one tensor, by rows as transformers 5 has them in memory and by inputs as Qwen3-VL's are published: the
//! model is that of a tensor for each expert.
#![allow(clippy::expect_used)] // a test that cannot go on says why

use crate::common;

use common::relative_l2;
use model_factory::Model;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// A tensor's dtype, shape and bytes.
type Tensor = (Dtype, Vec<usize>, Vec<u8>);

/// What names become.
type Rename = fn(&str) -> String;

/// The names of an expert's gate, up and down projections.
const PARTS: [[&str; 3]; 2] = [["w1", "w3", "w2"], ["gate_proj", "up_proj", "down_proj"]];

/// The tensors of a folder with those of experts joined, `by_inputs` or by rows, and all names given by `rename`.
fn joined(folder: &Path, by_inputs: bool, rename: &dyn Fn(&str) -> String) -> BTreeMap<String, Tensor> {
    let bytes = std::fs::read(folder.join("model.safetensors")).expect("weights");
    let stored = SafeTensors::deserialize(&bytes).expect("sound weights");
    let (mut tensors, mut experts) = (BTreeMap::new(), BTreeMap::new());
    for (name, tensor) in stored.iter() {
        let tensor = (tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec());
        let expert = name.split_once(".experts.").and_then(|(layer, rest)| Some((layer, rest.split_once('.')?)));
        let Some((layer, (expert, part))) = expert else {
            tensors.insert(rename(name), tensor);
            continue;
        };
        let part = part.strip_suffix(".weight").expect("a weight");
        let place = PARTS.iter().find_map(|parts| parts.iter().position(|known| *known == part)).expect("a projection");
        experts.insert((format!("{layer}.experts"), expert.parse::<usize>().expect("a number"), place), tensor);
    }
    let count = experts.keys().map(|(_, expert, _)| expert + 1).max().expect("experts");
    let layers: Vec<String> = experts.keys().map(|(layer, ..)| layer.clone()).collect();
    for layer in layers {
        for (name, places) in [("gate_up_proj", &[0, 1][..]), ("down_proj", &[2])] {
            let matrices: Vec<Tensor> = (0..count)
                .map(|expert| {
                    let parts = places.iter().map(|place| &experts[&(layer.clone(), expert, *place)]);
                    let (dtype, shape) =
                        (parts.clone().next().expect("a part").0, &experts[&(layer.clone(), expert, places[0])].1);
                    let (rows, inputs) = (shape[0] * places.len(), shape[1]);
                    let data: Vec<u8> = parts.flat_map(|part| part.2.clone()).collect();
                    if by_inputs { transposed(dtype, [rows, inputs], &data) } else { (dtype, vec![rows, inputs], data) }
                })
                .collect();
            let (dtype, shape, _) = &matrices[0];
            let shape = [&[count][..], shape].concat();
            let data = matrices.iter().flat_map(|matrix| matrix.2.clone()).collect();
            tensors.insert(rename(&format!("{layer}.{name}")), (*dtype, shape, data));
        }
    }
    tensors
}

fn transposed(dtype: Dtype, [rows, columns]: [usize; 2], data: &[u8]) -> Tensor {
    let size = data.len() / (rows * columns);
    let element = |row: usize, column: usize| &data[(row * columns + column) * size..][..size];
    let turned = (0..columns).flat_map(|column| (0..rows).flat_map(move |row| element(row, column).to_vec()));
    (dtype, vec![columns, rows], turned.collect())
}

/// A folder with the files of `source`, these tensors and `config.json` as `edit` makes it.
fn written(source: &Path, tensors: &BTreeMap<String, Tensor>, edit: impl Fn(Value) -> Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for file in std::fs::read_dir(source).expect("a folder") {
        let file = file.expect("an entry");
        std::fs::copy(file.path(), folder.path().join(file.file_name())).expect("a copy");
    }
    let config = std::fs::read(source.join("config.json")).expect("config.json");
    let config = edit(serde_json::from_slice(&config).expect("JSON"));
    std::fs::write(folder.path().join("config.json"), config.to_string()).expect("a file");
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).expect("the shape of the bytes"))
    });
    let weights = folder.path().join("model.safetensors");
    std::fs::remove_file(&weights).expect("a copy");
    safetensors::serialize_to_file(views, None, &weights).expect("weights are written");
    folder
}

fn logits(model: &Model) -> Vec<f32> {
    model.all_logits(&common::tokens(40, 256)).expect("logits").to_vec()
}

#[test]
fn experts_by_rows_in_one_tensor_have_the_bits_of_single_ones() {
    let renames: [(&str, Rename); 6] = [
        ("mixtral", |name| name.replace(".block_sparse_moe.", ".mlp.")),
        ("phi-3.5-moe", |name| name.replace(".block_sparse_moe.", ".mlp.").replace(".mlp.gate.", ".mlp.router.")),
        ("lfm2-moe", str::to_owned),
        ("minimax-m2", |name| name.replace(".block_sparse_moe.", ".mlp.")),
        ("ernie-4.5-moe", |name| name.replace(".moe_statics.", ".gate.moe_statics.")),
        ("hy3", |name| {
            let name = name.replace(".router.gate.", ".gate.").replace(".shared_mlp.", ".shared_experts.");
            name.replace(".mlp.expert_bias", ".mlp.e_score_correction_bias")
        }),
    ];
    for (fixture, rename) in renames {
        let source = common::named(fixture).folder.join("bf16");
        let folder = written(&source, &joined(&source, false, &rename), |config| config);
        assert_eq!(logits(&common::load(folder.path())), logits(&common::load(&source)), "{fixture}");
    }
}

/// Qwen3 with experts that are narrower than the residual stream: the shape of square ones would not say how they are stored.
fn narrow(width: usize) -> tempfile::TempDir {
    let source = common::named("qwen3-moe").folder.join("f32");
    let bytes = std::fs::read(source.join("model.safetensors")).expect("weights");
    let stored = SafeTensors::deserialize(&bytes).expect("sound weights");
    let cut = |(name, tensor): (&str, TensorView<'_>)| {
        let (dtype, shape, data) = (tensor.dtype(), tensor.shape(), tensor.data());
        let (rows, columns) = match name.contains(".experts.") {
            false => return (name.to_owned(), (dtype, shape.to_vec(), data.to_vec())),
            true if name.contains("down") => (shape[0], width),
            true => (width, shape[1]),
        };
        let of_row = data.chunks_exact(data.len() / shape[0]).take(rows);
        let data = of_row.flat_map(|row| &row[..row.len() / shape[1] * columns]).copied().collect();
        (name.to_owned(), (dtype, vec![rows, columns], data))
    };
    let tensors = stored.iter().map(cut).collect();
    written(&source, &tensors, |mut config| {
        config["moe_intermediate_size"] = width.into();
        config
    })
}

#[test]
fn experts_by_inputs_are_those_by_rows() {
    let folder = narrow(24);
    let source = folder.path();
    let rename = |name: &str| match name.strip_prefix("model.") {
        Some(rest) => format!("model.language_model.{rest}"),
        None => name.to_owned(),
    };
    let within = |mut text: Value| {
        text["model_type"] = "qwen3_vl_moe_text".into();
        json!({"architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe", "text_config": text})
    };
    let alone = logits(&common::load(source));
    let [rows, inputs] = [false, true].map(|by_inputs| {
        let folder = written(source, &joined(source, by_inputs, &rename), within);
        (common::load(folder.path()), folder)
    });
    assert_eq!(rows.0.spec().family, "qwen3vlmoe");
    assert_eq!(logits(&rows.0), alone);
    // Sums are in another order.
    let error = relative_l2(&logits(&inputs.0), &alone);
    assert!(error < 1e-6, "{error:.1e}");
    assert_eq!(rows.0.spec().parameters, inputs.0.spec().parameters);
    // One by one, in pieces and at once.
    let tokens = common::tokens(40, 256);
    let whole = common::bits(&mut inputs.0.session(), &tokens);
    let mut session = inputs.0.session();
    tokens[..39].chunks(7).for_each(|piece| drop(common::bits(&mut session, piece)));
    assert_eq!(common::bits(&mut session, &tokens[39..]), whole);
}
