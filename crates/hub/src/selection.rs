//! The names in a repository -> the files of one model.

use crate::error::HubError;
use crate::repository::{Fault, Mmproj};
use model_factory_format::HubId;
use model_factory_format::header::repository::{
    companion, is_dense_weights, is_gguf, is_other_vocabulary, is_safetensors, same_split, shards, stem,
};
use std::path::{Path, PathBuf};

/// The name of the safetensors model in an id, where there are other models.
const SAFETENSORS: &str = "safetensors";

/// What the names of the files of vision towers have in them.
const MMPROJ: &str = "mmproj";

/// The files of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// A GGUF file, or all parts of a split one, and the file of its vision tower, if that is wanted and there.
    Gguf { parts: Vec<String>, mmproj: Option<String> },
    /// The files of a safetensors folder.
    Safetensors,
    /// No model: the names of the files show why.
    Nothing,
}

struct Choice {
    selection: Selection,
    /// The file, or `safetensors`.
    name: String,
}

/// Selects the model that `id` means among the files `names`, which are sorted.
pub(super) fn select(names: &[String], id: &HubId) -> Result<Selection, Fault> {
    let choices = choices(names);
    let listed = |choices: &[&Choice]| choices.iter().map(|choice| choice.id(id, choices)).collect();
    let all: Vec<&Choice> = choices.iter().collect();
    let found: Vec<&Choice> = match id.wanted() {
        None => choices.iter().collect(),
        Some(wanted) => {
            let exact: Vec<&Choice> = choices.iter().filter(|choice| choice.is(wanted)).collect();
            if exact.is_empty() { choices.iter().filter(|choice| choice.is_of(wanted)).collect() } else { exact }
        }
    };
    match (found.as_slice(), id.wanted()) {
        ([one], _) => Ok(one.selection.clone()),
        ([], None) => Ok(Selection::Nothing),
        ([], Some(wanted)) => {
            let (repo, wanted) = (id.repo().into(), wanted.into());
            Err(HubError::NoSuchModel { repo, wanted, choices: listed(&all) }.into())
        }
        (several, None) => Err(Fault::Ambiguous(listed(several))),
        // Their common part does not tell them apart.
        (several, Some(_)) => {
            Err(Fault::Ambiguous(several.iter().map(|choice| choice.written(id, &choice.name)).collect()))
        }
    }
}

fn choices(names: &[String]) -> Vec<Choice> {
    let mut choices = Vec::new();
    // Next to GGUF files, safetensors are a model only with a config, as in a folder.
    let has_config = names.iter().any(|name| name == "config.json") || !names.iter().any(|name| is_gguf(name));
    if has_config && names.iter().any(|name| is_safetensors(name)) {
        choices.push(Choice { selection: Selection::Safetensors, name: SAFETENSORS.into() });
    }
    let mut groups: Vec<Vec<String>> = Vec::new();
    for name in names.iter().filter(|name| is_gguf(name)) {
        let group = groups.iter_mut().find(|group| {
            let (folder, file) = split(name);
            let (other_folder, other) = split(&group[0]);
            folder == other_folder && same_split(file, other)
        });
        match group {
            Some(group) => group.push(name.clone()),
            None => groups.push(vec![name.clone()]),
        }
    }
    // Projectors, draft heads and importance matrices are known by their names: no header has been read.
    let is_model = |group: &Vec<String>| {
        let stem = stem(split(&group[0]).1).to_ascii_lowercase();
        !stem.contains(MMPROJ) && !stem.starts_with("mtp-") && !stem.ends_with("imatrix")
    };
    if groups.iter().any(is_model) || !choices.is_empty() {
        groups.retain(is_model);
    }
    choices.extend(
        groups
            .into_iter()
            .map(|parts| Choice { name: parts[0].clone(), selection: Selection::Gguf { parts, mmproj: None } }),
    );
    choices
}

fn is_mmproj(name: &str) -> bool {
    is_gguf(name) && split(name).1.to_ascii_lowercase().contains(MMPROJ)
}

fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

impl Choice {
    fn is(&self, wanted: &str) -> bool {
        self.name == wanted || (self.selection == Selection::Safetensors && wanted.eq_ignore_ascii_case(SAFETENSORS))
    }

    /// Whether the name ends in `wanted`, a quantization.
    fn is_of(&self, wanted: &str) -> bool {
        let Selection::Gguf { .. } = self.selection else { return false };
        let stem = stem(split(&self.name).1).to_ascii_lowercase();
        let front = stem.strip_suffix(&wanted.to_ascii_lowercase());
        // `Q4_K_M` is not the end of `IQ4_K_M`, and `K_M` is not the end of `Q4_K_M`.
        front.is_some_and(|front| front.is_empty() || front.ends_with(['-', '.']))
    }

    /// The shortest id that names this model among `all`.
    fn id(&self, id: &HubId, all: &[&Choice]) -> String {
        let quantization = quantization(&stem(split(&self.name).1));
        let short = quantization.filter(|short| all.iter().filter(|choice| choice.is_of(short)).count() == 1);
        self.written(id, short.as_deref().unwrap_or(&self.name))
    }

