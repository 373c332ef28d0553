//! `[TOOL_CALLS][{"name": .., "arguments": {..}, "id": ".."}]`.

use super::arguments::Arguments;
use super::literal::SPECIAL;
use super::{Description, Part, Several, Tool, Written, json};

pub(super) const FORMAT: Description = Description {
    name: "mistral",
    shown_by: &[&["[TOOL_CALLS]"]],
    opens: &["[TOOL_CALLS]"],
    read: calls,
    call: &[json::CALL[0], Part::Json, Part::Text(", \"id\": \""), Part::Id, Part::Text("\"}")],
    several: Several::List { begin: "[", between: ", ", end: "]", spells_close: true },
    ..Description::JSON
};

/// Reads a list of objects; or the name, an id after `[CALL_ID]`, and the arguments after `[ARGS]`.
pub(super) fn calls(text: &str, tools: &[Tool]) -> Option<Vec<Written>> {
    let text = &text.replace(SPECIAL, "");
    if text.trim_start().starts_with(['[', '{']) {
        return json::calls(text, tools);
    }
    let (head, object) = text.split_once("[ARGS]").or_else(|| Some(text.split_at(text.find('{')?)))?;
    let (name, id) = head.split_once("[CALL_ID]").map_or((head, None), |(name, id)| (name, Some(id.trim().to_owned())));
    let call = Written::new(name.trim(), Arguments::json(object)?);
    let is_name = !call.name.is_empty() && !call.name.contains(|c: char| c.is_whitespace() || matches!(c, '[' | ']'));
    is_name.then(|| vec![Written { id, ..call }])
}
