//! A stream -> checked little-endian values; every error has the file and the absolute offset.

use crate::error::{Error, FormatErrorKind, IncompleteKind, Result};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes requested from the system at once; also the most that is read past the end of a header.
const BUFFER_BYTES: usize = 64 << 10;

/// Reads a header in order, never past `len`, and counts what it reads.
pub(crate) struct Reader<R> {
    file: PathBuf,
    source: R,
    len: u64,
    limit: u64,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    position: u64,
    bytes_read: u64,
}

impl<R: Read> Reader<R> {
    /// Reads `source`, the content of `file` with `len` bytes, refusing claims that reach past byte `limit`.
    ///
    /// # Errors
    /// `Io` when there is no memory for its buffer.
    pub(crate) fn new(file: &Path, len: u64, limit: u64, source: R) -> Result<Self> {
        let size = usize::try_from(len).unwrap_or(BUFFER_BYTES).clamp(64, BUFFER_BYTES);
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(size).map_err(|_| Error::io(file, ErrorKind::OutOfMemory.into()))?;
        buffer.resize(size, 0);
        Ok(Reader { file: file.into(), source, len, limit, buffer, start: 0, end: 0, position: 0, bytes_read: 0 })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The absolute offset of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes requested from the system so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    pub(crate) fn refuse(&self, offset: u64, kind: FormatErrorKind) -> Error {
        Error::Format { file: self.file.clone(), offset: Some(offset), kind }
    }

    /// The error for a header that is cut off by the end of the file.
    pub(crate) fn truncated(&self, what: &'static str) -> Error {
        let kind = IncompleteKind::HeaderTruncated { what, at: self.position, have: self.len };
        Error::incomplete(&self.file, kind)
    }

    /// The next bytes without consuming them: `count` bytes, or as many as are left.
    pub(crate) fn prefix(&mut self, count: usize) -> Result<&[u8]> {
        self.fill(count.min(self.buffer.len()))?;
        let end = self.end.min(self.start + count);
        Ok(&self.buffer[self.start..end])
    }

    /// Reads until the buffer holds `wanted` bytes (at most its own size) or the file ends.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        if self.end - self.start >= wanted {
            return Ok(());
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < wanted {
            // A file that grows meanwhile is read only up to its length at the start.
            let left = self.len.saturating_sub(self.position + self.end as u64);
            let room = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len() - self.end);
            match self.source.read(&mut self.buffer[self.end..self.end + room]) {
                Ok(0) => break,
                Ok(count) => {
                    self.end += count;
                    self.bytes_read += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(&self.file, error)),
            }
        }
        Ok(())
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        self.position += count as u64;
    }

    /// The next `N` bytes, which belong to `what`.
    #[inline]
    pub(crate) fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        if self.end - self.start < N {
            self.fill(N)?;
        }
        let Some(bytes) = self.buffer[self.start..self.end].first_chunk::<N>().copied() else {
            return Err(self.truncated(what));
        };
        self.consume(N);
        Ok(bytes)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take(what)?))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take(what)?))
    }

    /// Checks a claim of `count` items of at least `least` bytes each, read at `offset`, against the limit and the file.
    pub(crate) fn claim(&self, what: &'static str, offset: u64, count: u64, least: u64) -> Result<usize> {
        let end = count.checked_mul(least).and_then(|bytes| bytes.checked_add(self.position));
        match (end, usize::try_from(count)) {
            (Some(end), Ok(count)) if end <= self.limit => {
                if end > self.len {
                    return Err(self.truncated(what));
                }
                Ok(count)
            }
            _ => {
                let limit = self.limit.saturating_sub(self.position) / least.max(1);
                Err(self.refuse(offset, FormatErrorKind::TooMany { what, found: count, limit }))
            }
        }
    }

    /// Appends the next `count` bytes, which belong to `what`, to `out`.
    #[inline]
    pub(crate) fn append(&mut self, what: &'static str, count: usize, out: &mut Vec<u8>) -> Result<()> {
        if count as u64 > self.len.saturating_sub(self.position) {
            return Err(self.truncated(what));
        }
        let mut left = count;
        while left > 0 {
            if self.start == self.end {
                self.fill(1)?;
            }
            let now = left.min(self.end - self.start);
            if now == 0 {
                return Err(self.truncated(what));
            }
            out.extend_from_slice(&self.buffer[self.start..self.start + now]);
            self.consume(now);
            left -= now;
        }
        Ok(())
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Whether the four bytes at `offset` are `magic`. The reader continues after them.
    pub(crate) fn magic_at(&mut self, offset: u64, magic: &[u8; 4]) -> Result<bool> {
        if offset.checked_add(4).is_none_or(|end| end > self.len) {
            return Ok(false);
        }
        self.source.seek(SeekFrom::Start(offset)).map_err(|error| Error::io(&self.file, error))?;
        let mut found = [0; 4];
        match self.source.read_exact(&mut found) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(Error::io(&self.file, error)),
        }
        (self.start, self.end, self.position) = (0, 0, offset + 4);
        self.bytes_read += 4;
        Ok(found == *magic)
    }
}
