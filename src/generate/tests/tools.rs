//! Answers that call tools: as models write them, and as they are held to schemas.

use super::*;
use crate::chat::Message;
use crate::error::ToolError;
use crate::tools::{ToolCall, ToolChoice};
use model_factory_diagnostics::tokenizer::ToolCallFormat;
use serde_json::{Value, json};

/// The schemas that the answers below call.
pub(super) fn tools() -> Vec<Value> {
    let tool = |name: &str, properties: Value, required: &[&str]| {
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        json!({"type": "function", "function": {"name": name, "description": "A tool", "parameters": parameters}})
    };
    let size = json!({"type": "object", "properties": {"wide": {"type": "boolean"}, "tall": {"type": "integer", "maximum": 99, "minimum": 0}}, "required": ["wide"]});
    vec![
        tool(
            "weather",
            json!({"city": {"type": "string", "enum": ["Oslo", "Rome \"x\" <b>"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}),
            &["city"],
        ),
        tool(
            "paint",
            json!({"size": size, "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}, "deep": {"type": ["null", "boolean"]}}),
            &["size", "deep"],
        ),
        tool("stop_all", json!({}), &[]),
        json!({"type": "function", "function": {"name": "tree", "description": "A tool", "parameters": {
            "properties": {"node": {"$ref": "#/$defs/Node"}, "sizes": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2}},
            "required": ["node"], "$defs": {"Node": {"type": "object", "properties": {"leaf": {"type": "boolean"}, "next": {"$ref": "#/$defs/Node"}}, "required": ["leaf"]}}}}}),
    ]
}

pub(super) struct Format {
    pub(super) format: ToolCallFormat,
    /// The part of a template by which its format is recognized.
    pub(super) evidence: &'static str,
    pub(super) marks: &'static [&'static str],
    /// An answer, its text, and its calls.
    pub(super) answers: Vec<(String, &'static str, Value)>,
}

/// Answers of each format, written as its makers document it.
#[allow(clippy::too_many_lines)] // a table
pub(super) fn formats() -> Vec<Format> {
    let weather = json!([["weather", {"city": "Oslo", "days": 2}]]);
    let both = json!([["weather", {"city": "Oslo"}], ["stop_all", {}]]);
    let paint = json!([["paint", {"size": {"wide": true, "tall": 3}, "tags": ["a", "b"], "deep": null}]]);
    vec![
        Format {
            format: ToolCallFormat::Hermes,
            evidence: "<tool_call>arguments",
            marks: &["<tool_call>", "</tool_call>"],
            answers: vec![
                ("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}\n</tool_call>".into(), "", weather.clone()),
                ("I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"stop_all\", \"arguments\": {}}\n</tool_call>".into(), "I look.", both.clone()),
                // The closing mark was a stop token, or the answer was cut off after the call.
                ("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}".into(), "", weather.clone()),
                // Arguments as a text, a tool that does not exist, and text after the call.
                ("<tool_call>{\"arguments\": \"{\\\"a\\\": [1.5]}\", \"name\": \"other\"}</tool_call> Done.".into(), " Done.", json!([["other", {"a": [1.5]}]])),
                ("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \n</tool_call> x ".into(), "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \n</tool_call> x ", json!([])),
                ("<tool_call>{\"name\": \"weather\", \"argu".into(), "<tool_call>{\"name\": \"weather\", \"argu", json!([])),
                ("a < b <tool </tool_call> c  ".into(), "a < b <tool </tool_call> c  ", json!([])),
                ("No call,\n just é text. ".into(), "No call,\n just é text. ", json!([])),
                // There is text after a call that no mark closes.
                ("<tool_call>{\"name\": \"stop_all\", \"arguments\": {}} Done.".into(), " Done.", json!([["stop_all", {}]])),
            ],
        },
        Format {
            format: ToolCallFormat::Qwen3Xml,
            evidence: "<tool_call>\n<function=f>\n<parameter=a>",
            marks: &["<tool_call>", "</tool_call>"],
            answers: vec![
                ("<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>".into(), "", weather.clone()),
                ("Both.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=stop_all>\n</function>\n</tool_call>".into(), "Both.", both.clone()),
                ("<tool_call>\n<function=paint>\n<parameter=size>\n{\"wide\": true, \"tall\": 3}\n</parameter>\n<parameter=tags>\n[\"a\", \"b\"]\n</parameter>\n<parameter=deep>\nNone\n</parameter>\n</function>\n</tool_call>".into(), "", paint.clone()),
                // Lines and a spelled mark are part of a text.
                ("<tool_call>\n<function=weather>\n<parameter=city>\n1\n\n</parameter>2\n</parameter>\n</function>\n</tool_call>".into(), "", json!([["weather", {"city": "1\n\n</parameter>2"}]])),
                ("<tool_call>\n<function=weather>\n<parameter=city>\na <tool_call> b\n</parameter>\n</function>\n</tool_call>".into(), "", json!([["weather", {"city": "a <tool_call> b"}]])),
                // The model leaves out the mark of its first call, or one after a value.
                ("I look.\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=stop_all>\n</function>\n</tool_call>".into(), "I look.", both.clone()),
                ("<function=weather>\n<parameter=city>\nOslo\n<parameter=days>\n2\n</parameter>\n</function>\nDone.".into(), "\nDone.", weather.clone()),
                ("<function=sing>\n</function> <function=w".into(), "<function=sing>\n</function> <function=w", json!([])),
                ("<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</function>\n</tool_call>".into(), "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</function>\n</tool_call>", json!([])),
            ],
        },
        Format {
            format: ToolCallFormat::Llama3Json,
            evidence: "<|python_tag|>",
            marks: &["<|python_tag|>"],
            answers: vec![
                ("{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 2}}".into(), "", weather.clone()),
                ("<|python_tag|>{\"type\": \"function\", \"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 2}}".into(), "", weather.clone()),
                ("\n\n{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}; {\"name\": \"stop_all\", \"parameters\": {}}".into(), "", both.clone()),
                ("<|python_tag|>weather.call(city=\"Oslo\", days=2)".into(), "", weather.clone()),
                ("{\"city\": \"Oslo\"}".into(), "{\"city\": \"Oslo\"}", json!([])),
                ("{\"name\": \"Ada\", \"parameters\": {}}".into(), "{\"name\": \"Ada\", \"parameters\": {}}", json!([])),
                ("It is {\"name\": \"weather\", \"parameters\": {}}".into(), "It is {\"name\": \"weather\", \"parameters\": {}}", json!([])),
                ("{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 2}}\n\nI look.".into(), "\n\nI look.", weather.clone()),
            ],
        },
        Format {
            format: ToolCallFormat::DeepseekV3,
            evidence: "<｜tool▁call▁begin｜>```json",
            marks: &["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"],
            answers: vec![
                ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Oslo\", \"days\": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>".into(), "", weather.clone()),
                ("So.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Oslo\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>stop_all\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>".into(), "So.", both.clone()),
                ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather {}<｜tool▁call▁end｜>".into(), "<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather {}<｜tool▁call▁end｜>", json!([])),
            ],
        },
        Format {
            format: ToolCallFormat::DeepseekV31,
            evidence: "<｜tool▁call▁begin｜>",
            marks: &["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"],
            answers: vec![
                ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Oslo\", \"days\": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>".into(), "", weather.clone()),
                ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Oslo\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>stop_all<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>".into(), "", both.clone()),
            ],
        },
        Format {
            format: ToolCallFormat::Phi4MiniJson,
            evidence: "<|tool|><|/tool|>",
            marks: &["<|tool_call|>", "<|/tool_call|>"],
            answers: vec![
                ("<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}]<|/tool_call|>".into(), "", weather.clone()),
                ("Now <|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}, {\"name\": \"stop_all\"}]".into(), "Now", both.clone()),
                // Granite 3.1's mark, and text after the list, which no mark closes.
                ("<tool_call> [{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}]\nI look.".into(), "\nI look.", weather.clone()),
            ],
        },
        Format {
            format: ToolCallFormat::Mistral,
            evidence: "[TOOL_CALLS]",
            marks: &["[TOOL_CALLS]"],
            answers: vec![
                ("[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}, \"id\": \"abcdef123\"}]".into(), "", weather.clone()),
                ("[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}, {\"name\": \"stop_all\", \"arguments\": {}}]".into(), "", both.clone()),
                ("[TOOL_CALLS] so [{\"name\": \"stop_all\"}]".into(), "[TOOL_CALLS] so [{\"name\": \"stop_all\"}]", json!([])),
            ],
        },
        Format {
            format: ToolCallFormat::MistralArgs,
            evidence: "[TOOL_CALLS][ARGS]",
            marks: &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
            answers: vec![
                ("[TOOL_CALLS]weather[ARGS]{\"city\": \"Oslo\", \"days\": 2}".into(), "", weather.clone()),
                ("[TOOL_CALLS]weather[CALL_ID]abcdef123[ARGS]{\"city\": \"Oslo\"}[TOOL_CALLS]stop_all[CALL_ID]abcdef124[ARGS]{}".into(), "", both.clone()),
                ("[TOOL_CALLS]weather[ARGS]Oslo".into(), "[TOOL_CALLS]weather[ARGS]Oslo", json!([])),
                // The name is before the mark, so the call has no name.
                ("weather[TOOL_CALLS]{\"city\": \"Oslo\"}".into(), "weather[TOOL_CALLS]{\"city\": \"Oslo\"}", json!([])),
            ],
        },
        Format {
            format: ToolCallFormat::Gemma4,
            evidence: "<|tool_call>",
            marks: &["<|tool_call>", "<tool_call|>", "<|\"|>"],
            answers: vec![
                ("<|tool_call>call:weather{city:<|\"|>Oslo<|\"|>,days:2}<tool_call|>".into(), "", weather.clone()),
                ("<|tool_call>call:weather{city:<|\"|>Oslo<|\"|>}<tool_call|><|tool_call>call:stop_all{}<tool_call|>".into(), "", both.clone()),
                ("<|tool_call>call:paint{deep:null,size:{tall:3,wide:true},tags:[<|\"|>a<|\"|>,<|\"|>b<|\"|>]}<tool_call|>".into(), "", paint.clone()),
                ("<|tool_call>call:weather{city:<|\"|>\"a\" {b:\n<|\"|>}<tool_call|>".into(), "", json!([["weather", {"city": "\"a\" {b:\n"}]])),
                ("<|tool_call>:weather{city:<|\"|>Oslo<|\"|>,days:2}<tool_call|>".into(), "", weather.clone()),
                ("<|tool_call>call:sing now<tool_call|><|tool_call>call:stop_all{}<tool_call|>".into(), "<|tool_call>call:sing now<tool_call|>", json!([["stop_all", {}]])),
            ],
        },
        Format {
            format: ToolCallFormat::Lfm2,
            evidence: "<|tool_list_start|>",
            marks: &["<|tool_call_start|>", "<|tool_call_end|>"],
            answers: vec![
                ("<|tool_call_start|>[weather(city=\"Oslo\", days=2)]<|tool_call_end|>".into(), "", weather.clone()),
                ("<|tool_call_start|>[weather(city='Oslo'), stop_all()]<|tool_call_end|>On it.".into(), "On it.", json!([["weather", {"city": "Oslo"}], ["stop_all", {}]])),
                ("<|tool_call_start|>[paint(size={\"wide\": True, 'tall': 3}, tags=[\"a\", \"b\"], deep=None)]<|tool_call_end|>".into(), "", paint.clone()),
                ("<|tool_call_start|>[weather(city=\"\\u00e9\\n\\ud83d\\ude00 \\\"\\\\\")]<|tool_call_end|>".into(), "", json!([["weather", {"city": "é\n😀 \"\\"}]])),
                ("<|tool_call_start|>[paint(tags={'a', 'b'}, size={})]<|tool_call_end|>".into(), "", json!([["paint", {"tags": ["a", "b"], "size": {}}]])),
                ("<|tool_call_start|>[weather(\"Oslo\")]<|tool_call_end|>".into(), "<|tool_call_start|>[weather(\"Oslo\")]<|tool_call_end|>", json!([])),
            ],
        },
        Format {
            format: ToolCallFormat::Olmo3,
            evidence: "<function_calls>",
            marks: &["<function_calls>", "</function_calls>"],
            answers: vec![
                ("<function_calls>weather(city=\"Oslo\", days=2)</function_calls>".into(), "", weather.clone()),
                ("<function_calls>\nweather(city=\"Oslo\")\nstop_all()\n</function_calls>".into(), "", both.clone()),
            ],
        },
        Format {
            format: ToolCallFormat::Pythonic,
            evidence: "[func_name1(params_name1=params_value1",
            marks: &[],
            answers: vec![
                ("[weather(city=\"Oslo\", days=2)]".into(), "", weather.clone()),
                ("[weather(city='Oslo'), stop_all()]".into(), "", both.clone()),
                ("[stop_all()]On it.".into(), "On it.", json!([["stop_all", {}]])),
                ("[paint(size={\"wide\": True, 'tall': 3}, tags=[\"a\", \"b\"], deep=None)]".into(), "", paint.clone()),
                ("See [1] and [weatherman(1)], [a].".into(), "See [1] and [weatherman(1)], [a].", json!([])),
                ("[weather(\"Oslo\")]".into(), "[weather(\"Oslo\")]", json!([])),
                ("[weather(city=\"Os".into(), "[weather(city=\"Os", json!([])),
            ],
        },
        Format {
            format: ToolCallFormat::Harmony,
            evidence: "<|channel|>functions.",
            marks: &["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"],
            answers: vec![
                ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Oslo\", \"days\": 2}".into(), "", weather.clone()),
                ("<|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{\"city\": \"Oslo\"}<|end|><|start|>assistant<|channel|>analysis to=functions.stop_all<|message|>{}".into(), "", both.clone()),
                ("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather<|message|>{\"city\": \"Oslo\", \"days\": 2}".into(), "I look.", weather.clone()),
                ("<|channel|>commentary to=functions.weather<|message|>{\"city".into(), "{\"city", json!([])),
            ],
        },
    ]
}

