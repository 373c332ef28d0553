//! `tools`, `functions` and the choice among them -> options.

use super::fields::Fields;
use crate::error::RequestError;
use model_factory::{GenerateOptions, ToolChoice};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Reads the tools of a request and how they may be called. Whether they were given as `functions`, the form before tools.
pub(super) fn read(fields: &mut Fields, options: &mut GenerateOptions) -> Result<bool, RequestError> {
    let functions: Option<Vec<Value>> = fields.take("functions")?;
    let mut tools: Option<Vec<Value>> = fields.take("tools")?;
    let has_functions = functions.is_some();
    if let Some(functions) = functions {
        fields.at("functions").ensure(tools.is_none(), "tools are given too, expected one of them")?;
        let tool = |function| json!({ "type": "function", "function": function });
        tools = Some(functions.into_iter().map(tool).collect());
    }
    let (list, choice) = if has_functions { ("functions", "function_call") } else { ("tools", "tool_choice") };
    let is_named = |tool: &Value| tool.pointer("/function/name").is_some_and(Value::is_string);
    if let Some(index) = tools.iter().flatten().position(|tool| !is_named(tool)) {
        return Err(fields.at(&format!("{list}[{index}]")).wrong("expected a function with a name"));
    }
    options.tool_choice = tool_choice(fields, choice, &mut tools)?;
    options.parallel_tool_calls = fields.take("parallel_tool_calls")?.unwrap_or(true) && !has_functions;
    options.chat.tools = tools;
    Ok(has_functions)
}

/// The choice in the field `name`. Of `tools` only the allowed ones stay.
pub(super) fn tool_choice(
    fields: &mut Fields,
    name: &str,
    tools: &mut Option<Vec<Value>>,
) -> Result<ToolChoice, RequestError> {
    let mut choice: Value = fields.take(name)?.unwrap_or_else(|| "auto".into());
    if choice.get("type").is_some_and(|kind| kind == "allowed_tools") {
        let at = fields.at(name).within(".allowed_tools");
        // The Responses API has the two fields beside the type.
        let allowed = choice.get("allowed_tools").unwrap_or(&choice);
        let names = allowed.get("tools").and_then(Value::as_array);
        let names: Option<HashSet<&str>> = names.and_then(|names| names.iter().map(name_of).collect());
        let names = names.ok_or_else(|| at.within(".tools").wrong("expected a list of functions with names"))?;
        let given = tools.get_or_insert_default();
        let before: HashSet<&str> = given.iter().filter_map(name_of).collect();
        at.within(".tools").ensure(names.is_subset(&before), "expected names of tools of the request")?;
        drop(before);
        given.retain(|tool| name_of(tool).is_some_and(|name| names.contains(name)));
        choice = match allowed.get("mode").and_then(Value::as_str) {
            Some("auto") if given.is_empty() => "none".into(),
            Some(mode @ ("auto" | "required")) => mode.into(),
            _ => return Err(at.within(".mode").wrong("expected auto or required")),
        };
    }
    // The Responses API has the name beside the type.
    let is_function = name == "function_call" || choice.get("type").is_some_and(|kind| kind == "function");
    let function = choice.pointer("/function/name").or(choice.get("name").filter(|_| is_function));
    match choice.as_str() {
        Some("auto") => Ok(auto(tools.as_deref())),
        Some("none") => Ok(ToolChoice::None),
        Some("required") => Ok(ToolChoice::Required),
        _ => match function.and_then(Value::as_str) {
            Some(function) => Ok(ToolChoice::Named(function.into())),
            None => {
                let expected =
                    "expected auto, none, required or {\"type\": \"function\", \"function\": {\"name\": ..}}";
                Err(fields.at(name).wrong(expected))
            }
        },
    }
}

/// The choice of a request that leaves it to the model: calls are held to their schemas if one of the tools asks for it.
pub(super) fn auto(tools: Option<&[Value]>) -> ToolChoice {
    let is_strict = |tool: &Value| tool.pointer("/function/strict") == Some(&Value::Bool(true));
    if tools.into_iter().flatten().any(is_strict) { ToolChoice::Strict } else { ToolChoice::Auto }
}

fn name_of(tool: &Value) -> Option<&str> {
    tool.pointer("/function/name").or(tool.get("name")).and_then(Value::as_str)
}
