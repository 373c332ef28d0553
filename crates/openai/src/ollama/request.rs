//! The JSON of a request of `/api/chat` or `/api/generate` -> a request of completions.

use crate::error::RequestError;
use crate::fields::{Fields, Place};
use crate::parts::{Content, with_calls};
use crate::request::{CompletionInput, CompletionRequest};
use crate::tools::auto;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use model_factory::Message;
use model_factory::generate::Grammar;
use serde_json::{Value, json};

/// Options that are the sampler's, by the names that [`CompletionRequest::read`] knows.
const OPTIONS: [&str; 9] = [
    "seed",
    "stop",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
];

/// Options that say how Ollama's own servers load a model and lay out its memory.
const UNUSED: [&str; 14] = [
    "numa",
    "num_ctx",
    "num_batch",
    "num_gpu",
    "num_keep",
    "num_thread",
    "main_gpu",
    "low_vram",
    "f16_kv",
    "logits_all",
    "vocab_only",
    "use_mmap",
    "use_mlock",
    "embedding_only",
];

/// Options that are taken only with the value, as a number, that asks for nothing.
const NEUTRAL: [(&str, f64); 5] =
    [("mirostat", 0.0), ("repeat_last_n", -1.0), ("tfs_z", 1.0), ("typical_p", 1.0), ("num_predict", -2.0)];

/// Reads the body of a request of `/api/chat`.
///
/// # Errors
/// An error that names the field, if the body is invalid.
pub fn chat(body: &[u8]) -> Result<CompletionRequest, RequestError> {
    let mut fields = Fields::parse(body)?;
    let given: Vec<Value> = fields.require("messages")?;
    fields.at("messages").ensure(!given.is_empty(), "expected one message at least: nothing is loaded ahead")?;
    let messages = given.iter().enumerate().map(|(index, value)| message(&Place(format!("messages[{index}]")), value));
    let input = CompletionInput::Messages(messages.collect::<Result<_, _>>()?);
    let tools: Option<Vec<Value>> = fields.take("tools")?;
    let is_named = |tool: &Value| tool.pointer("/function/name").is_some_and(Value::is_string);
    if let Some(index) = tools.iter().flatten().position(|tool| !is_named(tool)) {
        return Err(fields.at(&format!("tools[{index}]")).wrong("expected a function with a name"));
    }
    let mut request = read(fields, input)?;
    let options = &mut request.options;
    (options.tool_choice, options.chat.tools) = (auto(tools.as_deref()), tools.filter(|tools| !tools.is_empty()));
    Ok(request)
}

/// Reads the body of a request of `/api/generate`: a conversation of one turn, or a text that is continued where it is `raw`.
///
/// # Errors
/// An error that names the field, if the body is invalid.
pub fn generate(body: &[u8]) -> Result<CompletionRequest, RequestError> {
    let mut fields = Fields::parse(body)?;
    let prompt: String = fields.require("prompt")?;
    fields.at("prompt").ensure(!prompt.is_empty(), "expected a text: nothing is loaded ahead")?;
    for (name, expected) in [("suffix", "no text"), ("template", "the model's own")] {
        let text: Option<String> = fields.take(name)?;
        fields.at(name).ensure(
            text.is_none_or(|text| text.is_empty()),
            format_args!("it is not supported, expected {expected}"),
        )?;
    }
    let context: Option<Vec<Value>> = fields.take("context")?;
    let expected = "it is not supported, expected none: send the conversation to /api/chat";
    fields.at("context").ensure(context.is_none_or(|context| context.is_empty()), expected)?;
    let is_raw = fields.take("raw")?.unwrap_or(false);
    let system: Option<String> = fields.take("system")?;
    let system = system.filter(|system| !system.is_empty());
    let given: Option<Value> = fields.take("images")?;
    let input = if is_raw {
        for (name, is_given) in [("system", system.is_some()), ("images", given.is_some())] {
            fields.at(name).ensure(!is_given, "raw is given too, expected one of them")?;
        }
        CompletionInput::Texts(vec![prompt])
    } else {
        let mut content = Content::new("user");
        images(&fields.at("images"), given.as_ref(), &mut content)?;
        content.text(&prompt);
        CompletionInput::Messages(system.map(Message::system).into_iter().chain([content.finish()]).collect())
    };
    read(fields, input)
}

/// The name of the model that a request of `/api/show` asks for.
///
/// # Errors
/// An error that names the field, if the body is invalid.
pub fn show(body: &[u8]) -> Result<String, RequestError> {
    let mut fields = Fields::parse(body)?;
    // `name` is the older one.
    let name = fields.one_of(&["model", "name"])?.ok_or_else(|| fields.at("model").wrong("it is missing"))?;
    fields.take::<bool>("verbose")?;
    fields.end()?;
    Ok(name)
}

