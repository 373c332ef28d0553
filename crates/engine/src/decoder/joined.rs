//! Hidden states beside logits, and what a prediction head reads beside ids.

/// Hidden states that go with a step, `[rows, hidden]`: as the output head reads them, behind the last norm.
#[derive(Default)]
pub struct Hidden<'a> {
    /// Of a prediction head: that of the position before each row's token, of the model or of the head itself.
    pub given: &'a [f32],
    /// Where those of the step are put.
    pub taken: Taken<'a>,
}

/// Which hidden states of a step are put where. Complete.
#[derive(Default)]
pub enum Taken<'a> {
    /// None.
    #[default]
    Nothing,
    /// Those of all rows.
    All(&'a mut Vec<f32>),
    /// Those of the rows whose logits are wanted.
    Wanted(&'a mut Vec<f32>),
}

impl Taken<'_> {
    /// Whether every row is brought to the end.
    pub(super) fn is_all(&self) -> bool {
        matches!(self, Taken::All(_))
    }
}
