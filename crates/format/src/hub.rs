//! A text -> the id of a model on the Hugging Face Hub, and the files that were chosen from it.

use serde::Serialize;
use std::fmt;

/// The most characters of an organization's or a repository's name.
const NAME: usize = 96;

/// The most characters of a revision.
const REVISION: usize = 255;

/// An id of the form `org/name`, optionally with `:quantization` and `@revision`.
///
/// ```
/// use model_factory_format::HubId;
///
/// let id = HubId::parse("org/name-GGUF:Q4_K_M@main").ok_or("no id")?;
/// assert_eq!((id.repo(), id.wanted(), id.revision()), ("org/name-GGUF", Some("Q4_K_M"), Some("main")));
/// assert!(HubId::parse("models/name.gguf").is_none());
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HubId(HubModel);

impl HubId {
    /// Parses an id; `None` when `text` can only be a path: it does not have exactly one slash before the quantization,
    /// or has the extension of a model file.
    pub fn parse(text: &str) -> Option<HubId> {
        let (repo, rest) = text.find([':', '@']).map_or((text, ""), |at| text.split_at(at));
        let (org, name) = repo.split_once('/')?;
        let path = ["gguf", "safetensors", "json", "git"].iter().any(|ext| name.rsplit('.').next() == Some(ext));
        if path || !is_name(org) || !is_name(name) {
            return None;
        }
        let (wanted, revision) = match rest.split_at_checked(1) {
            None => (None, None),
            Some((":", rest)) => match rest.split_once('@') {
                Some((wanted, revision)) => (Some(wanted), Some(revision)),
                None => (Some(rest), None),
            },
            Some((_, rest)) => match rest.split_once(':') {
                Some((revision, wanted)) => (Some(wanted), Some(revision)),
                None => (None, Some(rest)),
            },
        };
        let sound = wanted.is_none_or(|text| !text.is_empty() && !text.chars().any(char::is_control))
            && revision.is_none_or(is_revision);
        let own = |part: Option<&str>| part.map(str::to_owned);
        let (repo, wanted, revision) = (repo.into(), own(wanted), own(revision));
        sound.then(|| HubId(HubModel { repo, wanted, revision, files: Vec::new() }))
    }

    /// The same id with `revision`, if it has none.
    pub fn or_revision(&self, revision: Option<&str>) -> HubId {
        let revision = self.0.revision.clone().or_else(|| revision.map(str::to_owned));
        HubId(HubModel { revision, ..self.0.clone() })
    }

    /// The model, and the `files` that were chosen from it.
    pub fn model(&self, files: Vec<String>) -> HubModel {
        HubModel { files, ..self.0.clone() }
    }

    /// The repository, `org/name`.
    pub fn repo(&self) -> &str {
        &self.0.repo
    }

    /// The quantization or the file after the colon.
    pub fn wanted(&self) -> Option<&str> {
        self.0.wanted.as_deref()
    }

    /// The branch, tag or commit after the `@`.
    pub fn revision(&self) -> Option<&str> {
        self.0.revision.as_deref()
    }
}

impl fmt::Display for HubId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A model of the Hugging Face Hub: `org/name`, and the requested `:quantization` and `@revision`, if any.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct HubModel {
    /// The repository, `org/name`.
    pub repo: String,
    /// The requested quantization or file.
    pub wanted: Option<String>,
    /// The requested branch, tag or commit.
    pub revision: Option<String>,
    /// The GGUF file, or all parts of a split one, by their names in the repository; empty for other models.
    pub files: Vec<String>,
}

impl fmt::Display for HubModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repo)?;
        if let Some(wanted) = &self.wanted {
            write!(f, ":{wanted}")?;
        }
        self.revision.as_ref().map_or(Ok(()), |revision| write!(f, "@{revision}"))
    }
}

/// Whether `text` can be one component of a repository's id.
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edge = |c: char| matches!(c, '-' | '.');
    let sound = !text.is_empty() && text.len() <= NAME && text.chars().all(plain);
    sound && !text.starts_with(edge) && !text.ends_with(edge) && !text.contains("--") && !text.contains("..")
}

/// Whether `text` can be a branch, a tag, a commit or `refs/pr/N`; the cache has a file of that name.
pub fn is_revision(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(plain);
    text.len() <= REVISION && text.split('/').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_told_from_paths() {
        let parts = |text: &str| {
            HubId::parse(text).map(|id| (id.0.repo.clone(), id.0.wanted.clone(), id.0.revision.clone(), id.to_string()))
        };
        let some = |text: &str| Some(text.to_owned());
        for (text, wanted, revision) in [
            ("org/name", None, None),
            ("org/name:Q4_K_M", some("Q4_K_M"), None),
            ("org/name:sub/file.gguf", some("sub/file.gguf"), None),
            ("org/name@refs/pr/1", None, some("refs/pr/1")),
            ("org/name:Q8_0@v1.0", some("Q8_0"), some("v1.0")),
        ] {
            assert_eq!(parts(text), Some(("org/name".into(), wanted, revision, text.into())), "{text}");
        }
        let other_order = parts("org/name@main:Q8_0").unwrap();
        assert_eq!(
            (other_order.1, other_order.2, other_order.3),
            (some("Q8_0"), some("main"), "org/name:Q8_0@main".into())
        );
    }

    #[test]
    fn what_can_only_be_a_path_is_no_id() {
        let paths = [
            "",
            "name",
            "/org/name",
            "./name",
            "../name",
            "~/name",
            "a/b/c",
            "org/",
            "/name",
            "org/name.gguf",
            "org/a b",
            "org/model.safetensors",
            "org/config.json",
            "C:/models",
            "org\\name",
            "org/-name",
            "org/na--me",
            "org/na..me",
            "org/name:",
            "org/name@",
            "org/name@../main",
            "org/name@a//b",
            "org/name@.",
            "org/name:Q4\n",
            "org/name@a b",
        ];
        for text in paths {
            assert_eq!(HubId::parse(text), None, "{text:?}");
        }
        assert_eq!(HubId::parse(&format!("org/{}", "a".repeat(97))), None);
        assert_eq!(HubId::parse(&format!("org/name@{}", "a".repeat(256))), None);
    }
}
