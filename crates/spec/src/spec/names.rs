//! Names of tensors: patterns with the number of a layer, and the names nearest to a missing one.

use crate::family::{Family, FusedName, Role, TensorName};

impl Family {
    /// The names of the tensor of `role`, if the tables have any.
    pub(crate) fn name_of(&self, role: Role) -> Option<&'static TensorName> {
        self.names_of(role).next()
    }

    /// All names of the tensor of `role`.
    pub(crate) fn names_of(&self, role: Role) -> impl Iterator<Item = &'static TensorName> {
        self.tensors.iter().copied().flatten().filter(move |names| names.role == role)
    }
}

impl FusedName {
    pub(crate) const fn new(roles: &'static [Role], gguf: &'static str, config: &'static str) -> FusedName {
        FusedName { roles, gguf, config }
    }
}

/// `pattern` with the number of the layer filled in.
pub(super) fn fill(pattern: &str, layer: Option<usize>) -> String {
    match layer {
        Some(layer) => pattern.replace("{}", &layer.to_string()),
        None => pattern.to_owned(),
    }
}

/// The rest of `name` after `pattern`, in which `{}` and `{expert}` stand for numbers: empty, or separated by a dot.
pub(super) fn suffix<'n>(name: &'n str, pattern: &str) -> Option<&'n str> {
    let mut rest = name;
    for (index, part) in pattern.split(['{', '}']).enumerate() {
        rest = match index % 2 {
            0 => rest.strip_prefix(part)?,
            _ => rest.trim_start_matches(|c: char| c.is_ascii_digit()),
        };
    }
    (!pattern.is_empty() && (rest.is_empty() || rest.starts_with('.'))).then_some(rest)
}

/// The three names that share the most with `name`: the longest common prefix and suffix together.
pub(crate) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n String>) -> Vec<String> {
    let common = |other: &str| {
        let prefix = name.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
        let suffix = name.bytes().rev().zip(other.bytes().rev()).take_while(|(a, b)| a == b).count();
        prefix + suffix
    };
    let mut scored: Vec<(usize, &String)> = names.map(|other| (common(other), other)).collect();
    scored.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, other)| other.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_after_a_module_is_a_part_of_its_own() {
        for (name, pattern, expected) in [
            (
                "model.layers.12.mlp.experts.3.up_proj.weight",
                "model.layers.{}.mlp.experts.{expert}.up_proj",
                Some(".weight"),
            ),
            ("blk.0.ffn_down_exps.scale", "blk.{}.ffn_down_exps", Some(".scale")),
            ("blk.0.ffn_down_exps.scale", "blk.{}.ffn_down_exps.scale", Some("")),
            ("blk.0.ffn_down_exps.scale", "blk.{}.ffn_down", None),
            ("blk.0.attn_k.weight", "blk.{}.attn_q", None),
            (".weight", "", None),
        ] {
            assert_eq!(suffix(name, pattern), expected, "{name} by {pattern}");
        }
    }
}
