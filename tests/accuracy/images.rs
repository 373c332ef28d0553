//! Images among the ids of a sequence: as near to the truth as transformers, and the same bits however they are computed.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // a test that cannot go on says why

use crate::common::{self, bits_of, relative_l2, tokens, top};

use model_factory::error::SoftTokensError;
use model_factory::generate::Speculation;
use model_factory::session::WeightsDigest;
use model_factory::{Error, GenerateOptions, Input, KvDtype, Model, ModelBuilder, Piece, Rows, Session, SoftTokens};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::{fs, thread};

/// `fixtures/soft_tokens/NAME.json`, as `fixtures/make/soft_tokens.py` writes it.
#[derive(Deserialize)]
struct Expected {
    folder: String,
    /// What is around the keys of the folder's `config.json`, and other values of these.
    config: Option<Map<String, Value>>,
    ids: Vec<u32>,
    /// The first row of each image, and its rows.
    spans: Vec<[usize; 2]>,
    /// Time, height and width of each, where positions have three dimensions.
    grids: Vec<[usize; 3]>,
    /// Layers after which vectors are added.
    deepstack: usize,
    /// Every so many rows have logits.
    kept: usize,
    transformers_error: BTreeMap<String, f64>,
    greedy: BTreeMap<String, Greedy>,
}

#[derive(Deserialize)]
struct Greedy {
    tokens: Vec<u32>,
    gaps: Vec<f64>,
}

