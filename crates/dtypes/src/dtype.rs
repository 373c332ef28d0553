//! Every element type that GGUF and safetensors define, so that a refusal can name what it refuses.
//!
//! Block sizes of the GGUF types: ggml `ggml-common.h`; safetensors types: safetensors 0.8 `tensor.rs`.

use serde_core::{Serialize, Serializer};
use std::fmt;

/// A stored element type. Complete for GGUF (type ids below 43) and for safetensors 0.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, non_camel_case_types)] // the names are the formats' own
#[rustfmt::skip]
pub enum DType {
    F64, F32, F16, BF16,
    I8, I16, I32, I64, U8, U16, U32, U64, Bool, C64,
    F8_E4M3, F8_E5M2, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, F6_E2M3, F6_E3M2, F4, U2, U3, U4, U5, U6, S8, NF4, FP4,
    Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1,
    Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K,
    IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS,
    TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0, Q2_0,
}

/// One row of the table below: (dtype, name, elements a block, bytes a block, ggml type id, name in safetensors).
type Row = (DType, &'static str, usize, usize, Option<u32>, Option<&'static str>);

#[rustfmt::skip]
const TABLE: &[Row] = {
    use DType::*;
    &[
        (F64,         "F64",         1, 8, Some(28), Some("F64")),
        (F32,         "F32",         1, 4, Some(0),  Some("F32")),
        (F16,         "F16",         1, 2, Some(1),  Some("F16")),
        (BF16,        "BF16",        1, 2, Some(30), Some("BF16")),
        (I8,          "I8",          1, 1, Some(24), Some("I8")),
        (I16,         "I16",         1, 2, Some(25), Some("I16")),
        (I32,         "I32",         1, 4, Some(26), Some("I32")),
        (I64,         "I64",         1, 8, Some(27), Some("I64")),
        (U8,          "U8",          1, 1, None,     Some("U8")),
        (U16,         "U16",         1, 2, None,     Some("U16")),
        (U32,         "U32",         1, 4, None,     Some("U32")),
        (U64,         "U64",         1, 8, None,     Some("U64")),
        (Bool,        "BOOL",        1, 1, None,     Some("BOOL")),
        (C64,         "C64",         1, 8, None,     Some("C64")),
        (F8_E4M3,     "F8_E4M3",     1, 1, None,     Some("F8_E4M3")),
        (F8_E5M2,     "F8_E5M2",     1, 1, None,     Some("F8_E5M2")),
        (F8_E8M0,     "F8_E8M0",     1, 1, None,     Some("F8_E8M0")),
        (F8_E4M3FNUZ, "F8_E4M3FNUZ", 1, 1, None,     Some("F8_E4M3FNUZ")),
        (F8_E5M2FNUZ, "F8_E5M2FNUZ", 1, 1, None,     Some("F8_E5M2FNUZ")),
        (F6_E2M3,     "F6_E2M3",     4, 3, None,     Some("F6_E2M3")),
        (F6_E3M2,     "F6_E3M2",     4, 3, None,     Some("F6_E3M2")),
        (F4,          "F4",          2, 1, None,     Some("F4")),
        // In words of I32 or U32, one after the other.
        (U2,          "U2",          4, 1, None,     None),
        (U3,          "U3",          8, 3, None,     None),
        (U4,          "U4",          2, 1, None,     None),
        (U5,          "U5",          8, 5, None,     None),
        (U6,          "U6",          4, 3, None,     None),
        // Stored as I8; and in bytes, or in elements of as many, by bitsandbytes.
        (S8,          "S8",          1, 1, None,     None),
        (NF4,         "NF4",         2, 1, None,     None),
        (FP4,         "FP4",         2, 1, None,     None),
        (Q4_0,    "Q4_0",     32,  18, Some(2),  None),
        (Q4_1,    "Q4_1",     32,  20, Some(3),  None),
        (Q5_0,    "Q5_0",     32,  22, Some(6),  None),
        (Q5_1,    "Q5_1",     32,  24, Some(7),  None),
        (Q8_0,    "Q8_0",     32,  34, Some(8),  None),
        (Q8_1,    "Q8_1",     32,  36, Some(9),  None),
        (Q2_K,    "Q2_K",    256,  84, Some(10), None),
        (Q3_K,    "Q3_K",    256, 110, Some(11), None),
        (Q4_K,    "Q4_K",    256, 144, Some(12), None),
        (Q5_K,    "Q5_K",    256, 176, Some(13), None),
        (Q6_K,    "Q6_K",    256, 210, Some(14), None),
        (Q8_K,    "Q8_K",    256, 292, Some(15), None),
        (IQ2_XXS, "IQ2_XXS", 256,  66, Some(16), None),
        (IQ2_XS,  "IQ2_XS",  256,  74, Some(17), None),
        (IQ3_XXS, "IQ3_XXS", 256,  98, Some(18), None),
        (IQ1_S,   "IQ1_S",   256,  50, Some(19), None),
        (IQ4_NL,  "IQ4_NL",   32,  18, Some(20), None),
        (IQ3_S,   "IQ3_S",   256, 110, Some(21), None),
        (IQ2_S,   "IQ2_S",   256,  82, Some(22), None),
        (IQ4_XS,  "IQ4_XS",  256, 136, Some(23), None),
        (IQ1_M,   "IQ1_M",   256,  56, Some(29), None),
        (TQ1_0,   "TQ1_0",   256,  54, Some(34), None),
        (TQ2_0,   "TQ2_0",   256,  66, Some(35), None),
        (MXFP4,   "MXFP4",    32,  17, Some(39), None),
        (NVFP4,   "NVFP4",    64,  36, Some(40), None),
        (Q1_0,    "Q1_0",    128,  18, Some(41), None),
        (Q2_0,    "Q2_0",     64,  18, Some(42), None),
    ]
};

