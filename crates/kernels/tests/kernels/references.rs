//! Every kernel of a block dtype compared with the values that gguf-py gives for the same bytes.

use super::testing::{FIELDS, each_isa};
use super::{DType, Isa, Kernel};
use safetensors::SafeTensors;
use std::path::Path;

/// GGUF block types with a file under `fixtures/kernels`.
const FILES: usize = 25;

/// Blocks and their values, `[blocks, elements of a block]`.
struct Reference {
    dtype: DType,
    blocks: Vec<u8>,
    values: Vec<f32>,
}

fn references() -> Vec<Reference> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/kernels");
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<Reference> = files
        .map(|path| {
            let stem = path.file_stem().unwrap().to_str().unwrap();
            let dtype = DType::all().find(|dtype| dtype.name().eq_ignore_ascii_case(stem)).unwrap();
            let file = std::fs::read(&path).unwrap();
            let tensors = SafeTensors::deserialize(&file).unwrap();
            let values = tensors.tensor("values").unwrap();
            Reference {
                dtype,
                blocks: tensors.tensor("blocks").unwrap().data().to_vec(),
                values: values.data().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
            }
        })
        .collect();
    found.sort_by_key(|reference| reference.dtype);
    assert_eq!(found.len(), FILES, "files in {}", folder.display());
    found
}

/// No rounding is allowed for: a scale times one or two integers is exact in f32 for every type, and where a
/// minimum is added to it both sides round that sum once.
#[test]
fn dequantizes_blocks_to_the_values_of_gguf_py() {
    let references = references();
    for reference in &references {
        let length = reference.dtype.block_len();
        assert_eq!(reference.blocks.len() / reference.dtype.block_bytes() * length, reference.values.len());
        if Kernel::select(reference.dtype, Isa::portable()).is_none() {
            println!("skipped: {} has no kernel", reference.dtype);
            continue;
        }
        for isa in each_isa() {
            let kernel = Kernel::select(reference.dtype, isa).unwrap();
            let mut values = vec![f32::NAN; reference.values.len()];
            kernel.dequantize_row(&reference.blocks, &mut values);
            for (i, (value, expected)) in values.iter().zip(&reference.values).enumerate() {
                let (block, element) = (i / length, i % length);
                assert!(value == expected, "{} block {block}, {element}: {value} for {expected}", kernel.name);
            }
        }
    }
    for dtype in Kernel::dtypes().filter(|dtype| dtype.block_len() > 2 && !FIELDS.contains(dtype)) {
        assert!(references.iter().any(|reference| reference.dtype == dtype), "{dtype} has no reference");
    }
}
