//! How many tokens a thought may have, and what ends it after them.

/// The most tokens after the last one of the budget that may complete a character, which has up to four bytes.
const MOST_OVER: usize = 3;

/// What is left of the tokens that the thoughts of an answer may have.
#[derive(Debug)]
pub(super) struct Budget {
    left: usize,
    /// Tokens of the current thought that came after the last one of the budget and do not end it.
    over: usize,
    /// The tokens of the mark that ends a thought, and how many of them came.
    closing: Vec<u32>,
    given: usize,
}

impl Budget {
    /// A budget of `tokens`, after which those of `closing` come.
    pub(super) fn new(tokens: usize, closing: Vec<u32>) -> Budget {
        Budget { left: tokens, over: 0, closing, given: 0 }
    }

    /// Counts `token`; `within` a thought that it neither begins nor ends.
    pub(super) fn count(&mut self, token: u32, within: bool) {
        if !within {
            (self.over, self.given) = (0, 0);
        } else if self.left > 0 {
            self.left -= 1;
        } else if self.closing.get(self.given) == Some(&token) {
            self.given += 1;
        } else {
            self.over += 1;
        }
    }

    /// How many more tokens a thought may have.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// The token that must come next in a thought, if it has no more tokens. A character that is not `complete` may become so first.
    pub(super) fn closing(&self, complete: bool) -> Option<u32> {
        let is_due = self.left == 0 && (complete || self.given > 0 || self.over >= MOST_OVER);
        self.closing.get(self.given).copied().filter(|_| is_due)
    }
}