pub(super) const TOKENS: [(&str, bool); 2] = [("<s>", true), ("</s>", true)];

impl Format {
    /// A tokenizer in which marks are tokens, special or not, or letters. `None` where a format has none without its tokens: the
    /// messages of gpt-oss cannot be recognized.
    pub(super) fn tokenizer(&self, marked: bool, special: bool) -> Option<Arc<Tokenizer>> {
        let marks = self.marks.iter().filter(|_| marked).map(|mark| (*mark, special));
        let added: Vec<(&str, bool)> = TOKENS.into_iter().chain(marks).collect();
        let can = marked || self.format != ToolCallFormat::Harmony;
        can.then(|| tokenizer_with(&added, self.evidence))
    }
}

/// A model that says `ids`, and then stops.
pub(super) fn said(tokenizer: &Arc<Tokenizer>, ids: &[u32], options: &GenerateOptions) -> (Answer, Vec<Piece>) {
    let script: Vec<u32> = ids.iter().copied().chain([257]).collect();
    let prompt = tokenizer.encode("Hi", true).unwrap();
    let (stop, options) = (StopTokens::from_iter([257]), options.clone().max_tokens(10_000));
    let step = || Script { script: script.clone(), at: 0, used: 0, context: 10_000, runs: Vec::new() };
    let start = || Generation::new(step(), Arc::clone(tokenizer), &[], prompt.clone(), stop.clone(), &options).unwrap();
    (start().answer().unwrap(), start().map(Result::unwrap).collect())
}

