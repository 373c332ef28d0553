//! What a sequence is made of: ids, and vectors in place of the embeddings of some of them.
//!
//! An image is soft tokens: rows of a sequence like those of ids, each with an id that holds its place. All that counts
//! positions or keeps ids works on rows, and only the embedding reads the vectors.

mod soft_tokens;

use crate::memory;
pub use soft_tokens::{SoftTokens, SoftTokensError};
use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

/// What is compared of soft tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    digest: [u8; 32],
    rows: usize,
    grid: Option<[usize; 3]>,
}

/// A part of soft tokens among rows: these rows, and how many of its own are before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    rows: Range<usize>,
    skipped: usize,
    mark: Mark,
}

/// Soft tokens in a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The position of the first.
    pub start: usize,
    /// What is there.
    pub tokens: Arc<SoftTokens>,
}

impl Span {
    /// The positions of all of it.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.tokens.rows()
    }
}

/// A sequence: ids, and soft tokens in place of some of them, whose ids only hold their places.
///
/// ```
/// use model_factory_engine::input::{Input, SoftTokens};
/// use std::sync::Arc;
///
/// let image = Arc::new(SoftTokens::new(vec![0.5; 2 * 8], 8, [7; 32])?);
/// let mut input = Input::from(vec![2, 10]);
/// input.push_soft_tokens(3, &image)?;
/// input.push_ids(&[11])?;
/// assert_eq!(input.ids(), [2, 10, 3, 3, 11]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    ids: Vec<u32>,
    /// In order, none within another.
    spans: Vec<Span>,
}

impl From<Vec<u32>> for Input {
    fn from(ids: Vec<u32>) -> Input {
        Input { ids, spans: Vec::new() }
    }
}

impl Input {
    /// Ids with soft tokens at `spans`, which ascend and lie within them; `None` where they do not.
    #[doc(hidden)]
    pub fn from_parts(ids: Vec<u32>, spans: Vec<Span>) -> Option<Input> {
        let ends = spans.iter().map(|span| span.start.checked_add(span.tokens.rows()));
        let starts = spans.iter().skip(1).map(|span| span.start).chain([ids.len()]);
        let fits = ends.zip(starts).all(|(end, next)| end.is_some_and(|end| end <= next));
        fits.then_some(Input { ids, spans })
    }

    /// Appends ids.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn push_ids(&mut self, ids: &[u32]) -> memory::Result<()> {
        memory::grow(&mut self.ids, ids.len(), "the ids of a sequence")?;
        self.ids.extend_from_slice(ids);
        Ok(())
    }

    /// Appends soft tokens; the id `placeholder`, the family's own for images, holds the place of each.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn push_soft_tokens(&mut self, placeholder: u32, tokens: &Arc<SoftTokens>) -> memory::Result<()> {
        memory::grow(&mut self.ids, tokens.rows(), "the ids of a sequence")?;
        memory::grow(&mut self.spans, 1, "the images of a sequence")?;
        self.spans.push(Span { start: self.ids.len(), tokens: Arc::clone(tokens) });
        self.ids.extend(std::iter::repeat_n(placeholder, tokens.rows()));
        Ok(())
    }

    /// Makes room for `more` ids.
    ///
    /// # Errors
    /// When memory runs out.
    #[doc(hidden)]
    pub fn grow(&mut self, more: usize) -> memory::Result<()> {
        memory::grow(&mut self.ids, more, "the ids of a sequence")
    }

    /// Appends rows.
    ///
    /// # Errors
    /// When memory runs out.
    #[doc(hidden)]
    pub fn extend(&mut self, rows: Rows<'_>) -> memory::Result<()> {
        let base = self.ids.len();
        let spans = rows.whole_spans();
        memory::grow(&mut self.spans, spans.len(), "the images of a sequence")?;
        self.push_ids(rows.ids)?;
        let moved = |span: &Span| Span { start: span.start - rows.first + base, tokens: Arc::clone(&span.tokens) };
        self.spans.extend(spans.iter().map(moved));
        Ok(())
    }

    /// Appends an id, for which there is room.
    #[doc(hidden)]
    pub fn push(&mut self, id: u32) {
        self.ids.push(id);
    }

    /// The ids, with those that hold places.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The soft tokens, in order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Rows in all.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// All of it, to be read.
    pub fn rows(&self) -> Rows<'_> {
        Rows { ids: &self.ids, first: 0, spans: &self.spans }
    }

    /// `len`, or where soft tokens begin that `len` is in the middle of.
    #[doc(hidden)]
    pub fn before_image(&self, len: usize) -> usize {
        self.rows().before_image(len)
    }

    /// Forgets the rows from `len` on; of soft tokens all or none.
    #[doc(hidden)]
    pub fn truncate(&mut self, len: usize) {
        let len = self.before_image(len);
        self.ids.truncate(len);
        self.spans.truncate(self.spans.partition_point(|span| span.start < len));
    }

    /// Forgets all rows.
    #[doc(hidden)]
    pub fn clear(&mut self) {
        self.ids.clear();
        self.spans.clear();
    }

    /// Removes the last `count` ids, which no soft tokens are among.
    #[doc(hidden)]
    pub fn split_ids(&mut self, count: usize) -> Vec<u32> {
        self.ids.split_off(self.ids.len() - count)
    }
}

