//! `<｜tool▁call▁begin｜>function<｜tool▁sep｜>`, the name, the arguments as a block of JSON, `<｜tool▁call▁end｜>`.

use super::arguments::Arguments;
use super::literal::SPECIAL;
use super::{Description, Part, Several, Tool, Written};

pub(super) const SEPARATOR: &str = "<｜tool▁sep｜>";

pub(super) const FORMAT: Description = Description {
    name: "deepseek_v3",
    shown_by: &[&["<｜tool▁call▁begin｜>", "```json"]],
    opens: &["<｜tool▁call▁begin｜>"],
    closes: &["<｜tool▁call▁end｜>"],
    frames: Some(["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"]),
    read: calls,
    call: &[
        Part::Text("function"),
        Part::Mark(SEPARATOR),
        Part::Name("", "\n```json\n"),
        Part::Json,
        Part::Text("\n```"),
    ],
    several: Several::Each { between: "\n" },
    ..Description::JSON
};

/// Reads `function<｜tool▁sep｜>`, the name and a JSON block of arguments, or the name, `<｜tool▁sep｜>` and the arguments.
fn calls(text: &str, _: &[Tool]) -> Option<Vec<Written>> {
    let text = &text.replace(SPECIAL, "");
    let (first, rest) = text.split_once(SEPARATOR)?;
    let (name, object) = match rest.split_once("```json") {
        Some((name, block)) if first.trim() == "function" => (name, block.trim_end().strip_suffix("```")?),
        _ => (first, rest),
    };
    let call = Written::new(name.trim(), Arguments::json(object)?);
    (!call.name.is_empty()).then(|| vec![call])
}