impl DType {
    /// Every dtype, in the order of the table.
    pub fn all() -> impl Iterator<Item = DType> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(self) -> &'static Row {
        // The test `every_variant_has_one_row` proves that the search succeeds.
        let found = TABLE.iter().find(|row| row.0 == self);
        found.unwrap_or(&TABLE[0])
    }

    /// The name users know: `BF16`, `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Elements in a block; 1 for plain types.
    pub fn block_len(self) -> usize {
        self.row().2
    }

    /// Bytes in a block.
    pub fn block_bytes(self) -> usize {
        self.row().3
    }

    /// Bytes of `elements` consecutive elements, or `None` when they are not a whole number of blocks or overflow.
    pub fn bytes_of(self, elements: u64) -> Option<u64> {
        let (len, bytes) = (self.block_len() as u64, self.block_bytes() as u64);
        if !elements.is_multiple_of(len) { None } else { (elements / len).checked_mul(bytes) }
    }

    /// The dtype of a ggml type id; `None` for ids that ggml removed or never defined (see [`removed_ggml_type`]).
    pub fn from_ggml_id(id: u32) -> Option<DType> {
        TABLE.iter().find(|row| row.4 == Some(id)).map(|row| row.0)
    }

    /// The dtype of a safetensors dtype string.
    pub fn from_safetensors(name: &str) -> Option<DType> {
        TABLE.iter().find(|row| row.5 == Some(name)).map(|row| row.0)
    }
}

/// The name of a ggml type id that once existed and was removed.
pub fn removed_ggml_type(id: u32) -> Option<&'static str> {
    Some(match id {
        4 => "Q4_2",
        5 => "Q4_3",
        31 => "Q4_0_4_4",
        32 => "Q4_0_4_8",
        33 => "Q4_0_8_8",
        36 => "IQ4_NL_4_4",
        37 => "IQ4_NL_4_8",
        38 => "IQ4_NL_8_8",
        _ => return None,
    })
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_variant_has_one_row() {
        let rows: HashSet<DType> = DType::all().collect();
        assert_eq!(rows.len(), TABLE.len());
        assert_eq!(TABLE.len(), DType::Q2_0 as usize + 1); // Q2_0 is the last variant
        let ids: HashSet<u32> = TABLE.iter().filter_map(|row| row.4).collect();
        assert_eq!(ids.len(), 35); // 43 ids, 8 of them removed
        assert!((0..43).all(|id| ids.contains(&id) != removed_ggml_type(id).is_some()));
    }

    #[test]
    fn refuses_partial_blocks() {
        assert_eq!(DType::Q4_K.bytes_of(512), Some(288));
        assert_eq!(DType::Q4_K.bytes_of(300), None);
        assert_eq!(DType::F4.bytes_of(3), None);
        assert_eq!(DType::F64.bytes_of(u64::MAX), None);
    }
}
