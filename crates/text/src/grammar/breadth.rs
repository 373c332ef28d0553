//! A regular expression -> the number of ways in which it can match the same text at once.
//!
//! llguidance counts the work on an expression between two of its derivatives, but not within one. For most
//! expressions one derivative is little work. For an intersection it is the product of the ways of its operands, and
//! a complement their square: thirty operands of two ways each take a thousand million steps before the first one is
//! counted. So an expression is refused if that product may become large for any text.

use llguidance::derivre::raw::{DerivCache, ExprSet};
use llguidance::derivre::{AlphabetInfo, ExprRef, RegexBuilder};
use llguidance::regex_to_lark;
use regex_syntax::hir::{Class, Hir, HirKind};
use std::collections::{HashMap, HashSet};

/// The most ways that one derivative of an expression may take, as a product, for each class of bytes.
pub(super) const PRODUCT: usize = 2000;

/// The most states of an expression that are explored.
const STATES: usize = 300;

/// The most derivatives that are computed for one grammar: 0.7 s if they are large.
pub(super) const DERIVATIVES: usize = 100_000;

/// The kind of an expression, as far as its ways depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    And,
    Or,
    Not,
    Concat,
    Repeat,
    Lookahead,
    Other,
}

/// The kinds of expressions by the tags of `ExprSet`, whose type has no public name: the tags come from expressions made for
/// this purpose.
struct Kinds([(u8, Kind); 6]);

impl Kinds {
    fn new() -> Kinds {
        let mut exprs = ExprSet::new(256);
        let letters = [b'a', b'b'].map(|byte| exprs.mk_byte(byte));
        let [a, b] = letters.map(|letter| exprs.mk_repeat(letter, 1, u32::MAX));
        let made = [
            (exprs.mk_and(&mut vec![a, b]), Kind::And),
            (exprs.mk_or(&mut vec![a, b]), Kind::Or),
            (exprs.mk_not(a), Kind::Not),
            (exprs.mk_concat(a, b), Kind::Concat),
            (a, Kind::Repeat),
            (exprs.mk_lookahead(a, 0), Kind::Lookahead),
        ];
        Kinds(made.map(|(expr, kind)| (exprs.get_tag(expr) as u8, kind)))
    }

    fn kind(&self, exprs: &ExprSet, expr: ExprRef) -> Kind {
        let tag = exprs.get_tag(expr) as u8;
        self.0.iter().find(|(known, _)| *known == tag).map_or(Kind::Other, |(_, kind)| *kind)
    }
}

/// An intersection or complement among `exprs` whose derivative may take more than [`PRODUCT`], as llguidance writes
/// it.
pub(super) fn too_broad(exprs: &ExprSet) -> Option<String> {
    let kinds = Kinds::new();
    let ids = (1..u32::try_from(exprs.len()).unwrap_or(u32::MAX)).map(ExprRef::new);
    let roots: Vec<ExprRef> = ids.filter(|expr| matches!(kinds.kind(exprs, *expr), Kind::And | Kind::Not)).collect();
    let mut explored = Explored::new(exprs.clone(), &roots, DERIVATIVES);
    let found = roots.iter().find(|root| {
        let parts = exprs.get_args(**root);
        let ways = parts.iter().map(|part| explored.most(*part).unwrap_or(usize::MAX));
        let product = ways.fold(1, usize::saturating_mul);
        let is_square = kinds.kind(exprs, **root) == Kind::Not;
        (if is_square { product.saturating_mul(product) } else { product }) > PRODUCT
    });
    found.map(|root| exprs.expr_to_string_max_len(*root, 200))
}

/// The most ways in which the pattern of a schema can match a text at once: by its states if they are few, for
/// which up to `left` derivatives are computed; else by its letters. A malformed pattern is refused when it is
/// compiled.
pub(super) fn ways(pattern: &str, left: &mut usize) -> usize {
    let mut builder = RegexBuilder::new();
    let Ok(expr) = builder.mk_regex_for_serach(&regex_to_lark(pattern, "dw")) else { return 1 };
    let mut explored = Explored::new(builder.into_exprset(), &[expr], *left);
    let most = explored.most(expr);
    *left = explored.left;
    most.unwrap_or_else(|| letters(pattern))
}

/// The letters of the pattern of a schema, plus two for its ends: a text can match at no more places at once.
pub(super) fn letters(pattern: &str) -> usize {
    fn of(hir: &Hir) -> usize {
        match hir.kind() {
            HirKind::Literal(literal) => literal.0.len(),
            HirKind::Class(_) => 1,
            HirKind::Repetition(repetition) => {
                let times = repetition.max.unwrap_or(repetition.min.max(1));
                of(&repetition.sub).saturating_mul(times as usize)
            }
            kind => kind.subs().iter().map(of).fold(0, usize::saturating_add),
        }
    }
    regex_syntax::parse(&regex_to_lark(pattern, "dw")).map_or(1, |hir| of(&hir).saturating_add(2))
}