    fn written(&self, id: &HubId, wanted: &str) -> String {
        let revision = id.revision().map(|revision| format!("@{revision}")).unwrap_or_default();
        format!("{}:{wanted}{revision}", id.repo())
    }
}

/// The end of a file's stem that names a quantization.
fn quantization(stem: &str) -> Option<String> {
    let last = stem.rsplit(['-', '.']).next()?;
    let upper = last.to_ascii_uppercase();
    let digit_after =
        |prefix: &str| upper.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    ["Q", "IQ", "TQ", "F", "BF", "FP", "MXFP"].iter().any(|prefix| digit_after(prefix)).then(|| last.into())
}

impl Selection {
    /// Adds the file of a GGUF model's vision tower, as `wanted`; safetensors have their tower in their own files.
    pub(super) fn with_mmproj(mut self, names: &[String], id: &HubId, wanted: Mmproj<'_>) -> Result<Selection, Fault> {
        let Selection::Gguf { parts, mmproj } = &mut self else { return Ok(self) };
        let folder = split(&parts[0]).0;
        let found: Vec<&String> = match wanted {
            Mmproj::Unused => Vec::new(),
            Mmproj::Named(wanted) => names.iter().filter(|name| *name == wanted).collect(),
            Mmproj::InFolder => {
                let own = |name: &String| split(name).0 == folder && !parts.contains(name);
                names.iter().filter(|name| is_mmproj(name) && own(name)).collect()
            }
        };
        match (found.as_slice(), wanted) {
            ([], Mmproj::Named(wanted)) => {
                let (repo, choices) =
                    (id.repo().into(), names.iter().filter(|name| is_mmproj(name)).cloned().collect());
                return Err(HubError::NoSuchModel { repo, wanted: wanted.into(), choices }.into());
            }
            ([], _) => {}
            ([one], _) => *mmproj = Some((*one).clone()),
            (several, _) => return Err(Fault::AmbiguousMmproj(several.iter().map(|name| (*name).clone()).collect())),
        }
        Ok(self)
    }

    /// The path to load when the files are in `folder`.
    pub(super) fn path(&self, folder: &Path) -> PathBuf {
        let first = match self {
            Selection::Gguf { parts, .. } => parts.first().map(String::as_str),
            // A folder of the cache may hold GGUF files too.
            Selection::Safetensors => Some("config.json").filter(|name| folder.join(name).exists()),
            Selection::Nothing => None,
        };
        first.map_or_else(|| folder.into(), |name| folder.join(name))
    }

