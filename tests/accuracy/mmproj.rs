//! GGUF models that see: the language model in one file and its tower in another, llama.cpp's `mmproj`.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout)] // a test that cannot go on says why

use crate::common::{self, bits_of, relative_l2};
use crate::pictures::{all_logits, chats, folder, input, stored, text};
use crate::vision::{distance, expected, images, rows};

use model_factory::session::WeightsDigest;
use model_factory::{Error, Model, ModelBuilder};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// `gguf.json`, as `fixtures/make/vision.py` writes it: llama.cpp's own errors.
#[derive(Deserialize)]
struct Errors {
    /// Of the rows of images, by file.
    rows: BTreeMap<String, f64>,
    /// Of the logits of the first conversations in Q8_0, with exact rows of images.
    logits: Vec<f64>,
}

fn builder(folder: &Path, mmproj: &str) -> ModelBuilder {
    common::builder().mmproj(folder.join(format!("gguf/mmproj-{mmproj}.gguf")))
}

fn load(folder: &Path, text: &str, mmproj: &str) -> Model {
    builder(folder, mmproj).load(folder.join(format!("gguf/{text}.gguf"))).expect("the model loads")
}

fn errors(folder: &Path) -> Errors {
    serde_json::from_slice(&fs::read(folder.join("gguf/gguf.json")).unwrap()).unwrap()
}

/// The archives whose models are in GGUF too.
const NAMES: &[&str] = &[
    "gemma-3",
    "mistral-small-3.1",
    "qwen3-vl",
    "qwen3.5",
    "idefics-3",
    "lfm2-vl",
    "qwen2.5-vl",
    "qwen2-vl",
    "smolvlm",
];
/// Those whose converter leaves the order of all elements.
const IN_ORDER: &[&str] = &["gemma-3"];
/// Those whose images have other sizes in GGUF than in the folder, as no file says it.
const OTHER_SIZES: &[&str] = &["lfm2-vl"];
/// Those beside llama.cpp.
const BESIDE: &[&str] = &["gemma-3"];
/// Those whose converter divides the product of a patch into one for each frame, whose sums have another order.
const IN_FRAMES: &[&str] = &["qwen3-vl", "qwen3.5", "qwen2.5-vl", "qwen2-vl"];

#[test]
fn a_model_of_two_gguf_files_has_the_bits_of_its_folder_in_f32() {
    for name in IN_ORDER {
        let folder = folder(name);
        let (whole, split) =
            (common::builder().vision(true).load(folder.join("f32")).unwrap(), load(&folder, "f32", "f32"));
        for image in images(&folder) {
            assert_eq!(bits_of(&rows(&split, &image)), bits_of(&rows(&whole, &image)), "{name}");
        }
        for (index, chat) in chats(&folder).iter().enumerate() {
            let messages = chat.messages(&folder);
            let given = input(&split, &messages);
            assert_eq!(given.ids(), chat.ids, "{name}, chat {index}");
            let bits = bits_of(&all_logits(&split, &given, chat.kept));
            assert_eq!(
                bits,
                bits_of(&all_logits(&whole, &input(&whole, &messages), chat.kept)),
                "{name}, chat {index}"
            );
            assert_eq!(text(&split, &messages, 12), text(&whole, &messages, 12), "{name}, chat {index}");
        }
    }
}

/// A language model whose converter moves rows of it has other bits; its tower has the same.
#[test]
fn a_tower_of_a_gguf_file_has_the_bits_of_its_folder_in_f32() {
    for name in ["idefics-3", "smolvlm"] {
        let folder = folder(name);
        let (whole, split) =
            (common::builder().vision(true).load(folder.join("f32")).unwrap(), load(&folder, "f32", "f32"));
        for image in images(&folder) {
            assert_eq!(bits_of(&rows(&split, &image)), bits_of(&rows(&whole, &image)), "{name}");
        }
    }
}

