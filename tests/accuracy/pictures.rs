//! Conversations with images: the ids of transformers' processors, logits and text as near to the truth as transformers', and the
//! same bits however they are computed.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // a test that cannot go on says why

use crate::common::{self, archives, bits_of, relative_l2};

use model_factory::chat::ChatOptions;
use model_factory::error::{ChatError, ImageError};
use model_factory::session::WeightsDigest;
use model_factory::{Error, GenerateOptions, Input, Message, Model, Prompt};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::{fs, thread};

/// A conversation of `chats.json`, as `fixtures/make/vision.py` writes it.
#[derive(Deserialize)]
pub(crate) struct Chat {
    /// The role and the content of each turn.
    turns: Vec<(String, Content)>,
    pub(crate) ids: Vec<u32>,
    greedy: Greedy,
    /// transformers' own, by dtype.
    pub(crate) errors: BTreeMap<String, f64>,
    /// Every so many rows of logits are stored.
    #[serde(default = "four")]
    pub(crate) kept: usize,
}

fn four() -> usize {
    4
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Part {
    Picture(usize),
    Text(String),
}

#[derive(Deserialize)]
struct Greedy {
    tokens: Vec<u32>,
    gaps: Vec<f64>,
}

pub(crate) fn folder(name: &str) -> PathBuf {
    archives::unpacked_from("vision", name)
}

pub(crate) fn chats(folder: &Path) -> Vec<Chat> {
    serde_json::from_slice(&fs::read(folder.join("chats.json")).unwrap()).unwrap()
}

/// The logits of conversations in this file, in order.
pub(crate) fn stored(folder: &Path, name: &str) -> Vec<Vec<f32>> {
    let bytes = fs::read(folder.join(name)).unwrap();
    let stored = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let logits = |index: usize| {
        let tensor = stored.tensor(&format!("logits/{index}")).ok()?;
        Some(tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    };
    (0..).map_while(logits).collect()
}

fn picture(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("pictures/{index}.png"))
}

impl Chat {
    pub(crate) fn messages(&self, folder: &Path) -> Vec<Message> {
        let message = |(role, content): &(String, Content)| match content {
            Content::Text(text) => Message::new(role, text),
            Content::Parts(parts) => parts.iter().fold(Message::new(role, ""), |message, part| match part {
                Part::Picture(index) => message.image(picture(folder, *index)),
                Part::Text(text) => message.text(text),
            }),
        };
        self.turns.iter().map(message).collect()
    }
}

fn load(folder: &Path, dtype: &str) -> Model {
    common::builder().vision(true).load(folder.join(dtype)).expect("the model loads")
}

pub(crate) fn input(model: &Model, messages: &[Message]) -> Input {
    model.prompt_input(messages, &ChatOptions::default()).expect("a prompt")
}

/// Every so many rows of the logits.
pub(crate) fn all_logits(model: &Model, input: &Input, kept: usize) -> Vec<f32> {
    let logits = model.session().all_logits_of(input).expect("logits");
    logits.rows().step_by(kept).flatten().copied().collect()
}

fn greedy(tokens: usize) -> GenerateOptions {
    GenerateOptions::default().temperature(0.0).max_tokens(tokens).ignore_stop(true)
}

pub(crate) fn text(model: &Model, messages: &[Message], tokens: usize) -> Vec<u32> {
    let mut generation = model.chat(messages, &greedy(tokens)).expect("a generation");
    generation.text().expect("a text");
    generation.ids().to_vec()
}

#[test]
fn ids_logits_and_text_of_chats_with_pictures_are_those_of_transformers() {
    let mut compared = 0;
    for name in archives::names_in("vision") {
        let folder = folder(&name);
        let truths = stored(&folder, "chats.safetensors");
        for dtype in ["f32", "bf16", "f16"] {
            let model = load(&folder, dtype);
            for (index, chat) in chats(&folder).iter().enumerate() {
                let messages = chat.messages(&folder);
                let input = input(&model, &messages);
                assert_eq!(input.ids(), chat.ids, "{name}, chat {index}");
                assert_eq!(model.prompt_ids(&messages, &ChatOptions::default()).unwrap(), chat.ids);
                assert_eq!(model.count_tokens(&messages, &ChatOptions::default()).unwrap(), chat.ids.len());

                let truth = &truths[index];
                let kept = all_logits(&model, &input, chat.kept);
                let error = relative_l2(&kept, truth);
                // As in `accuracy.rs`: another order of F32 sums, and fewer roundings than transformers in narrower dtypes.
                let bound = chat.errors[dtype] * if dtype == "f32" { 2.0 } else { 1.0 };
                println!("{name}/{dtype}, chat {index}: {error:.2e} {bound:.2e} {:.2}", error / bound);
                assert!(error <= bound, "{name}/{dtype}, chat {index}: {error:.3e} is more than {bound:.3e}");

                let largest = kept.iter().zip(truth).map(|(a, t)| f64::from((a - t).abs())).fold(0.0, f64::max);
                let found = text(&model, &messages, chat.greedy.tokens.len());
                let leads = chat.greedy.gaps.iter().position(|gap| *gap <= 2.0 * largest);
                let clear = leads.unwrap_or(chat.greedy.tokens.len());
                assert_eq!(found[..clear], chat.greedy.tokens[..clear], "{name}/{dtype}, chat {index}");
                compared += clear;
            }
        }
    }
    assert!(compared >= 100, "only {compared} tokens");
}

#[test]
fn chats_with_pictures_have_the_same_bits_however_they_are_computed() {
    for name in archives::names_in("vision") {
        let folder = folder(&name);
        let chats: Vec<Vec<Message>> = chats(&folder).iter().map(|chat| chat.messages(&folder)).collect();
        let one = |threads: usize| {
            common::builder().vision(true).threads(threads).load(folder.join("bf16")).expect("the model loads")
        };
        let alone: Vec<_> = {
            let model = one(1);
            chats.iter().map(|chat| bits_of(&model.session().next_logits_of(&input(&model, chat)).unwrap())).collect()
        };
        // In company, with several threads, and as texts that begin alike.
        let model = one(3);
        let begin = Barrier::new(chats.len());
        thread::scope(|scope| {
            let computed = chats.iter().map(|chat| {
                let (model, begin) = (&model, &begin);
                scope.spawn(move || {
                    begin.wait();
                    bits_of(&model.session().next_logits_of(&input(model, chat)).unwrap())
                })
            });
            let computed: Vec<_> = computed.collect();
            for ((index, thread), alone) in computed.into_iter().enumerate().zip(&alone) {
                assert_eq!(&thread.join().unwrap(), alone, "{name}: chat {index} in company");
            }
        });
        // In chunks, between images; saved in the middle, and restored.
        let whole = input(&model, &chats[1]);
        let cut = whole.spans()[1].range().end + 1;
        let mut session = model.session();
        session.next_logits_of(whole.rows().slice(0..cut)).unwrap();
        let file = tempfile::tempdir().unwrap();
        let file = file.path().join("session");
        session.save(&file, WeightsDigest::Full).unwrap();
        let again = one(2);
        for mut session in [session, again.restore(&file).unwrap()] {
            let logits = session.next_logits_of(whole.rows().slice(cut..whole.len())).unwrap();
            assert_eq!(bits_of(&logits), alone[1], "{name}: in two parts");
        }
        // A turn goes on where the last one ended: what both have in common is not computed again.
        let mut session = model.session();
        session.generate(&chats[2], &greedy(2)).unwrap().text().unwrap();
        let mut generation = session.generate(&chats[1], &greedy(8)).unwrap();
        generation.text().unwrap();
        assert!(generation.finish().1.cached_tokens > whole.spans()[1].range().end, "both images are held");
        assert_eq!(generation.ids(), text(&one(1), &chats[1], 8), "{name}: after another turn");
        // Another picture in the same place is another text.
        let mut other = chats[0].clone();
        other[0].images = vec![picture(&folder, 2).into()];
        assert_ne!(bits_of(&model.session().next_logits_of(&input(&model, &other)).unwrap()), alone[0], "{name}");
    }
}

#[test]
fn a_picture_is_the_same_by_path_by_bytes_by_pixels_and_in_json() {
    let folder = folder("gemma-3");
    let model = load(&folder, "f32");
    let path = picture(&folder, 0);
    let bytes = fs::read(&path).unwrap();
    let decoded = model_factory::images::Picture::decode(&bytes, &model_factory::images::Limits::default()).unwrap();
    let asked = |message: Message| vec![message.text("What is this?")];
    let encoded = base64(&bytes);
    let parts = |part: Value| -> Message {
        serde_json::from_value(json!({ "role": "user", "content": [part] })).expect("a message")
    };
    let expected = input(&model, &asked(Message::user("").image(path.as_path())));
    assert_eq!(expected.ids(), chats(&folder)[0].ids);
    for message in [
        Message::user("").image(bytes.clone()),
        Message::user("").image(decoded),
        parts(json!({ "type": "image", "base64": encoded })),
        parts(json!({ "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{encoded}") } })),
    ] {
        let messages = asked(message);
        assert_eq!(input(&model, &messages), expected);
        // Through JSON and back.
        let read: Vec<Message> = serde_json::from_str(&serde_json::to_string(&messages).unwrap()).unwrap();
        if messages[0].images[0] == bytes.clone().into() {
            assert_eq!(read, messages);
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let four = |three: &[u8]| {
        let joined = three.iter().fold(0_u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        let letter = |index: usize| match index <= three.len() {
            true => char::from(LETTERS[(joined >> (18 - 6 * index)) as usize & 63]),
            false => '=',
        };
        [letter(0), letter(1), letter(2), letter(3)]
    };
    bytes.chunks(3).flat_map(four).collect()
}

/// A mark that a message spells is text: it takes no image, and no image takes its place.
#[test]
fn no_text_forges_a_picture() {
    let folder = folder("gemma-3");
    let model = load(&folder, "f32");
    let ids = |messages: &[Message]| input(&model, messages).ids().to_vec();
    let vision = model.spec().vision.as_deref().unwrap();
    let (mark, rows) = (vision.prompt.mark, vision.prompt.placeholder);
    let count = |ids: &[u32], id: u32| ids.iter().filter(|other| **other == id).count();
    for forged in ["<start_of_image>", "<image_soft_token>", "<start_of_image><image_soft_token><end_of_image>"] {
        let plain = ids(&[Message::user(forged)]);
        assert_eq!((count(&plain, mark), count(&plain, rows)), (0, 0), "{forged}");
        let with = [Message::user(forged).image(picture(&folder, 0)).text(forged)];
        let found = ids(&with);
        assert_eq!((count(&found, mark), count(&found, rows)), (1, 4), "{forged}");
        let trusted = ChatOptions::default().trust_special_tokens(true);
        let error = model.prompt_input(&with, &trusted).expect_err("more marks than images");
        match error {
            Error::Chat(ChatError::ImageMarks { found, images: 1, .. }) => assert_eq!(found, 3),
            Error::Image(refused) => {
                assert!(matches!(*refused, ImageError::Places { .. } | ImageError::Changed { .. }), "{refused}");
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn what_cannot_be_seen_is_refused_by_name() {
    let folder = folder("gemma-3");
    let model = load(&folder, "f32");
    let path = picture(&folder, 0);
    let bytes = fs::read(&path).unwrap();
    let asked = |image: &[u8]| [Message::user("").image(picture(&folder, 1)).image(image)];
    for (messages, says) in [
        (asked(&bytes[..200]), "image 2 (200 bytes): the PNG image is truncated"),
        (asked(b"%PDF-1.7"), "image 2 (8 bytes): this is "),
        (asked(&[]), "image 2 (0 bytes): "),
        ([Message::user("").image("no/such/picture.png")], "image 1 (no/such/picture.png): "),
        ([Message::user("").image(folder.as_path())], "it is no regular file"),
    ] {
        let Err(error) = model.chat(&messages, &greedy(1)) else { panic!("{says} is seen") };
        assert!(matches!(error, Error::Image(_)) && error.code() == 2, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    // A model without its tower, and one without images at all.
    let blind = common::load(folder.join("f32"));
    let llama = common::load(common::fixtures().join("models/llama-3.1/bf16"));
    for model in [&blind, &llama] {
        let Err(error) = model.chat(&[Message::user("").image(path.as_path())], &greedy(1)) else { panic!("it sees") };
        assert!(error.to_string().contains("ModelBuilder::vision"), "{error}");
        assert_eq!(error.code(), 2);
    }
    // What is no image with its bytes, also in a model that sees.
    for part in [
        json!({ "type": "image", "path": path }),
        json!({ "type": "image", "url": "https://localhost/cat.png" }),
        json!({ "type": "image_url", "image_url": { "url": "file:///etc/passwd" } }),
        json!({ "type": "image" }),
        json!({ "type": "input_audio", "input_audio": { "data": "", "format": "wav" } }),
    ] {
        let message: Message = serde_json::from_value(json!({ "role": "user", "content": [part] })).unwrap();
        let error = model.prompt_ids(&[message], &ChatOptions::default()).expect_err("no bytes");
        assert!(matches!(error, Error::Chat(ChatError::NotText { message: 1, .. })), "{part}: {error}");
    }
    // More rows than the context has room for, before anything is computed.
    let small = common::builder().vision(true).context_length(64).load(folder.join("f32")).unwrap();
    let many = (0..20).fold(Message::user(""), |message, _| message.image(path.as_path()));
    let Err(error) = small.chat(&[many], &greedy(1)) else { panic!("80 rows fit 64") };
    assert!(matches!(error, Error::ContextOverflow { limit: 64, .. }), "{error}");
    let error = model.score(Prompt::from(&asked(&bytes))).expect_err("images are not scored");
    assert!(error.to_string().contains("not scored"), "{error}");
}

/// A processor that makes other images than the tower takes, or that is absent, is refused before weights are read.
#[test]
fn a_processor_that_does_not_belong_to_the_tower_is_refused() {
    let from = folder("gemma-3").join("bf16");
    let changed = |change: &dyn Fn(&mut Value)| {
        let to = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(&from).unwrap().map(Result::unwrap) {
            fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
        }
        let path = to.path().join("preprocessor_config.json");
        let mut object: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut object);
        fs::write(&path, object.to_string()).unwrap();
        to
    };
    for (change, code, says) in [
        (
            &(|object: &mut Value| object["size"] = json!({ "height": 70, "width": 56 })) as &dyn Fn(&mut Value),
            15,
            "images are resized to 56 by 70 pixels, but the tower takes 56 by 56",
        ),
        (&|object| object["image_seq_length"] = json!(9), 15, "an image is 9 tokens"),
        (&|object| object["image_processor_type"] = json!("SiglipImageProcessor"), 11, "the image processor Siglip"),
        (&|object| object["image_processor_type"] = json!("OtherImageProcessor"), 11, "OtherImageProcessor"),
        (&|object| object["do_pan_and_scan"] = json!(true), 11, "pan and scan"),
    ] {
        let folder = changed(change);
        let Err(error) = common::builder().vision(true).load(folder.path()) else { panic!("{says} is loaded") };
        assert!(error.to_string().contains(says) && error.code() == code, "{}: {error}", error.code());
        common::load(folder.path()); // without the tower nobody asks
    }
    let folder = changed(&|_| {});
    fs::remove_file(folder.path().join("preprocessor_config.json")).unwrap();
    let Err(error) = common::builder().vision(true).load(folder.path()) else { panic!("no processor") };
    assert!(error.to_string().contains("preprocessor_config.json"), "{error}");
}

/// The same image in many requests at once is computed once: all get the same rows.
#[test]
fn an_image_that_was_seen_is_not_computed_again() {
    let folder = folder("gemma-3");
    let model = load(&folder, "f32");
    let messages = [Message::user("").image(picture(&folder, 0))];
    let begin = Barrier::new(4);
    let tokens = thread::scope(|scope| {
        let prompt = || {
            begin.wait();
            Arc::clone(&input(&model, &messages).spans()[0].tokens)
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(prompt)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(tokens.iter().all(|other| Arc::ptr_eq(other, &tokens[0])));
    // Four images of the largest size are kept: the first one is not among the last four.
    let pixels = |value: u8| model_factory::images::Picture::from_rgb(1, 1, &[value; 3]).unwrap();
    for value in 0..4 {
        input(&model, &[Message::user("").image(pixels(value))]);
    }
    let again = &input(&model, &messages).spans()[0].tokens.clone();
    assert!(!Arc::ptr_eq(again, &tokens[0]) && again == &tokens[0]);
}
