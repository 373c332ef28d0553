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

impl Tier {
    /// `native` or `widened`.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Native => "native",
            Tier::Widened => "widened",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Tier {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
