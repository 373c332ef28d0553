//! Measurements measure what their names say.

use super::super::arguments::Copy16;
use super::super::modules::{Module, dtypes};
use super::super::peak::{copy_shape, product_seconds};
use super::gpu;
use super::products::buffer;
use model_factory_dtypes::DType;

#[test]
fn the_copy_copies_all_lines_and_no_more() {
    let Some(gpu) = gpu((9, 0)) else { return };
    let function = gpu.function(Module::Steps, "copy").unwrap();
    for lines in [1, 255, 4096, 100_003] {
        let bytes: Vec<u8> = (0..16 * lines).map(|i| (i * 31 % 251) as u8).collect();
        let (from, to) = (buffer(&gpu, &bytes), buffer(&gpu, &vec![0xee; 16 * lines + 16]));
        let given = Copy16 { from: from.address, to: to.address, lines: lines as u64 };
        gpu.start(function, copy_shape(&gpu), &given).unwrap();
        let mut copied = vec![0; 16 * lines + 16];
        to.download(0, &mut copied).unwrap();
        assert!(copied[..16 * lines] == bytes, "{lines} lines");
        assert_eq!(copied[16 * lines..], [0xee; 16], "{lines} lines");
    }
}

/// On a GPU `benches/cuda.rs` prints these; the test shows that they can be taken, within their buffers.
#[test]
fn products_of_every_dtype_are_timed() {
    let Some(gpu) = gpu((9, 0)) else { return };
    for dtype in dtypes() {
        for tokens in [1, 9] {
            let seconds = product_seconds(&gpu, dtype, [9, 256], tokens, 2000).unwrap();
            // Floats are read where they are, except by tensor cores.
            let prepares = dtype != DType::F32 && (tokens > 1 || !matches!(dtype, DType::F16 | DType::BF16));
            assert!(seconds.product > 0.0 && (seconds.prepare > 0.0) == prepares, "{dtype}: {seconds:?}");
        }
    }
}
