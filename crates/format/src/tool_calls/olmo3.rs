//! `<function_calls>name(key="value")</function_calls>`, one call a line.

use super::{Description, Several, python};

pub(super) const FORMAT: Description = Description {
    name: "olmo3",
    shown_by: &[&["<function_calls>"]],
    shares_marks: true,
    opens: &["<function_calls>"],
    closes: &["</function_calls>"],
    read: python::calls,
    call: &python::CALL,
    several: Several::List { begin: "", between: "\n", end: "", spells_close: true },
    ..Description::JSON
};
