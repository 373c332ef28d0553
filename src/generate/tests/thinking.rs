//! Thoughts that have a budget of tokens.

use super::tools::{Format, formats, with_tools};
use super::*;
use model_factory_diagnostics::tokenizer::ToolCallFormat;

/// A model that wants to say `wants`, and then to stop: its logits go by the place in the sequence, not by what stands before it.
struct Wants {
    wants: Vec<u32>,
    /// Tokens of the prompt, and all that were computed.
    prompt: usize,
    computed: usize,
    vocab: usize,
    joins: bool,
}

impl Step for Wants {
    fn forward(&mut self, tokens: &[u32], _: &CancellationToken) -> Result<Logits> {
        self.computed += tokens.len();
        let wanted = self.wants.get(self.computed - self.prompt).copied().unwrap_or(257);
        let logits: Vec<f32> = (0..self.vocab as u32).map(|id| if id == wanted { 5.0 } else { 0.0 }).collect();
        Ok(logits.into())
    }

    fn room(&self) -> usize {
        1000
    }

    fn joins(&self) -> bool {
        self.joins
    }
}

/// What came of a model that wants to say `wants` after `prompt`: the thought, the other text, the ids, and the end. It is the same
/// where forced tokens take no step of their own.
fn said(
    tokenizer: &Arc<Tokenizer>,
    prompt: &str,
    wants: &[u32],
    options: &GenerateOptions,
) -> (String, String, Vec<u32>, Option<FinishReason>) {
    let prompt = tokenizer.encode(prompt, true).unwrap();
    let found = [false, true].map(|joins| {
        let vocab = tokenizer.vocab_len();
        let step = Wants { wants: wants.to_vec(), prompt: prompt.len(), computed: 0, vocab, joins };
        let stop = StopTokens::from_iter([257]);
        let mut generation = Generation::new(step, Arc::clone(tokenizer), &[], prompt.clone(), stop, options).unwrap();
        let pieces: Vec<Piece> = generation.by_ref().map(Result::unwrap).collect();
        let of = |thinking: bool| -> String {
            pieces.iter().filter(|piece| piece.thinking == thinking).map(|piece| &*piece.text).collect()
        };
        let (finish, timings) = generation.finish();
        assert!(joins || timings.forced == 0);
        (of(true), of(false), generation.ids().to_vec(), finish)
    });
    assert_eq!(found[0], found[1], "{wants:?}");
    let [found, _] = found;
    found
}

/// Bytes as ids of `THINKER`: `[` begins a thought and `]` ends it.
fn ids(text: &[u8]) -> Vec<u32> {
    let id = |byte: &u8| match byte {
        b'[' => 258,
        b']' => 259,
        byte => u32::from(*byte),
    };
    text.iter().map(id).collect()
}

fn budget(tokens: usize) -> GenerateOptions {
    GenerateOptions::default().thinking_budget(tokens)
}

#[test]
fn a_thought_ends_after_its_budget() {
    /// The prompt, what the model wants to say, the budget, the thought, and the answer.
    type Case = (&'static str, &'static [u8], usize, &'static str, &'static str);
    let table: [Case; 14] = [
        // The mark comes in the place of a token that the model wanted to say.
        ("Hi<think>", b"abcdefgh", 3, "abc</think>", "efgh"),
        ("Hi<think>\n", b"abcd", 0, "</think>", "bcd"),
        ("Hi", b"[abcd", 2, "<think>ab</think>", "d"),
        ("Hi", b"[abc", 0, "<think></think>", "bc"),
        // The model ends it as it would anyway: at the last token of the budget, or before.
        ("Hi", b"[ab]cd", 2, "<think>ab</think>", "cd"),
        ("Hi", b"[ab]cd", 3, "<think>ab</think>", "cd"),
        ("Hi<think>", b"ab]cd", usize::MAX, "ab</think>", "cd"),
        // Without thought there is nothing to end.
        ("Hi", b"abcd", 0, "", "abcd"),
        ("Hi<think></think>", b"abcd", 0, "", "abcd"),
        // All thoughts together have one budget.
        ("Hi", b"x[ab]y[cdefg", 3, "<think>ab</think><think>c</think>", "xyefg"),
        ("Hi", b"[ab]c[de", 2, "<think>ab</think><think></think>", "ce"),
        // A character is completed first; what never becomes one is not waited for.
        ("Hi<think>", "a\u{20ac}bc".as_bytes(), 2, "a\u{20ac}</think>", "c"),
        ("Hi<think>", b"\xe2\xe2\xe2\xe2\xe2\xe2", 1, "\u{fffd}\u{fffd}\u{fffd}\u{fffd}</think>", "\u{fffd}"),
        ("Hi<think>", b"a[b", 2, "a<think></think>", ""),
    ];
    for (prompt, wants, tokens, thought, answer) in table {
        let (thinks, text, _, finish) = said(&THINKER, prompt, &ids(wants), &budget(tokens));
        let what = (prompt, String::from_utf8_lossy(wants), tokens);
        assert_eq!((&*thinks, &*text), (thought, answer), "{what:?}");
        assert_eq!(finish, Some(FinishReason::Stop(257)), "{what:?}");
    }
}

