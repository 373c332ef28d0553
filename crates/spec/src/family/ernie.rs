//! ERNIE 4.5, dense: Llama's block, rotated in adjacent pairs.

use super::*;

pub(super) const CONFIG: &str = "the default of transformers' config of this family";

pub(super) const SIZES: &[(&str, f64)] = &[("head_dim", 128.0)];

/// One flag for all linear layers of a block.
#[rustfmt::skip]
pub(super) const BIASES: &[Biases] =
    &[(&[Role::Q, Role::K, Role::V, Role::O, Role::Gate, Role::Up, Role::Down], Bias::Flag("use_bias"))];

pub(super) const FAMILY: Family = Family {
    id: "ernie45",
    gguf_architectures: &["ernie4_5"],
    model_types: &[("ernie4_5", &["Ernie4_5ForCausalLM"])],
    files: FileTable { defaults: &[SIZES], defaults_source: CONFIG, ..FILES },
    biases: BIASES,
    rope: RopeTable { theta: Some((500_000.0, CONFIG)), ..INTERLEAVED },
    head: HeadTable { tied: (true, CONFIG), ..HEAD },
    name: "ERNIE 4.5",
    ..LLAMA_LIKE
};
