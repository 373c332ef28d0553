//! Encoders and classifiers with adapters, against the float64 truth of transformers with PEFT; a text without one keeps its bits.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout)] // a test that cannot go on says why; errors are for reading

use crate::common::{self, bits_of, fixtures, relative_l2};

use half::f16;
use model_factory::error::AdapterError;
use model_factory::{Adapter, ClassifyOptions, EmbedOptions, Error, Model, Pooling, Reranker};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Barrier;

/// An entry of `embeddings/adapters.json`, which `fixtures/make/adapted_encoders.py` writes.
#[derive(Deserialize)]
struct Truth {
    keys: serde_json::Value,
    /// Names, sorted, and shapes.
    tensors: Vec<(String, usize, usize)>,
    texts: Vec<String>,
    means: Vec<Vec<f32>>,
    error: f64,
    #[serde(default)]
    pairs: Vec<(String, String)>,
    #[serde(default)]
    scores: Vec<Vec<f32>>,
    scores_error: Option<f64>,
}

fn truth() -> BTreeMap<String, Truth> {
    let text = std::fs::read(fixtures().join("embeddings/adapters.json")).expect("the truth");
    serde_json::from_slice(&text).expect("the truth")
}

fn base(name: &str) -> Model {
    common::load(fixtures().join("embeddings").join(name))
}

impl Truth {
    /// Writes the adapter into `folder`, with `front` before the names of its layers.
    fn write(&self, folder: &Path, dtype: Dtype, front: &str) {
        let tensors = self.tensors.iter().enumerate().map(|(place, (name, rows, columns))| {
            let numbers = (0..rows * columns).map(|index| {
                let number = ((index * 7919 + place * 104_729) % 61) as f32 - 30.0;
                number / 128.0
            });
            let bytes: Vec<u8> = match dtype {
                Dtype::F16 => numbers.flat_map(|number| f16::from_f32(number).to_le_bytes()).collect(),
                _ => numbers.flat_map(f32::to_le_bytes).collect(),
            };
            let name = name.replace("base_model.model.", &format!("base_model.model.{front}"));
            (name, vec![*rows, *columns], bytes)
        });
        let tensors: Vec<_> = tensors.collect();
        let views =
            tensors.iter().map(|(name, shape, bytes)| (name, TensorView::new(dtype, shape.clone(), bytes).unwrap()));
        safetensors::serialize_to_file(views, None, &folder.join("adapter_model.safetensors")).unwrap();
        std::fs::write(folder.join("adapter_config.json"), self.keys.to_string()).unwrap();
    }

    fn load(&self, model: &Model, dtype: Dtype, front: &str) -> Adapter {
        let folder = tempfile::tempdir().unwrap();
        self.write(folder.path(), dtype, front);
        model.load_adapter(folder.path()).unwrap()
    }
}

fn means() -> EmbedOptions {
    EmbedOptions::default().pooling(Pooling::Mean).normalize(false)
}

/// As of other models: another order of the same sums may be as far from the truth again.
#[test]
fn vectors_and_scores_with_adapters_are_as_near_to_the_truth_as_those_of_transformers() {
    let (mut failures, mut compared) = (Vec::new(), 0);
    for (name, truth) in truth() {
        let model = base(&name);
        let mut check = |what: &str, found: &[f32], plain: &[f32], truth: &[Vec<f32>], error: f64| {
            let (truth, bound) = (truth.concat(), 2.0 * error);
            let (found, without) = (relative_l2(found, &truth), relative_l2(plain, &truth));
            println!("{name} {what}: {found:.2e} of {bound:.2e}: {:.2}, without {without:.2}", found / bound);
            compared += 1;
            if !(found <= bound && without > 0.05) {
                failures.push(format!("{name} {what}"));
            }
        };
        for dtype in [Dtype::F32, Dtype::F16] {
            let adapter = truth.load(&model, dtype, "");
            let with = |options: &EmbedOptions| model.embeddings(&truth.texts, options).unwrap().into_vec();
            let found = with(&means().adapter(&adapter, 1.0));
            check(&format!("{dtype:?} means"), &found, &with(&means()), &truth.means, truth.error);
            let Some(error) = truth.scores_error else { continue };
            let options = ClassifyOptions::default().adapter(&adapter, 1.0);
            if name == "qwen3-score" {
                // A decoder's tokenizer joins no pairs: the prompt does.
                let reranker = Reranker::classifier().prompt("{query}{document}");
                let rank = |options: &ClassifyOptions| -> Vec<f32> {
                    let each = truth.pairs.iter();
                    each.map(|(query, document)| model.rank_with(query, &[document], &reranker, options).unwrap()[0])
                        .collect()
                };
                let sigmoid = |score: &f32| 1.0 / (1.0 + (-f64::from(*score)).exp());
                let scores: Vec<Vec<f32>> = truth.scores.iter().map(|row| vec![sigmoid(&row[0]) as f32]).collect();
                check(&format!("{dtype:?} ranks"), &rank(&options), &rank(&ClassifyOptions::default()), &scores, error);
                continue;
            }
            let scores =
                |options: &ClassifyOptions| model.label_logits_of_pairs_with(&truth.pairs, options).unwrap().to_vec();
            let (found, plain) = (scores(&options), scores(&ClassifyOptions::default()));
            check(&format!("{dtype:?} scores"), &found, &plain, &truth.scores, error);
        }
    }
    assert!(compared >= 16 && failures.is_empty(), "{compared} comparisons, {failures:?}");
}

