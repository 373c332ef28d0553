//! Text before and after a place -> the prompt that asks for what is between: fill in the middle (Bavarian et al. 2022, section 3).

use super::Tokenizer;
use crate::error::{EncodeError, Result};
use std::ops::Range;

/// The tokens around the parts of such a prompt.
struct Marks {
    prefix: &'static str,
    suffix: &'static str,
    /// The token after both parts. Without one the suffix comes first, and the prefix is continued.
    middle: Option<&'static str>,
}

const fn marks(prefix: &'static str, suffix: &'static str, middle: &'static str) -> Marks {
    Marks { prefix, suffix, middle: Some(middle) }
}

/// By the model cards of the first models that had each; a vocabulary with several has what it was trained with first.
const MARKS: [Marks; 7] = [
    marks("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), // CodeGemma, Qwen2.5-Coder, Granite 4
    marks("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),       // StarCoder, Granite 3
    marks("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),       // SantaCoder
    marks("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), // DeepSeek-Coder
    marks("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"), // CodeGeeX4, GLM-4
    marks("▁<PRE>", "▁<SUF>", "▁<MID>"),                         // CodeLlama
    Marks { prefix: "[PREFIX]", suffix: "[SUFFIX]", middle: None }, // Codestral
];

/// Other tokens that only end what was filled in: of padding, and of the files and repositories that follow in training.
const ENDS: [&str; 9] = [
    "<|fim_pad|>",
    "<|file_sep|>",
    "<|file_separator|>",
    "<|repo_name|>",
    "<fim_pad>",
    "<file_sep>",
    "<filename>",
    "<reponame>",
    "▁<EOT>",
];

/// The tokens in front of the name of a repository, and of that of a file in it.
const REPOSITORY: [&str; 3] = ["<|repo_name|>", "<repo_name>", "<reponame>"];
const FILE: [&str; 4] = ["<|file_sep|>", "<|file_separator|>", "<file_sep>", "<filename>"];

impl Tokenizer {
    /// The prompt whose continuation is the text between `prefix` and `suffix`, and the spans of its tokens: neither part can spell
    /// one.
    ///
    /// # Errors
    /// `Encode` with [`EncodeError::NoInfill`], where the vocabulary has no tokens for it.
    #[doc(hidden)]
    pub fn infill_prompt(&self, prefix: &str, suffix: &str) -> Result<(String, Vec<Range<usize>>)> {
        self.infill_prompt_after(&[], prefix, suffix)
    }

    /// As [`infill_prompt`](Self::infill_prompt), after other `files`, each with its name and its text: as parts of a repository where
    /// the vocabulary has tokens for that (Hui et al. 2024, section 3.2), with llama.cpp's names for it and for the file to be filled in.
    ///
    /// # Errors
    /// Those of [`infill_prompt`](Self::infill_prompt).
    #[doc(hidden)]
    pub fn infill_prompt_after(
        &self,
        files: &[(String, String)],
        prefix: &str,
        suffix: &str,
    ) -> Result<(String, Vec<Range<usize>>)> {
        let Marks { prefix: before, suffix: after, middle } = self.infill_marks().ok_or(EncodeError::NoInfill)?;
        let (mut text, mut spans) = (String::new(), Vec::new());
        let mut add = |mark: &str, parts: [&str; 3]| {
            if !mark.is_empty() {
                // Spans do not touch.
                match spans.last_mut() {
                    Some(Range { end, .. }) if *end == text.len() => *end += mark.len(),
                    _ => spans.push(text.len()..text.len() + mark.len()),
                }
            }
            text += mark;
            parts.into_iter().for_each(|part| text += part);
        };
        let known = |marks: &[&'static str]| marks.iter().copied().find(|mark| self.added_token(mark).is_some());
        let file = known(&FILE);
        if let (Some(repository), Some(_), false) = (known(&REPOSITORY), file, files.is_empty()) {
            add(repository, ["myproject\n", "", ""]);
        }
        for (name, content) in files {
            match file {
                Some(mark) => add(mark, [name, "\n", content]),
                None => add("", ["\n\n--- snippet ---\n\n", content, ""]),
            }
        }
        if let (Some(mark), false) = (file, files.is_empty()) {
            add(mark, ["filename\n", "", ""]);
        }
        match middle {
            Some(middle) => {
                add(before, [prefix, "", ""]);
                add(after, [suffix, "", ""]);
                add(middle, ["", "", ""]);
            }
            None => {
                add(after, [suffix, "", ""]);
                add(before, [prefix, "", ""]);
            }
        }
        Ok((text, spans))
    }

    /// The tokens that end what is filled in, besides the model's own stop tokens.
    #[doc(hidden)]
    pub fn infill_stops(&self) -> Vec<u32> {
        let marks = self.infill_marks().into_iter().flat_map(|of| [Some(of.prefix), Some(of.suffix), of.middle]);
        marks.flatten().chain(ENDS).filter_map(|mark| self.added_token(mark)).collect()
    }

    fn infill_marks(&self) -> Option<&'static Marks> {
        let has = |mark: &str| self.added_token(mark).is_some();
        MARKS.iter().find(|of| has(of.prefix) && has(of.suffix) && of.middle.is_none_or(has))
    }
}
