//! The arguments of one group: `weights` and `input_activations`.

use super::super::scheme::{Activations, Notes, Packed, WeightScales};
use super::{quoted, refusal};
use crate::error::Result;
use crate::header::Fields;
use crate::header::config::Section;
use serde_json::Value;

/// Every key of an arguments object, in any version.
const KNOWN: &str = "num_bits type symmetric strategy group_size block_structure dynamic actorder observer observer_kwargs \
                     scale_dtype zp_dtype";

/// Numbers of 8 bits of this `kind`: an `int` that is multiplied with integers, or a `float`.
pub(super) fn weights(args: &Section<'_>, kind: &str, notes: &mut Notes) -> Result<WeightScales> {
    bits(args, &[8], kind, notes)?;
    if !flag(args, notes, "symmetric", true)? {
        return Err(refusal(args, "symmetric", "false", "true: weights have no zero points"));
    }
    scales(args, kind, notes)
}

/// Integers that are packed into words and multiplied with floats.
pub(super) fn packed(args: &Section<'_>, notes: &mut Notes) -> Result<Packed> {
    let bits = bits(args, &[4, 8], "int", notes)?;
    let symmetric = flag(args, notes, "symmetric", true)?;
    match scales(args, "int", notes)? {
        WeightScales::Tensor => Err(refusal(args, "strategy", "tensor", "channel, or group with its size")),
        scales => Ok(Packed { bits, symmetric, scales }),
    }
}

/// Floats of 4 bits with a scale for each group of this `size`.
pub(super) fn fp4(args: &Section<'_>, size: u64, notes: &mut Notes) -> Result<()> {
    bits(args, &[4], "float", notes)?;
    let expected = if size == 16 { "tensor_group" } else { "group" };
    let strategy = args.text("strategy")?.unwrap_or(expected);
    let group = args.unsigned("group_size")?;
    if strategy != expected || group != Some(size) {
        let group = group.map_or("no group_size".to_owned(), |group| format!("group_size {group}"));
        let expected = format!("{expected} with group_size {size}");
        return Err(refusal(args, "strategy", &format!("{strategy} with {group}"), &expected));
    }
    if !flag(args, notes, "symmetric", true)? {
        return Err(refusal(args, "symmetric", "false", "true: weights have no zero points"));
    }
    match dynamic(args, notes)? {
        true => Err(refusal(args, "dynamic", "true", "false: weights are stored quantised")),
        false => Ok(()),
    }
}

/// How many stored weights of this `kind` share a scale; only those of floats come in blocks.
fn scales(args: &Section<'_>, kind: &str, notes: &mut Notes) -> Result<WeightScales> {
    if dynamic(args, notes)? {
        return Err(refusal(args, "dynamic", "true", "false: weights are stored quantised"));
    }
    let strategy = args.text("strategy")?;
    if kind == "float" && strategy == Some("block") {
        let found = args.integers("block_structure")?.unwrap_or_default();
        return WeightScales::of_block(&found)
            .ok_or_else(|| refusal(args, "block_structure", &format!("{found:?}"), "outputs and inputs of a block"));
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
    bits(args, &[8], "int", notes)?;
    let symmetric = flag(args, notes, "symmetric", true)?;
    if let Some(size) = args.object().get("group_size").filter(|size| !size.is_null()) {
        return Err(refusal(args, "group_size", &size.to_string(), "null"));
    }
    let strategy = args.text("strategy")?;
    if strategy.is_none() {
        notes.absent(args, "strategy", "tensor");
    }
    match (strategy, dynamic(args, notes)?) {
        (Some("token"), true) => Ok(Activations::PerToken { symmetric }),
        (Some("tensor") | None, true) => Ok(Activations::PerTensor { symmetric }),
        (Some("tensor") | None, false) => Ok(Activations::Static { scale: (), zero_point: (!symmetric).then_some(()) }),
        (Some(strategy), dynamic) => {
            let found = format!("{strategy} with dynamic {dynamic}");
            Err(refusal(args, "strategy", &found, "token with dynamic true, or tensor"))
        }
    }
}

/// The bits of numbers of this `kind`, of which some `run`; checks what all kinds of arguments have in common.
pub(super) fn bits(args: &Section<'_>, run: &[u32], kind: &str, notes: &mut Notes) -> Result<u32> {
    notes.unknown(args, KNOWN);
    let number = |bits: &Value| run.iter().copied().find(|run| bits.as_u64() == Some((*run).into()));
    let bits = match args.object().get("num_bits") {
        None | Some(Value::Null) => {
            notes.absent(args, "num_bits", "8");
            8
        }
        Some(Value::Object(_)) => return Err(refusal(args, "num_bits", "a map", "one number for a group")),
        Some(found) => match number(found) {
            Some(bits) => bits,
            None => {
                let expected: Vec<String> = run.iter().map(u32::to_string).collect();
                return Err(refusal(args, "num_bits", &found.to_string(), &expected.join(" or ")));
            }
        },
    };
    match args.text("type")? {
        None if kind == "int" => notes.absent(args, "type", kind),
        Some(found) if found == kind => {}
        found => return Err(refusal(args, "type", &quoted(found), kind)),
    }
    Ok(bits)
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