pub(super) fn with_tools() -> GenerateOptions {
    let mut options = GenerateOptions::default();
    options.chat.tools = Some(tools());
    options
}

pub(super) fn calls(answer: &Answer) -> Value {
    answer.tool_calls.iter().map(|call| json!([call.name, call.arguments])).collect()
}

#[test]
fn calls_are_read_in_every_format_whether_marks_are_tokens_or_letters() {
    let mut read = 0;
    for of in formats() {
        let Format { format, marks, ref answers, .. } = of;
        for (marked, special) in [(true, true), (true, false), (false, false)] {
            let Some(tokenizer) = of.tokenizer(marked, special) else { continue };
            assert_eq!(tokenizer.tool_calls(None), Some(format));
            for (answer, text, expected) in answers {
                let context = format!("{format}, marks are tokens: {marked}, special: {special}: {answer}");
                let ids = tokenizer.encode(answer, false).unwrap();
                let (found, pieces) = said(&tokenizer, &ids, &with_tools());
                assert_eq!((found.text.as_str(), calls(&found)), (*text, expected.clone()), "{context}");
                let tokens: Vec<u32> = pieces.iter().filter_map(|piece| piece.token).collect();
                assert_eq!(tokens, ids, "every token is told: {context}");
                // Without tools, or if no calls are wanted, the same output is text.
                for options in [GenerateOptions::default(), with_tools().tool_choice(ToolChoice::None)] {
                    let (plain, _) = said(&tokenizer, &ids, &options);
                    assert!(plain.tool_calls.is_empty(), "{context}");
                    let hidden =
                        marks.iter().filter(|_| special).fold(answer.clone(), |text, mark| text.replace(mark, ""));
                    assert!(format == ToolCallFormat::Harmony || plain.text == hidden, "{context}");
                }
                read += found.tool_calls.len();
            }
        }
    }
    assert!(read > 100, "{read}");
}

