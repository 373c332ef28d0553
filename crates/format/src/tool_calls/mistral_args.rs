//! `[TOOL_CALLS]`, the name, optionally an id after `[CALL_ID]`, `[ARGS]`, the arguments.

use super::{Description, Part, mistral};

pub(super) const FORMAT: Description = Description {
    name: "mistral_args",
    shown_by: &[&["[TOOL_CALLS]", "[ARGS]"]],
    call: &[Part::Name("", ""), Part::OptionalId("[CALL_ID]"), Part::Mark("[ARGS]"), Part::Json],
    several: Description::JSON.several,
    ..mistral::FORMAT
};