/// Ranges of characters in the classes of the pattern of a schema: the work of compiling it grows with them.
pub(super) fn ranges(pattern: &str) -> usize {
    fn of(hir: &Hir) -> usize {
        match hir.kind() {
            HirKind::Class(Class::Unicode(class)) => class.ranges().len(),
            kind if kind.subs().is_empty() => 1,
            kind => kind.subs().iter().map(of).sum(),
        }
    }
    regex_syntax::parse(&regex_to_lark(pattern, "dw")).map_or(1, |hir| of(&hir))
}

/// The explored states of expressions.
struct Explored {
    kinds: Kinds,
    exprs: ExprSet,
    derivatives: DerivCache,
    /// One byte of each class of bytes that no expression distinguishes.
    bytes: Vec<u8>,
    left: usize,
    known: HashMap<(ExprRef, u8), usize>,
}

impl Explored {
    fn new(exprs: ExprSet, roots: &[ExprRef], left: usize) -> Explored {
        let first = roots.first().copied().unwrap_or(ExprRef::EMPTY_STRING);
        let roots = if roots.is_empty() { &[first] } else { roots };
        let (alphabet, exprs, _) = AlphabetInfo::from_exprset(exprs, roots);
        let mut classes = HashSet::new();
        let bytes = (0..=u8::MAX).filter(|byte| classes.insert(alphabet.map(*byte))).collect();
        Explored { kinds: Kinds::new(), exprs, derivatives: DerivCache::new(), bytes, left, known: HashMap::new() }
    }

    /// The most ways in which `expr`, or what is left of it after any text, can continue; `None` if it has too many
    /// states.
    fn most(&mut self, expr: ExprRef) -> Option<usize> {
        let (mut seen, mut open, mut most) = (HashSet::from([expr]), vec![expr], 1);
        while let Some(state) = open.pop() {
            for index in 0..self.bytes.len() {
                let byte = self.bytes[index];
                self.left = self.left.checked_sub(1)?;
                most = most.max(self.ways(state, byte));
                let next = self.derivatives.derivative(&mut self.exprs, state, byte);
                if next != ExprRef::NO_MATCH && seen.insert(next) {
                    open.push(next);
                }
            }
            if seen.len() > STATES {
                return None;
            }
        }
        Some(most)
    }

    /// The number of ways in which the state `expr` continues by `byte`.
    fn ways(&mut self, expr: ExprRef, byte: u8) -> usize {
        if let Some(known) = self.known.get(&(expr, byte)) {
            return *known;
        }
        let parts = self.exprs.get_args(expr).to_vec();
        let ways = match (self.kinds.kind(&self.exprs, expr), parts.as_slice()) {
            (Kind::Concat, [first, rest]) => {
                let more = if self.exprs.is_nullable(*first) { self.ways(*rest, byte) } else { 0 };
                self.ways(*first, byte).saturating_add(more)
            }
            (Kind::Repeat | Kind::Lookahead, [part]) => self.ways(*part, byte),
            (Kind::And, _) => parts.iter().map(|part| self.ways(*part, byte)).fold(1, usize::saturating_mul),
            (Kind::Or, _) => parts.iter().map(|part| self.ways(*part, byte)).fold(0, usize::saturating_add),
            // The ways of a complement are separated by bytes, like those of literals.
            _ => usize::from(self.derivatives.derivative(&mut self.exprs, expr, byte) != ExprRef::NO_MATCH),
        };
        self.known.insert((expr, byte), ways);
        ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llguidance::derivre::RegexAst;

    #[test]
    fn kinds_have_tags_of_their_own() {
        let tags: HashSet<u8> = Kinds::new().0.iter().map(|(tag, _)| *tag).collect();
        assert_eq!(tags.len(), 6);
    }

    #[test]
    fn ways_are_those_that_can_be_at_once() {
        let cases = [
            ("^[a-z]{1,64}$", 1..=1),
            ("^[a-z]+@[a-z]+\\.[a-z]{2,}$", 1..=1),
            ("^[^/]+(/[^/]+)*$", 1..=1),
            ("^(a|ab)(c|bcd)$", 2..=2),
            ("foo", 3..=4),
            ("^(.{3}|b)*[a-z]$", 4..=8),
            ("^\\w+([.-]?\\w+)*@\\w+([.-]?\\w+)*(\\.\\w{2,})+$", 3..=3),
            // There are too many states, so letters are counted.
            ("^.{0,100000}$", 100_000..=100_002),
            ("^(.{2000}|b)*[a-z]$", 2000..=2010),
        ];
        let found = cases.iter().map(|(pattern, _)| ways(pattern, &mut DERIVATIVES.clone()));
        let wrong: Vec<_> = found.zip(&cases).filter(|(found, (_, ways))| !ways.contains(found)).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn intersections_are_refused_by_the_product_of_their_ways() {
        let of = |count: usize| {
            let mut builder = RegexBuilder::new();
            let parts = (2..2 + count).map(|n| RegexAst::Regex(format!("(.{{{n}}}|b)*[a-z]"))).collect();
            builder.mk(&RegexAst::And(parts)).unwrap();
            too_broad(builder.exprset()).is_some()
        };
        assert_eq!([1, 2, 3, 8, 30].map(of), [false, false, false, true, true]);
    }
}