/// Where the products of patches are exact in any order, as those of a few small values are, all that follows has the same bits.
#[test]
fn kernels_of_frames_have_the_bits_of_their_folder_where_sums_are_exact() {
    for name in IN_FRAMES {
        let folder = folder(name);
        for (dtype, mmproj) in [("f32", "f32"), ("f16", "f16")] {
            let whole = common::builder().vision(true).load(folder.join(dtype)).unwrap();
            let split = load(&folder, "f32", mmproj);
            for (index, image) in images(&folder).iter().enumerate() {
                let values = |shift: usize| image.of_values(|at| ((at + shift) * 7 % 17) as f32 / 8.0 - 1.0);
                let bits = bits_of(&rows(&split, &values(index)));
                assert_eq!(bits, bits_of(&rows(&whole, &values(index))), "{name}, {mmproj}");
                assert_ne!(bits, bits_of(&rows(&whole, &values(index + 1))), "{name}, {mmproj}");
            }
        }
    }
}

/// Two frames of a patch that differ are each read by the kernel of their own.
#[test]
fn each_frame_of_a_patch_has_its_kernel() {
    for name in IN_FRAMES {
        let folder = folder(name);
        let (whole, split) =
            (common::builder().vision(true).load(folder.join("f32")).unwrap(), load(&folder, "f32", "f32"));
        let image = &images(&folder)[0];
        let area = split.tower().expect("a tower").sizes().patch_size.pow(2);
        let bits = |model: &Model, frames: [f32; 2]| {
            bits_of(&rows(model, &image.of_values(|at| frames[at / area % 2] * (at % 5) as f32)))
        };
        let ordered = bits(&split, [1.0, -0.5]);
        assert_eq!(ordered, bits(&whole, [1.0, -0.5]), "{name}");
        assert_ne!(ordered, bits(&split, [-0.5, 1.0]), "{name}");
    }
}

#[test]
fn models_of_two_gguf_files_are_as_near_to_the_truth_as_transformers() {
    for name in NAMES {
        let folder = folder(name);
        let (files, chats, truths) = (expected(&folder).files, chats(&folder), stored(&folder, "chats.safetensors"));
        for (text, mmproj) in [("f32", "f32"), ("bf16", "bf16"), ("f32", "f16")] {
            let text = if folder.join(format!("gguf/{text}.gguf")).exists() { text } else { "f32" };
            let model = load(&folder, text, mmproj);
            let factor = if mmproj == "f32" { 2.0 } else { 1.0 };
            let error = images(&folder).into_iter().map(|image| distance(&rows(&model, &image), &image.rows));
            let (error, bound) = (error.fold(0.0, f64::max), files[mmproj].transformers_error * factor);
            println!("{name}, mmproj {mmproj}: {error:.2e} of {bound:.2e}: {:.3}", error / bound);
            assert!(error <= bound, "{name}, mmproj {mmproj}: {error:e}");
            let sized = |_: &(usize, _)| !OTHER_SIZES.contains(name);
            for (index, (chat, truth)) in chats.iter().zip(&truths).enumerate().filter(sized) {
                let given = input(&model, &chat.messages(&folder));
                assert_eq!(given.ids(), chat.ids, "{name}, chat {index}");
                let (error, bound) =
                    (relative_l2(&all_logits(&model, &given, chat.kept), truth), chat.errors[mmproj] * factor);
                println!(
                    "{name}, {text} with {mmproj}, chat {index}: {error:.2e} of {bound:.2e}: {:.3}",
                    error / bound
                );
                assert!(error <= bound, "{name}, {text} with {mmproj}, chat {index}: {error:e}");
            }
        }
    }
}

