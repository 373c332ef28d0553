//! Answers that are held to a grammar: whatever a model with random weights says at temperature 1.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // a test that cannot go on says why

#[path = "../common/mod.rs"]
mod common;
mod hostile;
mod kinds;
mod made;
mod same;
mod schemas;

use common::{archives, fixtures, load};
use model_factory::generate::{Constraint, Step, StopTokens};
use model_factory::{
    CancellationToken, Error, FinishReason, GenerateOptions, Generation, Grammar, GrammarError, Logits, Model,
};
use schemas::SCHEMAS;
use serde_json::Value;
use std::sync::Arc;

/// What came, and why it ended.
#[derive(Debug, PartialEq)]
struct Answer {
    ids: Vec<u32>,
    text: String,
    finish: FinishReason,
    steps: usize,
    forced: usize,
}

fn qwen3() -> Model {
    load(archives::path("qwen3/f32"))
}

fn schemas() -> Vec<Value> {
    let schemas: Vec<Value> = SCHEMAS.trim().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(schemas.len() >= 60, "{}", schemas.len());
    schemas
}

/// Draws, all of them, up to 300 tokens.
fn drawing(grammar: &Grammar, seed: u64) -> GenerateOptions {
    GenerateOptions::default().temperature(1.0).seed(seed).max_tokens(300).grammar(grammar)
}

fn answer(model: &Model, prompt: &str, options: &GenerateOptions) -> Answer {
    let mut generation = model.generate(prompt, options).unwrap();
    let text = generation.text().unwrap_or_else(|error| panic!("{error}: {:?}", options.grammar));
    let (finish, timings) = generation.finish();
    let (steps, forced) = (timings.decode_steps, timings.forced);
    Answer { ids: generation.ids().to_vec(), text, finish: finish.unwrap(), steps, forced }
}

/// How many answers of `model` to `schema` ended, all valid by another validator, and how many were cut, all of them the
/// beginning of a valid one.
fn held(model: &Model, schema: &Value, seeds: std::ops::Range<u64>) -> (usize, usize) {
    let grammar = Grammar::json_schema(schema.clone());
    let validator = jsonschema::options().should_validate_formats(true).build(schema).unwrap();
    let (mut ended, mut cut) = (0, 0);
    for seed in seeds {
        let answer = answer(model, "A value: ", &drawing(&grammar, seed));
        if matches!(answer.finish, FinishReason::Stop(_) | FinishReason::Grammar) {
            ended += 1;
            let value: Value = serde_json::from_str(&answer.text)
                .unwrap_or_else(|error| panic!("{error}: {:?} for {schema}", answer.text));
            assert!(validator.is_valid(&value), "{value} for {schema}");
        } else {
            cut += 1;
            assert_eq!(answer.finish, FinishReason::Length);
            let stop = StopTokens::from(&model.spec().tokenizer);
            let mut constraint = Constraint::new(model.tokenizer(), &grammar, stop).unwrap();
            assert_eq!(constraint.valid(&answer.ids), answer.ids.len(), "{:?}", answer.text);
            answer.ids.iter().for_each(|token| constraint.take(*token).unwrap());
            assert!(!constraint.is_ended());
        }
    }
    (ended, cut)
}

#[test]
fn every_answer_that_ends_is_valid_and_others_are_the_beginning_of_one() {
    let (mut ended, mut cut) = (0, 0);
    let of_seeds = |seed| made::schema(&mut made::Seed(seed), 3);
    for model in [qwen3(), load(fixtures().join("models/tinyllama/q8_0.gguf"))] {
        let schemas = schemas().into_iter().map(|schema| (schema, 4));
        for (schema, seeds) in schemas.chain((0..200).map(|seed| (of_seeds(seed), 2))) {
            let (these_ended, these_cut) = held(&model, &schema, 0..seeds);
            (ended, cut) = (ended + these_ended, cut + these_cut);
        }
    }
    println!("{ended} ended, {cut} were cut");
    assert!(ended * 10 >= (ended + cut) * 9, "{ended} ended, {cut} were cut");
}

/// The schemas of the JSON Schema test suite, where `SCHEMA_SUITE` names its folder `tests`: most are open, so that many answers
/// are cut.
#[test]
fn schemas_of_the_json_schema_test_suite() {
    let Some(folder) = std::env::var_os("SCHEMA_SUITE") else {
        println!("skipped: SCHEMA_SUITE names no folder");
        return;
    };
    let drafts = [
        ("draft2020-12", "https://json-schema.org/draft/2020-12/schema"),
        ("draft2019-09", "https://json-schema.org/draft/2019-09/schema"),
        ("draft7", "http://json-schema.org/draft-07/schema#"),
        ("draft6", "http://json-schema.org/draft-06/schema#"),
    ];
    let (model, mut kept, mut refused, mut elsewhere, mut ended, mut cut) = (qwen3(), 0, 0, 0, 0, 0);
    for (draft, dialect) in drafts {
        let files = std::fs::read_dir(std::path::Path::new(&folder).join(draft)).unwrap();
        for path in files.map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
            let groups: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            for group in groups {
                let mut schema = group["schema"].clone();
                if let Some(object) = schema.as_object_mut() {
                    object.entry("$schema").or_insert(dialect.into());
                }
                // The other validator knows no schemas of elsewhere.
                if jsonschema::options().should_validate_formats(true).build(&schema).is_err() {
                    elsewhere += 1;
                    continue;
                }
                match model.compile_grammar(&Grammar::json_schema(schema.clone())) {
                    Err(Error::Grammar(error)) => {
                        println!("refused: {error}");
                        refused += 1;
                    }
                    Err(error) => panic!("{error}: {schema}"),
                    Ok(()) => {
                        kept += 1;
                        let (these_ended, these_cut) = held(&model, &schema, 0..2);
                        (ended, cut) = (ended + these_ended, cut + these_cut);
                    }
                }
            }
        }
    }
    println!("{kept} schemas kept, {refused} refused, {elsewhere} of elsewhere, {ended} answers ended, {cut} were cut");
    assert!(kept >= 500);
}