/// Cases that a review found: marks next to stop strings, marks that values spell, runs of blanks.
#[test]
fn marks_beside_stop_strings_and_in_values() {
    let marks = [("<tool_call>", false), ("</tool_call>", false)];
    let tokens = tokenizer_with(&[TOKENS.as_slice(), &marks].concat(), "<tool_call>arguments");
    let letters = tokenizer_with(&TOKENS, "<tool_call>arguments");
    let call = "<tool_call>\n{\"name\": \"a\"}\n</tool_call>";
    let answer = format!("I look.\n{call}\n{call} Obs");
    let run = |tokenizer: &Arc<Tokenizer>, answer: &str, stop: &[&str]| {
        let options = stop.iter().fold(with_tools(), |options, stop| options.stop(*stop));
        let ids = tokenizer.encode(answer, false).unwrap();
        let found = said(tokenizer, &ids, &options).0;
        (found.text, found.tool_calls.len())
    };
    for tokenizer in [&tokens, &letters] {
        for stop in ["\n\n", "Observation:", "\n\n\n", "II"] {
            assert_eq!(run(tokenizer, &answer, &[stop]), ("I look. Obs".into(), 2), "{stop:?}");
        }
        assert_eq!(run(tokenizer, &answer, &["</tool_call>"]), ("I look.".into(), 1));
        assert_eq!(run(tokenizer, &answer, &["\n<tool_call>"]), ("I look.".into(), 0));
    }
    for (answer, expected) in [
        ("<tool_call>{bad</tool_call><tool_call>{\"name\": \"a\"}</tool_call>", ("<tool_call>{bad</tool_call>", 1)),
        ("<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": \"} </tool_call> <tool_call>\"}}</tool_call>.", (".", 1)),
        ("a <tool_call> b", ("a <tool_call> b", 0)),
    ] {
        assert_eq!(run(&letters, answer, &[]), (expected.0.into(), expected.1), "{answer}");
    }
    let blanks = format!("a{}b", "\n \t".repeat(400));
    assert_eq!(run(&tokens, &blanks, &[]), (blanks.clone(), 0));
    // After 64 marks in letters no mark ends a call; its letters are text.
    let many = format!("<tool_call>{{\"name\": \"a\", \"arguments\": {{\"a\": \"{}", "}</tool_call>".repeat(500));
    assert_eq!(run(&letters, &many, &[]), (many.clone(), 0));
}

