//! Texts -> an automaton that finds the first of them in a text, and of those that begin there the longest, by Aho and Corasick
//! ("Efficient string matching: an aid to bibliographic search", 1975). Building it takes a step for each byte of the texts,
//! however much they share. The crate `aho-corasick` searches as fast, but follows a permutation of its states from each of
//! them when it is built, which for texts such as counters is quadratic.

use std::collections::VecDeque;
use std::ops::Range;

/// The initial state.
const ROOT: usize = 0;

/// No state, and no text.
const NONE: u32 = u32::MAX;

/// The automaton: the trie of the texts, with a state of 13 bytes for each prefix, in order of their length. The children
/// of a state are adjacent.
#[derive(Debug)]
pub(super) struct Finder {
    /// The state after the root for each byte, or the root itself if no text begins with it.
    first: Box<[u32; 256]>,
    /// The byte that leads to each state.
    bytes: Vec<u8>,
    states: Vec<State>,
    /// The length in bytes of each text.
    lens: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// The first child of the state; the next state's first child ends them.
    children: u32,
    /// The state of the longest proper suffix that is also a prefix. `NONE` after a text: what was found stays.
    failure: u32,
    /// The text that ends here, or the longest if several do.
    text: u32,
}

impl Finder {
    /// Builds it from `texts`, which are not empty, and have less than 2^31 bytes together. If two are the same the first one is
    /// found.
    pub(super) fn new(texts: &[String]) -> Finder {
        let bytes_of = |text: &usize| texts[*text].as_bytes();
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|text| &texts[*text]);
        let shared = |pair: &[usize]| {
            let both = bytes_of(&pair[0]).iter().zip(bytes_of(&pair[1]));
            both.take_while(|(one, other)| one == other).count()
        };
        let bytes: usize = texts.iter().map(String::len).sum();
        let count = 1 + bytes - order.windows(2).map(shared).sum::<usize>();
        let mut finder = Finder {
            first: Box::new([ROOT as u32; 256]),
            bytes: Vec::with_capacity(count),
            states: Vec::with_capacity(count + 1),
            lens: texts.iter().map(|text| text.len() as u32).collect(),
        };
        finder.bytes.push(0);
        finder.states.push(State { children: 1, failure: ROOT as u32, text: NONE });
        // The texts with the prefix of each state, and the length of the prefix, for states that were added and not yet visited.
        let mut next = VecDeque::from([(0..order.len(), 0)]);
        let mut at = ROOT;
        while let Some((range, depth)) = next.pop_front() {
            // The shortest texts come first.
            let ended = order[range.clone()].iter().take_while(|text| bytes_of(text).len() == depth).count();
            finder.states[at].children = finder.bytes.len() as u32;
            if ended > 0 {
                (finder.states[at].text, finder.states[at].failure) = (order[range.start] as u32, NONE);
            } else if let Some(failure) = index(finder.states[at].failure) {
                finder.states[at].text = finder.states[failure].text;
            }
            let mut start = range.start + ended;
            for same in order[start..range.end].chunk_by(|one, other| bytes_of(one)[depth] == bytes_of(other)[depth]) {
                let byte = bytes_of(&same[0])[depth];
                let failure = match at {
                    ROOT => Some(ROOT),
                    _ => index(finder.states[at].failure).and_then(|failure| finder.step(failure, byte)),
                };
                if at == ROOT {
                    finder.first[usize::from(byte)] = finder.bytes.len() as u32;
                }
                finder.bytes.push(byte);
                finder.states.push(State {
                    children: 0,
                    failure: failure.map_or(NONE, |state| state as u32),
                    text: NONE,
                });
                next.push_back((start..start + same.len(), depth + 1));
                start += same.len();
            }
            at += 1;
        }
        let end = State { children: finder.bytes.len() as u32, failure: NONE, text: NONE };
        finder.states.push(end);
        finder
    }

    /// The range of the first text in `range` of `text`, and its index.
    pub(super) fn find(&self, text: &[u8], range: Range<usize>) -> Option<(Range<usize>, usize)> {
        let (mut state, mut found, mut at) = (ROOT, None, range.start);
        loop {
            if state == ROOT {
                // In the initial state nothing was found.
                at += text.get(at..range.end)?.iter().position(|byte| self.first[usize::from(*byte)] != ROOT as u32)?;
            }
            let Some(next) = text[..range.end].get(at).and_then(|byte| self.step(state, *byte)) else { return found };
            (state, at) = (next, at + 1);
            if let Some(which) = index(self.states[state].text) {
                found = Some((at - self.lens[which] as usize..at, which));
            }
        }
    }

    /// The state after `state`, or after a state that it fails to, by `byte`. The root follows itself.
    fn step(&self, mut state: usize, byte: u8) -> Option<usize> {
        loop {
            if state == ROOT {
                return Some(self.first[usize::from(byte)] as usize);
            }
            let children = self.states[state].children as usize;
            let end = self.states[state + 1].children as usize;
            if let Some(found) = self.bytes[children..end].iter().position(|other| *other == byte) {
                return Some(children + found);
            }
            state = index(self.states[state].failure)?;
        }
    }
}

/// The index of a state or a text, if there is one.
fn index(of: u32) -> Option<usize> {
    (of != NONE).then_some(of as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first place of a text, and the longest text there, by trying all.
    fn tried(texts: &[String], text: &str, range: Range<usize>) -> Option<(Range<usize>, usize)> {
        range.clone().find_map(|start| {
            let here = |which: &usize| text.as_bytes()[start..range.end].starts_with(texts[*which].as_bytes());
            let longest = (0..texts.len()).filter(here).max_by_key(|which| (texts[*which].len(), texts.len() - which));
            longest.map(|which| (start..start + texts[which].len(), which))
        })
    }

    proptest! {
        #[test]
        fn finds_what_trying_all_finds(
            texts in proptest::collection::vec("[abé]{1,6}", 1..12),
            text in "[abcéx]{0,60}",
            cut in (0usize..20, 0usize..20),
        ) {
            let finder = Finder::new(&texts);
            let start = cut.0.min(text.len());
            let range = start..text.len().saturating_sub(cut.1).max(start);
            let found = finder.find(text.as_bytes(), range.clone());
            prop_assert_eq!(found, tried(&texts, &text, range));
        }
    }

    #[test]
    fn takes_as_many_states_as_beginnings() {
        let texts: Vec<String> = (0..1000).map(|number| format!("x{number}")).collect();
        let Finder { bytes, states, .. } = Finder::new(&texts);
        // The root, x, x0 to x999, and the end.
        assert_eq!((bytes.len(), states.len()), (1002, 1003));
        assert_eq!((bytes.capacity(), states.capacity()), (1002, 1003));
    }
}