    /// The files other than weights.
    pub(super) fn companions<'n>(&self, names: &'n [String]) -> Vec<&'n String> {
        if let Selection::Gguf { .. } = self {
            return Vec::new();
        }
        let complete = names.iter().any(|name| name == "tokenizer.json");
        let read = |name: &&String| companion(name).is_some() && !(complete && is_other_vocabulary(name));
        names.iter().filter(read).collect()
    }

    /// The files of weights; of a sharded model those in `names` that its index, which is in `folder`, names. An index
    /// that is missing or unreadable names none: a diagnosis of the folder reports the error.
    pub(super) fn weights(&self, names: &[String], folder: &Path) -> Vec<String> {
        match self {
            Selection::Nothing => Vec::new(),
            Selection::Gguf { parts, mmproj } => parts.iter().chain(mmproj).cloned().collect(),
            Selection::Safetensors => {
                let index = |name: &&String| !name.contains('/') && name.ends_with(".safetensors.index.json");
                let index = names.iter().filter(index).find(|name| !name.starts_with("consolidated"));
                let has = |name: &String| names.binary_search(name).is_ok();
                let mut weights: Vec<String> = match index {
                    Some(index) => shards(&folder.join(index)).unwrap_or_default().into_iter().filter(has).collect(),
                    None if has(&"model.safetensors".into()) => vec!["model.safetensors".into()],
                    None => names.iter().filter(|name| is_safetensors(name)).cloned().collect(),
                };
                weights.extend(names.iter().filter(|name| is_dense_weights(name)).cloned());
                weights
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        let mut names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
        names.sort();
        names
    }

    /// The selection, or the message of an error and the ids of the models that it lists.
    fn chosen(files: &[&str], id: &str) -> Result<Selection, (String, Vec<String>)> {
        select(&names(files), &HubId::parse(id).unwrap()).map_err(|fault| match fault {
            Fault::Hub(HubError::NoSuchModel { repo, wanted, choices }) => (format!("no {wanted} in {repo}"), choices),
            Fault::Hub(error) => (error.to_string(), Vec::new()),
            Fault::Ambiguous(ids) | Fault::AmbiguousMmproj(ids) => ("several".into(), ids),
        })
    }

    fn gguf(parts: &[&str]) -> Result<Selection, (String, Vec<String>)> {
        Ok(Selection::Gguf { parts: names(parts), mmproj: None })
    }

    const QUANTIZED: [&str; 7] = [
        "README.md",
        "M-Q4_K_M.gguf",
        "M-UD-Q4_K_M.gguf",
        "M.IQ4_XS.gguf",
        "Q8_0/M-Q8_0-00001-of-00002.gguf",
        "Q8_0/M-Q8_0-00002-of-00002.gguf",
        "mmproj-M-F16.gguf",
    ];

    #[test]
    fn a_quantization_is_the_end_of_a_name() {
        assert_eq!(chosen(&QUANTIZED, "o/m:IQ4_XS"), gguf(&["M.IQ4_XS.gguf"]));
        assert_eq!(chosen(&QUANTIZED, "o/m:iq4_xs"), gguf(&["M.IQ4_XS.gguf"]));
        assert_eq!(chosen(&QUANTIZED, "o/m:Q8_0"), gguf(&[QUANTIZED[4], QUANTIZED[5]]), "split files come whole");
        assert_eq!(chosen(&QUANTIZED, "o/m:M-Q4_K_M.gguf"), gguf(&["M-Q4_K_M.gguf"]));
        assert_eq!(chosen(&QUANTIZED, "o/m:UD-Q4_K_M"), gguf(&["M-UD-Q4_K_M.gguf"]));
        for wanted in ["Q4_XS", "K_M", "Q5_0", "F16", "README.md"] {
            let choices = ["o/m:M-Q4_K_M.gguf", "o/m:M-UD-Q4_K_M.gguf", "o/m:IQ4_XS", "o/m:Q8_0"];
            let expected = Err((format!("no {wanted} in o/m"), choices.map(str::to_owned).to_vec()));
            assert_eq!(chosen(&QUANTIZED, &format!("o/m:{wanted}")), expected, "{wanted}");
        }
    }

    #[test]
    fn several_models_and_none_named_are_listed() {
        let ids = |ids: &[&str]| Err(("several".into(), ids.iter().map(|id| (*id).into()).collect()));
        assert_eq!(chosen(&["a-Q4_0.gguf", "a-Q8_0.gguf"], "o/m@dev"), ids(&["o/m:Q4_0@dev", "o/m:Q8_0@dev"]));
        let mixed = ["a-f16.gguf", "model.safetensors", "config.json"];
        assert_eq!(chosen(&mixed, "o/m"), ids(&["o/m:safetensors", "o/m:f16"]));
        assert_eq!(chosen(&mixed, "o/m:safetensors"), Ok(Selection::Safetensors));
        let alike = ids(&["o/m:M-Q4_K_M.gguf", "o/m:M-UD-Q4_K_M.gguf"]);
        assert_eq!(chosen(&QUANTIZED, "o/m:Q4_K_M"), alike);
        assert_eq!(chosen(&["a.gguf", "mmproj-a.gguf", "a-imatrix.gguf"], "o/m"), gguf(&["a.gguf"]));
    }

    #[test]
    fn a_vision_tower_is_the_one_in_the_folder_or_the_one_that_is_named() {
        let files = names(&["q4/a.gguf", "q4/a.MMPROJ.gguf", "mmproj.gguf", "q4/mmproj-readme.md", "q4/b/mmproj.gguf"]);
        let id = HubId::parse("o/m").unwrap();
        let with = |wanted| {
            select(&files, &id)
                .unwrap()
                .with_mmproj(&files, &id, wanted)
                .map(|found| found.weights(&files, "".as_ref()))
        };
        assert_eq!(with(Mmproj::Unused).unwrap(), ["q4/a.gguf"]);
        assert_eq!(with(Mmproj::InFolder).unwrap(), ["q4/a.gguf", "q4/a.MMPROJ.gguf"]);
        assert_eq!(with(Mmproj::Named("mmproj.gguf")).unwrap(), ["q4/a.gguf", "mmproj.gguf"]);
        let Err(Fault::Hub(HubError::NoSuchModel { choices, .. })) = with(Mmproj::Named("q4/mmproj.gguf")) else {
            panic!()
        };
        assert_eq!(choices, ["mmproj.gguf", "q4/a.MMPROJ.gguf", "q4/b/mmproj.gguf"]);
    }

    #[test]
    fn no_pickle_is_ever_selected() {
        let files = ["config.json", "pytorch_model.bin", "tokenizer.json", "tokenizer.model", "training_args.bin"];
        let selection = chosen(&files, "o/m").unwrap();
        assert_eq!(selection, Selection::Nothing);
        assert_eq!(selection.companions(&names(&files)), ["config.json", "tokenizer.json"]);
        assert_eq!(selection.weights(&names(&files), Path::new("/nowhere")), Vec::<String>::new());
        let weights = names(&["model.safetensors", "pytorch_model.bin", "model.fp16.safetensors"]);
        assert_eq!(Selection::Safetensors.weights(&weights, Path::new("/nowhere")), ["model.safetensors"]);
    }
}