/// The base names its layers with the class around them, and an adapter may be trained with that class or without it.
#[test]
fn an_adapter_of_the_class_with_a_head_is_that_of_the_encoder() {
    for (name, front) in [("labels", "bert."), ("roberta", "roberta."), ("modernbert", "model.")] {
        let (truth, model) = (&truth()[name], base(name));
        let vectors = |front: &str| {
            let adapter = truth.load(&model, Dtype::F32, front);
            bits_of(&model.embeddings(&truth.texts, &means().adapter(&adapter, 1.0)).unwrap().into_vec())
        };
        assert_eq!(vectors(""), vectors(front), "{name}");
    }
}

#[test]
fn texts_keep_their_bits_in_every_company() {
    for name in ["labels", "modernbert", "qwen3-score"] {
        let (truth, untouched, single) = (&truth()[name], base(name), base(name));
        let model = common::builder().threads(3).load(fixtures().join("embeddings").join(name)).unwrap();
        let options = |model: &Model| {
            let adapter = truth.load(model, Dtype::F32, "");
            [means(), means().adapter(&adapter, 1.0), means().adapter(&adapter, -0.5), means().adapter(&adapter, 0.0)]
        };
        let texts: Vec<&str> = truth.texts.iter().map(String::as_str).cycle().take(12).collect();
        let alone: Vec<Vec<u32>> = options(&single)
            .iter()
            .map(|options| {
                let each = texts.iter().map(|text| single.embeddings(&[text], options).unwrap().into_vec());
                bits_of(&each.flatten().collect::<Vec<f32>>())
            })
            .collect();
        let plain = untouched.embeddings(&texts, &means()).unwrap().into_vec();
        assert_eq!(alone[0], bits_of(&plain), "{name}: a text without an adapter");
        let (given, line) = (options(&model), Barrier::new(8));
        let together: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let each = (0..8).map(|index| {
                let (model, texts, line, options) = (&model, &texts, &line, &given[index % 4]);
                scope.spawn(move || {
                    line.wait();
                    bits_of(&model.embeddings(texts, options).unwrap().into_vec())
                })
            });
            let each: Vec<_> = each.collect();
            each.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (index, found) in together.iter().enumerate() {
            assert_eq!(*found, alone[index % 4], "{name}, options {}", index % 4);
        }
        let differ = |a: usize, b: usize| alone[a] != alone[b];
        assert!(differ(0, 1) && differ(0, 2) && differ(1, 2), "{name}: adapters change nothing");
    }
}

#[test]
fn options_of_adapters_are_checked() {
    let (truth, model, other) = (&truth()["labels"], base("labels"), base("labels"));
    let before = model.cache_usage();
    let adapter = truth.load(&model, Dtype::F32, "");
    let errors = [
        model.embeddings(&["a"], &means().adapter(&adapter, f64::NAN)).map(|_| ()),
        model.label_logits_with(&["a"], &ClassifyOptions::default().adapter(&adapter, f64::INFINITY)).map(|_| ()),
        model.embeddings(&["a"], &means().adapter(&adapter, 1e39)).map(|_| ()),
    ];
    for error in errors {
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Option { option: "adapter", .. }) && error.code() == 2, "{error}");
    }
    let reranker = Reranker::new("{query} {document}", "a", "b");
    let options = ClassifyOptions::default().adapter(&adapter, 1.0);
    let errors = [
        other.embeddings(&["a"], &means().adapter(&adapter, 1.0)).map(|_| ()),
        other.label_logits_with(&["a"], &options).map(|_| ()),
        other.rank_with("a", &["b"], &Reranker::classifier(), &options).map(|_| ()),
        other.rank_with("a", &["b"], &reranker, &options).map(|_| ()),
    ];
    let refused =
        errors.into_iter().filter(|error| matches!(error, Err(Error::Adapter(of)) if **of == AdapterError::OtherModel));
    // One has no head that says yes or no, and one no label of that kind.
    assert!(refused.count() >= 2);
    drop((adapter, options));
    assert_eq!(model.cache_usage(), before, "memory is given back");
}
