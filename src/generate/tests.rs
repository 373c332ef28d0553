mod thinking;
mod tool_text;
mod tools;
mod transcripts;

use super::*;
use model_factory_diagnostics::header::Header;
use model_factory_diagnostics::source::probe;
use model_factory_diagnostics::tokenizer::TokenizerSpec;
use std::sync::LazyLock;

/// A byte-level tokenizer of the 256 bytes at ids 0 to 255 by value, `<s>` at 256 and `</s>` at 257.
static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| tokenizer(&[("<s>", true), ("</s>", true)]));

/// Like `TOKENIZER`, with `<think>` at 258 and `</think>` at 259, which are visible in text, like those of DeepSeek and Qwen.
static THINKER: LazyLock<Arc<Tokenizer>> =
    LazyLock::new(|| tokenizer(&[("<s>", true), ("</s>", true), ("<think>", false), ("</think>", false)]));

/// The bytes, then the tokens of `added`, each special or not.
fn tokenizer(added: &[(&str, bool)]) -> Arc<Tokenizer> {
    tokenizer_with(added, "")
}

/// Like [`tokenizer`], with a chat template.
fn tokenizer_with(added: &[(&str, bool)], template: &str) -> Arc<Tokenizer> {
    let letters: Vec<char> = (0..=255u32)
        .map(|byte| match byte {
            0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => byte,
            0..=0x20 => byte + 0x100,
            0x7f..=0xa0 => byte - 0x7f + 0x121,
            _ => 0x143,
        })
        .map(|code| char::from_u32(code).unwrap())
        .collect();
    let vocab: serde_json::Map<String, serde_json::Value> =
        letters.iter().zip(0..).map(|(letter, id)| (letter.to_string(), id.into())).collect();
    let added: Vec<serde_json::Value> = (256..)
        .zip(added)
        .map(|(id, (text, special))| {
            serde_json::json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": special})
        })
        .collect();
    let content = serde_json::json!({"version": "1.0", "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]}}}});
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| std::fs::write(folder.path().join(name), content).unwrap();
    write("tokenizer.json", content.to_string().as_bytes());
    write("config.json", br#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "eos_token_id": 257}"#);
    let config = serde_json::json!({"bos_token": "<s>", "chat_template": template});
    write("tokenizer_config.json", config.to_string().as_bytes());
    let tensors = br#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let mut weights = (tensors.len() as u64).to_le_bytes().to_vec();
    weights.extend(tensors);
    weights.extend([0; 4]);
    write("model.safetensors", &weights);
    let header = Header::read(probe(folder.path()).unwrap()).unwrap();
    let spec = TokenizerSpec::from_header(&header).unwrap();
    Arc::new(Tokenizer::from_header(&header, &spec).unwrap())
}

/// A model that says `script`, one token a step, whatever its input is.
struct Script {
    script: Vec<u32>,
    at: usize,
    used: usize,
    context: usize,
    runs: Vec<usize>,
}

impl Step for Script {
    fn forward(&mut self, tokens: &[u32], _: &CancellationToken) -> Result<Logits> {
        self.used += tokens.len();
        self.runs.push(tokens.len());
        // More rows than there are tokens, as in padded embeddings, with the largest logit on one of the extra rows.
        let mut logits = vec![0.0f32; 272];
        logits[271] = 9.0;
        match self.script.get(self.at) {
            Some(&token) => logits[token as usize] = 5.0,
            None => logits[0] = f32::NAN,
        }
        self.at += 1;
        Ok(logits.into())
    }

    fn room(&self) -> usize {
        self.context - self.used
    }
}

fn script(text: &[u8], stop: Option<u32>, context: usize) -> Script {
    let script = text.iter().map(|byte| u32::from(*byte)).chain(stop).collect();
    Script { script, at: 0, used: 0, context, runs: Vec::new() }
}

fn start<'m>(step: &'m mut Script, options: &GenerateOptions) -> Result<Generation<&'m mut Script>> {
    let prompt = TOKENIZER.encode("Hi", true)?;
    let stop = StopTokens::from_iter([257]);
    Generation::new(step, Arc::clone(&TOKENIZER), &[], prompt, stop, options)
}

#[test]
fn bos_is_added_once() {
    assert_eq!(TOKENIZER.encode("Hi", true).unwrap(), [256, 72, 105]);
    assert_eq!(TOKENIZER.encode("<s>Hi", true).unwrap(), [256, 72, 105]);
    assert_eq!(TOKENIZER.encode("Hi", false).unwrap(), [72, 105]);
    assert_eq!(TOKENIZER.encode("", true).unwrap(), [256]);
}

#[test]
fn ends_on_a_stop_token_that_is_no_part_of_the_text() {
    let mut model = script(" é!".as_bytes(), Some(257), 100);
    let mut generation = start(&mut model, &GenerateOptions::default()).unwrap();
    let pieces: Vec<Piece> = generation.by_ref().map(Result::unwrap).collect();
    let texts: Vec<&str> = pieces.iter().map(|piece| piece.text.as_str()).collect();
    assert_eq!(texts, [" ", "", "é", "!"]);
    assert_eq!(pieces.iter().filter_map(|piece| piece.token).collect::<Vec<_>>(), [0x20, 0xc3, 0xa9, 0x21]);
    let (finish, timings) = generation.finish();
    assert_eq!(finish, Some(FinishReason::Stop(257)));
    assert_eq!((timings.prompt_tokens, timings.generated, timings.decode_steps), (3, 4, 4));
    assert!(timings.tokens_per_second() > 0.0);
    assert!(generation.next().is_none());
    drop(generation);
    assert_eq!(model.runs, [3, 1, 1, 1, 1]);
}

#[test]
fn bytes_left_over_come_out_when_it_ends() {
    let mut model = script(b"a\xc3", Some(257), 100);
    let mut generation = start(&mut model, &GenerateOptions::default()).unwrap();
    assert_eq!(generation.text().unwrap(), "a\u{fffd}");
    let mut model = script("aé".as_bytes(), None, 100);
    let mut generation = start(&mut model, &GenerateOptions::default().max_tokens(2)).unwrap();
    assert_eq!(generation.text().unwrap(), "a\u{fffd}");
    assert_eq!(generation.finish().0, Some(FinishReason::Length));
}

#[test]
fn ends_at_the_limit_without_one_step_more() {
    let mut model = script(b"abcdef", None, 100);
    let mut generation = start(&mut model, &GenerateOptions::default().max_tokens(3)).unwrap();
    assert_eq!(generation.text().unwrap(), "abc");
    drop(generation);
    assert_eq!(model.runs, [3, 1, 1]);
    let mut none = script(b"", None, 100);
    let mut generation = start(&mut none, &GenerateOptions::default().max_tokens(0)).unwrap();
    assert_eq!(generation.text().unwrap(), "");
    assert_eq!(generation.finish().0, Some(FinishReason::Length));
}

#[test]
fn ends_when_the_context_is_full() {
    let mut model = script(b"abcdef", None, 5);
    let mut generation = start(&mut model, &GenerateOptions::default()).unwrap();
    assert_eq!(generation.text().unwrap(), "abc");
    assert_eq!(generation.finish().0, Some(FinishReason::Context));
}

#[test]
fn refuses_what_cannot_begin() {
    let options = GenerateOptions::default();
    let mut model = script(b"a", None, 2);
    assert!(matches!(start(&mut model, &options), Err(Error::ContextOverflow { limit: 2, asked: 3 })));
    let empty = Generation::new(&mut model, Arc::clone(&TOKENIZER), &[], vec![], StopTokens::default(), &options);
    assert!(matches!(empty, Err(Error::EmptyPrompt)));
}

#[test]
fn an_error_ends_the_iteration() {
    let mut model = script(b"a", None, 100);
    let mut generation = start(&mut model, &GenerateOptions::default()).unwrap();
    assert_eq!(generation.next().unwrap().unwrap().text, "a");
    assert!(matches!(generation.next(), Some(Err(Error::NonFiniteLogits { id: 0, .. }))));
    assert!(generation.next().is_none());
    assert_eq!(generation.finish().0, None);
}

#[test]
fn a_stop_token_can_be_ignored() {
    let mut model = script(b"a", Some(257), 100);
    let options = GenerateOptions::default().ignore_stop(true).max_tokens(2);
    let mut generation = start(&mut model, &options).unwrap();
    let tokens: Vec<u32> = generation.by_ref().filter_map(|piece| piece.unwrap().token).collect();
    assert_eq!(tokens, [97, 257]);
}

/// The texts of the pieces, the reason of the end, and the ids.
fn run(said: &str, options: &GenerateOptions) -> (Vec<String>, Option<FinishReason>, Vec<u32>) {
    let mut model = script(said.as_bytes(), Some(257), 100);
    let mut generation = start(&mut model, options).unwrap();
    let pieces = generation.by_ref().map(|piece| piece.unwrap().text).collect();
    (pieces, generation.finish().0, generation.ids().to_vec())
}

#[test]
fn a_stop_string_ends_it_and_is_no_part_of_the_text() {
    let options = GenerateOptions::default().stop("never").stop("é.");
    let (pieces, finish, ids) = run("caé é. more", &options);
    // Each byte is a token. "é" is held back until a space or a full stop decides.
    assert_eq!(pieces, ["c", "a", "", "", "é ", "", "", ""]);
    assert_eq!(finish, Some(FinishReason::StopString(1)));
    assert_eq!(ids, "caé é.".bytes().map(u32::from).collect::<Vec<_>>(), "the tokens of the stop string are there");
}

#[test]
fn a_stop_string_can_be_a_part_of_the_text() {
    let options = GenerateOptions::default().stop("never").stop("é.").include_stop(true);
    let (pieces, finish, _) = run("caé é. more", &options);
    assert_eq!((pieces.concat().as_str(), finish), ("caé é.", Some(FinishReason::StopString(1))));
}

#[test]
fn other_tokens_can_end_it_also_where_the_models_own_do_not() {
    let other = GenerateOptions::default().stop_tokens([u32::from(b'c'), 1_000_000]);
    for options in [other.clone(), other.clone().ignore_stop(true)] {
        let (pieces, finish, _) = run("abcd", &options);
        assert_eq!((pieces.concat().as_str(), finish), ("ab", Some(FinishReason::Stop(u32::from(b'c')))));
    }
    let (pieces, finish, _) = run("ab", &other);
    assert_eq!((pieces.concat().as_str(), finish), ("ab", Some(FinishReason::Stop(257))));
    // Tokens that end it wait for the least number of tokens, as the model's own do: the likeliest of the others comes instead.
    let (pieces, _, ids) = run("cab", &other.min_tokens(1));
    assert!(!ids.contains(&u32::from(b'c')) && !ids.contains(&257) && !pieces.is_empty(), "{ids:?}");
}

#[test]
fn text_held_back_comes_out_however_it_ends() {
    let options = GenerateOptions::default().stop("<end>");
    let (pieces, finish, _) = run("a<en", &options);
    assert_eq!((pieces.concat().as_str(), finish), ("a<en", Some(FinishReason::Stop(257))));
    let (pieces, finish, _) = run("a<end>", &options.clone().max_tokens(4));
    assert_eq!((pieces.concat().as_str(), finish), ("a<en", Some(FinishReason::Length)));
    let (pieces, finish, _) = run("a<end>", &options.clone().max_tokens(6));
    assert_eq!((pieces.concat().as_str(), finish), ("a", Some(FinishReason::StopString(0))));

    let mut broken = script(b"a<e", None, 100);
    let mut generation = start(&mut broken, &options).unwrap();
    let texts: Vec<Result<String>> = generation.by_ref().map(|piece| piece.map(|piece| piece.text)).collect();
    let told: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
    assert_eq!(told, ["a", "", "", "<e"]);
    assert!(matches!(texts.last(), Some(Err(Error::NonFiniteLogits { .. }))) && texts.len() == 5);
    assert!(generation.next().is_none());
}

#[test]
fn a_stop_string_may_end_with_what_is_no_character() {
    // The lone byte becomes U+FFFD only when the generation ends, and completes the stop string then.
    let mut model = script(b"ab\xc3", Some(257), 100);
    let mut generation = start(&mut model, &GenerateOptions::default().stop("b\u{fffd}")).unwrap();
    assert_eq!(generation.text().unwrap(), "a");
    assert_eq!(generation.finish().0, Some(FinishReason::StopString(0)));
}

#[test]
fn the_prompt_is_not_searched_for_stop_strings() {
    let (pieces, finish, _) = run("i there", &GenerateOptions::default().stop("Hi").stop("ii"));
    assert_eq!((pieces.concat().as_str(), finish), ("i there", Some(FinishReason::Stop(257))));
}

#[test]
fn penalties_count_what_the_session_holds_and_the_prompt() {
    // The model says "b", with a logit of 5 against 0 for all others.
    let first = |before: &[u32], prompt: &[u32], options: &GenerateOptions| {
        let mut model = script(b"bb", Some(257), 100);
        let tokenizer = Arc::clone(&TOKENIZER);
        let stop = StopTokens::from_iter([257]);
        let mut generation = Generation::new(&mut model, tokenizer, before, prompt.to_vec(), stop, options).unwrap();
        generation.by_ref().for_each(|piece| drop(piece.unwrap()));
        generation.ids().to_vec()
    };
    let (b, other) = (98, 99);
    // 5 divided by the largest number is 0 in F32: on a tie the lowest id is chosen.
    let zero = GenerateOptions::default().repetition_penalty(f64::MAX).max_tokens(1);
    assert_eq!(first(&[other], &[other], &zero), [b]);
    assert_eq!(first(&[b], &[other], &zero), [0]);
    assert_eq!(first(&[other], &[b], &zero), [0]);
    let presence = GenerateOptions::default().presence_penalty(2.0).frequency_penalty(2.0).max_tokens(2);
    // 5, then 5 - 2 - 2 = 1, more than 0; had the prompt counted, the second would be 5 - 2 - 3 * 2.
    assert_eq!(first(&[b], &[b], &presence), [b, b]);
}

/// A model in a loop: after `a` comes `b` and after `b` comes `a`, with `c` next in line.
struct Loop;

impl Step for Loop {
    fn forward(&mut self, tokens: &[u32], _: &CancellationToken) -> Result<Logits> {
        let mut logits = vec![-1.0f32; 258];
        logits[if tokens.last() == Some(&97) { 98 } else { 97 }] = 3.0;
        logits[99] = 2.0;
        Ok(logits.into())
    }

    fn room(&self) -> usize {
        100
    }
}

#[test]
fn a_repetition_penalty_breaks_a_loop() {
    let said = |penalty| {
        let options = GenerateOptions::default().repetition_penalty(penalty).max_tokens(5);
        let (tokenizer, prompt) = (Arc::clone(&TOKENIZER), TOKENIZER.encode("x", true).unwrap());
        Generation::new(Loop, tokenizer, &[], prompt, StopTokens::default(), &options).unwrap().text().unwrap()
    };
    assert_eq!(said(1.0), "ababa");
    // The 2 of c beats the 3 / 2 of an a that was seen; then c is 2 / 2.
    assert_eq!(said(2.0), "abcab");
}

#[test]
fn refuses_options_before_anything_is_computed() {
    let mut model = script(b"a", None, 100);
    for options in [GenerateOptions::default().top_p(1.5), GenerateOptions::default().repetition_penalty(0.0)] {
        assert!(matches!(start(&mut model, &options), Err(Error::Option { .. })));
    }
    let empty = GenerateOptions::default().stop("");
    assert!(matches!(start(&mut model, &empty), Err(Error::EmptyStopString { index: 0 })));
    assert!(model.runs.is_empty());
}

/// The text with whether it is thought, if the model says `said` after `prompt`: `[` opens a block and `]` closes it.
fn thoughts(tokenizer: &Arc<Tokenizer>, prompt: &str, said: &[u8], options: &GenerateOptions) -> Vec<(String, bool)> {
    let token = |byte: &u8| match byte {
        b'[' => 258,
        b']' => 259,
        byte => u32::from(*byte),
    };
    told_apart(tokenizer, prompt, said.iter().map(token).collect(), options)
}

/// The text with whether it is thought, if the model says `said` after `prompt`.
fn told_apart(
    tokenizer: &Arc<Tokenizer>,
    prompt: &str,
    said: Vec<u32>,
    options: &GenerateOptions,
) -> Vec<(String, bool)> {
    let script = said.into_iter().chain([257]).collect();
    let mut model = Script { script, at: 0, used: 0, context: 1000, runs: Vec::new() };
    let prompt = tokenizer.encode(prompt, true).unwrap();
    let stop = StopTokens::from_iter([257]);
    let mut generation = Generation::new(&mut model, Arc::clone(tokenizer), &[], prompt, stop, options).unwrap();
    let pieces: Vec<Piece> = generation.by_ref().map(Result::unwrap).collect();
    let tokens: Vec<u32> = pieces.iter().filter_map(|piece| piece.token).collect();
    assert_eq!(tokens, generation.ids(), "every token comes once");
    let mut parts: Vec<(String, bool)> = Vec::new();
    for Piece { text, thinking, .. } in pieces {
        match parts.last_mut() {
            _ if text.is_empty() => {}
            Some((last, same)) if *same == thinking => last.push_str(&text),
            _ => parts.push((text, thinking)),
        }
    }
    parts
}

#[test]
fn text_between_the_marks_is_thought() {
    /// The prompt, the bytes that the model says, stop strings, and the expected result.
    type Case = (&'static str, &'static [u8], &'static [&'static str], &'static [(&'static str, bool)]);
    let table: [Case; 14] = [
        ("Hi", b"[ab]cd", &[], &[("<think>ab</think>", true), ("cd", false)]),
        ("Hi", b"a[b]c[d]", &[], &[("a", false), ("<think>b</think>", true), ("c", false), ("<think>d</think>", true)]),
        ("Hi", b"[ab", &[], &[("<think>ab", true)]),
        ("Hi<think>\n", b"ab]\n\nc", &[], &[("ab</think>", true), ("\n\nc", false)]),
        ("Hi<think>", b"a]b", &[], &[("a</think>", true), ("b", false)]),
        ("Hi<think> \n\t", b"a]b", &[], &[("a</think>", true), ("b", false)]),
        ("Hi<think>\n\n</think>\n\n", b"ab", &[], &[("ab", false)]),
        ("Hi<think>x", b"ab", &[], &[("ab", false)]),
        ("Hi", b"a]b", &[], &[("a</think>b", false)]),
        ("Hi<think>", b"a[b]c", &[], &[("a<think>b</think>", true), ("c", false)]),
        // A character that is never finished belongs to the part in which it began.
        (
            "Hi",
            b"a\xc3[b\xc3]c\xc3",
            &[],
            &[("a\u{fffd}", false), ("<think>b\u{fffd}</think>", true), ("c\u{fffd}", false)],
        ),
        // Text that is held back for a stop string stays marked as thought.
        ("Hi", b"[a]bc", &["</think>bX"], &[("<think>a</think>", true), ("bc", false)]),
        ("Hi", b"x[a]bc", &["x<think>Y", "nkX"], &[("x", false), ("<think>a</think>", true), ("bc", false)]),
        ("Hi", b"[a]bXc", &["nk>bX"], &[("<think>a</thi", true)]),
    ];
    for (prompt, said, stops, expected) in table {
        let options = stops.iter().fold(GenerateOptions::default(), |options, stop| options.stop(*stop));
        let found = thoughts(&THINKER, prompt, said, &options);
        let found: Vec<(&str, bool)> = found.iter().map(|(text, thinking)| (text.as_str(), *thinking)).collect();
        assert_eq!(found, expected, "{prompt:?} {:?} {stops:?}", String::from_utf8_lossy(said));
    }
}

