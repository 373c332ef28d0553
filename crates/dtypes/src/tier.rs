//! How a dtype is computed.

use serde_core::{Serialize, Serializer};
use std::fmt;

/// How a dtype is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The hardware multiplies the stored dtype.
    Native,
    /// Every stored value is widened without loss inside a register on its way to the product.
    Widened,
}

/// `native` or `widened`.
impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Tier::Native => "native",
            Tier::Widened => "widened",
        })
    }
}

impl Serialize for Tier {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
