//! `[name(key="value"), name(key="value")]` as the whole answer, without marks.

use super::{Description, Several, Tool, Written, python};

pub(super) const FORMAT: Description = Description {
    name: "pythonic",
    // How prompts for it say it.
    shown_by: &[&["[func_name1(params_name1=params_value1"]],
    unmarked: Some("["),
    read: calls,
    call: &python::CALL,
    several: Several::List { begin: "[", between: ", ", end: "]", spells_close: false },
    ..Description::JSON
};

/// Reads calls of known tools: other lists may be an answer.
fn calls(text: &str, tools: &[Tool]) -> Option<Vec<Written>> {
    let calls = python::calls(text, tools)?;
    calls.iter().all(|call| tools.iter().any(|tool| tool.name == call.name)).then_some(calls)
}
