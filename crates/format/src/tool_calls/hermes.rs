//! `<tool_call>{"name": .., "arguments": {..}}</tool_call>`.

use super::{Description, Part, Several, json};

pub(super) const FORMAT: Description = Description {
    name: "hermes",
    shown_by: &[&["<tool_call>", "arguments"]],
    shares_marks: true,
    opens: &["<tool_call>"],
    closes: &["</tool_call>"],
    call: &[Part::Text("\n"), json::CALL[0], json::CALL[1], json::CALL[2], Part::Text("\n")],
    several: Several::Each { between: "\n" },
    ..Description::JSON
};
