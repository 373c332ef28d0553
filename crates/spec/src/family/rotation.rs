//! The shape of a table's part on which layers rotate, and how.

use super::Key;

/// How layers with a window rotate: without scaling.
#[derive(Clone, Copy, Debug)]
pub struct WindowRope {
    /// Their rotary base.
    pub key: Key,
    /// The base where no key gives it, with its source; `None` for that of the other layers.
    pub default_theta: Option<(f64, &'static str)>,
}

/// Layers that do not rotate queries and keys.
#[derive(Clone, Copy, Debug)]
pub struct Unrotated {
    /// The list in `config.json`: 1 for each layer that does, 0 for one that does not.
    pub list: &'static str,
    /// The key in `config.json` for every how many layers one does not, without the list.
    pub interval: &'static str,
    /// Every how many layers one does not where no key says it, and in GGUF, with its source.
    pub default_interval: (usize, &'static str),
}
