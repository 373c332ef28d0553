//! Generations as streams: the same text, tied to no runtime, and ended by whoever drops them.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::given::options;
use crate::common::{self, load_demo};

use futures::executor::{block_on, block_on_stream};
use futures::future::join;
use futures::{Stream, StreamExt};
use model_factory::{
    CancellationToken, Error, FinishReason, GenerateOptions, GenerationStream, Message, Model, Speculation,
};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

const PROMPT: &str = "Once upon a time";

fn stream(model: &Model, options: &GenerateOptions) -> GenerationStream {
    model.generate(PROMPT, options).unwrap().into_stream()
}

#[test]
fn a_stream_gives_the_pieces_of_its_generation() {
    let model = load_demo();
    let expected: Vec<_> = model.generate(PROMPT, &options(60)).unwrap().map(Result::unwrap).collect();
    let mut pieces = block_on_stream(stream(&model, &options(60)));
    let given: Vec<_> = pieces.by_ref().map(Result::unwrap).collect();
    assert_eq!(given, expected);
    let mut stream = pieces.into_inner();
    assert!(block_on(stream.next()).is_none(), "an end stays an end");
    let (finish, timings) = stream.finish();
    assert_eq!((finish, timings.generated), (Some(FinishReason::Length), 60));
    assert_eq!(stream.into_generation().unwrap().ids().len(), 60);

    let text: String = expected.iter().map(|piece| piece.text.as_str()).collect();
    let begins = block_on(model.generate_text(PROMPT, 60)).unwrap();
    assert!(!begins.is_empty() && text.starts_with(&begins), "{begins:?} of {text:?}");
}

#[test]
fn streams_of_constrained_answers_give_the_same_pieces() {
    let model = load_demo();
    let record = serde_json::json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 9},
        "kind": {"const": "a long text without a choice"}, "on": {"type": "boolean"}},
        "required": ["name", "kind", "on"], "additionalProperties": false});
    let all = [
        GenerateOptions::default().json_schema(record),
        GenerateOptions::default().choice(&["only this"]),
        GenerateOptions::default().regex("[a-z]{3,20}").speculate(Speculation::Ngram).speculative_tokens(3),
    ];
    let all = all.map(|options| options.temperature(1.0).seed(3).max_tokens(200));
    let mut streams = all.each_ref().map(|options| stream(&model, options));
    for (options, stream) in all.iter().zip(&mut streams) {
        let expected: Vec<_> = model.generate(PROMPT, options).unwrap().map(Result::unwrap).collect();
        let given: Vec<_> = block_on_stream(&mut *stream).map(Result::unwrap).collect();
        assert_eq!(given, expected, "{:?}", options.grammar);
        assert_eq!(stream.finish().0, Some(FinishReason::Grammar));
    }
}

#[test]
fn streams_with_guesses_give_the_same_pieces() {
    let on_gpu = std::env::var_os("TEST_DEVICE").is_some_and(|device| device != "cpu");
    let draft = |draft: &str| common::builder().draft(common::fixtures().join(draft)).load(common::demo());
    let model = if on_gpu { load_demo() } else { draft("demo-q4_k_m.gguf").unwrap() };
    let prompt = "Greta sold apples on the market square. ".repeat(4);
    let kinds = [options(80), options(80).temperature(0.7).seed(3).logprobs(2)];
    let sources = [Speculation::Ngram, if on_gpu { Speculation::Ngram } else { Speculation::Draft }];
    for (options, source) in kinds.iter().flat_map(|options| sources.map(|source| (options.clone(), source))) {
        let expected: Vec<_> = model.generate(&prompt, &options).unwrap().map(Result::unwrap).collect();
        let options = options.speculate(source).speculative_tokens(6);
        let mut pieces = block_on_stream(model.generate(&prompt, &options).unwrap().into_stream());
        assert_eq!(pieces.by_ref().map(Result::unwrap).collect::<Vec<_>>(), expected);
        let timings = pieces.into_inner().finish().1;
        assert!((timings.guessed > 0 || on_gpu) && timings.accepted <= timings.guessed, "{timings:?}");
        // Several at once.
        let streams = (0..5).map(|_| model.generate(&prompt, &options).unwrap().into_stream().map(Result::unwrap));
        let all = block_on(futures::future::join_all(streams.map(|stream| stream.collect::<Vec<_>>())));
        assert!(all.iter().all(|pieces| *pieces == expected));
    }
}

