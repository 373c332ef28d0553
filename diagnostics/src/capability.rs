//! dtype x engine x features -> tier: the one answer to "is this dtype supported?"

/// How a dtype is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The hardware multiplies the stored dtype.
    Native,
    /// Every stored value is widened without loss inside a register on its way to the product.
    Widened,
}