#[test]
fn a_model_without_marks_stays_within_any_budget() {
    let free = said(&TOKENIZER, "Hi<think>\n", b"abc".map(u32::from).as_slice(), &GenerateOptions::default());
    assert_eq!(said(&TOKENIZER, "Hi<think>\n", b"abc".map(u32::from).as_slice(), &budget(0)), free);
    assert_eq!(free.1, "abc");
}

#[test]
fn the_mark_is_a_token_like_any_other() {
    let end = |options: GenerateOptions| {
        let (thought, text, ids, finish) = said(&THINKER, "Hi<think>", &ids(b"abcdef"), &options);
        (thought, text, ids.len(), finish)
    };
    let of = |thought: &str, text: &str, tokens, finish| (thought.to_owned(), text.to_owned(), tokens, Some(finish));
    assert_eq!(end(budget(2).max_tokens(3)), of("ab</think>", "", 3, FinishReason::Length));
    assert_eq!(end(budget(2).max_tokens(2)), of("ab", "", 2, FinishReason::Length));
    assert_eq!(end(budget(2).stop_tokens([259])), of("ab", "", 2, FinishReason::Stop(259)));
    assert_eq!(end(budget(2).stop("</think>")), of("ab", "", 3, FinishReason::StopString(0)));
    // A mark that is a stop token waits for the fewest tokens, of which more are thought then.
    assert_eq!(end(budget(2).stop_tokens([259]).min_tokens(4)), of("abcd", "", 4, FinishReason::Stop(259)));
    assert_eq!(end(budget(2).stop_tokens([259]).max_tokens(2)), of("ab", "", 2, FinishReason::Length));
}

#[test]
fn a_mark_that_is_forced_is_as_probable_as_the_model_finds_it() {
    let prompt = THINKER.encode("Hi<think>", true).unwrap();
    let vocab = THINKER.vocab_len();
    let step = Wants { wants: ids(b"abc"), prompt: prompt.len(), computed: 0, vocab, joins: true };
    let (tokenizer, stop) = (Arc::clone(&THINKER), StopTokens::from_iter([257]));
    let mut generation = Generation::new(step, tokenizer, &[], prompt, stop, &budget(1).logprobs(1)).unwrap();
    let found: Vec<(u32, LogProbs)> =
        generation.by_ref().map(Result::unwrap).map(|piece| (piece.token.unwrap(), piece.logprobs.unwrap())).collect();
    // One logit of 5 and 259 of 0.
    let rest = -(5f64.exp() + (vocab - 1) as f64).ln();
    for ((token, LogProbs { chosen, top, .. }), (wanted, expected)) in
        found.iter().zip([(97, rest + 5.0), (259, rest), (99, rest + 5.0)])
    {
        // The sum is of F64, so the tolerance is for its last bits only.
        assert!(*token == wanted && (chosen - expected).abs() < 1e-12, "{found:?}");
        assert!((top[0].1 - rest - 5.0).abs() < 1e-12, "the model wanted another token: {found:?}");
    }
    assert_eq!((found.len(), generation.finish().1.forced), (3, 0));
}

