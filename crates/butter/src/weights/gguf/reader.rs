//! A cursor over an untrusted file: every read is bounded by the file, never by what the file says.

use std::path::Path;

use super::super::WeightsError;
use super::super::mapped::MappedFile;

pub(super) struct Reader<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a MappedFile) -> Self {
        Self { path: file.path(), bytes: file.bytes(), position: 0 }
    }

    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    /// The offset of the next byte.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// How many bytes are left.
    pub(super) fn remaining(&self) -> u64 {
        (self.bytes.len() - self.position) as u64
    }

    /// The next `length` bytes.
    pub(super) fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], WeightsError> {
        if length > self.remaining() {
            return Err(WeightsError::Truncated {
                path: self.path.to_owned(),
                what: what.to_owned(),
                offset: self.position as u64,
                needed: length,
                length: self.bytes.len() as u64,
            });
        }
        let start = self.position;
        self.position += length as usize;
        Ok(&self.bytes[start..self.position])
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], WeightsError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, WeightsError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, WeightsError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A length and that many bytes of UTF-8, at most `longest`.
    pub(super) fn string(&mut self, what: &str, longest: u64) -> Result<String, WeightsError> {
        let length = self.u64(what)?;
        if length > longest {
            return Err(self.malformed(
                what,
                format!("at most {longest} bytes"),
                format!("{length}"),
            ));
        }
        let bytes = self.take(length, what)?;
        let text =
            std::str::from_utf8(bytes).map_err(|_| self.malformed(what, "UTF-8", "other bytes"))?;
        Ok(text.to_owned())
    }

    pub(super) fn malformed(
        &self,
        what: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> WeightsError {
        WeightsError::malformed(self.path, what, expected, found)
    }
}