#[test]
fn special_tokens_in_arguments_are_as_they_are_spelled() {
    for (evidence, answer) in [
        ("<tool_call>arguments", "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": \"<s>\"}}</tool_call>"),
        ("<|tool_call>", "<|tool_call>call:a{x:<|\"|><s><|\"|>}<tool_call|>"),
        ("<function_calls>", "<function_calls>a(x=\"<s>\")</function_calls>"),
    ] {
        let tokenizer = tokenizer_with(&TOKENS, evidence);
        let (answer, _) = said(&tokenizer, &tokenizer.encode(answer, false).unwrap(), &with_tools());
        assert_eq!(calls(&answer), json!([["a", {"x": "<s>"}]]), "{evidence}");
    }
}

#[test]
fn letters_open_no_call_that_is_held_to_schemas() {
    let marks = [("<tool_call>", false), ("</tool_call>", false)];
    let tokenizer = tokenizer_with(&[TOKENS.as_slice(), &marks].concat(), "");
    let tools = crate::tools::tools(&tools());
    for (format, answer) in [
        (ToolCallFormat::Qwen3Xml, "<function=stop_all>\n</function>"),
        (ToolCallFormat::Phi4MiniJson, "<|tool_call|>[{\"name\": \"stop_all\"}]"),
    ] {
        let read = |mut reader: CallReader| {
            let mut pieces = VecDeque::new();
            reader.text(answer, &mut pieces);
            reader.finish(&mut pieces);
            assert_eq!(pieces.len(), 1, "{format}: {pieces:?}");
            let Piece { text, tool_call, .. } = pieces.remove(0).unwrap();
            (text, tool_call.is_some())
        };
        let reader = || CallReader::new(format, tools.clone(), &tokenizer, 0);
        assert_eq!(read(reader()), (String::new(), true), "{format}");
        assert_eq!(read(reader().strict()), (answer.to_owned(), false), "{format}");
    }
}