#[test]
fn a_mark_that_is_no_token_of_its_own_is_text() {
    let options = GenerateOptions::default();
    let spelled = thoughts(&THINKER, "Hi", b"<think>a</think>b", &options);
    assert_eq!(spelled, [("<think>a</think>b".to_owned(), false)], "spelled letter by letter");
    let without = thoughts(&TOKENIZER, "Hi<think>\n", b"a</think>b", &options);
    assert_eq!(without, [("a</think>b".to_owned(), false)], "a vocabulary without marks");
    let hidden = tokenizer(&[("<s>", true), ("</s>", true), ("<think>", true), ("</think>", true)]);
    let hidden = thoughts(&hidden, "Hi", b"[a]b", &options);
    assert_eq!(hidden, [("a".to_owned(), true), ("b".to_owned(), false)], "special marks have no text");
}

/// Like [`told_apart`], if the model says the tokens of a text.
fn told_apart_of(tokenizer: &Arc<Tokenizer>, prompt: &str, said: &str, stop: &str) -> Vec<(String, bool)> {
    let options = GenerateOptions::default().max_tokens(1000);
    let options = if stop.is_empty() { options } else { options.stop(stop) };
    told_apart(tokenizer, prompt, tokenizer.encode(said, false).unwrap(), &options)
}

