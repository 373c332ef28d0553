//! Names of tensors: those of a table's roles, and what is near one that is not there.

use crate::family::{Family, Role};

/// Whether the tables of `family` name a tensor of `role`.
pub(super) fn names(family: &Family, role: Role) -> bool {
    family.tensors.iter().copied().flatten().any(|names| names.role == role)
}

/// `pattern` with the number of the layer.
pub(super) fn fill(pattern: &str, layer: Option<usize>) -> String {
    match layer {
        Some(layer) => pattern.replace("{}", &layer.to_string()),
        None => pattern.to_owned(),
    }
}

/// The three names that share the most with `name`: the longest common prefix and suffix together.
pub(super) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n String>) -> Vec<String> {
    let common = |other: &str| {
        let prefix = name.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
        let suffix = name.bytes().rev().zip(other.bytes().rev()).take_while(|(a, b)| a == b).count();
        prefix + suffix
    };
    let mut scored: Vec<(usize, &String)> = names.map(|other| (common(other), other)).collect();
    scored.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, other)| other.clone()).collect()
}
