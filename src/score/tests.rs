#[path = "../../tests/common/archives.rs"]
#[allow(dead_code, clippy::expect_used)] // integration tests use more of it
mod archives;

use super::*;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

#[test]
fn scores_do_not_depend_on_how_many_rows_are_computed_at_once() {
    for name in ["qwen3.5/q4_k_m.gguf", "phi-3.5/q8_0.gguf"] {
        let model = Model::load(archives::path(name)).unwrap();
        // Phi 3.5's original context ends among these ids; beyond it all rows rotate like those of a long sequence.
        let ids: Vec<u32> = (0..300).map(|place| 3 + place * 7 % 200).collect();
        let row = size_of::<f32>() * model.spec().vocab;
        let by = |rows| model.session().score(&ids, 1, rows * row).unwrap();
        let whole = by(ids.len());
        assert_eq!(whole.logprobs.len(), ids.len() - 1);
        for rows in [1, 7, 64] {
            assert_eq!(by(rows), whole, "{name}, {rows} rows");
        }
    }
}