#[test]
fn channels_are_thought_or_answer_and_their_frames_are_neither() {
    let names = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"];
    let framing =
        |special: bool| tokenizer(&[&[("<s>", true), ("</s>", true)], &names.map(|name| (name, special))[..]].concat());
    let analysis = "<|channel|>analysis<|message|>Hm. <é>";
    /// The prompt, the model's text, a stop string, the thought, and the answer.
    type Case = (&'static str, String, &'static str, &'static str, &'static str);
    let table: [Case; 8] = [
        (
            "<|start|>assistant",
            format!("{analysis}<|end|><|start|>assistant<|channel|>final<|message|>Yes."),
            "",
            "Hm. <é>",
            "Yes.",
        ),
        ("<|start|>assistant", analysis.into(), "", "Hm. <é>", ""),
        ("<|start|>assistant", "<|channel|>final<|message|>Yes.".into(), "", "", "Yes."),
        ("<|start|>assistant", "<|message|>Yes.".into(), "", "", "Yes."),
        // A tool call is a message to the tool, whose name is only in the ids.
        (
            "<|start|>assistant",
            format!(
                "{analysis}<|end|><|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{{}}"
            ),
            "",
            "Hm. <é>",
            "{}",
        ),
        (
            "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>analysis<|message|>",
            "Hm.".into(),
            "",
            "Hm.",
            "",
        ),
        // Names are not text: they complete no stop string.
        (
            "<|start|>assistant",
            format!("{analysis}<|end|><|start|>assistant<|channel|>final<|message|>final."),
            "final",
            "Hm. <é>",
            "",
        ),
        ("Hi", "there".into(), "", "", "there"),
    ];
    for special in [true, false] {
        let tokenizer = framing(special);
        for (prompt, said, stop, thought, answer) in &table {
            let parts = told_apart_of(&tokenizer, prompt, said, stop);
            let of = |which: bool| {
                parts.iter().filter(|part| part.1 == which).map(|part| part.0.as_str()).collect::<String>()
            };
            assert_eq!((of(true).as_str(), of(false).as_str()), (*thought, *answer), "{prompt:?} {said:?}");
        }
        let endless = told_apart_of(&tokenizer, "<|start|>assistant", &"a".repeat(400), "");
        assert!(
            matches!(endless.as_slice(), [(text, false)] if text.len() > 100),
            "a name without end is none: {endless:?}"
        );
    }
}

