//! The kind of an architecture without a table, as far as a name or a key shows it.

use super::reader::Reader;

/// The kinds of unsupported architectures, with their names and keys. The file says how it is read.
const TABLE: &str = include_str!("../family/unsupported.txt");

/// The indented lines of the table, each after its kind.
fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut kind = "";
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(move |line| {
        let words = line.strip_prefix("    ");
        kind = words.map_or(line, |_| kind);
        words.map(|words| (kind, words))
    })
}

/// The kind of the architecture or the model type, if the table knows it or a key shows it.
pub(super) fn hint(reader: &Reader<'_>) -> Option<&'static str> {
    let (fields, architecture) = (reader.fields(), &reader.architecture);
    let known = |name: &str| {
        let name = plain(name);
        rows().find(|(_, names)| names.split(' ').any(|known| known == name))
    };
    let shows = |key: &str| {
        let key = match (reader.is_gguf(), key.starts_with('.')) {
            (true, true) => format!("{architecture}{key}"),
            (false, false) => key.to_owned(),
            _ => return false,
        };
        // A count of 0 and a flag that is false show nothing; a value of another type is checked where the key is read.
        let nothing = matches!(fields.unsigned(&key), Ok(Some(0))) || matches!(fields.boolean(&key), Ok(Some(false)));
        fields.has(&key) && !nothing
    };
    let shown = || rows().find(|(_, words)| words.strip_prefix("keys ").is_some_and(|keys| keys.split(' ').any(shows)));
    let named = reader.model_type.as_deref().and_then(known).or_else(|| known(without_head(architecture)));
    named.or_else(shown).map(|(kind, _)| kind)
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
        for name in rows().filter(|(_, words)| !words.starts_with("keys ")).flat_map(|(_, names)| names.split(' ')) {
            assert!(plain(name) == name && !name.is_empty(), "{name}");
            assert!(seen.insert(name), "{name} is listed twice");
        }
        // Of those that are in GGUF alone the safetensors are listed.
        for family in REGISTRY.iter().filter(|family| !family.model_types.is_empty()) {
            for name in family.gguf_architectures.iter().chain(family.model_types.iter().map(|(kind, _)| kind)) {
                assert!(!seen.contains(plain(name).as_str()), "{name} is supported");
            }
        }
    }

    #[test]
    fn every_kind_has_names_and_keys_are_in_the_order_in_which_they_count() {
        let kinds = TABLE.lines().filter(|line| !line.starts_with(['#', ' ']));
        for kind in kinds {
            let names = rows().filter(|(known, words)| *known == kind && !words.starts_with("keys "));
            assert!(names.count() > 0 && !kind.is_empty(), "{kind:?}");
        }
        let keys = rows().filter_map(|(kind, words)| Some((kind, words.strip_prefix("keys ")?)));
        let kinds: Vec<_> = keys.map(|(kind, _)| kind.split(';').next().unwrap_or_default()).collect();
        assert_eq!(
            kinds,
            [
                "a wrapper of a language model that also sees or hears",
                "an encoder-decoder",
                "a state-space or recurrent model, or a hybrid with one",
                "a mixture of experts that is routed or built otherwise",
                "an encoder: it does not generate text",
            ]
        );
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
