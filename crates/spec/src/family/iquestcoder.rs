//! IQuest-Coder: Llama by another name.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "iquestcoder",
    gguf_architectures: &[],
    model_types: &[("iquestcoder", &["IQuestCoderForCausalLM", "LlamaForCausalLM"])],
    wrappers: &[],
    files: FileTable {
        // As transformers' IQuestCoderConfig refuses them.
        refused: &[
            Refusal::Set("clip_qkv", "limits of queries, keys and values"),
            Refusal::Set("use_sliding_window", "a sliding window"),
        ],
        defaults: &[&[("head_dim", 128.0)]],
        defaults_source: "the default of transformers' IQuestCoderConfig",
        ..FILES
    },
    window: Window::Unused,
    variants: &[],
    name: "IQuest-Coder",
    ..llama::FAMILY
};
