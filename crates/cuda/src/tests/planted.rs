//! Defects planted into the engine's kernels, each of which the tests find. The stand-in for the driver plants them,
//! into what a process of its own compiles.

use std::process::Command;

/// A planted defect: the text and its replacement; the test that runs; and the output that shows how it was found.
struct Defect {
    what: &'static str,
    text: &'static str,
    other: &'static str,
    test: &'static str,
    found: Found,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Found {
    Race,
    OutOfBounds,
    InFlight,
    Uninitialised,
    Divergence,
    WrongNumbers,
}

impl Found {
    /// How a defect was found: by the emulator's faults, or by a test that compares.
    fn in_output(output: &str) -> Option<Found> {
        [
            ("a race for shared byte", Found::Race),
            ("are not all within", Found::OutOfBounds),
            ("was never written", Found::Uninitialised),
            ("is still being copied", Found::InFlight),
            ("have to run together", Found::Divergence),
            ("ended without this barrier", Found::Divergence),
            // The following are outputs of the tests that compare.
            (" tokens, ", Found::WrongNumbers),
            ("other columns", Found::WrongNumbers),
            (" element ", Found::WrongNumbers),
        ]
        .into_iter()
        .find_map(|(words, found)| output.contains(words).then_some(found))
    }
}

const ATTENTION: &str = "attention::attention_beside_double_precision";
const PRODUCTS: &str = "products::products_of_every_dtype_beside_double_precision";
const STEPS: &str = "steps::norms_and_activations_are_the_processors";

const DEFECTS: &[Defect] = &[
    Defect {
        what: "attention: no barrier before values replace keys",
        text: "__syncthreads();\n        put_tile(tile, values, held);",
        other: "put_tile(tile, values, held);",
        test: ATTENTION,
        found: Found::Race,
    },
    Defect {
        what: "attention: no barrier after a tile",
        text: "fetch_tile(values, held);\n        __syncthreads();",
        other: "fetch_tile(values, held);",
        test: ATTENTION,
        found: Found::Race,
    },
    Defect {
        what: "attention: a line too many of a tile",
        text: "line < TILE_LINES) {\n            held",
        other: "line <= TILE_LINES) {\n            held",
        test: ATTENTION,
        found: Found::OutOfBounds,
    },
    Defect {
        what: "attention: positions after a query's own",
        text: "position <= own[n] &&",
        other: "position <= own[n] + 1 &&",
        test: ATTENTION,
        found: Found::WrongNumbers,
    },
    Defect {
        what: "attention: a window one position longer",
        text: "own[n] - position < a.window",
        other: "own[n] - position <= a.window",
        test: ATTENTION,
        found: Found::WrongNumbers,
    },
    Defect {
        what: "attention: the first block puts the parts together",
        text: "a.parts - 1) == a.parts - 1",
        other: "a.parts - 1) == 0",
        test: ATTENTION,
        found: Found::WrongNumbers,
    },
    Defect {
        what: "attention of prompts: no wait for copies",
        text: "wait_for_lines<0>();\n        __syncthreads();\n    }\n};",
        other: "__syncthreads();\n    }\n};",
        test: ATTENTION,
        found: Found::InFlight,
    },
    Defect {
        what: "attention of prompts: no barrier after the copies",
        text: "wait_for_lines<0>();\n        __syncthreads();\n    }\n};",
        other: "wait_for_lines<0>();\n    }\n};",
        test: ATTENTION,
        found: Found::Race,
    },
    Defect {
        what: "attention of prompts: no barrier before floats are stored",
        text: "= most;\n        }\n        __syncthreads();",
        other: "= most;\n        }",
        test: ATTENTION,
        found: Found::Uninitialised,
    },
    Defect {
        what: "attention of prompts: rows after the last are taken as they lie",
        text: "(int)threadIdx.x / 2 < present",
        other: "true",
        test: ATTENTION,
        found: Found::WrongNumbers,
    },
    Defect {
        what: "attention of prompts: values are not transposed",
        text: "x4.trans.shared",
        other: "x4.shared",
        test: ATTENTION,
        found: Found::WrongNumbers,
    },
    Defect {
        what: "attention of prompts: low halves of queries and weights left out",
        text: "mma_f16(sum, low, of_tile[0]);",
        other: "",
        test: ATTENTION,
        found: Found::WrongNumbers,
    },
    Defect {
        what: "attention of prompts: weights that are below what halves hold",
        text: "#define WEIGHT_POWER 32768.0f",
        other: "#define WEIGHT_POWER 1.0f",
        test: ATTENTION,
        found: Found::WrongNumbers,
    },
    Defect {
        what: "attention of prompts: sums stay as they are where values grow",
        text: "before * inverse_of(of_values)",
        other: "1.0f",
        test: ATTENTION,
        found: Found::WrongNumbers,
    },
    Defect {
        what: "attention of prompts: a tile that is not all seen is taken for one",
        text: "start + POSITIONS <= queries.position + 1",
        other: "start + POSITIONS <= queries.position + 2",
        test: ATTENTION,
        found: Found::WrongNumbers,
    },
    Defect {
        what: "products for few tokens: no barrier between two chunks",
        text: "__syncwarp();\n#pragma unroll\n                for (int r = 0; r < ROWS; ++r) {\n#pragma unroll\n                    for (int i = 0; i < LINES_A_LANE",
        other: "#pragma unroll\n                for (int r = 0; r < ROWS; ++r) {\n#pragma unroll\n                    for (int i = 0; i < LINES_A_LANE",
        test: PRODUCTS,
        found: Found::Race,
    },
    Defect {
        what: "products for few tokens: no check of the last row",
        text: "token < a.tokens && row < share.part.rows) {\n                put",
        other: "token < a.tokens) {\n                put",
        test: PRODUCTS,
        found: Found::WrongNumbers,
    },
    Defect {
        what: "products: fragments of F16 swapped",
        text: "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));",
        other: "\"r\"(a[0]), \"r\"(a[2]), \"r\"(a[1]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));",
        test: PRODUCTS,
        found: Found::WrongNumbers,
    },
    Defect {
        what: "products for many tokens: no wait for the copies of a stage",
        text: "wait_for_lines<STAGES - 2>();",
        other: "",
        test: PRODUCTS,
        found: Found::InFlight,
    },
    Defect {
        what: "products for many tokens: a wait for one stage too few",
        text: "wait_for_lines<STAGES - 2>();",
        other: "wait_for_lines<STAGES - 1>();",
        test: PRODUCTS,
        found: Found::InFlight,
    },
    Defect {
        what: "products for many tokens: no barrier between two stages",
        text: "__syncthreads();\n            const int next",
        other: "const int next",
        test: PRODUCTS,
        found: Found::Race,
    },
    Defect {
        what: "products for many tokens: rows after the last are copied",
        text: "first + own + 32 * i < count ? first + own + 32 * i : count - 1",
        other: "first + own + 32 * i",
        test: PRODUCTS,
        found: Found::OutOfBounds,
    },
    Defect {
        what: "products for many tokens: rows after the last are stored",
        text: "if (row < part.rows) {",
        other: "{",
        test: PRODUCTS,
        found: Found::OutOfBounds,
    },
    Defect {
        what: "products for many tokens: lines lie elsewhere than they are read",
        text: "(lane / 16 ^ swizzle)",
        other: "(lane / 16)",
        test: PRODUCTS,
        found: Found::WrongNumbers,
    },
    Defect {
        what: "products for many tokens: a stage is copied over the one that is read",
        text: "(stage + STAGES - 1) % STAGES",
        other: "stage",
        test: PRODUCTS,
        found: Found::InFlight,
    },
    Defect {
        what: "norms: no barrier before the factor is read",
        text: "(double)a.eps));\n        }\n        __syncthreads();",
        other: "(double)a.eps));\n        }",
        test: STEPS,
        found: Found::Uninitialised,
    },
];

#[test]
fn planted_defects_are_found() {
    if std::env::var_os("GPU_EMULATOR_NVRTC").is_none() {
        println!("skipped: only the stand-in for the driver plants defects");
        return;
    }
    for Defect { what, text, other, test, found } in DEFECTS {
        let run = Command::new(std::env::current_exe().unwrap())
            .args([&format!("tests::{test}"), "--exact", "--nocapture"])
            .env("GPU_EMULATOR_PLANT", format!("{text}=>{other}"))
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success(), "{what}: nothing was found");
        println!("{what}: {found:?}");
        assert_eq!(Found::in_output(&output), Some(*found), "{what}: {output}");
    }
}