#[test]
fn ids_of_calls_are_the_models_or_tell_them_apart() {
    let tokenizer = tokenizer_with(&TOKENS, "[TOOL_CALLS]");
    let answer = "[TOOL_CALLS][{\"name\": \"a\", \"id\": \"abcdef123\"}, {\"name\": \"b\"}, {\"name\": \"b\"}]";
    let (answer, pieces) = said(&tokenizer, &tokenizer.encode(answer, false).unwrap(), &with_tools());
    let ids: Vec<&str> = answer.tool_calls.iter().map(|call| call.id.as_str()).collect();
    // Mistral's templates take ids of nine letters and digits only.
    let nine = |id: &&str| id.len() == 9 && id.chars().all(|letter| letter.is_ascii_alphanumeric());
    let (number, _) = ids[1].split_at(6);
    assert!(ids.iter().all(nine), "{ids:?}");
    assert_eq!(ids, ["abcdef123", &format!("{number}001"), &format!("{number}002")]);
    let number_of = crate::generate::number_of;
    assert!(number_of(&[1, 2], 3) != number_of(&[2, 1], 3) && number_of(&[1, 2], 3) != number_of(&[1, 2], 4));
    assert_eq!(pieces.iter().filter(|piece| piece.tool_call.is_some()).count(), 3);
    let message = serde_json::to_value(Message::from(answer)).unwrap();
    let call = json!({"id": "abcdef123", "type": "function", "function": {"name": "a", "arguments": {}}});
    assert_eq!((&message["role"], &message["content"]), (&"assistant".into(), &Value::Null));
    assert_eq!(message["tool_calls"][0], call);
}

#[test]
fn thought_is_apart_from_calls() {
    let added = [
        ("<s>", true),
        ("</s>", true),
        ("<think>", false),
        ("</think>", false),
        ("<tool_call>", false),
        ("</tool_call>", false),
    ];
    let tokenizer = tokenizer_with(&added, "<think><tool_call>arguments");
    let said_text = "<think>\nA <tool_call>{}</tool_call>?\n</think>\n\nYes. <tool_call>{\"name\": \"a\"}</tool_call>";
    let (answer, _) = said(&tokenizer, &tokenizer.encode(said_text, false).unwrap(), &with_tools());
    assert_eq!((answer.thinking.as_str(), answer.text.as_str()), ("A <tool_call>{}</tool_call>?", "\n\nYes."));
    assert_eq!(calls(&answer), json!([["a", {}]]));
}

/// Meaningless logits, which are the same for the same seed.
pub(super) struct Noise {
    pub(super) state: u64,
    pub(super) rows: usize,
    pub(super) used: usize,
}

impl Step for Noise {
    fn forward(&mut self, tokens: &[u32], _: &CancellationToken) -> Result<Logits> {
        self.used += tokens.len();
        let logits: Vec<f32> = (0..self.rows)
            .map(|_| {
                self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (self.state >> 40) as f32 / (1 << 21) as f32
            })
            .collect();
        Ok(logits.into())
    }

    fn room(&self) -> usize {
        20_000 - self.used
    }
}

#[test]
fn calls_that_are_required_are_valid_whatever_the_model_says() {
    let (tools, mut ended, mut all) = (tools(), 0, 0);
    for of in formats() {
        let format = of.format;
        for marked in [true, false] {
            let Some(tokenizer) = of.tokenizer(marked, true) else { continue };
            let choices = [
                ToolChoice::Required,
                ToolChoice::Named("paint".into()),
                ToolChoice::Named("tree".into()),
                ToolChoice::Strict,
            ];
            for (choice, seed) in choices.iter().flat_map(|choice| (0..6).map(move |seed| (choice, seed))) {
                let context = format!("{format}, marks are tokens: {marked}, {choice:?}, seed {seed}");
                let options = with_tools().tool_choice(choice.clone()).temperature(1.0).seed(seed).max_tokens(2000);
                let step = Noise { state: seed + 1, rows: tokenizer.vocab_len(), used: 0 };
                let prompt = tokenizer.encode("<|start|>assistant", true).unwrap();
                let started =
                    Generation::new(step, Arc::clone(&tokenizer), &[], prompt, StopTokens::from_iter([257]), &options);
                let spelled = (!marked && format != ToolCallFormat::Llama3Json) || format == ToolCallFormat::Pythonic;
                if let (ToolChoice::Strict, true) = (choice, spelled) {
                    assert!(
                        matches!(started, Err(Error::Tool(error)) if *error == ToolError::NotStrict { format }),
                        "{context}"
                    );
                    continue;
                }
                let mut generation = started.unwrap_or_else(|error| panic!("{context}: {error}"));
                let answer = generation.answer().unwrap_or_else(|error| panic!("{context}: {error}"));
                all += 1;
                if generation.finish().0 == Some(FinishReason::Length) {
                    continue;
                }
                ended += 1;
                assert!(!answer.tool_calls.is_empty() || *choice == ToolChoice::Strict, "{context}: {answer:?}");
                assert!(*choice == ToolChoice::Strict || answer.text.is_empty(), "{context}: {answer:?}");
                for call in &answer.tool_calls {
                    let tool = tools.iter().find(|tool| tool["function"]["name"] == call.name.as_str()).unwrap();
                    let valid = jsonschema::is_valid(&tool["function"]["parameters"], &json!(call.arguments));
                    assert!(valid || !holds_all(format), "{context}: {call:?}");
                    assert!(!matches!(choice, ToolChoice::Named(name) if *name != call.name), "{context}: {call:?}");
                }
            }
        }
    }
    assert!(ended * 10 >= all * 9, "{ended} of {all} ended");
}