#[test]
fn an_answer_after_a_thought_that_was_ended_is_held_to_its_grammar() {
    // Only where its template thinks may the model begin a thought before an answer that is held.
    let marks = [("<s>", true), ("</s>", true), ("<think>", false), ("</think>", false)];
    let thinker = tokenizer_with(&marks, "{{ messages[0].content }}<think>");
    for (prompt, wants, tokens, thought) in [
        ("Hi<think>", &b"abcdefgh"[..], 2, "ab</think>"),
        ("Hi<think>", b"abcdefgh", 0, "</think>"),
        ("Hi", b"[abcdefgh", 1, "<think>a</think>"),
        ("Hi", b"[abcdefgh", 0, "<think></think>"),
    ] {
        let (thinks, text, _, finish) = said(&thinker, prompt, &ids(wants), &budget(tokens).choice(&["yes", "no"]));
        assert_eq!((&*thinks, finish), (thought, Some(FinishReason::Grammar)), "{prompt} {tokens}");
        assert!(["yes", "no"].contains(&&*text), "{text}");
    }
}

/// Of gpt-oss the message ends, and the model begins the next one; its names are no part of the thought.
#[test]
fn thoughts_in_channels_end_by_the_mark_of_their_channel() {
    let names = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>"];
    let framing = tokenizer(&[&[("<s>", true), ("</s>", true)], &names.map(|name| (name, true))[..]].concat());
    let wants = "<|channel|>analysis<|message|>Hm, well.<|end|><|start|>assistant<|channel|>final<|message|>Yes.";
    for (tokens, thought) in [(0, ""), (3, "Hm,"), (8, "Hm, well"), (9, "Hm, well."), (100, "Hm, well.")] {
        let wanted = framing.encode(wants, false).unwrap();
        let (thinks, text, ids, _) = said(&framing, "<|start|>assistant", &wanted, &budget(tokens));
        assert_eq!((&*thinks, &*text), (thought, "Yes."), "{tokens}");
        let end = framing.added_token("<|end|>").unwrap();
        let before = framing.encode("<|channel|>analysis<|message|>", false).unwrap().len() + thought.len();
        assert_eq!(ids[before], end, "{tokens}");
    }
    let block = tokenizer(&[("<s>", true), ("</s>", true), ("<|channel>", true), ("<channel|>", true)]);
    let wants = block.encode("<|channel>thought\nHm, well.<channel|>Yes.", false).unwrap();
    for (tokens, thought, answer) in [(0, "", "m, well.Yes."), (3, "Hm,", "well.Yes."), (9, "Hm, well.", "Yes.")] {
        let (thinks, text, ..) = said(&block, "Hi", &wants, &budget(tokens));
        assert_eq!((&*thinks, &*text), (thought, answer), "{tokens}");
    }
}

#[test]
fn a_mark_without_a_token_of_its_own_is_spelled() {
    let spelled = tokenizer_with(&[("<s>", true), ("</s>", true)], "{{ messages[0].content }}<think>");
    let wants = spelled.encode("Hm, well, really.</think>Yes.", false).unwrap();
    for (tokens, thought, answer) in [
        (3, "Hm,</think>", "eally.</think>Yes."),
        (0, "</think>", ", really.</think>Yes."),
        // The budget ends within the mark that the model spells.
        (19, "Hm, well, really.</</think>", "s."),
        (100, "Hm, well, really.</think>", "Yes."),
    ] {
        let (thinks, text, ..) = said(&spelled, "Hi<think>", &wants, &budget(tokens));
        assert_eq!((&*thinks, &*text), (thought, answer), "{tokens}");
    }
}

/// gpt-oss: the grammar of a call holds the thought before it too, and asks for one character of it at least.
#[test]
fn a_thought_that_a_grammar_holds_ends_where_that_allows_it() {
    let of: Format = formats().into_iter().find(|of| of.format == ToolCallFormat::Harmony).unwrap();
    let tokenizer = of.tokenizer(true, true).unwrap();
    let wants = tokenizer.encode("<|channel|>analysis<|message|>Hm, well.<|end|>", false).unwrap();
    for (tokens, thought) in [(0, "H"), (3, "Hm,"), (100, "Hm, well.")] {
        let options = with_tools().tool_choice(ToolChoice::Named("stop_all".into())).thinking_budget(tokens);
        let prompt = tokenizer.encode("<|start|>assistant", true).unwrap();
        let vocab = tokenizer.vocab_len();
        let step = Wants { wants: wants.clone(), prompt: prompt.len(), computed: 0, vocab, joins: true };
        let stop = StopTokens::from_iter([257]);
        let answer = Generation::new(step, Arc::clone(&tokenizer), &[], prompt, stop, &options).unwrap().answer();
        let answer = answer.unwrap();
        let called: Vec<&str> = answer.tool_calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!((&*answer.thinking, called), (thought, vec!["stop_all"]), "{tokens}");
    }
}
