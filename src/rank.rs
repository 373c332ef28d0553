//! A query and documents -> how well each answers it, by a model that says yes or no.

use crate::error::{EmbedError, Error, Result};
use crate::model::Model;
use std::collections::HashMap;
use std::ops::Range;

/// How a model that was trained to say yes or no is asked about a document. No file says it: a model's makers do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reranker {
    prompt: String,
    yes: String,
    no: String,
}

impl Reranker {
    /// Asks by `prompt`, in which `{query}` and `{document}` stand for these, whether the next token is `yes` or `no`: entries of
    /// the vocabulary as its file spells them.
    pub fn new(prompt: impl Into<String>, yes: impl Into<String>, no: impl Into<String>) -> Reranker {
        Reranker { prompt: prompt.into(), yes: yes.into(), no: no.into() }
    }

    /// As Qwen3-Reranker is asked (its model card), whether a document meets a query by `instruction`: its own is
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

    /// The prompt about `document`, and where it is the prompt's own: special tokens are there alone. What stands in a query or a
    /// document is never taken for a place of the prompt.
    fn ask(&self, query: &str, document: &str) -> (String, Vec<Range<usize>>) {
        let texts = HashMap::from([("{query}", query), ("{document}", document)]);
        let (mut asked, mut own, mut rest) = (String::new(), Vec::new(), self.prompt.as_str());
        loop {
            let next = texts.keys().filter_map(|place| Some((rest.find(place)?, place))).min();
            let end = next.map_or(rest.len(), |(at, _)| at);
            // Spans do not touch: nothing lies between two where a text is empty.
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
    /// How likely the model says yes rather than no to each of `documents`, between 0 and 1: the softmax of the two tokens'
    /// logits, in the order of the documents. What the prompts have in common is computed once. A query or a document that
    /// spells a special token has letters there.
    ///
    /// ```
    /// use model_factory::{Model, Reranker};
    ///
    /// let model = Model::load("fixtures/demo")?; // a model that was trained for it
    /// let reranker = Reranker::new("Is {document} about {query}?", "▁yes", "▁no");
    /// # let reranker = Reranker::new("Is {document} about {query}?", "a", "b");
    /// let scores = model.rank("cats", &["A cat sat.", "It rained."], &reranker)?;
    /// assert!(scores.len() == 2 && scores.iter().all(|score| (0.0..=1.0).contains(score)));
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Embed` for a token that the vocabulary does not have; those of tokenizing and of [`Session::forward`](crate::Session::forward).
    pub fn rank(&self, query: &str, documents: &[impl AsRef<str>], reranker: &Reranker) -> Result<Vec<f32>> {
        let id =
            |text: &String| self.tokenizer().token_id(text).ok_or_else(|| EmbedError::Token { text: text.clone() });
        let answers = [id(&reranker.yes)?, id(&reranker.no)?];
        let score = |document: &str| {
            let (prompt, own) = reranker.ask(query, document);
            let ids = self.tokenizer().encode_prompt_within(&prompt, &own)?;
            let logits = self.session().forward(&ids)?;
            let [yes, no] = answers.map(|id| logits.get(id as usize).and_then(|logit| logit.to_scalar::<f32>()));
            let (yes, no) = (yes?, no?);
            if let Some((id, value)) =
                [(answers[0], yes), (answers[1], no)].into_iter().find(|(_, value)| !value.is_finite())
            {
                return Err(Error::NonFiniteLogits { id: id as usize, value });
            }
            Ok((1.0 / (1.0 + (f64::from(no) - f64::from(yes)).exp())) as f32)
        };
        documents.iter().map(|document| score(document.as_ref())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Reranker;

    #[test]
    fn a_document_is_no_prompt() {
        let reranker = Reranker::new("Q {query} D {document} {query}.", "yes", "no");
        let (asked, own) = reranker.ask("{document}", "a {query} b");
        assert_eq!(asked, "Q {document} D a {query} b {document}.");
        assert_eq!(own.iter().map(|span| &asked[span.clone()]).collect::<Vec<_>>(), ["Q ", " D ", " ", "."]);
        let (asked, own) = reranker.ask("", "");
        assert_eq!((asked.as_str(), own.as_slice()), ("Q  D  .", std::slice::from_ref(&(0..7))));
        let asked = Reranker::qwen3("I").ask("Q", "D").0;
        assert!(asked.contains("<Instruct>: I\n<Query>: Q\n<Document>: D<|im_end|>\n"));
    }
}
