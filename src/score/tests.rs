#[path = "../../tests/common/archives.rs"]
#[allow(dead_code, clippy::expect_used)] // integration tests use more of it
mod archives;

use super::*;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The steps in which a text is scored have room for a few rows of logits only: each row is that of the whole text at once.
#[test]
fn scores_are_those_of_the_logits_of_the_whole_text() {
    for name in ["qwen3.5/q4_k_m.gguf", "phi-3.5/q8_0.gguf"] {
        let model = Model::load(archives::path(name)).unwrap();
        // Phi 3.5's original context ends among these ids; beyond it all rows rotate like those of a long sequence.
        let ids: Vec<u32> = (0..300).map(|place| 3 + place * 7 % 200).collect();
        let logits = model.all_logits(&ids[..299]).unwrap();
        let of = |(row, id): (&[f32], &u32)| logprobs::of_token(row, *id).unwrap().0;
        let expected: Vec<f64> = logits.rows().zip(&ids[1..]).map(of).collect();
        let found = model.session().score(&ids, 1, &CancellationToken::new()).unwrap();
        assert_eq!((&found.ids, &found.logprobs), (&ids[1..].to_vec(), &expected), "{name}");
        // After a part that is held, the same.
        let mut session = model.session();
        session.next_logits(&ids[..200]).unwrap();
        let rest = session.score(&ids, 250, &CancellationToken::new()).unwrap();
        assert_eq!(rest.logprobs, expected[249..], "{name}");
    }
}
