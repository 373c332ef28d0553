//! The registry of vision towers, and the shape of a tower's table: what makes rows of a language model of an image. Tables hold
//! data only; the blocks of a tower are those of a [`Family`].

mod gemma3;
pub mod processor;
mod siglip;

use crate::block::DenseActivation;
use crate::family::{Family, Key, NormKind};

/// Every supported tower.
pub const TOWERS: &[&Tower] = &[&gemma3::TOWER];

/// One kind of towers with their projector: how files name things, and what is computed in which order.
#[derive(Clone, Copy, Debug)]
pub struct Tower {
    /// The name in reports.
    pub name: &'static str,
    /// Values of `architectures[0]` of the models that have it.
    pub classes: &'static [&'static str],
    /// Values of `model_type` in `vision_config`; the first is meant where there is none.
    pub model_types: &'static [&'static str],
    /// transformers' class of the keys in `vision_config`.
    pub config_class: &'static str,
    /// The blocks: keys, options, and names of tensors, which in safetensors follow one of `fronts`.
    pub encoder: &'static Family,
    /// What the names of the encoder's tensors begin with in safetensors, as writers differ.
    pub fronts: &'static [&'static str],
    /// The input.
    pub patches: PatchTable,
    /// The steps from the blocks' output to rows of the language model.
    pub projector: &'static [Step],
}

/// The names of a tensor, without `.weight` or `.bias`.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// In GGUF.
    pub gguf: &'static str,
    /// In safetensors; `model.` may come before it, or one of the tower's fronts where it is a part of the encoder.
    pub config: &'static str,
}

/// How the pixels of an image become rows of the first block.
#[derive(Clone, Copy, Debug)]
pub struct PatchTable {
    /// The side of the largest image in pixels.
    pub image_size: Key,
    /// The side of a patch in pixels.
    pub patch_size: Key,
    /// The channels of a pixel.
    pub channels: Key,
    /// The product of a patch, `[hidden, channels, patch, patch]`: a convolution whose stride is its kernel.
    pub embedding: Names,
    /// Whether that product has a bias.
    pub bias: bool,
    /// The position embeddings, a row for each patch of the largest image from left to right and then down, where there are any.
    pub positions: Option<Names>,
}

/// A step of a projector. Complete.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum Step {
    /// The mean of each square of patches: so many that `tokens` rows are left of an image, by this key of `config.json`; in GGUF the
    /// `side` of a square in patches. Each with its default and its source.
    Mean { tokens: (&'static str, usize, &'static str), side: (&'static str, usize, &'static str) },
    /// A norm of each row, with the epsilon of the encoder.
    Norm { names: Names, kind: NormKind },
    /// A linear layer to rows of the language model; `transposed` where it is stored `[inputs, outputs]`.
    ToText { names: Names, bias: bool, transposed: bool },
    /// An activation.
    Activation(DenseActivation),
}
