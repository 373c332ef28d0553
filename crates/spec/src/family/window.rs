//! The shape of a table's part on windows of attention.

/// What a stored sliding window means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Window {
    /// Every layer looks back that far and no further.
    Honoured,
    /// The same in these model types, and nothing in others and in GGUF. Then what it is where no key says it, with its
    /// source.
    OfModelTypes(&'static [&'static str], (u64, &'static str)),
    /// Some layers do.
    Pattern(WindowPattern),
    /// Layers have one where `use_sliding_window` of `config.json` is on; in GGUF one is refused.
    Flagged {
        /// The first layer with a window, where neither `layer_types` nor `max_window_layers` say it; `None` where all layers have it.
        from: Option<u64>,
        /// Where that is known from, and that a window is [`FLAGGED`](Self::FLAGGED) where no key says it.
        source: &'static str,
    },
    /// Nothing in `config.json`, where its own flag is off; in GGUF one is refused.
    Unused,
}

impl Window {
    /// The positions of a window whose flag is on where no key says them.
    pub const FLAGGED: u64 = 4096;
}

/// Windows in some layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPattern {
    /// Every how many layers one has none, where no key says which.
    pub full_every: usize,
    /// The key of `config.json` that says so in addition to `layer_types`; empty where transformers reads none.
    pub config_key: &'static str,
    /// The window where `config.json` does not say it.
    pub config_default: u64,
    /// The window where a GGUF file does not say it; 0 for none.
    pub gguf_default: u64,
    /// Where that is known from.
    pub source: &'static str,
    /// Model types that have windows; the others have none.
    pub model_types: &'static [&'static str],
    /// Whether the last layer has none, whatever `config.json` says.
    pub last_is_full: bool,
    /// Whether it is the first of so many that has none, in place of the last.
    pub first_is_full: bool,
}

/// A table to start from: every other layer has a window, if a file says which.
pub(super) const PATTERN: WindowPattern = WindowPattern {
    full_every: 2,
    config_key: "",
    config_default: 4096,
    gguf_default: 0,
    source: "",
    model_types: &[],
    last_is_full: false,
    first_is_full: false,
};
