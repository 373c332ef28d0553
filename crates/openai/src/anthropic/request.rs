//! The JSON of a request of `/v1/messages` -> a request of completions.

use crate::error::RequestError;
use crate::fields::{Fields, Place};
use crate::parts::{Content, Part, call, result, with_calls};
use crate::request::{CompletionInput, CompletionRequest, stops};
use crate::tools::auto;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use model_factory::generate::Grammar;
use model_factory::{Message, ToolChoice};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Fields of a part that do not change what it says.
const UNREAD: [&str; 3] = ["cache_control", "citations", "caller"];

/// The fields of a request.
const KNOWN: [&str; 14] = [
    "max_tokens",
    "messages",
    "model",
    "output_config",
    "output_format",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

/// Fields that change nothing here: who asks, how and where Anthropic's own servers run it, and which old turns they may leave out.
const UNUSED: [&str; 9] = [
    "cache_control",
    "context_management",
    "diagnostics",
    "inference_geo",
    "metadata",
    "service_tier",
    "speed",
    "user_profile_id",
    "workspace_id",
];

/// Fields of a tool; those after `strict` change nothing here, where all tools are in the prompt.
const TOOL: [&str; 9] = [
    "type",
    "name",
    "description",
    "input_schema",
    "strict",
    "allowed_callers",
    "cache_control",
    "defer_loading",
    "eager_input_streaming",
];

/// Reads the body of a request of `/v1/messages`. A last message of the assistant is continued.
///
/// # Errors
/// An error that names the field, if the body is invalid.
pub fn request(body: &[u8]) -> Result<CompletionRequest, RequestError> {
    let mut fields = Fields::parse(body)?;
    fields.only(&[&KNOWN[..], &UNUSED].concat())?;
    let mut messages = system(&mut fields)?;
    let given: Vec<Value> = fields.require("messages")?;
    fields.at("messages").ensure(!given.is_empty(), "expected one message at least")?;
    let mut names = HashMap::new();
    for (index, value) in given.into_iter().enumerate() {
        turn(&Place(format!("messages[{index}]")), value, &mut names, &mut messages)?;
    }
    let is_open = |last: &Message| last.role == "assistant" && !last.fields.contains_key("tool_calls");
    let continues = messages.last().is_some_and(is_open);
    let mut request = CompletionRequest::read(&mut fields, CompletionInput::Messages(messages))?;
    let options = &mut request.options;
    options.chat.continue_final_message = continues;
    options.stop = stops(&mut fields, "stop_sequences")?;
    options.chat.tools = tools(&mut fields)?;
    (options.tool_choice, options.parallel_tool_calls) = tool_choice(&mut fields, options.chat.tools.as_deref())?;
    if let Some(mut thinking) = fields.object("thinking")? {
        let kind: String = thinking.require("type")?;
        let is_known = matches!(&*kind, "enabled" | "adaptive" | "disabled");
        thinking.at("type").ensure(is_known, "expected enabled, adaptive or disabled")?;
        options.chat.variables.insert("enable_thinking".into(), (kind != "disabled").into());
        options.thinking_budget = thinking.count("budget_tokens", None)?;
        thinking.take::<String>("display")?;
        thinking.end()?;
    }
    let mut format = fields.object("output_format")?;
    if let Some(mut output) = fields.object("output_config")? {
        if let Some(effort) = output.take::<String>("effort")? {
            options.chat.variables.insert("reasoning_effort".into(), effort.into());
        }
        format = output.object("format")?.or(format);
        output.end()?;
    }
    if let Some(mut format) = format {
        format.at("type").ensure(format.require::<String>("type")? == "json_schema", "expected json_schema")?;
        options.grammar = Some(Grammar::json_schema(format.require::<Value>("schema")?));
        format.end()?;
    }
    for name in UNUSED {
        fields.take::<Value>(name)?;
    }
    if request.stream {
        (request.include_usage, request.continuous_usage) = (true, true); // the first event has the prompt's tokens
    }
    fields.end()?;
    Ok(request)
}

/// The system message, which is a field: a text, or a list of parts.
fn system(fields: &mut Fields) -> Result<Vec<Message>, RequestError> {
    let (at, system) = (fields.at("system"), fields.take::<Value>("system")?);
    let text = match system {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => unstamped(text),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().enumerate().map(|(index, part)| {
                let at = at.within(format_args!("[{index}]"));
                let part = Part::of(&at, part, &UNREAD)?;
                at.within(".type").ensure(part.kind == "text", "expected text")?;
                part.known(&["text"])?;
                Ok(unstamped(part.text("text")?.to_owned()))
            });
            texts.collect::<Result<Vec<_>, _>>()?.join("\n")
        }
        Some(_) => return Err(at.wrong("expected a text or a list of parts")),
    };
    Ok(vec![Message::system(text)])
}

