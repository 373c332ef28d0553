//! A model of the Hugging Face Hub, as programs name it.

use super::commands::quoted;
use serde::Serialize;
use std::fmt;

/// A model of the Hugging Face Hub: `org/name`, and where it was asked for `:quantization` and `@revision`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HubModel {
    /// `org/name`.
    pub repo: String,
    /// The quantization or the file that was asked for.
    pub wanted: Option<String>,
    /// The branch, tag or commit that was asked for.
    pub revision: Option<String>,
    /// The GGUF file, or all parts of a split one, by their names in the repository; empty of other models.
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

impl HubModel {
    /// What llama.cpp's programs take for it. They know no revisions, so that of one is downloaded by another.
    pub(super) fn of_llama_cpp(&self) -> String {
        let HubModel { repo, wanted, revision, files } = self;
        let first = files.first().map(String::as_str).unwrap_or_default();
        let (repo, revision) = (quoted(repo), revision.as_deref().map(quoted));
        match (revision, wanted) {
            (Some(revision), _) => {
                let names: Vec<String> = files.iter().map(|file| quoted(file)).collect();
                let download = format!("$(hf download {repo} {} --revision {revision} --quiet)", names.join(" "));
                // That prints the path of one file, and the folder of several.
                let inside = if files.len() > 1 { format!("/{}", quoted(first)) } else { String::new() };
                format!("--model \"{download}\"{inside}")
            }
            (None, Some(wanted)) if !wanted.ends_with(".gguf") => format!("-hf {repo}:{}", quoted(wanted)),
            (None, _) => format!("--hf-repo {repo} --hf-file {}", quoted(first)),
        }
    }

    /// What vLLM takes for it.
    pub(super) fn of_vllm(&self) -> String {
        let revision = self.revision.as_ref().map(|revision| format!(" --revision {}", quoted(revision)));
        quoted(&self.repo) + &revision.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_given_what_they_take_for_an_id() {
        let split = ["Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf"];
        for (wanted, revision, files, expected) in [
            (Some("Q8_0"), None, &split as &[&str], "-hf org/name:Q8_0"),
            (Some("it's"), None, &["m-it's.gguf"], r"-hf org/name:'it'\''s'"),
            (None, None, &["m-Q8_0.gguf"], "--hf-repo org/name --hf-file m-Q8_0.gguf"),
            (Some("a b.gguf"), None, &["a b.gguf"], "--hf-repo org/name --hf-file 'a b.gguf'"),
            (
                Some("Q4_0"),
                Some("v1"),
                &["m-Q4_0.gguf"],
                r#"--model "$(hf download org/name m-Q4_0.gguf --revision v1 --quiet)""#,
            ),
            (
                None,
                Some("refs/pr/1"),
                &split,
                concat!(
                    r#"--model "$(hf download org/name Q8_0/m-Q8_0-00001-of-00002.gguf "#,
                    r#"Q8_0/m-Q8_0-00002-of-00002.gguf --revision refs/pr/1 --quiet)"/Q8_0/m-Q8_0-00001-of-00002.gguf"#
                ),
            ),
        ] {
            let own = |text: Option<&str>| text.map(str::to_owned);
            let files = files.iter().map(|file| (*file).into()).collect();
            let model = HubModel { repo: "org/name".into(), wanted: own(wanted), revision: own(revision), files };
            assert_eq!(model.of_llama_cpp(), expected, "{model}");
        }
    }
}
