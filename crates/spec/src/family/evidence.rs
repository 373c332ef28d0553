//! How a table tells variants of its family.

/// A variant and the evidence that tells it: any of the lists, all of a list.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// The name people use.
    pub name: &'static str,
    /// Alternatives, each a list of facts that must all hold.
    pub any: &'static [&'static [Evidence]],
}

/// One fact about a model.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Evidence {
    /// Rows of the embedding.
    Vocab(usize),
    /// Width of the residual stream.
    Hidden(usize),
    /// Decoder blocks.
    Layers(usize),
    /// Key and value heads.
    KvHeads(usize),
    /// The trained context, in tokens.
    Context(usize),
    /// Fewer key and value heads than query heads.
    GroupedQueries,
    /// The rotary base.
    Theta(f64),
    /// The text of the beginning-of-sequence token.
    BosText(&'static str),
    /// The text of the end-of-sequence token.
    EosText(&'static str),
    /// A part of the chat template.
    Template(&'static str),
    /// The GGUF pre-tokenizer.
    Pre(&'static str),
    /// The factor of the rope scaling in `config.json`.
    RopeFactor(f64),
    /// The first of longrope's long factors in `config.json`.
    LongFactor(f64),
    /// Some layers have a sliding window.
    Windowed,
    /// The `model_type` of `config.json`.
    ModelType(&'static str),
    /// Any rope scaling, a stored tensor of frequency factors included.
    RopeScaled,
    /// The output head is the embedding.
    Tied,
    /// A part of the model's own name (GGUF `general.name` or `general.basename`), lower case. Neither the file name nor
    /// the folder that `config.json` was saved from is evidence.
    Name(&'static str),
}
