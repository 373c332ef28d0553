//! The patches of an image: how many, in which order, and the windows that they come in.

/// The patches of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Patches from top to bottom.
    pub rows: usize,
    /// Patches from left to right.
    pub columns: usize,
}

impl Grid {
    /// The number of patches.
    pub fn patches(self) -> usize {
        self.rows.saturating_mul(self.columns)
    }

    /// The most nearly square one of `places` squares of `side` by `side` patches.
    pub(super) fn of_places(places: usize, side: usize) -> Grid {
        let rows = (1..=places.isqrt()).rev().find(|rows| places.is_multiple_of(*rows)).unwrap_or(1);
        Grid { rows: rows.saturating_mul(side), columns: (places / rows).saturating_mul(side) }
    }
}

/// The order of the patches of an image. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchOrder {
    /// From left to right and then down; the values of an image are `[channels, height, width]`.
    Lines,
    /// From left to right and then down; the values of an image are `[patches, patch, patch, channels]`, and of a patch the product
    /// reads these, or where it goes `by_channel` `[channels, patch, patch]`.
    #[allow(missing_docs)] // as above
    Pixels { by_channel: bool },
    /// As `Squares`, and of these windows of `window` by `window` one after the other, from left to right and then down; the values of an
    /// image are those of `Squares`.
    #[allow(missing_docs)] // as above
    Windows { side: usize, window: usize },
    /// Squares of `side` by `side` one after the other, and the patches of each, from left to right and then down; the values of an
    /// image are `[patches, channels, frames, patch, patch]`.
    #[allow(missing_docs)] // as above
    Squares { side: usize },
}

impl PatchOrder {
    /// The row and the column of the patch `index` of `grid`.
    pub fn place(self, index: usize, grid: Grid) -> (usize, usize) {
        match self {
            PatchOrder::Lines | PatchOrder::Pixels { .. } => (index / grid.columns, index % grid.columns),
            PatchOrder::Squares { side } => {
                let (square, within, across) = (index / (side * side), index % (side * side), grid.columns / side);
                (square / across * side + within / side, square % across * side + within % side)
            }
            PatchOrder::Windows { side, window } => {
                let (square, within) = (index / (side * side), index % (side * side));
                let (down, across) = Windows { grid, side, window }.place(square);
                (down * side + within / side, across * side + within % side)
            }
        }
    }

    /// Where the values of the patch `index` of `grid` are among those of all patches.
    pub fn stored(self, index: usize, grid: Grid) -> usize {
        let PatchOrder::Windows { side, window } = self else { return index };
        let (square, within) = (index / (side * side), index % (side * side));
        Windows { grid, side, window }.line(square) * side * side + within
    }

    /// The windows of `grid`, where patches come in these.
    pub fn windows(self, grid: Grid) -> Option<Windows> {
        if let PatchOrder::Windows { side, window } = self { Some(Windows { grid, side, window }) } else { None }
    }
}

/// The windows of an image: those at its right and lower edges may be smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    grid: Grid,
    /// The side of a square in patches, and of a window in squares.
    side: usize,
    window: usize,
}

impl Windows {
    fn squares(self) -> Grid {
        Grid { rows: self.grid.rows / self.side, columns: self.grid.columns / self.side }
    }

    /// The row and the column, in squares, of the square `square` in the order of windows.
    fn place(self, square: usize) -> (usize, usize) {
        let (Grid { rows, columns }, window) = (self.squares(), self.window);
        let (band, within) = (square / (window * columns), square % (window * columns));
        let height = window.min(rows - band * window);
        let (along, within) = (within / (height * window), within % (height * window));
        let width = window.min(columns - along * window);
        (band * window + within / width, along * window + within % width)
    }

    /// The place of the square `square` in the order of windows from left to right and then down.
    pub fn line(self, square: usize) -> usize {
        let (row, column) = self.place(square);
        row * self.squares().columns + column
    }

    /// The number of windows.
    pub fn count(self) -> usize {
        let Grid { rows, columns } = self.squares();
        rows.div_ceil(self.window) * columns.div_ceil(self.window)
    }

    /// Where each window ends among the patches.
    pub fn ends(self) -> impl Iterator<Item = usize> {
        let (Grid { rows, columns }, Windows { side, window, .. }) = (self.squares(), self);
        let extent = move |at: usize, of: usize| window.min(of - at * window);
        let bands = (0..rows.div_ceil(window)).map(move |band| extent(band, rows));
        let sizes =
            bands.flat_map(move |high| (0..columns.div_ceil(window)).map(move |along| high * extent(along, columns)));
        sizes.scan(0, move |end, squares| {
            *end += squares * side * side;
            Some(*end)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The squares of each window in turn, as transformers finds them: of a table that is filled up to whole windows.
    fn by_table(squares: Grid, window: usize) -> Vec<Vec<(usize, usize)>> {
        let bands = |extent: usize| 0..extent.div_ceil(window);
        let windows = bands(squares.rows).flat_map(|down| bands(squares.columns).map(move |along| (down, along)));
        let of_window = |(down, along): (usize, usize)| {
            let places = (0..window * window).map(|at| (down * window + at / window, along * window + at % window));
            places.filter(|(row, column)| *row < squares.rows && *column < squares.columns).collect()
        };
        windows.map(of_window).collect()
    }

    #[test]
    fn windows_hold_the_squares_of_their_part_of_an_image() {
        for (rows, columns, window, side) in (1..8).flat_map(|rows| {
            (1..8).flat_map(move |columns| {
                [1, 2, 3, 4, 9].into_iter().flat_map(move |window| [1, 2].map(|side| (rows, columns, window, side)))
            })
        }) {
            let (squares, grid) = (Grid { rows, columns }, Grid { rows: rows * side, columns: columns * side });
            let (order, expected) = (PatchOrder::Windows { side, window }, by_table(squares, window));
            let windows = order.windows(grid).expect("windows");
            assert_eq!(windows.count(), expected.len(), "{squares:?} in {window}");
            let ends: Vec<usize> = windows.ends().collect();
            let sums = expected.iter().scan(0, |end, squares| {
                *end += squares.len() * side * side;
                Some(*end)
            });
            assert_eq!(ends, sums.collect::<Vec<_>>(), "{squares:?} in {window}");
            let (area, in_squares) = (side * side, PatchOrder::Squares { side });
            for (index, (row, column)) in expected.into_iter().flatten().enumerate() {
                assert_eq!(windows.line(index), row * columns + column, "{squares:?} in {window}");
                for within in 0..area {
                    let (patch, stored) = (index * area + within, (row * columns + column) * area + within);
                    assert_eq!(order.stored(patch, grid), stored);
                    assert_eq!(order.place(patch, grid), in_squares.place(stored, grid));
                }
            }
        }
    }
}
