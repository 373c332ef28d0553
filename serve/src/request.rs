//! The JSON of a request -> prompts and options. A field that is not known is refused by its name.

use crate::error::Refusal;
use model_factory::{Error, GenerateOptions, Generation, Message, Model, Prompt, Session, ToolChoice};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The fields of a request that were not looked at yet.
pub(crate) struct Fields(Map<String, Value>);

/// Fields that say something about the request and nothing about its answer.
const UNUSED: [&str; 4] = ["user", "metadata", "safety_identifier", "prompt_cache_key"];

impl Fields {
    pub(crate) fn parse(body: &[u8]) -> Result<Fields, Refusal> {
        serde_json::from_slice(body).map(Fields).map_err(|error| {
            Refusal::new(axum::http::StatusCode::BAD_REQUEST, format_args!("the body is no JSON object: {error}"))
        })
    }

    /// Takes a field; `null` is as good as absent.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<Option<T>, Refusal> {
        let value = self.0.remove(name).filter(|value| !value.is_null());
        let value = value.map(serde_json::from_value).transpose();
        value.map_err(|error| Refusal::field(name, format_args!("{name}: {error}")))
    }

    pub(crate) fn require<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<T, Refusal> {
        self.take(name)?.ok_or_else(|| Refusal::field(name, format_args!("{name} is missing")))
    }

    /// Refuses what is left, but for fields of which the value asks for what is done anyway.
    pub(crate) fn end(self) -> Result<(), Refusal> {
        let done =
            json!({ "parallel_tool_calls": true, "store": false, "echo": false, "best_of": 1, "modalities": ["text"] });
        let unknown = |(name, value): &(String, Value)| {
            !(value.is_null() || UNUSED.contains(&name.as_str()) || done.get(name) == Some(value))
        };
        match self.0.into_iter().find(unknown) {
            Some((name, value)) if done.get(&name).is_some() => Err(Refusal::field(
                name.as_str(),
                format_args!("{name} is {value}, which this server does not support"),
            )),
            Some((name, _)) => Err(Refusal::field(name.as_str(), format_args!("this server has no field {name}"))),
            None => Ok(()),
        }
    }
}

/// What a generation is asked for.
pub(crate) struct Asked {
    pub(crate) input: Input,
    /// Answers to each prompt.
    pub(crate) n: usize,
    pub(crate) stream: bool,
    /// Whether a stream ends with the usage.
    pub(crate) include_usage: bool,
    options: GenerateOptions,
}

/// What it continues.
pub(crate) enum Input {
    Chat(Vec<Message>),
    Texts(Vec<String>),
    Ids(Vec<Vec<u32>>),
}

impl Input {
    /// The field of the request.
    pub(crate) fn field(&self) -> &'static str {
        if let Input::Chat(_) = self { "messages" } else { "prompt" }
    }

    fn prompts(&self) -> Vec<Prompt<'_>> {
        match self {
            Input::Chat(messages) => vec![messages.into()],
            Input::Texts(texts) => texts.iter().map(Prompt::from).collect(),
            Input::Ids(prompts) => prompts.iter().map(Prompt::from).collect(),
        }
    }
}

/// Texts of a request: one, or a list.
pub(crate) fn texts(fields: &mut Fields, name: &'static str) -> Result<Option<Vec<String>>, Refusal> {
    let read = |value| match value {
        Value::String(text) => Ok(vec![text]),
        list => serde_json::from_value(list),
    };
    let texts = fields.take(name)?.map(read).transpose();
    texts.map_err(|_| Refusal::field(name, format_args!("{name} is no text and no list of texts")))
}

impl Asked {
    /// Of `chat/completions`.
    pub(crate) fn chat(mut fields: Fields) -> Result<Asked, Refusal> {
        let messages: Vec<Value> = fields.require("messages")?;
        let messages = messages.into_iter().enumerate().map(|(index, value)| message(index, value));
        let mut asked = Asked::with(&mut fields, Input::Chat(messages.collect::<Result<_, _>>()?))?;
        let options = &mut asked.options;
        let top: Option<usize> = fields.take("top_logprobs")?;
        options.logprobs = match (fields.take("logprobs")?.unwrap_or(false), top) {
            (true, top) => Some(top.unwrap_or(0)),
            (false, None) => None,
            (false, Some(_)) => return Err(Refusal::field("top_logprobs", "top_logprobs needs logprobs to be true")),
        };
        options.chat.tools = fields.take("tools")?;
        options.tool_choice = tool_choice(fields.take("tool_choice")?, options.chat.tools.as_deref())?;
        // Variables of the template, by the name that vLLM and llama.cpp's server have for them.
        options.chat.variables = fields.take("chat_template_kwargs")?.unwrap_or_default();
        if let Some(effort) = fields.take::<String>("reasoning_effort")? {
            options.chat.variables.insert("reasoning_effort".into(), effort.into());
        }
        let limit = fields.take("max_completion_tokens")?;
        options.max_tokens = limit.unwrap_or(options.max_tokens);
        fields.end()?;
        Ok(asked)
    }

    /// Of `completions`.
    pub(crate) fn completion(mut fields: Fields) -> Result<Asked, Refusal> {
        let prompt: Value = fields.require("prompt")?;
        let is_list_of = |is: fn(&Value) -> bool| prompt.as_array().is_some_and(|list| list.iter().all(is));
        let prompts = match &prompt {
            Value::String(_) => serde_json::from_value(json!([prompt])).map(Input::Texts),
            _ if is_list_of(Value::is_string) => serde_json::from_value(prompt).map(Input::Texts),
            _ if is_list_of(Value::is_number) => serde_json::from_value(json!([prompt])).map(Input::Ids),
            _ => serde_json::from_value(prompt).map(Input::Ids),
        };
        let wrong = |what| Refusal::field("prompt", what);
        let prompts = prompts.map_err(|_| wrong("prompt is no text, no list of ids and no list of either"))?;
        if prompts.prompts().is_empty() {
            return Err(wrong("prompt is an empty list"));
        }
        let mut asked = Asked::with(&mut fields, prompts)?;
        asked.options.logprobs = fields.take("logprobs")?;
        fields.end()?;
        Ok(asked)
    }