/// A text of the system without the stamp that Claude Code puts in front of all that it sends. It is another one for each request, so
/// that no prompt would begin like the one before it; as in llama.cpp's server its five digits become the same ones.
fn unstamped(mut text: String) -> String {
    const HEADER: &str = "x-anthropic-billing-header:";
    const STAMP: &str = "cch=";
    if let Some(at) = text.strip_prefix(HEADER).and_then(|rest| rest.find(STAMP)) {
        let start = HEADER.len() + at + STAMP.len();
        let end = start + 5;
        let is_stamp = text.get(start..end).is_some_and(|stamp| stamp.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_stamp && text.as_bytes().get(end) == Some(&b';') {
            text.replace_range(start..end, "fffff");
        }
    }
    text
}

/// The bytes of an image in base64.
fn image(part: &Part<'_>) -> Result<Vec<u8>, RequestError> {
    part.known(&["source"])?;
    let at = part.at.within(".source");
    let source = part.fields.get("source").and_then(Value::as_object);
    let source = source.ok_or_else(|| at.wrong("expected an object"))?;
    at.known(source, &["type", "media_type", "data"])?;
    let is_here = at.text(source, "type")? == "base64";
    at.within(".type").ensure(is_here, "expected base64: images are not fetched, and no files are kept")?;
    let data = BASE64_STANDARD.decode(at.text(source, "data")?);
    data.map_err(|error| at.within(".data").wrong(format_args!("it is no base64: {error}")))
}

/// Appends the messages of a turn: the results of tools first, each as a message of its own. `names` are those of the tools by the
/// ids of their calls.
fn turn(
    at: &Place,
    value: Value,
    names: &mut HashMap<String, String>,
    messages: &mut Vec<Message>,
) -> Result<(), RequestError> {
    let object = value.as_object().ok_or_else(|| at.wrong("expected an object"))?;
    at.known(object, &["role", "content"])?;
    let role = at.text(object, "role")?;
    let is_models = role == "assistant";
    let is_known = matches!(role, "assistant" | "user" | "system");
    at.within(".role").ensure(is_known, "expected user, assistant or system")?;
    let at = at.within(".content");
    let parts = match object.get("content") {
        Some(Value::String(text)) => {
            messages.push(Message::new(role, &**text));
            return Ok(());
        }
        Some(Value::Array(parts)) => parts,
        _ => return Err(at.wrong("expected a text or a list of parts")),
    };
    let (mut content, mut thought, mut calls, mut has_result) = (Content::new(role), String::new(), Vec::new(), false);
    for (index, part) in parts.iter().enumerate() {
        let at = at.within(format_args!("[{index}]"));
        let part = Part::of(&at, part, &UNREAD)?;
        match (part.kind, role) {
            ("text", _) => {
                part.known(&["text"])?;
                content.text(part.text("text")?);
            }
            ("image", "user") => content.image(image(&part)?),
            ("tool_result", "user") => {
                has_result = true;
                messages.push(result(part.text("tool_use_id")?, told(&part)?, names));
            }
            ("thinking", "assistant") => {
                part.known(&["thinking", "signature"])?;
                thought.push_str(part.text("thinking")?);
            }
            // What only its maker can read.
            ("redacted_thinking", "assistant") => {}
            ("tool_use", "assistant") => {
                part.known(&["id", "name", "input"])?;
                let (id, name) = (part.text("id")?, part.text("name")?);
                // A text is what a model wrote that is no object, and came so in an answer.
                let input = part.fields.get("input").filter(|input| input.is_object() || input.is_string());
                let input = input.ok_or_else(|| at.within(".input").wrong("expected an object"))?;
                calls.push(call(id, name, input.clone(), names));
            }
            (kind, _) => {
                let reason = format!("{kind:?} is not supported in a message of the {role}");
                return Err(at.within(".type").wrong(reason));
            }
        }
    }
    if content.is_said || is_models || !has_result {
        messages.push(with_calls(content.finish(), thought, calls));
    }
    Ok(())
}

/// The text of a tool's result.
fn told(part: &Part<'_>) -> Result<String, RequestError> {
    part.known(&["tool_use_id", "content", "is_error"])?;
    let at = part.at.within(".content");
    match part.fields.get("content") {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let mut text = String::new();
            for (index, value) in parts.iter().enumerate() {
                let at = at.within(format_args!("[{index}]"));
                let part = Part::of(&at, value, &UNREAD)?;
                at.within(".type").ensure(part.kind == "text", "expected text in the result of a tool")?;
                part.known(&["text"])?;
                text.push_str(part.text("text")?);
            }
            Ok(text)
        }
        Some(_) => Err(at.wrong("expected a text or a list of parts")),
    }
}

/// The tools as schemas of functions.
fn tools(fields: &mut Fields) -> Result<Option<Vec<Value>>, RequestError> {
    let Some(tools) = fields.take::<Vec<Value>>("tools")? else { return Ok(None) };
    let tool = |(index, tool): (usize, Value)| {
        let at = Place(format!("tools[{index}]"));
        let object = tool.as_object().ok_or_else(|| at.wrong("expected an object"))?;
        let kind = object.get("type").and_then(Value::as_str).unwrap_or("custom");
        let of_maker = "expected custom: tools of Anthropic's own servers are not here";
        at.within(".type").ensure(kind == "custom", of_maker)?;
        at.known(object, &TOOL)?;
        let schema = object.get("input_schema").filter(|schema| schema.is_object());
        let schema = schema.ok_or_else(|| at.within(".input_schema").wrong("expected a JSON schema"))?;
        let mut function = json!({ "name": at.text(object, "name")?, "parameters": schema });
        for name in ["description", "strict"] {
            if let Some(value) = object.get(name).filter(|value| !value.is_null()) {
                function[name] = value.clone();
            }
        }
        Ok(json!({ "type": "function", "function": function }))
    };
    tools.into_iter().enumerate().map(tool).collect::<Result<_, _>>().map(Some)
}

/// The choice among the tools, and whether there may be several calls.
fn tool_choice(fields: &mut Fields, tools: Option<&[Value]>) -> Result<(ToolChoice, bool), RequestError> {
    let Some(mut choice) = fields.object("tool_choice")? else { return Ok((auto(tools), true)) };
    let kind: String = choice.require("type")?;
    let of_kind = match &*kind {
        "auto" => auto(tools),
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Named(choice.require("name")?),
        _ => return Err(choice.at("type").wrong("expected auto, any, tool or none")),
    };
    let is_one = choice.take("disable_parallel_tool_use")?.unwrap_or(false);
    choice.end()?;
    Ok((of_kind, !is_one))
}
