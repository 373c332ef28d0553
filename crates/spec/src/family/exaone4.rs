//! EXAONE 4 and the text of EXAONE 4.5: norms after the sub-layers and of heads; the larger ones have windows in three of four
//! layers, and only these rotate.

use super::*;

const CONFIG: &str = "the default of transformers' Exaone4Config";

pub(super) const FAMILY: Family = Family {
    id: "exaone4",
    gguf_architectures: &["exaone4"],
    model_types: &[("exaone4", &["Exaone4ForCausalLM"]), ("exaone4_5_text", &[])],
    wrappers: &[("Exaone4_5_ForConditionalGeneration", "exaone4_5")],
    tensors: &[WITHOUT_INPUT_NORMS, olmo2::NORMS, HEAD_NORMS],
    window: Window::Pattern(WindowPattern {
        full_every: 4,
        config_key: "sliding_window_pattern",
        source: CONFIG,
        model_types: &["exaone4", "exaone4_5_text"],
        ..PATTERN
    }),
    rope: RopeTable {
        theta: Some((10_000.0, CONFIG)),
        unrotated: Some(Unrotated::WithoutWindow { unless_all: true, but_dense: false }),
        ..ROPE
    },
    head: HeadTable { tied: (false, CONFIG), predictors: Some(Key::gguf(".nextn_predict_layers")), ..HEAD },
    name: "EXAONE 4",
    ..LLAMA_LIKE
};