/// The whole of a text that is chosen, matched or derived.
#[test]
fn choices_regular_expressions_and_lark_grammars() {
    let texts = ["yes", "no", "no, never", "line\nend", "ünïcödé 😀", "\"quoted\"", "</s>", " blank first"];
    let lark = "start: expression\nexpression: term ((\"+\" | \"-\") term)~0..3\nterm: /[0-9]{1,3}/ | \"(\" inner \")\"\ninner: /[0-9]/";
    let whole =
        regex_automata::meta::Regex::new(r"^(?:[0-9]{1,3}|\([0-9]\))([+-]([0-9]{1,3}|\([0-9]\))){0,3}$").unwrap();
    for model in [qwen3(), load(fixtures().join("models/tinyllama/q8_0.gguf"))] {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..60 {
            let chosen = answer(&model, "Is it? ", &drawing(&Grammar::choice(&texts), seed));
            assert!(texts.contains(&chosen.text.as_str()), "{chosen:?}");
            seen.insert(chosen.text);
            let matched = answer(&model, "x", &drawing(&Grammar::regex("[a-c]{2,9}x|[0-9]+z"), seed));
            if matched.finish != FinishReason::Length {
                assert!(matched.text.ends_with(['x', 'z']), "{matched:?}");
            }
            let derived = answer(&model, "1+1=", &drawing(&Grammar::lark(lark), seed));
            assert!(derived.finish != FinishReason::Length && whole.is_match(&derived.text), "{derived:?}");
        }
        assert!(seen.len() > 2, "{seen:?}");
    }
}

#[test]
fn a_grammar_with_one_answer_needs_no_model() {
    let model = qwen3();
    let found = answer(&model, "Say it: ", &drawing(&Grammar::choice(&["the only text there is"]), 1));
    assert_eq!((found.text.as_str(), found.finish, found.steps), ("the only text there is", FinishReason::Grammar, 0));
    assert_eq!(found.forced, found.ids.len());
    // Canonical, as the tokenizer spells it.
    assert_eq!(found.ids, model.tokenizer().encode("the only text there is", false).unwrap());
}

/// Schemas that differ in nothing else are two grammars.
#[test]
fn properties_come_in_the_order_of_the_schema() {
    let model = qwen3();
    for [first, second] in [["reason", "verdict"], ["verdict", "reason"]] {
        let schema = format!(
            r#"{{"type": "object", "properties": {{"{first}": {{"type": "null"}}, "{second}": {{"type": "null"}}}},
            "required": ["reason", "verdict"], "additionalProperties": false}}"#
        );
        let grammar = Grammar::json_schema(serde_json::from_str::<Value>(&schema).unwrap());
        let found = answer(&model, "A value: ", &drawing(&grammar, 1));
        assert_eq!(found.finish, FinishReason::Grammar);
        assert!(found.text.find(first) < found.text.find(second), "{first} before {second}: {}", found.text);
    }
}

#[test]
fn lengths_end_a_constrained_answer_where_they_would_end_any() {
    let model = common::builder().context_length(64).load(archives::path("qwen3/f32")).unwrap();
    let grammar = Grammar::choice(&["a text that is longer than what is left of it, ".repeat(9)]);
    let cut = answer(&model, "Say it: ", &drawing(&grammar, 1).max_tokens(7));
    assert_eq!((cut.finish, cut.ids.len()), (FinishReason::Length, 7));
    let asked = model.tokenizer().encode_prompt("Say it: ").unwrap().len();
    let full = answer(&model, "Say it: ", &drawing(&grammar, 1));
    assert_eq!((full.finish, full.ids.len()), (FinishReason::Context, 64 - asked + 1));
}