#[test]
fn the_thought_channel_of_gemma_is_thought() {
    for special in [true, false] {
        let added = [("<s>", true), ("</s>", true), ("<|channel>", special), ("<channel|>", special)];
        let tokenizer = tokenizer(&added);
        for (prompt, said, expected) in [
            ("<|turn>model\n", "<|channel>thought\nHm.\n<channel|>Yes.", &[("Hm.\n", true), ("Yes.", false)][..]),
            ("<|turn>model\n<|channel>thought\n<channel|>", "Yes.", &[("Yes.", false)]),
            ("<|turn>model\n<|channel>thought\n", "Hm.<channel|>Yes.", &[("Hm.", true), ("Yes.", false)]),
            ("<|turn>model\n", "Yes.<channel|>No.", &[("Yes.No.", false)]),
            ("<|turn>model\n", "<|channel>thought\n", &[]),
        ] {
            let parts = told_apart_of(&tokenizer, prompt, said, "");
            let parts: Vec<(&str, bool)> = parts.iter().map(|(text, thought)| (text.as_str(), *thought)).collect();
            assert_eq!(parts, expected, "{prompt:?} {said:?}");
        }
    }
}

#[test]
fn marks_of_mistral_are_marks() {
    let tokenizer = tokenizer(&[("<s>", true), ("</s>", true), ("[THINK]", true), ("[/THINK]", true)]);
    let parts = told_apart_of(&tokenizer, "[INST]Hi[/INST]", "[THINK]Hm.[/THINK]Yes.", "");
    assert_eq!(parts, [("Hm.".to_owned(), true), ("Yes.".to_owned(), false)]);
}

#[test]
fn a_block_that_a_template_spells_ends_where_its_mark_is_spelled() {
    // A token may hold the end of the mark and text after it.
    let added = [("<s>", true), ("</s>", true), ("k>\n\nY", false)];
    let spelled = tokenizer_with(&added, "{{ messages[0].content }}<think>");
    for (prompt, said, expected) in [
        ("Hi<think>", "Hm. </thin </think>No.", &[("Hm. </thin </think>", true), ("No.", false)][..]),
        ("Hi<think>\n", "Hm.</think>\n\nYes.</think>", &[("Hm.</think>", true), ("\n\nYes.</think>", false)]),
        ("Hi", "<think>Hm.</think>", &[("<think>Hm.</think>", false)]),
    ] {
        let parts = told_apart_of(&spelled, prompt, said, "");
        let parts: Vec<(&str, bool)> = parts.iter().map(|(text, thought)| (text.as_str(), *thought)).collect();
        assert_eq!(parts, expected, "{prompt:?} {said:?}");
    }
}