#[test]
fn models_of_two_gguf_files_are_as_near_to_the_truth_as_llama_cpp() {
    for name in BESIDE {
        let (folder, chats) = (folder(name), chats(&folder(name)));
        let Errors { rows: of_rows, logits } = errors(&folder);
        for (mmproj, bound) in of_rows {
            let model = load(&folder, "q8_0", &mmproj);
            let error = images(&folder).into_iter().map(|image| distance(&rows(&model, &image), &image.rows));
            let error = error.fold(0.0, f64::max);
            println!("{name}, mmproj {mmproj}: {error:.2e} of {bound:.2e}: {:.4}", error / bound);
            assert!(error <= bound, "{name}, mmproj {mmproj}: {error:e}");
            // llama.cpp had the exact rows.
            for (index, (truth, bound)) in
                stored(&folder, "gguf/chats-q8_0.safetensors").iter().zip(&logits).enumerate()
            {
                let error = relative_l2(&all_logits(&model, &input(&model, &chats[index].messages(&folder)), 4), truth);
                println!(
                    "{name}, Q8_0 with mmproj {mmproj}, chat {index}: {error:.2e} of {bound:.2e}: {:.3}",
                    error / bound
                );
                assert!(error <= 1.1 * bound, "{name}, Q8_0 with mmproj {mmproj}, chat {index}: {error:e}");
            }
        }
    }
}

/// `bytes` in which each of these is the other.
fn exchanged(bytes: &[u8], one: &[u8], other: &[u8]) -> Vec<u8> {
    let (mut made, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let found = [(one, other), (other, one)].into_iter().find(|(from, _)| bytes[at..].starts_with(from));
        match found {
            Some((from, to)) => {
                made.extend(to);
                at += from.len();
            }
            None => {
                made.push(bytes[at]);
                at += 1;
            }
        }
    }
    made
}

/// A string as GGUF has it, with its length.
fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

#[test]
fn files_of_older_converters_have_the_same_bits() {
    let (folder, to) = (folder("gemma-3"), tempfile::tempdir().unwrap());
    let sound = load(&folder, "f32", "f32");
    let chat = &chats(&folder)[1].messages(&folder);
    let bits = bits_of(&all_logits(&sound, &input(&sound, chat), 4));
    // The names of the two linear layers of a feed-forward layer are exchanged.
    let mut bytes = fs::read(folder.join("gguf/mmproj-f32.gguf")).unwrap();
    for (layer, end) in [(0, "weight"), (0, "bias"), (1, "weight"), (1, "bias")] {
        let [up, down] = ["up", "down"].map(|part| string(&format!("v.blk.{layer}.ffn_{part}.{end}")));
        let made = exchanged(&bytes, &up, &down);
        assert_ne!(made, bytes);
        bytes = made;
    }
    let file = to.path().join("mmproj-older.gguf");
    fs::write(&file, bytes).unwrap();
    let older = common::builder().mmproj(&file).load(folder.join("gguf/f32.gguf")).expect("the model loads");
    assert_eq!(bits_of(&all_logits(&older, &input(&older, chat), 4)), bits);
    let said = older.report().model.as_ref().unwrap().assumptions.join("\n");
    assert!(said.contains("ffn_up and ffn_down are exchanged"), "{said}");
    // The vocabulary ends before the token whose places the rows of images take.
    let bytes = fs::read(folder.join("gguf/f32.gguf")).unwrap();
    let file = to.path().join("f32.gguf");
    fs::write(&file, exchanged(&bytes, &string("<image_soft_token>"), &string("<another_of_these>"))).unwrap();
    let model = common::builder().vision(true).load(&file).expect("the model loads");
    let given = input(&model, chat);
    let places = |input: &model_factory::Input, id: u32| input.ids().iter().filter(|found| **found == id).count();
    assert_eq!((places(&given, 0), places(&input(&sound, chat), 386)), (12, 12));
    assert_eq!(bits_of(&all_logits(&model, &given, 4)), bits);
    // Without a mark of images there is no prompt.
    fs::write(&file, exchanged(&bytes, &string("<start_of_image>"), &string("<another_of_one>"))).unwrap();
    let Err(error) = common::builder().vision(true).load(&file) else { panic!("it sees") };
    assert!(error.code() == 15 && error.to_string().contains("has no <start_of_image>"), "{error}");
}

