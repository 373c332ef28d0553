//! `<|tool_call_start|>[name(key="value")]<|tool_call_end|>`.

use super::{Description, Several, python};

pub(super) const FORMAT: Description = Description {
    name: "lfm2",
    shown_by: &[
        &["<|tool_call_start|>"],
        &["<|tool_list_start|>"],
        &["<|tool_response_start|>"],
        &["List of tools: ["],
    ],
    shares_marks: true,
    opens: &["<|tool_call_start|>"],
    closes: &["<|tool_call_end|>"],
    read: python::calls,
    call: &python::CALL,
    several: Several::List { begin: "[", between: ", ", end: "]", spells_close: true },
    ..Description::JSON
};
