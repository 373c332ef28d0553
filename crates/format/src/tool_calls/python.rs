//! Calls in Python's syntax, which several formats have.

use super::literal::{Literals, SPECIAL};
use super::{Notation, Part, Tool, Written, json};

/// A call `name(key=value, ..)`.
pub(super) const CALL: [Part; 3] = [Part::Name("", "("), Part::Pairs(&NOTATION), Part::Text(")")];

const NOTATION: Notation = Notation {
    assign: "=",
    colon: ": ",
    comma: ", ",
    words: ["True", "False", "None"],
    quote: None,
    plain_keys: false,
};

/// Reads calls in a list or one after the other; or as JSON.
pub(super) fn calls(text: &str, tools: &[Tool]) -> Option<Vec<Written>> {
    let text = &text.replace(SPECIAL, "");
    let (mut literals, mut calls) = (Literals::new(text), Vec::new());
    let listed = literals.take("[");
    while !(literals.is_done() || listed && literals.take("]")) {
        if calls.is_empty() && literals.clone().call().is_none() {
            return json::calls(text, tools);
        }
        let (name, arguments) = literals.call()?;
        calls.push(Written::new(name, arguments));
        literals.take(",");
    }
    (literals.is_done() && !calls.is_empty()).then_some(calls)
}