/// Reads the fields that both kinds of requests have.
fn read(mut fields: Fields, input: CompletionInput) -> Result<CompletionRequest, RequestError> {
    let mut given = fields.object_or_empty("options")?;
    given.only(&[&OPTIONS[..], &UNUSED, &NEUTRAL.map(|(name, _)| name), &["penalize_newline"]].concat())?;
    for name in UNUSED.iter().chain([&"penalize_newline"]) {
        given.take::<Value>(name)?;
    }
    let mut limit = None;
    for (name, neutral) in NEUTRAL {
        if given.get(name).and_then(Value::as_f64) == Some(neutral) {
            given.take::<Value>(name)?;
        } else if name == "num_predict" {
            limit = given.count(name, Some(usize::MAX))?;
        } else if let Some(value) = given.take::<Value>(name)? {
            return Err(given.at(name).wrong(format_args!("{value} is not supported, expected {neutral}")));
        }
    }
    let mut request = CompletionRequest::read(&mut given, input)?;
    given.end()?;
    request.model = Some(fields.require("model")?);
    request.stream = fields.take("stream")?.unwrap_or(true);
    request.include_usage = request.stream; // the chunk that ends the answer
    let options = &mut request.options;
    options.max_tokens = limit.unwrap_or(usize::MAX);
    options.grammar = match fields.take::<Value>("format")? {
        None => None,
        Some(Value::String(text)) if text.is_empty() => None,
        Some(Value::String(text)) if text == "json" => Some(Grammar::json_schema(json!({ "type": "object" }))),
        Some(schema @ Value::Object(_)) => Some(Grammar::json_schema(schema)),
        Some(_) => return Err(fields.at("format").wrong("expected json or a JSON schema")),
    };
    match fields.take::<Value>("think")? {
        None => {}
        Some(Value::Bool(thinks)) => _ = options.chat.variables.insert("enable_thinking".into(), thinks.into()),
        Some(Value::String(effort)) => {
            options.chat.variables.insert("enable_thinking".into(), true.into());
            options.chat.variables.insert("reasoning_effort".into(), effort.into());
        }
        Some(_) => return Err(fields.at("think").wrong("expected true, false or an effort")),
    }
    let top = fields.count("top_logprobs", None)?;
    options.logprobs = fields.take("logprobs")?.unwrap_or(false).then_some(top.unwrap_or(0));
    options.cache_salt = fields.take("cache_salt")?;
    for name in ["keep_alive", "truncate", "shift"] {
        fields.take::<Value>(name)?; // nothing is unloaded, and nothing is left out of a prompt
    }
    fields.end()?;
    Ok(request)
}

/// A message: images stand before its text.
fn message(at: &Place, value: &Value) -> Result<Message, RequestError> {
    let fields = value.as_object().ok_or_else(|| at.wrong("expected an object"))?;
    at.known(fields, &["role", "content", "thinking", "images", "tool_calls", "tool_name", "tool_call_id"])?;
    let role = at.text(fields, "role")?;
    let is_known = matches!(role, "assistant" | "user" | "system" | "developer" | "tool");
    at.within(".role").ensure(is_known, "expected user, assistant, system or tool")?;
    let text = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(_) => at.text(fields, name).map(Some),
    };
    let mut content = Content::new(role);
    images(&at.within(".images"), fields.get("images"), &mut content)?;
    if let Some(text) = text("content")?.filter(|text| !text.is_empty() || role != "assistant") {
        content.text(text);
    }
    let calls = match fields.get("tool_calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(calls)) => {
            let calls = calls.iter().enumerate().map(|(index, value)| call(at, index, value));
            calls.collect::<Result<_, _>>()?
        }
        Some(_) => return Err(at.within(".tool_calls").wrong("expected a list of calls")),
    };
    let thought = text("thinking")?.unwrap_or_default().to_owned();
    let mut message = with_calls(content.finish(), thought, calls);
    for (name, field) in [("tool_name", "name"), ("tool_call_id", "tool_call_id")] {
        if let Some(text) = text(name)? {
            message = message.field(field, text);
        }
    }
    Ok(message)
}

/// A call of a function, whose arguments are an object.
fn call(at: &Place, index: usize, value: &Value) -> Result<Value, RequestError> {
    let at = at.within(format_args!(".tool_calls[{index}]"));
    let call = value.as_object().ok_or_else(|| at.wrong("expected an object"))?;
    at.known(call, &["id", "type", "function"])?;
    let within = at.within(".function");
    let function = call.get("function").and_then(Value::as_object).ok_or_else(|| within.wrong("expected an object"))?;
    within.known(function, &["index", "name", "description", "arguments"])?;
    let arguments = function.get("arguments").filter(|arguments| arguments.is_object());
    let arguments = arguments.ok_or_else(|| within.within(".arguments").wrong("expected an object"))?;
    let mut made =
        json!({ "type": "function", "function": { "name": within.text(function, "name")?, "arguments": arguments } });
    if let Some(id) = call.get("id").filter(|id| !id.is_null()) {
        made["id"] = id.as_str().ok_or_else(|| at.within(".id").wrong("expected a text"))?.into();
    }
    Ok(made)
}

/// Images in base64.
fn images(at: &Place, given: Option<&Value>, content: &mut Content) -> Result<(), RequestError> {
    let given = match given {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(given)) => given,
        Some(_) => return Err(at.wrong("expected a list of images in base64")),
    };
    for (index, image) in given.iter().enumerate() {
        let at = at.within(format_args!("[{index}]"));
        let text = image.as_str().ok_or_else(|| at.wrong("expected an image in base64"))?;
        let data = BASE64_STANDARD.decode(text);
        content.image(data.map_err(|error| at.wrong(format_args!("it is no base64: {error}")))?);
    }
    Ok(())
}
