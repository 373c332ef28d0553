//! `<|tool_call>call:NAME{key:<|"|>text<|"|>}<tool_call|>`.

use super::literal::{GEMMA_QUOTE, Literals};
use super::{Description, Notation, Part, Tool, Written};

pub(super) const FORMAT: Description = Description {
    name: "gemma4",
    shown_by: &[&["<|tool_call>"]],
    opens: &["<|tool_call>"],
    closes: &["<tool_call|>"],
    read: calls,
    call: &[Part::Name("call:", "{"), Part::Pairs(&NOTATION), Part::Text("}")],
    ..Description::JSON
};

const NOTATION: Notation = Notation {
    assign: ":",
    colon: ":",
    comma: ",",
    words: ["true", "false", "null"],
    quote: Some(GEMMA_QUOTE),
    plain_keys: true,
};

/// Reads `call:NAME{key:value}`; the model leaves out `call` sometimes.
fn calls(text: &str, _: &[Tool]) -> Option<Vec<Written>> {
    let (mut literals, mut calls) = (Literals::new(text), Vec::new());
    while !literals.is_done() {
        (literals.take("call:") || literals.take(":")).then_some(())?;
        let name = literals.name("{")?;
        calls.push(Written::new(name, literals.arguments(":", "}")?));
        literals.take(",");
    }
    (!calls.is_empty()).then_some(calls)
}
