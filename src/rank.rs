//! A query and documents -> how well each document answers it, by a model that says yes or no or has a classification head.

use crate::embed::ClassifyOptions;
use crate::error::{EmbedError, Error, Result};
use crate::model::Model;
use model_factory_diagnostics::spec::ScoreActivation;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;

/// How a model judges how well a document answers a query.
///
/// In JSON, an unknown name is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[must_use]
pub struct Reranker {
    /// The prompt with the question; without one, the pair of both texts is used.
    #[serde(default)]
    prompt: Option<String>,
    answer: Answer,
    #[serde(default)]
    truncate: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// The probability that the next token is `yes` rather than `no`.
    Tokens { yes: String, no: String },
    /// The scores of the classification head.
    Labels,
}

crate::generate::setters! {
    Reranker:
    /// Asks by `prompt`, in which `{query}` and `{document}` stand for the texts. This is for classification heads of decoders,
    /// whose tokenizers join no texts.
    prompt(prompt: impl Into<String>) => prompt = Some(prompt.into());
    /// Cuts pairs that are too long instead of failing: the end of the longer text, then that of both, as sentence-transformers
    /// does. Texts in a prompt are never cut.
    truncate(truncate: bool) => truncate = truncate;
}

impl Reranker {
    /// Asks by `prompt`, in which `{query}` and `{document}` stand for the texts, if the next token is `yes` or `no`: entries of
    /// the vocabulary as its file spells them. No file says them, only the model's makers do. If a model has labels of these
    /// names in place of an output head, as llama.cpp's converter makes it, the labels are read.
    pub fn new(prompt: impl Into<String>, yes: impl Into<String>, no: impl Into<String>) -> Reranker {
        let answer = Answer::Tokens { yes: yes.into(), no: no.into() };
        Reranker { prompt: Some(prompt.into()), answer, truncate: false }
    }

    /// Asks like the model card of Qwen3-Reranker whether a document meets a query by `instruction`. Its default is
    /// `Given a web search query, retrieve relevant passages that answer the query`.
    pub fn qwen3(instruction: &str) -> Reranker {
        let prompt = format!(
            "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct \
             provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: \
             {instruction}\n<Query>: {{query}}\n<Document>: {{document}}<|im_end|>\n<|im_start|>assistant\n<think>\n\n\
             </think>\n\n"
        );
        Reranker::new(prompt, "yes", "no")
    }

    /// Reads the score that the classification head (`...ForSequenceClassification`) gives the query and the document, joined by
    /// the tokenizer: for cross-encoders, such as `bge-reranker` and `ms-marco-MiniLM`.
    pub fn classifier() -> Reranker {
        Reranker { prompt: None, answer: Answer::Labels, truncate: false }
    }

    /// `prompt` about `document`, and the spans that are the prompt's own: special tokens are only there. Placeholders in a query
    /// or a document are not replaced.
    fn ask(prompt: &str, query: &str, document: &str) -> (String, Vec<Range<usize>>) {
        let texts = HashMap::from([("{query}", query), ("{document}", document)]);
        let (mut asked, mut own, mut rest) = (String::new(), Vec::new(), prompt);
        loop {
            let next = texts.keys().filter_map(|place| Some((rest.find(place)?, place))).min();
            let end = next.map_or(rest.len(), |(at, _)| at);
            // Spans must not touch, and nothing lies between two of them where a text is empty.
            match own.last_mut() {
                Some(Range { end: last, .. }) if *last == asked.len() => *last += end,
                _ if end > 0 => own.push(asked.len()..asked.len() + end),
                _ => {}
            }
            asked.push_str(&rest[..end]);
            let Some((at, place)) = next else { return (asked, own) };
            asked.push_str(texts[place]);
            rest = &rest[at + place.len()..];
        }
    }
}

