//! Fields by which llama.cpp's server samples, in its requests and in those of the OpenAI API.

use crate::error::RequestError;
use crate::fields::Fields;
use model_factory::SamplingOptions;
use model_factory::generate::{Dry, Xtc};

/// The samplers in the order in which llama.cpp applies them unless it is told another one. `infill` is one of `/infill`.
const ORDER: [&str; 10] =
    ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature", "infill"];

/// Reads the fields that other servers lack, after those of penalties.
pub(crate) fn sampling(fields: &mut Fields, options: &mut SamplingOptions) -> Result<(), RequestError> {
    options.dry = dry(fields)?;
    options.xtc = xtc(fields)?;
    // The window of the penalties, which here is the whole sequence.
    if let Some(last) = fields.take::<f64>("repeat_last_n")? {
        let is_off = options.repetition_penalty.is_none_or(|penalty| penalty == 1.0)
            && options.presence_penalty == 0.0
            && options.frequency_penalty == 0.0;
        let expected = "a penalty counts all tokens, expected -1";
        fields.at("repeat_last_n").ensure(last == -1.0 || is_off, expected)?;
    }
    samplers(fields, options)
}

/// Every answer compares each token of the vocabulary with each of them. A text in llama.cpp's has 40 bytes at most.
const MOST_BREAKERS: usize = 16;
const MOST_BREAKER_BYTES: usize = 40;

fn dry(fields: &mut Fields) -> Result<Option<Dry>, RequestError> {
    let mut dry = Dry { multiplier: fields.take("dry_multiplier")?.unwrap_or_default(), ..Dry::default() };
    dry.base = fields.take("dry_base")?.unwrap_or(dry.base);
    dry.allowed_length = fields.count("dry_allowed_length", None)?.unwrap_or(dry.allowed_length);
    dry.last_tokens = fields.count("dry_penalty_last_n", Some(usize::MAX))?.filter(|last| *last != usize::MAX);
    dry.breakers = fields.take("dry_sequence_breakers")?.unwrap_or(dry.breakers);
    let fits = dry.breakers.len() <= MOST_BREAKERS && dry.breakers.iter().all(|text| text.len() <= MOST_BREAKER_BYTES);
    let expected = format_args!("expected {MOST_BREAKERS} texts at most, each of {MOST_BREAKER_BYTES} bytes");
    fields.at("dry_sequence_breakers").ensure(fits, expected)?;
    Ok(Some(dry).filter(|dry| dry.multiplier != 0.0 && dry.last_tokens != Some(0)))
}

fn xtc(fields: &mut Fields) -> Result<Option<Xtc>, RequestError> {
    let [probability, threshold] = ["xtc_probability", "xtc_threshold"].map(|name| fields.take::<f64>(name));
    let (probability, threshold) = (probability?.unwrap_or_default(), threshold?.unwrap_or(0.1));
    Ok(Some(Xtc { probability, threshold }).filter(|xtc| xtc.probability != 0.0))
}

/// Those that the request does not name are off. Their order is this server's own.
fn samplers(fields: &mut Fields, options: &mut SamplingOptions) -> Result<(), RequestError> {
    let Some(named) = fields.take::<Vec<String>>("samplers")? else { return Ok(()) };
    let at = fields.at("samplers");
    let mut places = Vec::new();
    for (index, name) in named.iter().enumerate() {
        let name = if name == "typical_p" { "typ_p" } else { name };
        let place = ORDER.iter().position(|known| *known == name);
        let at = at.within(format_args!("[{index}]"));
        places.push(place.ok_or_else(|| at.wrong(format_args!("expected one of {}", ORDER.join(", "))))?);
    }
    at.ensure(places.is_sorted_by(|a, b| a < b), format_args!("expected them in the order {}", ORDER.join(", ")))?;
    let has = |name: &str| named.iter().any(|named| named == name);
    if !has("penalties") {
        options.repetition_penalty = Some(1.0);
        (options.presence_penalty, options.frequency_penalty) = (0.0, 0.0);
    }
    options.dry = options.dry.take().filter(|_| has("dry"));
    options.xtc = options.xtc.take().filter(|_| has("xtc"));
    for (name, off, option) in [
        ("top_p", 1.0, &mut options.top_p),
        ("min_p", 0.0, &mut options.min_p),
        ("temperature", 1.0, &mut options.temperature),
    ] {
        if !has(name) {
            *option = Some(off);
        }
    }
    if !has("top_k") {
        options.top_k = Some(0);
    }
    Ok(())
}
