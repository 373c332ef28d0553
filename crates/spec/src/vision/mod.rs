//! The registry of vision towers, and the shape of a tower's table: what makes rows of a language model of an image. Tables hold
//! data only; the blocks of a tower are those of a [`Family`].

mod gemma3;
mod idefics3;
mod lfm2_vl;
mod mistral3;
pub mod processor;
mod qwen2_5_vl;
mod qwen2_vl;
mod qwen3_5;
mod qwen3_vl;
mod siglip;

use crate::block::{Activation, DenseActivation, RopeLayout};
use crate::family::{Bias, Family, Key, NormKind};

/// Every supported tower.
pub const TOWERS: &[&Tower] = &[
    &gemma3::TOWER,
    &mistral3::TOWER,
    &qwen3_vl::TOWER,
    &qwen3_5::TOWER,
    &idefics3::TOWER,
    &lfm2_vl::TOWER,
    &qwen2_5_vl::TOWER,
    &qwen2_vl::TOWER,
];

/// One kind of towers with their projector: how files name things, and what is computed in which order.
#[derive(Clone, Copy, Debug)]
pub struct Tower {
    /// The name in reports.
    pub name: &'static str,
    /// Values of `architectures[0]` of the models that have it.
    pub classes: &'static [&'static str],
    /// Values of `model_type` in `vision_config`; the first is meant where there is none.
    pub model_types: &'static [&'static str],
    /// How GGUF has it, in a file of its own; `None` where that is not read.
    pub mmproj: Option<MmprojTable>,
    /// transformers' class of the keys in `vision_config`.
    pub config_class: &'static str,
    /// The blocks: keys, options, and names of tensors, which in safetensors follow one of `fronts`.
    pub encoder: &'static Family,
    /// What the names of the encoder's tensors begin with in safetensors, as writers differ.
    pub fronts: &'static [&'static str],
    /// transformers' classes of image processors that prepare its pixels.
    pub processors: &'static [&'static str],
    /// What stands for an image in a prompt.
    pub prompt: PromptTable,
    /// The input.
    pub patches: PatchTable,
    /// Windows of an image in which most blocks attend, where there are any.
    pub windows: Option<WindowTable>,
    /// How queries and keys are rotated by the places of patches, where they are.
    pub rope: Option<AxialTable>,
    /// Keys of `config.json` that must have this value where they are present, in JSON, by the path from the root.
    pub fixed: &'static [(&'static str, &'static str)],
    /// The steps from the blocks' output to rows of the language model.
    pub projector: &'static [Step],
    /// What makes further rows, which are added to those of the image after the first layers of the language model.
    pub deepstack: Option<DeepstackTable>,
}

/// Rows of some blocks' outputs that are added to those of an image after the first layers of the language model.
#[derive(Clone, Copy, Debug)]
pub struct DeepstackTable {
    /// The key of the tower's section for the blocks, with its default and the default's source. The first list of rows is added after
    /// the language model's first layer, and so on.
    pub blocks: (&'static str, &'static [usize], &'static str),
    /// The steps from a block's output to rows of the language model; `{}` in names stands for the place of the block in that list, in
    /// GGUF for the block.
    pub steps: &'static [Step],
}

/// Windows of an image: patches come window after window, and in most blocks attend to those of their own.
#[derive(Clone, Copy, Debug)]
pub struct WindowTable {
    /// The key of the side of a window in pixels.
    pub side: Key,
    /// That side in GGUF, which has no key for it, with its source.
    pub gguf: (usize, &'static str),
    /// The key of the tower's section for the blocks that attend to all of an image, with its default and the default's source.
    pub whole: (&'static str, &'static [usize], &'static str),
    /// The key of GGUF, after `clip`, of a number of blocks, of which the last attends to all of an image.
    pub every: &'static str,
}

/// What llama.cpp's `mmproj` says of a tower, and the language models in GGUF that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct MmprojTable {
    /// The `clip.projector_type`.
    pub projector_type: &'static str,
    /// The `general.architecture` of its language models.
    pub architectures: &'static [&'static str],
    /// The key that is true, after `clip`, and the activation of the blocks that it means; an empty one where none is true.
    pub activations: &'static [(&'static str, Activation)],
    /// Which elements of a head are turned together, where they are: converters change their order.
    pub layout: RopeLayout,
    /// Whether older files have the names of the two linear layers of a feed-forward layer exchanged.
    pub exchanged: bool,
    /// The kernels of a patch, one for each of its frames: `.weight`, `.weight.1` and so on.
    pub frames: usize,
    /// The fewest and the most pixels of an image, with their source, where the image processor has such bounds: no file says them.
    pub pixels: Option<(u64, u64, &'static str)>,
    /// The side of squares of patches where the file does not say it, with its source.
    pub squares: Option<(usize, &'static str)>,
    /// The key that says of each block whether rows of its output are added after a layer of the language model, after `clip`; empty
    /// where no file has it.
    pub deepstack: &'static str,
    /// The texts of a token by the key of `config.json` for its id: the first that the vocabulary has counts.
    pub tokens: &'static [(&'static str, &'static [&'static str])],
}

/// The names of a tensor, without `.weight` or `.bias`.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// In GGUF.
    pub gguf: &'static str,
    /// In safetensors; `model.` may come before it, or one of the tower's fronts where it is a part of the encoder.
    pub config: &'static str,
}

/// What stands for an image in a prompt, as the family's processor of transformers writes it.
#[derive(Clone, Copy, Debug)]
pub struct PromptTable {
    /// The token that chat templates write for an image.
    pub mark: IdKey,
    /// The token that holds the place of each row of an image.
    pub placeholder: IdKey,
    /// What becomes of the mark.
    pub pieces: &'static [PromptPiece<IdKey>],
}

