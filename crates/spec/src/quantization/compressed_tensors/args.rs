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
pub(crate) struct Activations {
    pub(crate) scales: ActivationScales,
    pub(crate) symmetric: bool,
}

/// Where the scales of activations come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActivationScales {
    PerToken,
    PerTensor,
    Static,
}

/// Every key of an arguments object, in any version.
const KNOWN: &str = "num_bits type symmetric strategy group_size block_structure dynamic actorder observer observer_kwargs \
                     scale_dtype zp_dtype";

pub(super) fn weights(args: &Section<'_>, notes: &mut Notes) -> Result<WeightScales> {
    int8(args, notes)?;
    if !flag(args, notes, "symmetric", true)? {
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
    let size = args.object().get("group_size").filter(|size| !size.is_null());
    let whole = size.and_then(Value::as_i64) == Some(-1);
    let group = size.filter(|_| !whole).map(|size| match size.as_u64() {
        Some(size @ 1..) => Ok(size),
        _ => Err(refusal(args, "group_size", &size.to_string(), "a positive number, -1 or null")),
    });
    let group = group.transpose()?;
    let strategy = args.text("strategy")?;
    let absent = if whole { "channel" } else { group.map_or("tensor", |_| "group") };
    if strategy.is_none() {
        notes.absent(args, "strategy", absent);
    }
    match (strategy.unwrap_or(absent), group) {
        ("channel", None) => Ok(WeightScales::Channel),
        ("tensor", None) if !whole => Ok(WeightScales::Tensor),
        ("group", Some(size)) => Ok(WeightScales::Group(size)),
        (strategy, group) => {
            let group = group.map_or("no group_size".to_owned(), |group| format!("group_size {group}"));
            let expected = "channel, tensor, or group with its size";
            Err(refusal(args, "strategy", &format!("{strategy} with {group}"), expected))
        }
    }
}

pub(super) fn activations(args: &Section<'_>, notes: &mut Notes) -> Result<Activations> {
    int8(args, notes)?;
    let symmetric = flag(args, notes, "symmetric", true)?;
    if let Some(size) = args.object().get("group_size").filter(|size| !size.is_null()) {
        return Err(refusal(args, "group_size", &size.to_string(), "null"));
    }
    let strategy = args.text("strategy")?;
    if strategy.is_none() {
        notes.absent(args, "strategy", "tensor");
    }
    let scales = match (strategy, dynamic(args, notes)?) {
        (Some("token"), true) => ActivationScales::PerToken,
        (Some("tensor") | None, true) => ActivationScales::PerTensor,
        (Some("tensor") | None, false) => ActivationScales::Static,
        (Some(strategy), dynamic) => {
            let found = format!("{strategy} with dynamic {dynamic}");
            return Err(refusal(args, "strategy", &found, "token with dynamic true, or tensor"));
        }
    };
    Ok(Activations { scales, symmetric })
}

/// Checks what both kinds of arguments have in common.
fn int8(args: &Section<'_>, notes: &mut Notes) -> Result<()> {
    notes.unknown(args, KNOWN);
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

fn flag(args: &Section<'_>, notes: &mut Notes, key: &str, default: bool) -> Result<bool> {
    let found = args.boolean(key)?;
    if found.is_none() {
        notes.absent(args, key, if default { "true" } else { "false" });
    }
    Ok(found.unwrap_or(default))
}

fn dynamic(args: &Section<'_>, notes: &mut Notes) -> Result<bool> {
    if let Some(Value::String(kind)) = args.object().get("dynamic") {
        return Err(refusal(args, "dynamic", &format!("{kind:?}"), "true or false"));
    }
    flag(args, notes, "dynamic", false)
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
        let scales = match self.scales {
            ActivationScales::PerToken => "dynamic by token",
            ActivationScales::PerTensor => "dynamic by tensor",
            ActivationScales::Static => "static by tensor",
        };
        write!(f, "{scales}{}", if self.symmetric { "" } else { " with zero points" })
    }
}
