//! The arguments of one group: `weights` and `input_activations`.

use super::{Notes, refusal};
use crate::error::Result;
use crate::header::Fields;
use crate::header::config::Section;
use serde_json::Value;
use std::fmt;

/// How many weights share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightScales {
    /// All of a matrix.
    Tensor,
    /// Those of an output.
    Channel,
    /// This many consecutive inputs of an output.
    Group(u64),
}

/// How activations become integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activations {
    PerToken { symmetric: bool },
    PerTensor { symmetric: bool },
    Static { symmetric: bool },
}

/// Every key of an arguments object, in any version.
const KNOWN: &[&str] = &[
    "num_bits",
    "type",
    "symmetric",
    "strategy",
    "group_size",
    "block_structure",
    "dynamic",
    "actorder",
    "observer",
    "observer_kwargs",
    "scale_dtype",
    "zp_dtype",
];

pub(super) fn weights(args: &Section<'_>, notes: &mut Notes) -> Result<WeightScales> {
    int8(args, notes)?;
    if !symmetric(args, notes)? {
        return Err(refusal(args, "symmetric", "false", "true: weights have no zero points"));
    }
    if dynamic(args, notes)? {
        return Err(refusal(args, "dynamic", "true", "false: weights are stored quantised"));
    }
    match args.object().get("actorder") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(Value::String(order)) if order == "weight" || order == "static" => {}
        Some(other) => return Err(refusal(args, "actorder", &other.to_string(), "null, weight or static")),
    }
    let group = match args.object().get("group_size") {
        None | Some(Value::Null) => None,
        Some(size) if size.as_i64() == Some(-1) => None,
        Some(size) => match size.as_u64() {
            Some(size) if size > 0 => Some(size),
            _ => return Err(refusal(args, "group_size", &size.to_string(), "a positive number, -1 or null")),
        },
    };
    let minus_one = args.object().get("group_size").and_then(Value::as_i64) == Some(-1);
    let strategy = args.text("strategy")?;
    if strategy.is_none() {
        notes.absent(args, "strategy", if minus_one { "channel" } else { group.map_or("tensor", |_| "group") });
    }
    match (strategy, group) {
        (Some("channel"), None) => Ok(WeightScales::Channel),
        (None, None) if minus_one => Ok(WeightScales::Channel),
        (Some("tensor") | None, None) if !minus_one => Ok(WeightScales::Tensor),
        (Some("group") | None, Some(size)) => Ok(WeightScales::Group(size)),
        (strategy, group) => {
            let strategy = strategy.unwrap_or("absent");
            let group = group.map_or("no group_size".to_owned(), |group| format!("group_size {group}"));
            let expected = "channel, tensor, or group with its size";
            Err(refusal(args, "strategy", &format!("{strategy} with {group}"), expected))
        }
    }
}

pub(super) fn activations(args: &Section<'_>, notes: &mut Notes) -> Result<Activations> {
    int8(args, notes)?;
    let symmetric = symmetric(args, notes)?;
    match args.object().get("group_size") {
        None | Some(Value::Null) => {}
        Some(size) => return Err(refusal(args, "group_size", &size.to_string(), "null")),
    }
    let strategy = args.text("strategy")?;
    if strategy.is_none() {
        notes.absent(args, "strategy", "tensor");
    }
    match (strategy, dynamic(args, notes)?) {
        (Some("token"), true) => Ok(Activations::PerToken { symmetric }),
        (Some("tensor") | None, true) => Ok(Activations::PerTensor { symmetric }),
        (Some("tensor") | None, false) => Ok(Activations::Static { symmetric }),
        (Some(strategy), dynamic) => {
            let found = format!("{strategy} with dynamic {dynamic}");
            Err(refusal(args, "strategy", &found, "token with dynamic true, or tensor"))
        }
    }
}

/// Checks what both kinds of arguments have in common.
fn int8(args: &Section<'_>, notes: &mut Notes) -> Result<()> {
    notes.unknown.extend(args.object().keys().filter(|key| !KNOWN.contains(&key.as_str())).map(|key| args.dotted(key)));
    match args.object().get("num_bits") {
        None | Some(Value::Null) => notes.absent(args, "num_bits", "8"),
        Some(bits) if bits.as_u64() == Some(8) => {}
        Some(Value::Object(_)) => return Err(refusal(args, "num_bits", "a map", "8 for all modules of a group")),
        Some(bits) => return Err(refusal(args, "num_bits", &bits.to_string(), "8")),
    }
    match args.text("type")? {
        None => notes.absent(args, "type", "int"),
        Some("int") => {}
        Some(other) => return Err(refusal(args, "type", &format!("{other:?}"), "int")),
    }
    Ok(())
}

fn symmetric(args: &Section<'_>, notes: &mut Notes) -> Result<bool> {
    let found = args.boolean("symmetric")?;
    if found.is_none() {
        notes.absent(args, "symmetric", "true");
    }
    Ok(found.unwrap_or(true))
}

fn dynamic(args: &Section<'_>, notes: &mut Notes) -> Result<bool> {
    if let Some(Value::String(kind)) = args.object().get("dynamic") {
        return Err(refusal(args, "dynamic", &format!("{kind:?}"), "true or false"));
    }
    let found = args.boolean("dynamic")?;
    if found.is_none() {
        notes.absent(args, "dynamic", "false");
    }
    Ok(found.unwrap_or(false))
}

impl fmt::Display for WeightScales {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightScales::Tensor => f.write_str("by tensor"),
            WeightScales::Channel => f.write_str("by channel"),
            WeightScales::Group(size) => write!(f, "by groups of {size}"),
        }
    }
}

impl fmt::Display for Activations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, symmetric) = match self {
            Activations::PerToken { symmetric } => ("dynamic by token", symmetric),
            Activations::PerTensor { symmetric } => ("dynamic by tensor", symmetric),
            Activations::Static { symmetric } => ("static by tensor", symmetric),
        };
        write!(f, "{words}{}", if *symmetric { "" } else { " with zero points" })
    }
}