#[test]
fn values_of_a_type_are_extracted() {
    #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    #[allow(dead_code)] // some fields are printed alone
    struct Person {
        #[schemars(length(max = 10))]
        name: String,
        age: u32,
        scores: [i64; 2],
        #[schemars(range(min = 0.0, max = 1.0))]
        weight: f64,
        state: State,
        #[schemars(length(max = 3))]
        shapes: Vec<Shape>,
        #[serde(flatten)]
        other: Other,
    }
    #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    #[allow(dead_code)] // some fields are printed alone
    enum State {
        New,
        Seen { count: u8 },
    }
    #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    #[allow(dead_code)] // some fields are printed alone
    #[serde(tag = "kind")]
    enum Shape {
        Point,
        Circle { radius: u8 },
        Other(Other),
    }
    #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    #[allow(dead_code)] // some fields are printed alone
    struct Other {
        on: bool,
    }
    let model = qwen3();
    let mut values = Vec::new();
    for seed in 0..20 {
        let options = GenerateOptions::default().temperature(1.0).seed(seed).max_tokens(600);
        match model.extract::<Person>("A person: ", &options) {
            Ok(person) => {
                assert!(person.name.chars().count() <= 10 && (0.0..=1.0).contains(&person.weight), "{person:?}");
                values.push(format!("{person:?}"));
            }
            Err(Error::Grammar(error)) => assert!(matches!(*error, GrammarError::Incomplete { .. }), "{error}"),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(values.len() >= 18, "{}", values.len());
    assert!(values.iter().any(|value| value.contains("Seen")) && values.iter().any(|value| value.contains("New")));
    let short = model.extract::<Person>("A person: ", &GenerateOptions::default().max_tokens(3)).unwrap_err();
    assert!(matches!(&short, Error::Grammar(error) if matches!(**error, GrammarError::Incomplete { .. })), "{short}");
}

#[test]
fn grammars_are_options_in_json() {
    let text = r#"{"grammar": {"choice": ["a", "b"]}, "max_tokens": 3}"#;
    let options: GenerateOptions = serde_json::from_str(text).unwrap();
    assert_eq!(options, GenerateOptions::default().max_tokens(3).choice(&["a", "b"]));
    let again: GenerateOptions = serde_json::from_str(&serde_json::to_string(&options).unwrap()).unwrap();
    assert_eq!(again, options);
    assert_ne!(options.grammar, GenerateOptions::default().regex("a|b").grammar);
}

/// A step that wants the tokens of a script, in order, whatever came.
struct Script {
    wants: Vec<u32>,
    prompt: usize,
    computed: usize,
    vocab: usize,
    joins: bool,
}

impl Step for Script {
    fn forward(&mut self, tokens: &[u32], _: &CancellationToken) -> Result<Logits, Error> {
        self.computed += tokens.len();
        let mut logits = vec![0.0_f32; self.vocab];
        if let Some(wanted) = self.wants.get(self.computed - self.prompt) {
            logits[*wanted as usize] = 9.0;
        }
        Ok(logits.into())
    }

    fn room(&self) -> usize {
        1000
    }

    fn joins(&self) -> bool {
        self.joins
    }
}

#[test]
fn thoughts_are_free_and_answers_are_not() {
    /// Model, prompt, what it wants to say, and what of that is thought.
    type Case<'t> = (&'t str, &'t str, &'t str, &'t str);
    let table: [Case; 7] = [
        ("r1-distill-qwen/bf16", "Hi<think>\n", "hm, yes\"</think>zzz", "hm, yes\"</think>"),
        ("r1-distill-qwen/bf16", "Hi", "<think>hm</think>zzz", "<think>hm</think>"),
        ("r1-distill-qwen/bf16", "Hi<think>\n\n</think>\n\n", "<think>hm</think>", ""),
        ("r1-distill-qwen/bf16", "Hi", "no<think>hm", ""),
        ("olmo-3/f32", "Hi<think>", "hm</think>zzz", "hm</think>"),
        (
            "gpt-oss/f32",
            "<|start|>assistant",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>zzz",
            "hm",
        ),
        ("qwen3/f32", "Hi", "<think>zzz", ""),
    ];
    let texts = ["yes", "no", "perhaps not"];
    for (name, prompt, says, thought) in table {
        let model = load(archives::path(name));
        let tokenizer = Arc::clone(model.tokenizer());
        let prompt = tokenizer.encode(prompt, false).unwrap();
        let wants = tokenizer.encode(says, false).unwrap();
        let found = [true, false].map(|joins| {
            let (len, vocab) = (prompt.len(), tokenizer.vocab_len());
            let script = Script { wants: wants.clone(), prompt: len, computed: 0, vocab, joins };
            let stop = StopTokens::from(&model.spec().tokenizer);
            let options = GenerateOptions::default().choice(&texts);
            let generation =
                Generation::new(script, Arc::clone(&tokenizer), &[], prompt.clone(), stop, &options).unwrap();
            let pieces = generation.map(|piece| piece.unwrap());
            let (mut thinks, mut answer) = (String::new(), String::new());
            pieces.for_each(|piece| if piece.thinking { &mut thinks } else { &mut answer }.push_str(&piece.text));
            (thinks, answer)
        });
        assert_eq!(found[0], found[1], "{name} {says}");
        assert_eq!(found[0].0, thought, "{name} {says}");
        assert!(texts.contains(&found[0].1.as_str()), "{name} {says}: {found:?}");
    }
}