fn floats(tensors: &safetensors::SafeTensors<'_>, name: &str) -> Vec<f32> {
    let tensor = tensors.tensor(name).expect("a tensor of the fixture");
    assert_eq!(tensor.dtype(), safetensors::Dtype::F32);
    tensor.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn logits_and_greedy_text_with_images_are_those_of_transformers() {
    let mut compared = 0;
    for path in fs::read_dir(common::fixtures().join("soft_tokens")).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let expected: Expected = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let bytes = fs::read(path.with_extension("safetensors")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        for (dtype, transformers) in &expected.transformers_error {
            let folder = tempfile::tempdir().unwrap();
            let model = common::load(expected.place(dtype, folder.path()));
            let input = input_of(&expected, &tensors, model.spec().hidden);
            let (truth, vocab) = (floats(&tensors, &format!("logits/{dtype}")), model.spec().vocab);
            let logits = model.session().all_logits_of(&input).unwrap();
            let kept: Vec<f32> = logits.rows().step_by(expected.kept).flatten().copied().collect();
            let error = relative_l2(&kept, &truth);
            // As in `accuracy.rs`: another order of F32 sums, and fewer roundings than transformers in BF16.
            let bound = if dtype == "f32" { 2.0 * transformers } else { *transformers };
            println!("{} as {}: {dtype} {error:.2e} {bound:.2e} {:.2}", expected.folder, path.display(), error / bound);
            assert!(error <= bound, "{}/{dtype}: {error:.3e} is more than {bound:.3e}", expected.folder);
            // The same ids without images are something else.
            let plain = model.session().all_logits(&expected.ids).unwrap();
            let plain: Vec<f32> = plain.rows().step_by(expected.kept).flatten().copied().collect();
            assert!(relative_l2(&plain, &truth) > 0.1, "{}", expected.folder);

            let largest = kept.iter().zip(&truth).map(|(a, t)| f64::from((a - t).abs())).fold(0.0, f64::max);
            let greedy = &expected.greedy[dtype];
            let mut session = model.session();
            let mut next = session.next_logits_of(&input).unwrap();
            let mut clear = 0;
            for (step, (token, gap)) in greedy.tokens.iter().zip(&greedy.gaps).enumerate() {
                if *gap > 2.0 * largest {
                    assert_eq!(top(&next).0, *token as usize, "{}/{dtype} step {step}", expected.folder);
                    clear += 1;
                }
                next = session.next_logits(&[*token]).unwrap();
            }
            // In BF16 some leads are smaller than the error.
            assert!(clear >= if dtype == "f32" { greedy.tokens.len() } else { 8 }, "{dtype}: {clear} clear steps");
            if dtype == "f32" {
                let text = generated(&mut model.session(), &input, &options(24)).0;
                assert_eq!(text.iter().map(|(id, _)| *id).collect::<Vec<_>>(), greedy.tokens);
            }
            assert_eq!(vocab, logits.columns());
            compared += 1;
        }
    }
    assert!(compared >= 8, "{compared} files");
}

impl Expected {
    /// The folder of the model in this dtype: as it is, or with its `config.json` changed, in `folder`.
    fn place(&self, dtype: &str, folder: &Path) -> PathBuf {
        let text = common::archives::path(&format!("{}/{dtype}", self.folder));
        let Some(mut whole) = self.config.clone() else { return text };
        for file in fs::read_dir(&text).unwrap().map(|entry| entry.unwrap()) {
            fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
        let mut keys: Map<String, Value> =
            serde_json::from_slice(&fs::read(text.join("config.json")).unwrap()).unwrap();
        whole.extend(keys.remove("eos_token_id").map(|stops| ("eos_token_id".to_owned(), stops)));
        let changed = whole["text_config"].as_object().unwrap().clone();
        keys.extend(changed);
        whole.insert("text_config".into(), keys.into());
        fs::write(folder.join("config.json"), Value::from(whole).to_string()).unwrap();
        folder.into()
    }
}

fn input_of(expected: &Expected, tensors: &safetensors::SafeTensors<'_>, hidden: usize) -> Input {
    let (mut input, mut end) = (Input::default(), 0);
    for (index, [start, rows]) in expected.spans.iter().enumerate() {
        input.push_ids(&expected.ids[end..*start]).unwrap();
        let mut image = SoftTokens::new(floats(tensors, &format!("image/{index}")), hidden, [index as u8; 32]).unwrap();
        if let Some(grid) = expected.grids.get(index) {
            image = image.with_grid(*grid).unwrap();
        }
        let layers = (0..expected.deepstack).map(|layer| floats(tensors, &format!("deepstack/{index}/{layer}")));
        let image = image.with_deepstack(layers.collect()).unwrap();
        assert_eq!(image.rows(), *rows);
        input.push_soft_tokens(expected.ids[*start], &Arc::new(image)).unwrap();
        end = start + rows;
    }
    input.push_ids(&expected.ids[end..]).unwrap();
    assert_eq!(input.ids(), expected.ids);
    input
}

const GEMMA: &str = "gemma-3/bf16";

/// An image of `rows` vectors, ten in a row of it, others for each digest; vectors are added after two layers too.
fn image(model: &Model, rows: usize, digest: u8) -> Arc<SoftTokens> {
    let hidden = model.spec().hidden;
    let values = |seed: usize| -> Vec<f32> {
        (0..rows * hidden).map(|index| ((index * 37 + seed * 101) % 255) as f32 / 64.0 - 2.0).collect()
    };
    let image = SoftTokens::new(values(digest.into()), hidden, [digest; 32]).unwrap();
    let image = image.with_grid([1, rows / 10, 10]).unwrap();
    Arc::new(image.with_deepstack(vec![values(11), values(12)]).unwrap())
}

/// Text, an image across the end of a page and longer than the window, text, another image, text: 410 rows.
fn long(model: &Model, first: u8) -> Input {
    let text = tokens(250, 256);
    let mut input = Input::from(text[..200].to_vec());
    input.push_soft_tokens(260, &image(model, 100, first)).unwrap();
    input.push_ids(&text[200..230]).unwrap();
    input.push_soft_tokens(260, &image(model, 60, 2)).unwrap();
    input.push_ids(&text[230..]).unwrap();
    input
}

fn options(tokens: usize) -> GenerateOptions {
    GenerateOptions::default().max_tokens(tokens).temperature(0.0).ignore_stop(true).logprobs(1)
}

/// The ids of a text, and the bits of their log-probabilities, which all logits are in.
type Text = Vec<(u32, u64)>;

fn text(pieces: impl Iterator<Item = model_factory::Result<Piece>>) -> Text {
    let of_token = |piece: Piece| Some((piece.token?, piece.logprobs?.chosen.to_bits()));
    pieces.filter_map(|piece| of_token(piece.unwrap())).collect()
}

/// A text, and the tokens of the prompt that were found and that were computed.
fn generated(session: &mut Session, input: &Input, options: &GenerateOptions) -> (Text, usize, usize) {
    let mut generation = session.generate(input, options).unwrap();
    let text = text(&mut generation);
    let timings = generation.finish().1;
    (text, timings.cached_tokens, timings.prompt_tokens)
}

/// The bits of the logits after the last of `parts`.
fn last(session: &mut Session, parts: &[Rows<'_>]) -> Vec<u32> {
    let logits = parts.iter().map(|part| session.next_logits_of(*part).expect("a part computes")).last();
    bits_of(&logits.expect("at least one part"))
}

/// A model whose images' rows attend to each other, and those whose positions have three dimensions: with attention alone, and
/// with states. Folders that are renamed are made in `folder`.
fn with_images(folder: &Path) -> Vec<PathBuf> {
    let place = |name: &str, dtype: &str| {
        let path = common::fixtures().join("soft_tokens").join(format!("{name}.json"));
        let expected: Expected = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let own = folder.join(name);
        fs::create_dir_all(&own).unwrap();
        expected.place(dtype, &own)
    };
    let places = [("gemma-3", "bf16"), ("qwen2-vl", "f32"), ("qwen3-vl", "bf16"), ("qwen3.5", "bf16")];
    let folders = places.map(|(name, dtype)| place(name, dtype));
    folders.into_iter().chain([common::archives::path("gemma-3/q8_0.gguf")]).collect()
}

#[test]
fn images_give_the_same_bits_in_chunks_in_company_in_a_fork_cut_back_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    for file in with_images(folder.path()) {
        for kv in [KvDtype::F32, KvDtype::Q8_0] {
            same_bits(&file, kv, &folder.path().join("a.session"));
        }
    }
}

fn same_bits(file: &Path, kv: KvDtype, path: &Path) {
    let label = format!("{}, {kv}", file.display());
    let load = |threads| common::builder().threads(threads).kv_cache(kv).load(file).unwrap();
    let one = load(1);
    let input = long(&one, 1);
    let (rows, end) = (input.rows(), input.len());
    let whole = last(&mut one.session(), &[rows]);
    let all = one.session().all_logits_of(&input).unwrap();
    assert_eq!(bits_of(all.rows().last().unwrap()), whole, "{label}: with all logits");
    for threads in [1, 3] {
        let model = load(threads);
        let part = |start: usize, end: usize| rows.slice(start..end);
        let pieces = [part(0, 7), part(7, 200), part(200, 300), part(300, 301), part(301, 390), part(390, end)];
        assert_eq!(last(&mut model.session(), &pieces), whole, "{label}, {threads}: chunks");
        let mut session = model.session();
        session.next_logits_of(part(0, 395)).unwrap();
        let mut fork = session.fork().unwrap();
        // Cut back into the middle of the second image, which is forgotten whole.
        session.next_logits(&[1, 2, 3]).unwrap();
        session.truncate(350);
        assert_eq!((session.len(), session.input().spans().len()), (330, 1));
        session.next_logits(&tokens(9, 256)).unwrap();
        session.truncate(330);
        let (mut other, mut third) = (model.session(), model.session());
        other.next_logits(&tokens(90, 256)).unwrap();
        let mut steps = [
            (&mut other, Rows::from(&[5u32][..])),
            (&mut fork, part(395, end)),
            (&mut third, rows),
            (&mut session, part(330, end)),
        ];
        let logits = Session::batch_logits_of(&mut steps).unwrap();
        for (row, who) in [(1, "a fork"), (2, "whole"), (3, "cut back")] {
            assert_eq!(bits_of(logits.rows().nth(row).unwrap()), whole, "{label}, {threads}: {who}, in company");
        }
        session.truncate(395);
        session.save(path, WeightsDigest::Sampled).unwrap();
        let mut restored = load(threads).restore(path).unwrap();
        assert_eq!(restored.input(), session.input());
        assert_eq!(last(&mut restored, &[part(395, end)]), whole, "{label}, {threads}: restored");
    }
}

/// Rows that attend to earlier ones only need no step of their own: an image may be longer than a step.
#[test]
fn a_large_image_is_computed_in_chunks() {
    let folder = tempfile::tempdir().unwrap();
    for file in with_images(folder.path()).into_iter().skip(1).take(3) {
        let [one, two] = [1, 2].map(|threads| common::builder().threads(threads).load(&file).unwrap());
        let mut input = Input::from(tokens(9, 256));
        input.push_soft_tokens(260, &image(&one, 700, 3)).unwrap();
        input.push_ids(&tokens(5, 256)).unwrap();
        let whole = last(&mut one.session(), &[input.rows()]);
        let mut third = two.session();
        let mut other = two.session();
        let mut steps = [(&mut other, Rows::from(&[5u32, 6][..])), (&mut third, input.rows())];
        let logits = Session::batch_logits_of(&mut steps).unwrap();
        assert_eq!(bits_of(logits.rows().nth(1).unwrap()), whole, "{}", file.display());
    }
}

#[test]
fn generations_with_images_share_steps_and_no_text_changes() {
    let model = common::builder().threads(2).load(common::archives::path(GEMMA)).unwrap();
    let ids = |seed: u32, count: usize| common::seeded_tokens(seed, count, 256);
    // Images in front, at the end, as long as the family's largest, and none.
    let inputs: Vec<Input> = (0..6u8)
        .map(|index| {
            let mut input = Input::from(ids(index.into(), 3 + 40 * usize::from(index % 3)));
            if index % 3 > 0 {
                input.push_soft_tokens(300, &image(&model, if index == 4 { 250 } else { 90 }, index)).unwrap();
            }
            if index < 4 {
                input.push_ids(&ids(9, 5)).unwrap();
            }
            input
        })
        .collect();
    let expected: Vec<_> = inputs.iter().map(|input| generated(&mut model.session(), input, &options(20)).0).collect();
    for speculate in [Speculation::Off, Speculation::Ngram] {
        let line = Barrier::new(inputs.len());
        let found: Vec<_> = thread::scope(|scope| {
            let compute = |input| {
                let (line, model) = (&line, &model);
                scope.spawn(move || {
                    let mut session = model.session();
                    line.wait();
                    generated(&mut session, input, &options(20).speculate(speculate)).0
                })
            };
            let threads: Vec<_> = inputs.iter().map(compute).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(found, expected, "{speculate:?}");
    }
    #[cfg(feature = "async")]
    {
        let streams = inputs.iter().map(|input| model.generate(input, &options(20)).unwrap().into_stream());
        let streams: Vec<_> = streams.collect();
        for (stream, expected) in streams.into_iter().zip(&expected) {
            assert_eq!(text(futures::executor::block_on_stream(stream)), *expected, "a stream");
        }
    }
}

fn sharing() -> ModelBuilder {
    common::builder().prefix_caching(true)
}

#[test]
fn sequences_share_an_image_by_its_digest_and_no_bit_differs() {
    let load = || sharing().load(common::archives::path(GEMMA)).unwrap();
    let (plain, model) = (common::load(common::archives::path(GEMMA)), load());
    let (input, other) = (long(&model, 1), long(&model, 7));
    let expected = |input: &Input| generated(&mut plain.session(), input, &options(8)).0;
    let (of_input, of_other) = (expected(&input), expected(&other));
    assert_ne!(of_input, of_other, "an image makes a difference");
    assert_eq!(generated(&mut model.session(), &input, &options(8)), (of_input.clone(), 0, 410));
    // A page ends in the middle of the first image: its other rows are computed with the held ones.
    assert_eq!(generated(&mut model.session(), &input, &options(8)), (of_input.clone(), 256, 154));
    assert_eq!(generated(&mut model.session(), &other, &options(8)), (of_other.clone(), 0, 410));
    // The ids without images are a third sequence.
    let ids = Input::from(input.ids().to_vec());
    assert_eq!(generated(&mut model.session(), &ids, &options(8)), (expected(&ids), 0, 410));
    // Of one salt parts of pages too, up to the place where a part of an image would be missing.
    let salted = options(8).cache_salt("a");
    assert_eq!(generated(&mut model.session(), &input, &salted), (of_input.clone(), 0, 410));
    let (text, found, _) = generated(&mut model.session(), &input, &salted);
    assert!(text == of_input && found >= 256, "{found}");
    assert_eq!(generated(&mut model.session(), &other, &salted).0, of_other);
    // A session of its own goes on from what it has in common, by the digest too.
    let mut session = plain.session();
    generated(&mut session, &input, &options(8));
    assert_eq!(generated(&mut session, &input, &options(8)), (of_input, 409, 1));
    assert_eq!(generated(&mut session, &other, &options(8)), (of_other, 200, 210));
    // It held all of an image that is the end of the prompt: the image is computed again.
    let mut cut = Input::default();
    cut.extend(input.rows().slice(0..300)).unwrap();
    generated(&mut session, &input, &options(8));
    assert_eq!(generated(&mut session, &cut, &options(1)).1, 200);
}

#[test]
fn a_restored_session_knows_its_images() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let model = common::load(common::archives::path(GEMMA));
    let (input, other) = (long(&model, 1), long(&model, 7));
    let mut session = model.session();
    session.next_logits_of(&input).unwrap();
    session.save(&path, WeightsDigest::Sampled).unwrap();
    let expected = [&input, &other].map(|input| generated(&mut model.session(), input, &options(8)).0);
    let mut restored = model.restore(&path).unwrap();
    assert_eq!(generated(&mut restored, &input, &options(8)), (expected[0].clone(), 409, 1));
    assert_eq!(generated(&mut restored, &other, &options(8)), (expected[1].clone(), 200, 210));
    // What was damaged is refused, wherever: ids, images and pages have checksums.
    let whole = fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(whole.len() / 150) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        fs::write(&path, &bytes).unwrap();
        assert!(matches!(model.restore(&path), Err(Error::SessionFile(_))), "byte {at}");
    }
    for length in [whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(matches!(model.restore(&path), Err(Error::SessionFile(_))), "{length} bytes");
    }
}

#[test]
fn what_a_model_does_not_take_is_refused() {
    let model = common::load(common::archives::path(GEMMA));
    let hidden = model.spec().hidden;
    let of = |rows: usize, width: usize, placeholder: u32| {
        let image = SoftTokens::new(vec![0.5; rows * width], width, [1; 32]).unwrap();
        let mut input = Input::from(vec![2, 3]);
        input.push_soft_tokens(placeholder, &Arc::new(image)).unwrap();
        input
    };
    let refused = |model: &Model, rows: Rows<'_>| {
        let mut session = model.session();
        let error = session.next_logits_of(rows).unwrap_err();
        assert_eq!((session.len(), error.code()), (0, 2));
        match error {
            Error::SoftTokens(error) => *error,
            error => panic!("{error}"),
        }
    };
    let wide = SoftTokensError::Width { found: hidden + 1, expected: hidden };
    assert_eq!(refused(&model, of(3, hidden + 1, 300).rows()), wide);
    assert_eq!(refused(&model, of(257, hidden, 300).rows()), SoftTokensError::TooMany { found: 257, most: 256 });
    assert_eq!(refused(&model, of(3, hidden, 300).rows().slice(0..4)), SoftTokensError::Cut { rows: 3 });
    assert_eq!(refused(&model, of(3, hidden, 300).rows().slice(3..5)), SoftTokensError::Cut { rows: 3 });
    let outside = model.session().next_logits_of(&of(3, hidden, 400));
    assert!(matches!(outside, Err(Error::TokenOutOfVocabulary { id: 400, .. })));
    assert!(model.session().generate(&of(3, hidden + 1, 300), &options(1)).is_err());
    let scored = model.score(&of(3, hidden, 300));
    assert!(matches!(scored, Err(Error::SoftTokens(error)) if *error == SoftTokensError::NotScored));
    // Several answers of one prompt are answers to its images.
    let (input, one) = (of(3, hidden, 300), options(8));
    let [first, second] = <[_; 2]>::try_from(model.generations(&input, 2, &one).unwrap()).expect("two");
    let expected = generated(&mut model.session(), &input, &one).0;
    assert!(text(first) == expected && text(second) == expected);
    let folder = tempfile::tempdir().unwrap();
    let grids = common::load(&with_images(folder.path())[1]);
    assert_eq!(refused(&grids, of(3, grids.spec().hidden, 260).rows()), SoftTokensError::NoGrid);
    let layers = SoftTokens::new(vec![0.5; hidden], hidden, [1; 32]).unwrap();
    let layers = layers.with_deepstack(vec![vec![0.5; hidden]; 7]).unwrap();
    let mut deep = Input::default();
    deep.push_soft_tokens(300, &Arc::new(layers)).unwrap();
    assert_eq!(refused(&model, deep.rows()), SoftTokensError::Layers { found: 7, layers: 6 });
    let mpt = common::load(common::archives::path("mpt/bf16"));
    let none = SoftTokensError::NotTaken { family: "mpt" };
    assert_eq!(refused(&mpt, of(3, mpt.spec().hidden, 200).rows()), none);
}