impl Model {
    /// How well each of `documents` answers `query`, in their order. If the model says yes or no, this is the probability of yes,
    /// between 0 and 1: the softmax of the two. Otherwise it is the score of the head's one label, between 0 and 1 by a sigmoid
    /// unless `config_sentence_transformers.json` or `config.json` names `Identity`, which no GGUF file can. What prompts have in
    /// common is computed once. Special tokens spelled in a query or a document are letters.
    ///
    /// ```
    /// use model_factory::{Reranker, UnifiedModelFactory};
    ///
    /// let model = UnifiedModelFactory::load("fixtures/demo")?; // a model that was trained for it
    /// let reranker = Reranker::new("Is {document} about {query}?", "▁yes", "▁no");
    /// # let reranker = Reranker::new("Is {document} about {query}?", "a", "b");
    /// let scores = model.rank("cats", &["A cat sat.", "It rained."], &reranker)?;
    /// assert!(scores.len() == 2 && scores.iter().all(|score| (0.0..=1.0).contains(score)));
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Embed` for a token that the vocabulary does not have, for a missing classification head, for labels that cannot rank,
    /// and for texts that are too long; the errors of tokenizing and of [`Session::next_logits`](crate::Session::next_logits).
    pub fn rank(&self, query: &str, documents: &[impl AsRef<str>], reranker: &Reranker) -> Result<Vec<f32>> {
        self.rank_with(query, documents, reranker, &ClassifyOptions::default())
    }

    /// Like [`rank`](Self::rank), with options.
    ///
    /// # Errors
    /// The errors of [`rank`](Self::rank) and of [`label_logits_with`](Self::label_logits_with).
    pub fn rank_with(
        &self,
        query: &str,
        documents: &[impl AsRef<str>],
        reranker: &Reranker,
        options: &ClassifyOptions,
    ) -> Result<Vec<f32>> {
        match &reranker.answer {
            Answer::Tokens { yes, no } if self.spec().weights.head.is_some() || self.labels().is_empty() => {
                let prompt = reranker.prompt.as_deref().unwrap_or_default();
                self.rank_by_tokens(query, documents, prompt, [yes, no], options)
            }
            Answer::Tokens { yes, no } => self.rank_by_labels(query, documents, reranker, [yes, no], options),
            Answer::Labels => self.rank_by_labels(query, documents, reranker, ["yes", "no"], options),
        }
    }

    fn rank_by_tokens(
        &self,
        query: &str,
        documents: &[impl AsRef<str>],
        prompt: &str,
        answers: [&String; 2],
        options: &ClassifyOptions,
    ) -> Result<Vec<f32>> {
        let (adapters, cancel) = (self.adapters(&options.adapters)?, options.cancel.clone().unwrap_or_default());
        let id =
            |text: &String| self.tokenizer().token_id(text).ok_or_else(|| EmbedError::Token { text: text.clone() });
        let answers = [id(answers[0])?, id(answers[1])?];
        let score = |document: &str| {
            let (prompt, own) = Reranker::ask(prompt, query, document);
            let ids = self.tokenizer().encode_prompt_within(&prompt, &own)?;
            let mut session = self.session();
            session.use_adapters(adapters.clone());
            let logits = session.next_logits_unless(&ids, &cancel)?;
            let logit = |id: u32| match logits.get(id as usize) {
                Some(value) if value.is_finite() => Ok(*value),
                Some(value) => Err(Error::NonFiniteLogits { id: id as usize, value: *value }),
                None => Err(Error::TokenOutOfVocabulary { id, vocab: logits.len() }),
            };
            Ok(share(logit(answers[0])?, logit(answers[1])?))
        };
        documents.iter().map(|document| score(document.as_ref())).collect()
    }

    fn rank_by_labels(
        &self,
        query: &str,
        documents: &[impl AsRef<str>],
        reranker: &Reranker,
        answers: [&str; 2],
        options: &ClassifyOptions,
    ) -> Result<Vec<f32>> {
        let head = self.classifier()?;
        let place = |answer: &str| head.labels.iter().position(|label| label == answer);
        let answers = place(answers[0]).zip(place(answers[1]));
        let asks_labels = reranker.answer == Answer::Labels && head.labels.len() == 1;
        if !asks_labels && answers.is_none() {
            return Err(EmbedError::Labels { labels: head.labels.iter().take(8).cloned().collect() }.into());
        }
        if let (None, ScoreActivation::Unsupported { what, source }) = (answers, &head.scores) {
            return Err(EmbedError::Unsupported { file: source.clone(), what: what.clone() }.into());
        }
        let read = |scores: &Vec<f32>| match answers {
            Some((yes, no)) => share(scores[yes], scores[no]),
            None if head.scores == ScoreActivation::Sigmoid => share(scores[0], 0.0),
            None => scores[0],
        };
        let limit = self.text_limit();
        let text = |(index, document): (usize, &str)| match &reranker.prompt {
            None => self.pair(index, [query, document], limit, reranker.truncate),
            Some(prompt) => {
                let (prompt, own) = Reranker::ask(prompt, query, document);
                self.text(index, &prompt, &own, limit, false)
            }
        };
        let texts = documents.iter().map(AsRef::as_ref).enumerate().map(text).collect::<Result<Vec<_>>>()?;
        Ok(self.label_scores(texts, options)?.iter().map(read).collect())
    }
}

/// The softmax of two scores: the probability of the first.
fn share(yes: f32, no: f32) -> f32 {
    (1.0 / (1.0 + (f64::from(no) - f64::from(yes)).exp())) as f32
}

#[cfg(test)]
mod tests {
    use super::Reranker;
    use crate::{EmbedOptions, Pooling};

    #[test]
    fn a_document_is_no_prompt() {
        let ask = |query, document| Reranker::ask("Q {query} D {document} {query}.", query, document);
        let (asked, own) = ask("{document}", "a {query} b");
        assert_eq!(asked, "Q {document} D a {query} b {document}.");
        assert_eq!(own.iter().map(|span| &asked[span.clone()]).collect::<Vec<_>>(), ["Q ", " D ", " ", "."]);
        let (asked, own) = ask("", "");
        assert_eq!((asked.as_str(), own.as_slice()), ("Q  D  .", std::slice::from_ref(&(0..7))));
        let prompt = Reranker::qwen3("I").prompt.unwrap();
        let asked = Reranker::ask(&prompt, "Q", "D").0;
        assert!(asked.contains("<Instruct>: I\n<Query>: Q\n<Document>: D<|im_end|>\n"));
    }

    #[test]
    fn options_of_texts_come_from_json() {
        let reranker: Reranker = serde_json::from_str(r#"{"answer": "labels", "truncate": true}"#).unwrap();
        assert_eq!(reranker, Reranker::classifier().truncate(true));
        let asked = Reranker::new("{query} {document}", "yes", "no");
        let text = serde_json::to_string(&asked).unwrap();
        assert_eq!(serde_json::from_str::<Reranker>(&text).unwrap(), asked);
        let options: EmbedOptions = serde_json::from_str(r#"{"pooling": "cls", "dimensions": 8}"#).unwrap();
        assert_eq!(options, EmbedOptions::default().pooling(Pooling::Cls).dimensions(8));
        assert!(serde_json::from_str::<EmbedOptions>(r#"{"dimension": 8}"#).is_err());
    }
}
