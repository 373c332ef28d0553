//! EuroBERT: Llama's block in an encoder.

use super::*;

#[rustfmt::skip]
const HEAD_TENSORS: &[TensorName] = &[
    TensorName { role: Role::ClassifierDense, gguf: "cls",        config: "dense" },
    TensorName { role: Role::Classifier,      gguf: "cls.output", config: "classifier" },
];

pub(super) const FAMILY: Family = Family {
    id: "eurobert",
    gguf_architectures: &["eurobert"],
    model_types: &[("eurobert", &["EuroBertModel", "EuroBertForMaskedLM", "EuroBertForSequenceClassification"])],
    files: FileTable { refused: &[Refusal::Set("clip_qkv", "a limit of queries, keys and values")], ..FILES },
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_TENSORS],
    biases: &[ATTENTION_BIAS, MLP_BIAS, (&[Role::ClassifierDense, Role::Classifier], Bias::Always)],
    rope: RopeTable { theta: Some((10_000.0, "the default of transformers' EuroBertConfig")), ..ROPE },
    head: HeadTable {
        tied: (false, "an encoder has no output head"),
        encoder: Encoder::Yes { by_name: false },
        classifier: Some(ClassifierTable {
            pooling: None,
            pooling_key: Some("classifier_pooling"),
            dense: Some(DenseActivation::Gelu),
            ..SCORE
        }),
        ..HEAD
    },
    name: "EuroBERT",
    ..LLAMA_LIKE
};
