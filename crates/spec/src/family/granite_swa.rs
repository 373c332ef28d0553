//! Granite with windows in three of four layers and attention sinks.

use super::granite::FACTORS;
use super::*;

pub(super) const SINKS: TensorName =
    TensorName { role: Role::Sinks, gguf: "blk.{}.attn_sinks", config: "model.layers.{}.self_attn.sinks" };

const CONFIG: &str = "the default of transformers' GraniteSWAConfig";

pub(super) const FAMILY: Family = Family {
    id: "granite_swa",
    gguf_architectures: &["granite_swa"],
    model_types: &[("granite_swa", &["GraniteSWAForCausalLM"])],
    files: FileTable {
        refused: &[
            Refusal::AbsentGguf(".logit_scale"),
            Refusal::AbsentGguf(".attention.sliding_window"),
            Refusal::AbsentGguf(".attention.sliding_window_pattern"),
        ],
        ..FILES
    },
    tensors: &[LLAMA_LIKE_TENSORS, &[SINKS]],
    biases: &[ATTENTION_BIAS, MLP_BIAS],
    window: Window::Pattern(WindowPattern {
        full_every: 4,
        first_is_full: true,
        config_default: 128,
        source: CONFIG,
        model_types: &["granite_swa"],
        ..PATTERN
    }),
    block: BlockTable { factors: FACTORS, ..BLOCK },
    rope: RopeTable {
        theta: Some((10_000.0, CONFIG)),
        unrotated: Some(Unrotated::Bases {
            list: "layer_rope_theta",
            gguf: ".attention.rope_pattern",
            windowed: false,
        }),
        ..PERMUTED
    },
    head: HeadTable { tied: (true, CONFIG), ..HEAD },
    name: "Granite SWA",
    ..LLAMA_LIKE
};