/// Rows of a sequence, as a slice of an [`Input`]. Ids are rows too.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    ids: &'a [u32],
    /// The position of the first of them, as spans count positions.
    first: usize,
    /// All soft tokens of the sequence, before these rows too.
    spans: &'a [Span],
}

impl<'a> From<&'a [u32]> for Rows<'a> {
    fn from(ids: &'a [u32]) -> Rows<'a> {
        Rows { ids, first: 0, spans: &[] }
    }
}

impl<'a> From<&'a Vec<u32>> for Rows<'a> {
    fn from(ids: &'a Vec<u32>) -> Rows<'a> {
        Rows::from(ids.as_slice())
    }
}

impl<'a> From<&'a Input> for Rows<'a> {
    fn from(input: &'a Input) -> Rows<'a> {
        input.rows()
    }
}

impl<'a> Rows<'a> {
    /// The ids, with those that hold places.
    pub fn ids(self) -> &'a [u32] {
        self.ids
    }

    /// The number of rows.
    pub fn len(self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.ids.is_empty()
    }

    /// The position of the first row, as [`spans`](Self::spans) count positions.
    #[doc(hidden)]
    pub fn first(self) -> usize {
        self.first
    }

    /// All soft tokens of the sequence that the rows are of.
    #[doc(hidden)]
    pub fn spans(self) -> &'a [Span] {
        self.spans
    }

    /// The rows of `range`.
    #[doc(hidden)]
    pub fn slice(self, range: Range<usize>) -> Rows<'a> {
        Rows { first: self.first + range.start, ids: &self.ids[range], spans: self.spans }
    }

    /// The soft tokens that some of the rows are of.
    #[doc(hidden)]
    pub fn own_spans(self) -> &'a [Span] {
        let end = self.first + self.ids.len();
        let from = self.spans.partition_point(|span| span.range().end <= self.first);
        let to = self.spans.partition_point(|span| span.start < end);
        &self.spans[from..to.max(from)]
    }

    /// Those of them that are whole among the rows.
    fn whole_spans(self) -> &'a [Span] {
        let (spans, end) = (self.own_spans(), self.first + self.ids.len());
        let from = spans.partition_point(|span| span.start < self.first);
        let to = spans.partition_point(|span| span.range().end <= end);
        &spans[from..to.max(from)]
    }

    /// Refuses an image of which only a part is among the rows.
    ///
    /// # Errors
    /// `Cut`.
    #[doc(hidden)]
    pub fn check_whole(self) -> Result<(), SoftTokensError> {
        let within = self.first..self.first + self.ids.len();
        let is_cut = |span: &&Span| span.start < within.start || span.range().end > within.end;
        let cut = self.own_spans().iter().find(is_cut);
        cut.map_or(Ok(()), |span| Err(SoftTokensError::Cut { rows: span.tokens.rows() }))
    }

    /// The positions of the soft tokens that the one at `position` is among.
    #[doc(hidden)]
    pub fn image_at(self, position: usize) -> Option<Range<usize>> {
        let after = self.spans.partition_point(|span| span.start <= position);
        let range = self.spans.get(after.checked_sub(1)?)?.range();
        range.contains(&position).then_some(range)
    }

    /// The position `len`, or where soft tokens begin that `len` is in the middle of.
    #[doc(hidden)]
    pub fn before_image(self, len: usize) -> usize {
        self.image_at(len).filter(|image| image.start < len).map_or(len, |image| image.start)
    }

    /// The positions in time, height and width of each row: those of text are equal, and an image takes as many as its longer
    /// side (transformers' `get_rope_index`).
    pub(crate) fn places(self) -> impl Iterator<Item = [usize; 3]> + 'a {
        let mut before = 0; // rows of images beyond the positions that these take
        let mut spans = self.spans.iter().peekable();
        (self.first..self.first + self.ids.len()).map(move |position| {
            while let Some(span) = spans.next_if(|span| span.range().end <= position) {
                before += span.tokens.rows() - span.tokens.extent();
            }
            let own = spans.peek().filter(|span| span.start <= position);
            match own.and_then(|span| Some((span.start, span.tokens.grid()?))) {
                None => [position - before; 3],
                Some((start, [_, height, width])) => {
                    let (base, index) = (start - before, position - start);
                    [base + index / (height * width), base + index / width % height, base + index % width]
                }
            }
        })
    }

    pub(crate) fn pieces(self) -> impl Iterator<Item = Piece> + 'a {
        self.own_spans().iter().map(move |span| {
            let (range, end) = (span.range(), self.first + self.ids.len());
            let start = range.start.max(self.first);
            let rows = start - self.first..range.end.min(end) - self.first;
            Piece { rows, skipped: start - range.start, mark: span.tokens.mark() }
        })
    }

    /// Gives `take` what tells these rows from others: their number, the ids, and of images what is compared of them.
    pub(crate) fn identify(self, mut take: impl FnMut(&[u8])) {
        identify(self.ids, &self.pieces().collect::<Vec<_>>(), &mut take);
    }

    /// How many rows from the first on equal those of `other`: the same ids, or soft tokens with the same digest.
    #[doc(hidden)]
    pub fn common(self, other: Rows<'_>) -> usize {
        common((self.ids, self.pieces()), (other.ids, other.pieces()))
    }

    /// Whether they begin with `other`.
    #[doc(hidden)]
    pub fn starts_with(self, other: Rows<'_>) -> bool {
        self.common(other) == other.len()
    }
}

