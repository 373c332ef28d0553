//! `<|tool_call|>[{"name": .., "arguments": {..}}]<|/tool_call|>`.

use super::{Description, Several};

pub(super) const FORMAT: Description = Description {
    name: "phi4_mini_json",
    // Phi-4-mini's template has only the tools, between the marks of the second list.
    shown_by: &[&["<|tool_call|>"], &["<|tool|>", "<|/tool|>"]],
    shares_marks: true,
    // Granite 3.1 writes another mark than its template has.
    opens: &["<|tool_call|>", "<tool_call>"],
    closes: &["<|/tool_call|>"],
    // Granite 3 has no mark after the list.
    several: Several::List { begin: "[", between: ", ", end: "]", spells_close: false },
    ..Description::JSON
};
