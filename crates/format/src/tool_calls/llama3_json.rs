//! `{"name": .., "parameters": {..}}` as the whole answer, optionally after `<|python_tag|>`.

use super::literal::{Literals, SPECIAL};
use super::{Description, Part, Several, Tool, Written, json};

pub(super) const FORMAT: Description = Description {
    name: "llama3_json",
    shown_by: &[
        &["<|python_tag|>"],
        &["ipython", "{\"name\": \"", "\"parameters\": "],
        &["ipython", "{\\\"name\\\": \\\"", "\\\"parameters\\\": "],
    ],
    shares_marks: true,
    opens: &["<|python_tag|>"],
    read: calls,
    call: &[Part::JsonName("{\"name\": ", ", \"parameters\": "), Part::Json, Part::Text("}")],
    several: Several::Bare,
    ..Description::JSON
};

/// Reads JSON, or `name.call(key="value")`, only for known tools: other JSON may be an answer.
fn calls(text: &str, tools: &[Tool]) -> Option<Vec<Written>> {
    let text = &text.replace(SPECIAL, "");
    let calls = json::calls(text, tools).or_else(|| {
        let mut literals = Literals::new(text);
        let (name, arguments) = literals.call()?;
        literals.is_done().then(|| vec![Written::new(name.strip_suffix(".call").unwrap_or(name), arguments)])
    })?;
    calls.iter().all(|call| tools.iter().any(|tool| tool.name == call.name)).then_some(calls)
}