/// Gives `take` what tells rows of these ids and parts of soft tokens from others.
pub(crate) fn identify(ids: &[u32], pieces: &[Piece], take: &mut (impl FnMut(&[u8]) + ?Sized)) {
    let number = |number: usize| (number as u64).to_le_bytes();
    take(&number(ids.len()));
    ids.iter().for_each(|id| take(&id.to_le_bytes()));
    for Piece { rows, skipped, mark: Mark { digest, rows: of_image, grid } } in pieces {
        let grid = grid.map_or([0; 4], |[time, height, width]| [1, time, height, width]);
        let numbers = [rows.start, rows.end, *skipped, *of_image].into_iter().chain(grid);
        numbers.for_each(|count| take(&number(count)));
        take(digest);
    }
}

/// How many rows two lists have in common: their ids, and the parts of soft tokens among them.
pub(crate) fn common(
    (ids, pieces): (&[u32], impl Iterator<Item = Piece>),
    (others, other_pieces): (&[u32], impl Iterator<Item = Piece>),
) -> usize {
    let most = ids.iter().zip(others).take_while(|(a, b)| a == b).count();
    let (mut a, mut b): (Peekable<_>, Peekable<_>) = (pieces.peekable(), other_pieces.peekable());
    loop {
        let starts = [a.peek(), b.peek()].map(|piece| piece.map_or(usize::MAX, |piece| piece.rows.start));
        match (a.next(), b.next()) {
            (None, None) => return most,
            (Some(a), Some(b)) if starts[0] == starts[1] && a.skipped == b.skipped && a.mark == b.mark => {}
            _ => return most.min(starts[0]).min(starts[1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(rows: usize, digest: u8) -> Arc<SoftTokens> {
        Arc::new(SoftTokens::new(vec![0.5; rows * 2], 2, [digest; 32]).unwrap())
    }

    /// Ids as they are, and images of so many rows with these digests.
    fn input(parts: &[(usize, u8)]) -> Input {
        let mut input = Input::default();
        for (rows, digest) in parts {
            match digest {
                0 => input.push_ids(&vec![1; *rows]).unwrap(),
                _ => input.push_soft_tokens(9, &image(*rows, *digest)).unwrap(),
            }
        }
        input
    }

    #[test]
    fn rows_are_equal_where_ids_and_digests_are() {
        let whole = input(&[(3, 0), (4, 7), (2, 0), (4, 8), (1, 0)]);
        assert_eq!(whole.ids(), [1, 1, 1, 9, 9, 9, 9, 1, 1, 9, 9, 9, 9, 1]);
        for (parts, expected) in [
            (&[(3, 0), (4, 7), (2, 0), (4, 8), (1, 0)][..], 14),
            (&[(3, 0), (4, 7), (2, 0), (4, 9), (1, 0)], 9),
            (&[(3, 0), (4, 8), (2, 0)], 3),
            (&[(3, 0), (5, 7), (2, 0)], 3), // another number of rows
            (&[(3, 0), (4, 7), (1, 0)], 8),
            (&[(4, 0), (4, 7)], 3),
        ] {
            let other = input(parts);
            assert_eq!(whole.rows().common(other.rows()), expected, "{parts:?}");
            assert_eq!(other.rows().common(whole.rows()), expected, "{parts:?}");
        }
        // The same ids without an image are others.
        let plain = Input::from(whole.ids().to_vec());
        assert_eq!((whole.rows().common(plain.rows()), plain.rows().common(whole.rows())), (3, 3));
    }

    #[test]
    fn parts_of_an_image_are_equal_where_they_are_the_same_parts() {
        let (one, other) = (input(&[(3, 0), (4, 7), (2, 0)]), input(&[(5, 0), (4, 7), (2, 0)]));
        let part = |input: &Input, range: Range<usize>| {
            let rows = input.rows().slice(range);
            (rows.ids().to_vec(), rows.pieces().collect::<Vec<_>>())
        };
        assert_eq!(part(&one, 4..9), part(&other, 6..11));
        assert_ne!(part(&one, 4..6), part(&other, 5..7));
        assert_eq!(one.rows().slice(4..9).common(other.rows().slice(6..8)), 2);
        assert_eq!(one.rows().slice(4..9).common(other.rows().slice(5..9)), 0);
    }

    #[test]
    fn an_image_is_cut_off_whole() {
        let whole = input(&[(3, 0), (4, 7), (2, 0)]);
        for (len, kept, images) in [(9, 9, 1), (8, 8, 1), (7, 7, 1), (6, 3, 0), (4, 3, 0), (3, 3, 0), (2, 2, 0)] {
            let mut cut = whole.clone();
            cut.truncate(len);
            assert_eq!((cut.len(), cut.spans().len()), (kept, images), "{len}");
        }
        let mut again = input(&[(2, 0)]);
        again.extend(whole.rows().slice(1..9)).unwrap();
        assert_eq!(again.spans()[0].range(), 4..8);
        assert_eq!(again.rows().image_at(8), None);
        assert_eq!(again.rows().image_at(7), Some(4..8));
    }

    #[test]
    fn an_image_takes_the_positions_of_its_longer_side() {
        let grid = |rows: usize, grid| {
            Arc::new(SoftTokens::new(vec![0.5; rows], 1, [1; 32]).unwrap().with_grid(grid).unwrap())
        };
        let mut input = Input::from(vec![1, 1]);
        input.push_soft_tokens(9, &grid(6, [1, 2, 3])).unwrap();
        input.push_ids(&[1]).unwrap();
        input.push_soft_tokens(9, &grid(2, [1, 2, 1])).unwrap();
        input.push_ids(&[1]).unwrap();
        let expected = [
            [0, 0, 0],
            [1, 1, 1],
            [2, 2, 2],
            [2, 2, 3],
            [2, 2, 4],
            [2, 3, 2],
            [2, 3, 3],
            [2, 3, 4],
            [5, 5, 5],
            [6, 6, 6],
            [6, 7, 6],
            [8, 8, 8],
        ];
        assert_eq!(input.rows().places().collect::<Vec<_>>(), expected);
        // Rows in the middle, and after all images.
        for start in [4, 9, 11, 12] {
            assert_eq!(input.rows().slice(start..12).places().collect::<Vec<_>>(), expected[start..], "{start}");
        }
    }

    #[test]
    fn spans_lie_within_the_ids_and_apart() {
        let span = |start| Span { start, tokens: image(4, 1) };
        assert!(Input::from_parts(vec![9; 8], vec![span(0), span(4)]).is_some());
        for starts in [&[1usize, 4][..], &[4, 0], &[5], &[usize::MAX]] {
            assert!(Input::from_parts(vec![9; 8], starts.iter().map(|start| span(*start)).collect()).is_none());
        }
    }
}
