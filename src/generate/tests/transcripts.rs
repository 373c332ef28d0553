//! Answers that others recorded, as this library parses them.

use super::tools::{Format, TOKENS, calls, formats, said};
use super::*;
use crate::tools::CallReader;
use model_factory_diagnostics::tokenizer::ToolCallFormat;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// An answer, and the calls and text that a parser of its format found in it.
#[derive(serde::Deserialize)]
struct Transcript {
    /// The format, as [`ToolCallFormat`] displays it.
    format: String,
    /// Who recorded it, a blank, and its name there.
    source: String,
    /// The answer without thoughts.
    answer: String,
    /// The schemas that the model was given.
    tools: Vec<Value>,
    /// The name and the arguments of each call, as far as the source says them.
    calls: Vec<(Option<String>, Option<Value>)>,
    /// The text outside of the calls, without blanks around it; not compared if the source does not say it.
    text: Option<String>,
}

/// The calls and the text of `letters`, in which no mark is a token, given in these parts.
fn spelled(
    format: ToolCallFormat,
    tools: &[Value],
    letters: &Arc<Tokenizer>,
    pieces: [&str; 2],
) -> (Vec<(String, Value)>, String) {
    let mut reader = CallReader::new(format, crate::tools::tools(tools), letters, 0);
    let (mut parts, mut said, mut calls) = (VecDeque::new(), String::new(), Vec::new());
    for piece in pieces {
        reader.text(piece, &mut parts);
    }
    reader.finish(&mut parts);
    for part in parts {
        said.push_str(&part.text);
        calls.extend(part.tool_call.map(|call| (call.name, Value::Object(call.arguments))));
    }
    (calls, said)
}

/// The file that the variable names is a list of [`Transcript`]s. Other projects' records are not ours to distribute.
#[test]
fn calls_that_others_recorded_are_read() {
    let Some(path) = std::env::var_os("TOOL_TRANSCRIPTS") else {
        println!("skipped: TOOL_TRANSCRIPTS names no file");
        return;
    };
    let transcripts: Vec<Transcript> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let letters = tokenizer_with(&TOKENS, "");
    let (mut agree, mut differ) = (BTreeMap::<String, [usize; 2]>::new(), Vec::new());
    for Transcript { format: name, source, answer, tools, calls: expected, text } in transcripts {
        let known = formats().into_iter().find(|known| known.format.to_string() == name);
        let Format { format, evidence, marks, .. } = known.unwrap_or_else(|| panic!("{source}: no format {name}"));
        let check = |found: Vec<(String, Value)>, said: &str, how: &str| {
            let same = found.len() == expected.len()
                && found.iter().zip(&expected).all(|((name, arguments), (as_name, as_arguments))| {
                    as_name.as_ref().is_none_or(|known| known == name)
                        && as_arguments.as_ref().is_none_or(|known| known == arguments)
                })
                && text.as_ref().is_none_or(|text| text.trim() == said.trim());
            let found = json!([found, said]);
            (!same).then(|| {
                format!("{source}: {name}, {how}: {answer:?}\n  gives {found}\n  for {}", json!([expected, text]))
            })
        };
        let added: Vec<(&str, bool)> = TOKENS.into_iter().chain(marks.iter().map(|mark| (*mark, true))).collect();
        let tokenizer = tokenizer_with(&added, evidence);
        let mut options = GenerateOptions::default();
        options.chat.tools = Some(tools.clone());
        let (found, _) = said(&tokenizer, &tokenizer.encode(answer.as_str(), false).unwrap(), &options);
        let mut difference = check(serde_json::from_value(calls(&found)).unwrap(), &found.text, "tokens");
        // Messages are recognized only by tokens.
        for at in (0..=answer.len()).filter(|at| format != ToolCallFormat::Harmony && answer.is_char_boundary(*at)) {
            let (found, said) = spelled(format, &tools, &letters, [&answer[..at], &answer[at..]]);
            difference = difference.or_else(|| check(found, &said, &format!("letters, split at {at}")));
        }
        let who = source.split(' ').next().unwrap_or_default();
        agree.entry(format!("{who} {name}")).or_default()[usize::from(difference.is_some())] += 1;
        differ.extend(difference);
    }
    for (row, [same, other]) in &agree {
        println!("{row}: {same} agree, {other} differ");
    }
    assert!(!agree.is_empty() && differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}
