//! An array of byte strings in one buffer: a vocabulary has hundreds of thousands of them.

/// An array of byte strings without an allocation for each.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of string `index`; `None` past the end. Not necessarily UTF-8.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let start = if index == 0 { 0 } else { *self.ends.get(index - 1)? };
        self.bytes.get(start..*self.ends.get(index)?)
    }

    /// All strings in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    pub(crate) fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    /// Adds the string that `append` writes to the end of the buffer.
    pub(super) fn push_with<E>(&mut self, append: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        append(&mut self.bytes)?;
        self.ends.push(self.bytes.len());
        Ok(())
    }
}