    /// What both have.
    fn with(fields: &mut Fields, input: Input) -> Result<Asked, Refusal> {
        let mut options = GenerateOptions::default().max_tokens(fields.take("max_tokens")?.unwrap_or(usize::MAX));
        options.stop = texts(fields, "stop")?.unwrap_or_default();
        options.ignore_stop = fields.take("ignore_eos")?.unwrap_or(false);
        let sampling = &mut options.sampling;
        sampling.temperature = fields.take("temperature")?;
        sampling.top_p = fields.take("top_p")?;
        sampling.top_k = fields.take("top_k")?;
        sampling.min_p = fields.take("min_p")?;
        sampling.repetition_penalty = fields.take("repetition_penalty")?;
        sampling.presence_penalty = fields.take("presence_penalty")?.unwrap_or_default();
        sampling.frequency_penalty = fields.take("frequency_penalty")?.unwrap_or_default();
        sampling.logit_bias = fields.take("logit_bias")?.unwrap_or_default();
        sampling.seed = fields.take::<i64>("seed")?.map(i64::cast_unsigned);
        if let Some(format) = fields.take::<Value>("response_format")? {
            let schema = match format["type"].as_str() {
                Some("text") => None,
                Some("json_object") => Some(json!({ "type": "object" })),
                Some("json_schema") if format["json_schema"].get("schema").is_some() => {
                    Some(format["json_schema"]["schema"].clone())
                }
                _ => {
                    return Err(Refusal::field(
                        "response_format",
                        "expected the type text, json_object or json_schema with a schema",
                    ));
                }
            };
            options = schema.into_iter().fold(options, GenerateOptions::json_schema);
        }
        let stream_options: Map<String, Value> = fields.take("stream_options")?.unwrap_or_default();
        let mut stream_options = Fields(stream_options);
        let include_usage = stream_options.take("include_usage")?.unwrap_or(false);
        stream_options.end()?;
        let (n, stream) = (fields.take("n")?.unwrap_or(1), fields.take("stream")?.unwrap_or(false));
        Ok(Asked { input, n, stream, include_usage, options })
    }

    /// How many answers there will be.
    pub(crate) fn answers(&self) -> usize {
        self.input.prompts().len().saturating_mul(self.n)
    }

    /// The generations, those of a prompt together. Takes as long as tokenizing the prompts.
    pub(crate) fn generations(
        &self,
        model: &Model,
        cancel: &model_factory::CancellationToken,
    ) -> Result<Vec<Generation<Session>>, Error> {
        let options = self.options.clone().cancel(cancel);
        let of = |prompt: Prompt<'_>| model.generations(prompt, self.n, &options);
        Ok(self.input.prompts().into_iter().map(of).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }
}

/// A message as OpenAI's clients send it, for a template of transformers: arguments of calls are objects, not JSON in a text, and
/// a list of texts is one text.
fn message(index: usize, mut value: Value) -> Result<Message, Refusal> {
    let wrong = |what: &dyn std::fmt::Display| Refusal::field("messages", format_args!("messages[{index}]: {what}"));
    if let Some(parts) = value.get("content").and_then(Value::as_array) {
        let texts: Option<String> = parts.iter().map(|part| part.get("text")?.as_str()).collect();
        if let Some(texts) = texts {
            value["content"] = texts.into();
        }
    }
    let calls = value.get_mut("tool_calls").and_then(Value::as_array_mut);
    for arguments in calls.into_iter().flatten().filter_map(|call| call.pointer_mut("/function/arguments")) {
        if let Some(text) = arguments.as_str() {
            *arguments =
                serde_json::from_str(text).map_err(|error| wrong(&format_args!("arguments of a call: {error}")))?;
        }
    }
    // Many templates read the content of a turn that only calls.
    if let Some(content) = value.get_mut("content").filter(|content| content.is_null()) {
        *content = "".into();
    }
    serde_json::from_value(value).map_err(|error| wrong(&error))
}

fn tool_choice(choice: Option<Value>, tools: Option<&[Value]>) -> Result<ToolChoice, Refusal> {
    let is_named = |tool: &Value| tool.pointer("/function/name").is_some_and(Value::is_string);
    if let Some(index) = tools.and_then(|tools| tools.iter().position(|tool| !is_named(tool))) {
        return Err(Refusal::field("tools", format_args!("tools[{index}] is no function with a name")));
    }
    let strict = |tool: &Value| tool.pointer("/function/strict") == Some(&Value::Bool(true));
    match &choice {
        None if tools.is_some_and(|tools| tools.iter().any(strict)) => Ok(ToolChoice::Strict),
        None => Ok(ToolChoice::Auto),
        Some(Value::String(choice)) if choice == "auto" => tool_choice(None, tools),
        Some(Value::String(choice)) if choice == "none" => Ok(ToolChoice::None),
        Some(Value::String(choice)) if choice == "required" => Ok(ToolChoice::Required),
        Some(choice) => match choice.pointer("/function/name").and_then(Value::as_str) {
            Some(name) => Ok(ToolChoice::Named(name.into())),
            None => Err(Refusal::field(
                "tool_choice",
                "expected auto, none, required or {\"type\": \"function\", \"function\": {\"name\": ..}}",
            )),
        },
    }
}