/// Whether a format enforces all of a schema: formats other than JSON enforce types, properties and lists of values.
pub(super) fn holds_all(format: ToolCallFormat) -> bool {
    !matches!(format, ToolCallFormat::Gemma4 | ToolCallFormat::Lfm2 | ToolCallFormat::Olmo3 | ToolCallFormat::Pythonic)
}

#[test]
fn what_cannot_be_called_is_refused() {
    let start = |template: &str, options: &GenerateOptions| {
        let tokenizer = tokenizer_with(&TOKENS, template);
        let prompt = tokenizer.encode("Hi", true).unwrap();
        Generation::new(script(b"", None, 100), tokenizer, &[], prompt, StopTokens::default(), options).err()
    };
    let tool = |error: Option<Error>| match error {
        Some(Error::Tool(error)) => *error,
        other => panic!("{other:?}"),
    };
    let required = || with_tools().tool_choice(ToolChoice::Required);
    let none = GenerateOptions::default().tool_choice(ToolChoice::Required);
    assert_eq!(tool(start("<tool_call>arguments", &none)), ToolError::NoTools);
    assert_eq!(tool(start("no marks", &required())), ToolError::NoFormat);
    assert!(start("no marks", &with_tools()).is_none());
    assert_eq!(tool(start("<tool_call>arguments", &required().regex("a"))), ToolError::WithGrammar);
    let strange = |format: &str, parameters: Value, name: &str| {
        let mut options = required();
        options.chat.tools = Some(vec![json!({"name": name, "parameters": parameters})]);
        start(format, &options)
    };
    let with = |property: Value| json!({"type": "object", "properties": {"a": property}});
    assert!(matches!(
        tool(strange("<tool_call>arguments", json!({"type": "string"}), "f")),
        ToolError::NotObject { .. }
    ));
    assert!(strange("<tool_call>arguments", json!({}), "a b\"").is_none(), "JSON writes any name");
    for format in ["<|tool_call>", "<function_calls>", "<tool_call><function=f><parameter=x>"] {
        assert!(matches!(tool(strange(format, json!({}), "a b")), ToolError::Name { .. }), "{format}");
        let parameters = json!({"properties": {"$x=": {"type": "string"}}});
        assert!(matches!(tool(strange(format, parameters, "f")), ToolError::Name { .. }), "{format}");
        assert!(matches!(tool(strange(format, with(json!({"enum": []})), "f")), ToolError::Schema { .. }), "{format}");
    }
    let known = vec!["weather".to_owned(), "paint".to_owned(), "stop_all".to_owned(), "tree".to_owned()];
    let named = with_tools().tool_choice(ToolChoice::Named("sing".into()));
    assert_eq!(tool(start("<tool_call>arguments", &named)), ToolError::Unknown { name: "sing".into(), known });
    let mut bad = required();
    bad.chat.tools =
        Some(vec![json!({"name": "f", "parameters": {"type": "object", "properties": {"a": {"not": {}}}}})]);
    let Some(Error::Grammar(error)) = start("<tool_call>arguments", &bad) else { panic!() };
    assert!(
        matches!(*error, crate::error::GrammarError::Schema { ref place, .. } if place == "f/properties/a/not"),
        "{error}"
    );
}

