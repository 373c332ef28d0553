//! EmbeddingGemma: Gemma 3 in an encoder, with dense layers after the pooling.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "gemma-embedding",
    gguf_architectures: &["gemma-embedding"],
    model_types: &[("gemma3_text", &["Gemma3TextModel"])],
    wrappers: &[],
    files: FileTable { refused: &[], ..gemma3::FAMILY.files },
    head: HeadTable {
        encoder: Encoder::Flag("use_bidirectional_attention"),
        dense: &[
            ("dense_2", Key::gguf(".dense_2_feat_in"), Key::gguf(".dense_2_feat_out")),
            ("dense_3", Key::gguf(".dense_3_feat_in"), Key::gguf(".dense_3_feat_out")),
        ],
        images: None,
        ..gemma3::FAMILY.head
    },
    variants: &[],
    name: "EmbeddingGemma",
    ..gemma3::FAMILY
};
