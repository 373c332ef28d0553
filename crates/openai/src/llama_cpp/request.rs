//! The JSON of a request of `/completion` or `/infill` -> a request of completions.

use super::events::CompletionBuilder;
use super::prompt;
use crate::error::RequestError;
use crate::fields::Fields;
use crate::request::{CompletionInput, CompletionRequest};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Seeds that ask for a random one: -1, also as the 32 bits without a sign that it is there.
const RANDOM: [f64; 2] = [-1.0, 4_294_967_295.0];

/// The bias of a token that must not come; the sampler's least.
const NEVER: f64 = -100.0;

/// Reads the body of a request of `/completion`; the builder makes the answer of the chunks.
///
/// # Errors
/// An error that names the field, if the body is invalid.
pub fn completion(body: &[u8]) -> Result<(CompletionRequest, CompletionBuilder), RequestError> {
    let mut fields = Fields::parse(body)?;
    let input = prompt::take(&mut fields, "prompt")?;
    read(fields, input)
}

/// Reads the body of a request of `/infill`; the builder makes the answer of the chunks.
///
/// # Errors
/// An error that names the field, if the body is invalid.
pub fn infill(body: &[u8]) -> Result<(CompletionRequest, CompletionBuilder), RequestError> {
    let mut fields = Fields::parse(body)?;
    let [prefix, suffix] = ["input_prefix", "input_suffix"].map(|name| fields.require::<String>(name));
    let prompt: Option<String> = fields.take("prompt")?;
    let at = fields.at("input_extra");
    let mut files = Vec::new();
    for (index, value) in fields.take::<Vec<Value>>("input_extra")?.into_iter().flatten().enumerate() {
        let at = at.within(format_args!("[{index}]"));
        let object = value.as_object().ok_or_else(|| at.wrong("expected an object"))?;
        at.known(object, &["filename", "text", "time"])?;
        let has_name = object.get("filename").is_some_and(|name| !name.is_null());
        let name = if has_name { at.text(object, "filename")? } else { "tmp" };
        files.push((name.to_owned(), at.text(object, "text")?.to_owned()));
    }
    let prefixes = vec![prefix? + &prompt.unwrap_or_default()];
    // Editors send limits of time and steps of indentation; an answer ends by its tokens.
    for name in ["t_max_prompt_ms", "t_max_predict_ms", "n_indent"] {
        fields.take::<f64>(name)?;
    }
    read(fields, CompletionInput::Infill { prefixes, suffix: suffix?, files })
}

fn read(mut fields: Fields, input: CompletionInput) -> Result<(CompletionRequest, CompletionBuilder), RequestError> {
    fields.rename("n_cmpl", "n")?;
    fields.rename("n_probs", "logprobs")?;
    fields.rename("max_completion_tokens", "max_tokens")?;
    if fields.get("seed").and_then(Value::as_f64).is_some_and(|seed| RANDOM.contains(&seed)) {
        fields.take::<Value>("seed")?;
    }
    let bias = fields.take::<Value>("logit_bias")?;
    let logprobs = fields.count("logprobs", None)?;
    let return_tokens = fields.take("return_tokens")?.unwrap_or(false);
    let response_fields: Option<Vec<String>> = fields.take("response_fields")?;
    let mut request = CompletionRequest::read(&mut fields, input)?;
    biases(&fields, bias, &mut request)?;
    request.details = true;
    let options = &mut request.options;
    options.logprobs = logprobs.filter(|top| *top > 0);
    fields.end()?;
    let sampling = &options.sampling;
    let limit = if options.max_tokens == usize::MAX { json!(-1) } else { options.max_tokens.into() };
    // What may be long, as biases, is not said again in every answer.
    let settings = json!({
        "n_predict": limit, "max_tokens": limit, "temperature": sampling.temperature, "top_k": sampling.top_k,
        "top_p": sampling.top_p, "min_p": sampling.min_p, "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty, "frequency_penalty": sampling.frequency_penalty,
        "stop": options.stop, "ignore_eos": options.ignore_stop, "n_probs": options.logprobs.unwrap_or_default(), "stream": request.stream,
    });
    let builder = CompletionBuilder {
        settings,
        return_tokens,
        fields: response_fields.unwrap_or_default(),
        said: HashMap::new(),
    };
    Ok((request, builder))
}

/// Reads the biases of tokens: pairs in a list, or an object, of ids or texts. All tokens of a text are meant.
fn biases(fields: &Fields, given: Option<Value>, request: &mut CompletionRequest) -> Result<(), RequestError> {
    let at = fields.at("logit_bias");
    let pairs: Vec<(Value, Value)> = match given {
        None => return Ok(()),
        Some(Value::Object(object)) => object.into_iter().map(|(name, bias)| (name.into(), bias)).collect(),
        Some(list) => {
            let pairs = serde_json::from_value(list);
            pairs.map_err(|_| at.wrong("expected a list of pairs, [[15043, 1.0]], or an object"))?
        }
    };
    for (index, (token, bias)) in pairs.into_iter().enumerate() {
        let at = at.within(format_args!("[{index}]"));
        let bias = if bias == Value::Bool(false) { Some(NEVER) } else { bias.as_f64() };
        let bias = bias.ok_or_else(|| at.wrong("expected a number or false after the token"))?;
        let number = token.as_u64().or_else(|| token.as_str()?.parse().ok());
        match (number.and_then(|id| u32::try_from(id).ok()), token) {
            (Some(id), _) => _ = request.options.sampling.logit_bias.insert(id, bias),
            (None, Value::String(text)) => request.text_bias.push((text, bias)),
            (None, _) => return Err(at.wrong("expected an id or a text")),
        }
    }
    Ok(())
}
