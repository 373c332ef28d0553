//! How two texts are joined into one sequence of ids, such as a query and a document.

/// The parts of a pair of texts, in order: each text once, the first before the second, and special tokens around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairTemplate(Vec<PairPart>);

/// A part of a pair, and its token type: 0, or 1 from some part on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairPart {
    /// The content of the part.
    pub what: PairText,
    /// The token type of its tokens.
    pub token_type: u8,
}

/// The content of a part of a pair. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairText {
    /// A token.
    Token(u32),
    /// The first text.
    First,
    /// The second text.
    Second,
}

impl PairTemplate {
    /// BERT's template: `[CLS] first [SEP] second [SEP]`, the second text and its end of type 1.
    pub(super) fn bert(cls: u32, sep: u32) -> PairTemplate {
        use PairText::{First, Second, Token};
        let zero = [Token(cls), First, Token(sep)].map(|what| PairPart { what, token_type: 0 });
        let one = [Second, Token(sep)].map(|what| PairPart { what, token_type: 1 });
        PairTemplate([zero.as_slice(), &one].concat())
    }

    /// RoBERTa's template: `<s> first </s></s> second </s>`, all of type 0.
    pub(super) fn roberta(cls: u32, sep: u32) -> PairTemplate {
        use PairText::{First, Second, Token};
        let parts = [Token(cls), First, Token(sep), Token(sep), Second, Token(sep)];
        PairTemplate(parts.map(|what| PairPart { what, token_type: 0 }).to_vec())
    }

    /// The template of these parts; `None` where they do not have each text once and in order.
    pub(super) fn new(parts: Vec<PairPart>) -> Option<PairTemplate> {
        let texts = parts.iter().map(|part| part.what).filter(|what| !matches!(what, PairText::Token(_)));
        let in_order = parts.is_sorted_by_key(|part| part.token_type) && parts.iter().all(|part| part.token_type < 2);
        (texts.eq([PairText::First, PairText::Second]) && in_order).then_some(PairTemplate(parts))
    }

    /// The parts.
    pub fn parts(&self) -> &[PairPart] {
        &self.0
    }

    /// The number of special tokens around the texts.
    pub fn tokens(&self) -> usize {
        self.0.iter().filter(|part| matches!(part.what, PairText::Token(_))).count()
    }
}
