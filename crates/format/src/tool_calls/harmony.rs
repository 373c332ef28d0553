//! A message to `functions.NAME`.

use super::{Description, Part, Several};

pub(super) const FORMAT: Description = Description {
    name: "harmony",
    shown_by: &[&["<|channel|>", "functions."]],
    read: |_, _| None,
    call: &[
        Part::Name(" to=functions.", ""),
        Part::Mark("<|channel|>"),
        Part::Text("commentary json"),
        Part::Mark("<|message|>"),
        Part::Json,
    ],
    several: Several::Messages,
    ..Description::JSON
};
