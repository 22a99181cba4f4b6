//! Memory-mapped files, and slices of them that keep the mapping alive.
//!
//! The only unsafe code of this crate: mapping a file is unsafe because another process may change it under us. A file
//! that is *truncated* while mapped ends this process with `SIGBUS`, as it does in every engine that maps its weights;
//! the hub cache never writes to a finished file, it only renames a new one over it.

use std::fmt;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;

use super::WeightsError;

/// A read-only mapping of a whole file.
#[derive(Debug)]
pub(super) struct MappedFile {
    path: PathBuf,
    map: Arc<Mmap>,
}

impl MappedFile {
    /// Maps the regular file at `path`.
    pub(super) fn open(path: &Path) -> Result<Arc<Self>, WeightsError> {
        let io = |action| move |source| WeightsError::Io { path: path.to_owned(), action, source };
        // Asked before opening: opening a named pipe would wait for a writer.
        let metadata = std::fs::metadata(path).map_err(io("open"))?;
        if !metadata.is_file() {
            return Err(WeightsError::malformed(
                path,
                "the model file",
                "a regular file",
                "something else",
            ));
        }
        let file = File::open(path).map_err(io("open"))?;
        #[expect(
            unsafe_code,
            reason = "mapping is the only way to load weights without copying them"
        )]
        // SAFETY: the mapping is private to this struct and read-only. The remaining risk, another process changing
        // the file, is stated in the module's documentation.
        let map = unsafe { Mmap::map(&file) }.map_err(io("map"))?;
        Ok(Arc::new(Self { path: path.to_owned(), map: Arc::new(map) }))
    }

    /// The file's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All bytes of the file.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// The bytes of `range`, sharing the mapping; `None` when the range leaves the file.
    pub(super) fn slice(self: &Arc<Self>, range: Range<usize>) -> Option<MappedSlice> {
        self.map.get(range.clone())?;
        Some(MappedSlice { file: Arc::clone(self), range })
    }
}

/// A range of a mapped file. Clones are cheap and share the mapping.
#[derive(Clone)]
pub struct MappedSlice {
    file: Arc<MappedFile>,
    range: Range<usize>,
}

impl MappedSlice {
    /// The file that these bytes come from.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Where the bytes start in the file.
    pub fn offset(&self) -> usize {
        self.range.start
    }

    /// These bytes as a read-only buffer that kernels use in place.
    pub fn buffer(&self) -> iron_runtime::Result<iron_runtime::Buffer> {
        iron_runtime::Buffer::mapped(Arc::clone(&self.file.map), self.range.clone())
    }

    /// Tells the operating system that these bytes are needed soon, so that it reads ahead.
    pub fn prefetch(&self) {
        #[cfg(unix)]
        let _ = self.file.map.advise_range(
            memmap2::Advice::WillNeed,
            self.range.start,
            self.range.len(),
        );
    }

    /// Gives the memory pages of these bytes back; a later read takes them from the file again.
    pub fn release(&self) {
        #[cfg(unix)]
        if !self.range.is_empty() {
            #[expect(
                unsafe_code,
                reason = "the safe wrapper excludes MADV_DONTNEED, which is lossy on writable maps"
            )]
            // SAFETY: the mapping is read-only and backed by a file, so dropped pages are read back unchanged.
            let _ = unsafe {
                self.file.map.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    self.range.start,
                    self.range.len(),
                )
            };
        }
    }
}

impl Deref for MappedSlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // Checked when the slice was made, and neither side can change since.
        &self.file.map[self.range.clone()]
    }
}

impl fmt::Debug for MappedSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedSlice")
            .field("path", &self.file.path)
            .field("range", &self.range)
            .finish()
    }
}