#[test]
fn the_file_of_a_tower_is_found_beside_the_model_and_several_are_refused() {
    let (folder, to) = (folder("gemma-3"), tempfile::tempdir().unwrap());
    let at = |name: &str| to.path().join(name);
    fs::copy(folder.join("gguf/q8_0.gguf"), at("model.gguf")).unwrap();
    let sees = || common::builder().vision(true);
    for (path, beside) in [(at("model.gguf"), "no mmproj*.gguf lies in"), (at(""), "no mmproj*.gguf lies in")] {
        let Err(error) = sees().load(&path) else { panic!("{} sees", path.display()) };
        assert!(error.code() == 11 && error.to_string().contains(beside), "{error}");
    }
    fs::copy(folder.join("gguf/mmproj-f16.gguf"), at("model.MMPROJ-f16.gguf")).unwrap();
    let without = common::builder().load(at("")).expect("the model loads");
    assert_eq!(without.report().input.files.len(), 1);
    for path in [at("model.gguf"), at("")] {
        let model = sees().load(&path).expect("the model loads");
        let names: Vec<&str> = model.report().input.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["model.gguf", "model.MMPROJ-f16.gguf"]);
        let (plan, plain) = (model.report().plan.clone().unwrap(), without.report().plan.clone().unwrap());
        let bytes = |name: &str| fs::metadata(at(name)).unwrap().len();
        assert_eq!(plan.weights_file, bytes("model.gguf") + bytes("model.MMPROJ-f16.gguf"));
        let tower = model.spec().vision.as_deref().unwrap();
        assert_eq!(plan.vision_weights, tower.tensors().map(|tensor| tensor.bytes).sum::<u64>());
        let more = plan.vision_memory + bytes("model.MMPROJ-f16.gguf");
        assert_eq!(plan.total - plan.kv_cache, plain.total - plain.kv_cache + more);
        assert_eq!(model.spec().unused_tensors, Vec::<String>::new());
    }
    // Saved with one tower and restored with another.
    let saved = at("session");
    let chat = &chats(&folder)[0].messages(&folder);
    let model = sees().load(at("model.gguf")).unwrap();
    let mut session = model.session();
    session.next_logits_of(&input(&model, chat)).unwrap();
    session.save(&saved, WeightsDigest::Full).unwrap();
    assert_eq!(model.restore(&saved).unwrap().len(), session.len());
    let other = load(&folder, "q8_0", "f32");
    let error = other.restore(&saved).expect_err("another tower");
    assert!(matches!(error, Error::SessionFile(_)), "{error}");
    let error = without.restore(&saved).expect_err("no tower");
    assert!(matches!(error, Error::SessionFile(_)), "{error}");

    fs::copy(folder.join("gguf/mmproj-f32.gguf"), at("mmproj.gguf")).unwrap();
    let Err(error) = sees().load(at("model.gguf")) else { panic!("one of several was taken") };
    let says = ["mmproj.gguf", "model.MMPROJ-f16.gguf", ".mmproj(path)"];
    assert!(error.code() == 16 && says.iter().all(|says| error.to_string().contains(says)), "{error}");
    assert!(sees().mmproj(at("mmproj.gguf")).load(at("model.gguf")).is_ok());
    assert!(common::builder().load(at("")).is_ok(), "without images they are not looked at");
    let Err(error) = sees().mmproj(at("model.gguf")).load(at("model.gguf")) else { panic!("a text sees") };
    assert!(error.code() == 11 && error.to_string().contains("it is no mmproj"), "{error}");
    let Err(error) = sees().mmproj(at("mmproj.gguf")).load(folder.join("f32")) else { panic!("it was ignored") };
    assert!(error.code() == 11 && error.to_string().contains("safetensors"), "{error}");
    let Err(error) = common::builder().load(at("mmproj.gguf")) else { panic!("a tower alone") };
    assert!(error.code() == 11 && error.to_string().contains("a multimodal projector"), "{error}");
}