#[test]
fn a_conversation_goes_on_in_its_session() {
    let model = common::load(common::named("qwen3").folder.join("bf16"));
    let options = options(10);
    let mut messages = vec![Message::user("Hello")];
    let mut stream = model.chat(&messages, &options).unwrap().into_stream();
    let answer = block_on(stream.text()).unwrap();
    assert_eq!(answer, model.chat(&messages, &options).unwrap().text().unwrap());
    let session = stream.into_generation().unwrap().into_inner();
    let held = session.len();
    messages.extend([Message::assistant(&answer), Message::user("Again")]);
    let prompt = model.chat_prompt(&messages, &options.chat).unwrap();
    let mut stream = session.into_generation(&prompt, &options).unwrap().into_stream();
    let again = block_on(stream.text()).unwrap();
    assert_eq!(again, model.chat(&messages, &options).unwrap().text().unwrap());
    let whole = model.tokenizer().encode_prompt(&prompt).unwrap().len();
    let computed = stream.finish().1.prompt_tokens;
    assert!(computed < whole && held > 0, "{computed} of {whole} tokens were computed, {held} were held");
}

/// Polls a stream to its end and notes each piece as `index`.
async fn follow(index: usize, mut stream: GenerationStream, order: &Mutex<Vec<usize>>) {
    while let Some(piece) = stream.next().await {
        piece.unwrap();
        order.lock().unwrap().push(index);
    }
}

#[test]
fn two_streams_on_one_model_interleave_in_one_task() {
    let model = load_demo();
    let order = Mutex::new(Vec::new());
    let [one, other] = [(); 2].map(|()| stream(&model, &options(400)));
    block_on(join(follow(0, one, &order), follow(1, other, &order)));
    let order = order.into_inner().unwrap();
    assert!(order.len() >= 800, "{}", order.len());
    // One after the other would be one change. The channels, as long as they are, would hide an alternation by tokens.
    let changes = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes >= 10, "{changes} changes in {order:?}");
}

#[test]
fn a_stream_that_is_not_polled_waits() {
    let model = load_demo();
    let cancel = CancellationToken::new();
    let mut stream = stream(&model, &options(400).cancel(&cancel));
    // Enough for hundreds of tokens; where it is not, the test is easier to pass, and no less true.
    thread::sleep(Duration::from_millis(200));
    cancel.cancel();
    let pieces = block_on(stream.by_ref().count());
    // 16 that wait to be taken, one that waits to be put there, and what it was computing when the first was taken.
    assert!(pieces <= 18, "{pieces} pieces were computed and nobody asked");
    assert_eq!(stream.finish().0, Some(FinishReason::Cancelled));
}

#[test]
fn dropping_one_stream_leaves_the_others_of_the_same_token() {
    let model = load_demo();
    let cancel = CancellationToken::new();
    let shared = options(200).cancel(&cancel);
    let [mut one, mut other] = [(); 2].map(|()| stream(&model, &shared));
    block_on(one.next()).unwrap().unwrap();
    drop(one);
    block_on(other.by_ref().count());
    assert_eq!(other.finish().0, Some(FinishReason::Length));
    assert!(!cancel.is_cancelled());
}

/// The demo model with a NaN in its last norm.
fn damaged() -> (tempfile::TempDir, Model) {
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(common::demo()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let path = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let tensors: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let norm = &tensors["model.norm.weight"];
    assert_eq!(norm["dtype"], "BF16");
    let start = 8 + header + norm["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[start..start + 2].copy_from_slice(&0x7fc0u16.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let model = common::load(folder.path());
    (folder, model)
}

#[test]
fn an_error_reaches_the_stream_and_ends_it() {
    let (_folder, model) = damaged();
    let mut stream = stream(&model, &options(5));
    let error = block_on(stream.next()).unwrap().unwrap_err();
    assert!(matches!(error, Error::NonFiniteLogits { .. }), "{error}");
    assert!(block_on(stream.next()).is_none() && stream.finish().0.is_none());
    let error = block_on(model.generate_text(PROMPT, 5)).unwrap_err();
    assert!(matches!(error, Error::NonFiniteLogits { .. }), "{error}");
    let error = block_on(load_demo().generate_text(&PROMPT.repeat(1000), 5)).unwrap_err();
    assert!(matches!(error, Error::ContextOverflow { .. }), "{error}");
}

#[test]
fn streams_and_futures_go_to_any_thread() {
    fn goes<T: Send + Unpin + Stream + 'static>(stream: T) -> T {
        stream
    }
    let model = load_demo();
    let stream = goes(stream(&model, &options(5)));
    let count = thread::spawn(move || block_on(stream.count())).join().unwrap();
    assert!(count >= 5);
    let task = async move { model.generate_text(PROMPT, 5).await };
    let task: Box<dyn Future<Output = _> + Send> = Box::new(task);
    let text = thread::spawn(move || block_on(Box::into_pin(task))).join().unwrap().unwrap();
    assert!(!text.is_empty());
}