/// A key of `config.json` for the id of a token, with its default and the default's source. In GGUF it is found by its text
/// ([`MmprojTable::tokens`]).
pub type IdKey = (&'static str, u32, &'static str);

/// A part of what stands for an image in a prompt. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptPiece<I> {
    /// A text.
    Text(&'static str),
    /// A token.
    Token(I),
    /// A token by its text.
    Special(&'static str),
    /// The placeholder, once for each row of the image, or of its overview where it was cut.
    Rows,
    /// Of an image that was cut, for each tile this text, with its row and column for `{row}` and `{column}`, and the placeholder for each of
    /// its rows; after each line of tiles the text `line`, and where an overview follows the text `overview`.
    #[allow(missing_docs)] // as above
    Tiles { tile: &'static str, line: &'static str, overview: &'static str },
    /// The placeholder, once for each row, and between the lines of an image the token of this text.
    Lines(&'static str),
}

/// How the pixels of an image become rows of the first block.
#[derive(Clone, Copy, Debug)]
pub struct PatchTable {
    /// The side of the largest image in pixels; none where only the image processor bounds its pixels, in whatever shape.
    pub image_size: Key,
    /// The side of a patch in pixels.
    pub patch_size: Key,
    /// The channels of a pixel.
    pub channels: Key,
    /// The frames of a patch, as which an image is repeated; none where a patch is of an image.
    pub frames: Key,
    /// The side, in patches, of squares, where patches come square after square and their values patch after patch; none where they
    /// come from left to right and then down.
    pub squares: Key,
    /// Whether values come pixel after pixel, of each its channels, and the product of a patch is stored as a matrix over these,
    /// `[hidden, patch * patch * channels]`. In GGUF that is `[hidden, channels, patch, patch]`.
    pub by_pixel: bool,
    /// The product of a patch, `[hidden, channels, patch, patch]`, with frames `[hidden, channels, frames, patch, patch]`: a convolution
    /// whose stride is its kernel.
    pub embedding: Names,
    /// Whether that product has a bias.
    pub bias: bool,
    /// The position embeddings, a row for each patch of the largest image from left to right and then down, where there are any.
    pub positions: Option<Names>,
    /// The key of the number of position embeddings, where these are a square that is interpolated to the patches of an image; in GGUF
    /// of the side of an image, in pixels, that has a patch for each.
    pub interpolated: Key,
    /// How they are interpolated.
    pub interpolation: Interpolation,
    /// The norm of these rows, where there is one.
    pub norm: Option<Names>,
    /// Whether images may be smaller than the largest, in whole squares of patches that the projector joins.
    pub smaller: bool,
}

/// How a square of position embeddings becomes those of the patches of an image: linearly along rows and along columns. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// Its corners are those of the image.
    Corners,
    /// Its edges are those of the image, and the filter grows with the factor by which it shrinks.
    Antialiased,
}

/// A rotation by two places: half of a head's pairs by the row of a patch, the other half by its column.
#[derive(Clone, Copy, Debug)]
pub struct AxialTable {
    /// The base where `config.json` gives none, with its source.
    pub theta: (f64, &'static str),
    /// Whether frequencies of rows and columns are every other one of those of a head; otherwise they are alike.
    pub alternating: bool,
}

/// The epsilon of a projector's norm. Complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Epsilon {
    /// That of the encoder.
    Encoder,
    /// That of the language model.
    Text,
    /// This one.
    Of(f64),
}

/// Elements of the outputs of a projector's linear layer. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// As many as the tower is wide.
    Tower,
    /// As many as the language model is wide.
    Text,
    /// The same, and this key of the tower's section must say it where it is present.
    TextBy(&'static str),
    /// As many as its inputs.
    Same,
    /// As many as this key of `config.json` says, with its default and the default's source; in GGUF, where no key does, as the file
    /// stores.
    By(&'static str, usize, &'static str),
}

/// A step of a projector. Complete.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum Step {
    /// The mean of each square of patches: so many that `tokens` rows are left of an image, by this key of `config.json`; in GGUF the
    /// `side` of a square in patches. Each with its default and its source.
    Mean { tokens: (&'static str, usize, &'static str), side: (&'static str, usize, &'static str) },
    /// The rows of each square of patches side by side, from left to right and then down, `by_element` one element of all after the
    /// other: the side of a square by a key of `config.json` or of GGUF, each with its default and its source.
    Merge { side: (&'static str, usize, &'static str), gguf: (&'static str, usize, &'static str), by_element: bool },
    /// The rows of each square of patches, which come one after the other, as one.
    Squares,
    /// A norm of each row, unless this key of `config.json` denies it, with its default and the default's source; in GGUF where it is
    /// stored.
    Norm { names: Names, kind: NormKind, eps: Epsilon, flag: Option<(&'static str, bool, &'static str)> },
    /// A linear layer; `transposed` where it is stored `[inputs, outputs]`. A flag of its bias is a key of the root.
    Linear { names: Names, outputs: Outputs, bias: Option<Bias>, transposed: bool },
    /// An activation.
    Activation(DenseActivation),
}

impl Step {
    /// A norm of each row with a weight and a bias.
    const fn layer_norm(gguf: &'static str, config: &'static str) -> Step {
        Step::Norm { names: Names { gguf, config }, kind: NormKind::Layer, eps: Epsilon::Encoder, flag: None }
    }

    /// A linear layer with a bias.
    const fn linear(gguf: &'static str, config: &'static str, outputs: Outputs) -> Step {
        Step::Linear { names: Names { gguf, config }, outputs, bias: Some(Bias::Always), transposed: false }
    }
}
