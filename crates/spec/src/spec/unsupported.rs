//! The kind of an architecture without a table, as far as a name or a key shows it.

use super::reader::Reader;
use crate::family::unsupported::{TELLING, UNSUPPORTED};

/// The kind of the architecture or the model type, if a table knows it or a key shows it.
pub(super) fn hint(reader: &Reader<'_>) -> Option<&'static str> {
    let (fields, architecture) = (reader.fields(), &reader.architecture);
    let known = |name: &str| UNSUPPORTED.iter().find(|(_, names)| names.contains(&plain(name).as_str()));
    if let Some((hint, _)) = reader.model_type.as_deref().and_then(known).or_else(|| known(without_head(architecture)))
    {
        return Some(hint);
    }
    let told = TELLING.iter().find(|(suffix, config, _)| {
        let (told, key) = match reader.is_gguf() {
            true => (suffix, format!("{architecture}{suffix}")),
            false => (config, (*config).to_owned()),
        };
        // A count of 0 and a flag that is false show nothing; a value of another type is checked where the key is read.
        let nothing = matches!(fields.unsigned(&key), Ok(Some(0))) || matches!(fields.boolean(&key), Ok(Some(false)));
        !told.is_empty() && fields.has(&key) && !nothing
    });
    told.map(|(_, _, hint)| *hint)
}

/// The class `MixtralForCausalLM` without its suffix for the task.
fn without_head(class: &str) -> &str {
    let cut = ["For", "LMHeadModel", "Model"].iter().filter_map(|head| class.find(head)).filter(|at| *at > 0).min();
    cut.map_or(class, |at| &class[..at])
}

/// The letters and digits of `name` in lower case.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::REGISTRY;
    use std::collections::HashSet;

    #[test]
    fn names_are_plain_and_unique_and_none_is_supported() {
        let mut seen = HashSet::new();
        for name in UNSUPPORTED.iter().flat_map(|(_, names)| names.iter().copied()) {
            assert_eq!(plain(name), name);
            assert!(seen.insert(name), "{name} is listed twice");
        }
        for family in REGISTRY {
            for name in family.gguf_architectures.iter().chain(family.model_types.iter().map(|(kind, _)| kind)) {
                assert!(!seen.contains(plain(name).as_str()), "{name} is supported");
            }
        }
    }

    #[test]
    fn classes_lose_what_they_are_for() {
        for (class, name) in [
            ("MixtralForCausalLM", "Mixtral"),
            ("GPT2LMHeadModel", "GPT2"),
            ("BertModel", "Bert"),
            ("mamba2", "mamba2"),
            ("Model", "Model"),
        ] {
            assert_eq!(without_head(class), name);
        }
    }
}