#[test]
fn letters_that_spell_a_call_are_read_however_they_come() {
    let (tokenizer, tools) = (tokenizer_with(&TOKENS, ""), crate::tools::tools(&tools()));
    let mut splits = 0;
    for Format { format, answers, .. } in formats() {
        for (answer, text, expected) in answers.iter().filter(|_| format != ToolCallFormat::Harmony) {
            for at in answer.char_indices().map(|(at, _)| at) {
                let mut reader = CallReader::new(format, tools.clone(), &tokenizer, 0);
                let mut parts = VecDeque::new();
                for part in [&answer[..at], &answer[at..]] {
                    reader.text(part, &mut parts);
                }
                reader.finish(&mut parts);
                let (mut said, mut calls) = (String::new(), Vec::new());
                for part in parts {
                    said.push_str(&part.text);
                    calls.extend(part.tool_call.map(|call| json!([call.name, call.arguments])));
                }
                assert_eq!((said.as_str(), Value::from(calls)), (*text, expected.clone()), "{format} {answer} at {at}");
                splits += 1;
            }
        }
    }
    assert!(splits > 2000, "{splits}");
}

/// Calls that a model's own template writes are parsed from its output. The templates are not ours to distribute: they are in the
/// reference folder, or in the folder that the variable names.
#[test]
fn calls_that_templates_write_are_read_again() {
    use crate::chat::{ChatOptions, ChatTemplate};
    use model_factory_diagnostics::tokenizer::TemplatePlace;
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("../shared/templates")];
    folders.extend(std::env::var_os("TOOL_TEMPLATES").map(Into::into));
    let (mut read, mut left) = (Vec::new(), Vec::new());
    for folder in folders {
        let Ok(files) = std::fs::read_dir(&folder) else {
            println!("skipped: {} is not there", folder.display());
            continue;
        };
        for path in
            files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "jinja"))
        {
            let source = std::fs::read_to_string(&path).unwrap();
            let Some((format, _)) = ToolCallFormat::of(&source) else { continue };
            let place = TemplatePlace { file: path.clone(), key: None };
            let tokens = Default::default();
            let template =
                ChatTemplate { source: &source, place: &place, bos: Some("<s>"), eos: Some("</s>"), tokens: &tokens };
            let options = tools().into_iter().fold(ChatOptions::default(), ChatOptions::tool);
            let arguments = json!({"city": "Oslo", "days": 2}).as_object().cloned().unwrap();
            let call = ToolCall::new("abcdef123", "weather", arguments);
            let user = Message::user("How is it there?");
            let render = |messages: &[Message], prompt| template.render(messages, &options, prompt);
            let asked = render(std::slice::from_ref(&user), true);
            let (prompt, all) = match (asked, render(&[user, Message::calls(&[call])], false)) {
                (Ok(prompt), Ok(all)) => (prompt, all),
                (prompt, all) => {
                    left.push(format!("{}: {:?}", path.display(), prompt.err().or(all.err())));
                    continue;
                }
            };
            // The model does not say the beginning of a turn, with a closed thought in it, or the stop token.
            let shared = prompt.bytes().zip(all.bytes()).take_while(|(a, b)| a == b).count();
            let shared = all[..shared].rfind('<').filter(|at| !all[*at..shared].contains('>')).unwrap_or(shared);
            let ends = ["<|eot_id|>", "<|im_end|>", "<turn|>", "<|tool_response>", "<|call|>", "<｜end▁of▁sentence｜>"];
            let end = ends.iter().filter_map(|end| all[shared..].find(end)).min().unwrap_or(all.len() - shared);
            let answer = &all[shared..shared + end];
            let known = formats().into_iter().find(|known| known.format == format).unwrap();
            let added: Vec<(&str, bool)> =
                TOKENS.into_iter().chain(known.marks.iter().map(|mark| (*mark, true))).collect();
            let tokenizer = tokenizer_with(&added, &source);
            let ids = tokenizer.encode(answer, false).unwrap();
            let end = ids.iter().position(|id| *id == 257).unwrap_or(ids.len());
            let (found, _) = said(&tokenizer, &ids[..end], &with_tools());
            if calls(&found) == json!([["weather", {"city": "Oslo", "days": 2}]]) {
                read.push(format!("{}: {format}", path.display()));
            } else {
                left.push(format!("{}: {format}: {answer:?} gives {found:?}", path.display()));
            }
        }
    }
    println!("read:\n{}\nleft:\n{}", read.join("\n"), left.join("\n"));
    let known = read.iter().filter(|line| line.contains("shared/templates")).count();
    assert!(known == 5 || !root.join("../shared/templates").exists(), "what is left is above");
}
