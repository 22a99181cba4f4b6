//! Memory that kernels read and write.

use std::alloc::{self, Layout};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use memmap2::{Mmap, MmapMut, MmapOptions};

use crate::pod::{bytes_of, bytes_of_mut};
use crate::{Pod, Result, RuntimeError};

/// Alignment of every owned buffer: one cache line, which is also the widest vector.
pub(crate) const BUFFER_ALIGN: usize = 64;

/// Buffers of this size and more are mapped, on huge pages where the system has them.
const HUGE_PAGE: usize = 2 << 20;

/// A region of host memory or of a mapped file; clones share it.
///
/// Owned memory starts as zeros. From 2 MiB on, only address space is reserved, and each page is taken when it is first
/// touched.
///
/// **Invariant**: the memory has interior mutability, and its only writers are the kernels of a running command buffer
/// and the host functions here. Both take the buffer's access word: while a command buffer that uses this buffer runs,
/// [`Buffer::read`] and [`Buffer::write`] answer [`RuntimeError::Busy`]; while the host copies, a command buffer waits.
/// Dispatches of one command buffer are ordered by the runtime, except inside a parallel group, whose members must not
/// write what another member uses.
#[derive(Clone)]
pub struct Buffer {
    inner: Arc<Inner>,
}

struct Inner {
    base: NonNull<u8>,
    len: usize,
    storage: Storage,
    /// Above zero: that many running command buffers; -1: the host is copying.
    access: AtomicI32,
}

enum Storage {
    Empty,
    Heap(Layout),
    Anonymous(#[expect(dead_code, reason = "unmapped when dropped")] MmapMut),
    File(#[expect(dead_code, reason = "kept mapped")] Arc<Mmap>),
}

// SAFETY: the memory behind `base` is owned by `storage`, and every access goes through the access word (host) or
// through a command buffer that holds it (kernels), as the invariant of `Buffer` says.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Storage::Heap(layout) = self.storage {
            // SAFETY: `base` came from `alloc_zeroed` with this layout and is released once.
            unsafe { alloc::dealloc(self.base.as_ptr(), layout) }
        }
    }
}

impl Buffer {
    /// Allocates `len` zero bytes, aligned to 64 bytes.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Allocation`] when the system refuses or the size cannot exist; nothing aborts.
    pub fn zeroed(len: usize) -> Result<Self> {
        let refused = |reason: String| RuntimeError::Allocation { bytes: len, reason };
        let (base, storage) = if len == 0 {
            (NonNull::<CacheLine>::dangling().cast(), Storage::Empty)
        } else if len < HUGE_PAGE {
            let layout = Layout::from_size_align(len, BUFFER_ALIGN)
                .map_err(|error| refused(error.to_string()))?;
            // SAFETY: the layout has a nonzero size.
            let base = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })
                .ok_or_else(|| refused("the allocator is out of memory".to_owned()))?;
            (base, Storage::Heap(layout))
        } else {
            let reserved = len
                .checked_add(HUGE_PAGE)
                .filter(|&bytes| isize::try_from(bytes).is_ok())
                .ok_or_else(|| refused("it exceeds the address space".to_owned()))?;
            let mut map = MmapOptions::new()
                .len(reserved)
                .no_reserve_swap()
                .map_anon()
                .map_err(|error| refused(error.to_string()))?;
            let padding = map.as_ptr().align_offset(HUGE_PAGE);
            // A refusal costs speed only.
            #[cfg(target_os = "linux")]
            let _ = map.advise_range(memmap2::Advice::HugePage, padding, len);
            // SAFETY: `padding < HUGE_PAGE`, so `padding + len` lies inside the mapping.
            let base = unsafe { NonNull::new_unchecked(map.as_mut_ptr().add(padding)) };
            (base, Storage::Anonymous(map))
        };
        Ok(Self::from_parts(base, len, storage))
    }

    /// Allocates `len` bytes and lets `fill` write them before anyone else sees the buffer.
    ///
    /// `fill` may hand parts of the slice to several threads.
    pub fn filled<E: From<RuntimeError>>(
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<Self, E> {
        let buffer = Self::zeroed(len)?;
        // SAFETY: `base` is valid for `len` initialised bytes, and this is the only handle to them.
        fill(unsafe { std::slice::from_raw_parts_mut(buffer.inner.base.as_ptr(), len) })?;
        Ok(buffer)
    }

    /// Copies `values` into a new buffer.
    pub fn from_slice<T: Pod>(values: &[T]) -> Result<Self> {
        let bytes = bytes_of(values);
        Self::filled(bytes.len(), |target| {
            target.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// A read-only buffer over `range` of a mapped file, which stays mapped as long as the buffer lives.
    pub fn mapped(map: Arc<Mmap>, range: Range<usize>) -> Result<Self> {
        check_range(
            "the mapped region",
            range.start,
            range.end.checked_sub(range.start),
            map.len(),
        )?;
        // SAFETY: the range lies inside the mapping; kernels never write it because `is_writable` is false.
        let base = unsafe { NonNull::new_unchecked(map.as_ptr().add(range.start).cast_mut()) };
        Ok(Self::from_parts(base, range.len(), Storage::File(map)))
    }

    fn from_parts(base: NonNull<u8>, len: usize, storage: Storage) -> Self {
        Self { inner: Arc::new(Inner { base, len, storage, access: AtomicI32::new(0) }) }
    }

    /// Size in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether kernels and the host may write it; false for mapped files.
    #[inline]
    pub fn is_writable(&self) -> bool {
        !matches!(self.inner.storage, Storage::File(_))
    }

    /// Address of the first byte, for kernels; host code uses [`Buffer::read`] and [`Buffer::write`].
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner.base.as_ptr()
    }

    /// The bytes of a mapped file region; `None` for owned memory, which kernels may change.
    pub fn file_bytes(&self) -> Option<&[u8]> {
        // SAFETY: valid for `len` bytes as long as the mapping lives, and never written through this buffer.
        (!self.is_writable()).then(|| unsafe {
            std::slice::from_raw_parts(self.inner.base.as_ptr(), self.inner.len)
        })
    }

    /// A number that no other live region has.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    /// Whether both handles share one region.
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Copies `out.len()` values that start at byte `offset` into `out`.
    pub fn read<T: Pod>(&self, offset: usize, out: &mut [T]) -> Result<()> {
        let bytes = bytes_of_mut(out);
        check_range("the read", offset, Some(bytes.len()), self.len())?;
        let _access = self.host_access()?;
        // SAFETY: in bounds; the access guard keeps kernels and other host copies away; `out` is a separate allocation
        // because no safe reference into writable buffers exists.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.as_ptr().add(offset),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        }
        Ok(())
    }

    /// Copies `count` values that start at byte `offset` into a new vector.
    pub fn read_vec<T: Pod>(&self, offset: usize, count: usize) -> Result<Vec<T>> {
        check_range("the read", offset, count.checked_mul(size_of::<T>()), self.len())?;
        let mut values = vec![T::default(); count];
        self.read(offset, &mut values)?;
        Ok(values)
    }

    /// Copies `values` to byte `offset`.
    pub fn write<T: Pod>(&self, offset: usize, values: &[T]) -> Result<()> {
        let bytes = bytes_of(values);
        check_range("the write", offset, Some(bytes.len()), self.len())?;
        if !self.is_writable() {
            return Err(RuntimeError::ReadOnly);
        }
        let _access = self.host_access()?;
        // SAFETY: in bounds and writable; the access guard keeps kernels and other host copies away.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.as_ptr().add(offset), bytes.len());
        }
        Ok(())
    }

    /// Gives the whole pages inside `range` back to the system.
    ///
    /// A file region is read again from the file at its next use. The contents of owned memory in `range` are
    /// unspecified afterwards (zero where a page was given back); buffers under 2 MiB keep their memory.
    pub fn advise_dont_need(&self, range: Range<usize>) -> Result<()> {
        check_range(
            "the range to release",
            range.start,
            range.end.checked_sub(range.start),
            self.len(),
        )?;
        #[cfg(unix)]
        if matches!(self.inner.storage, Storage::Anonymous(_) | Storage::File(_)) {
            // SAFETY: `sysconf` has no preconditions.
            let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })
                .unwrap_or(4096)
                .max(1);
            let base = self.as_ptr().addr();
            let start = (base + range.start).next_multiple_of(page);
            let end = (base + range.end) / page * page;
            if start < end {
                let _access = self.host_access()?;
                // SAFETY: whole pages inside our mapping; the access guard keeps kernels and host copies of owned memory
                // away, and a private file mapping shows the same bytes again.
                let status = unsafe {
                    libc::madvise(
                        self.as_ptr().with_addr(start).cast(),
                        end - start,
                        libc::MADV_DONTNEED,
                    )
                };
                if status != 0 {
                    let reason = std::io::Error::last_os_error().to_string();
                    return Err(RuntimeError::System { what: "released pages", reason });
                }
            }
        }
        Ok(())
    }

    /// Takes the buffer for a command buffer; waits while the host copies.
    pub(crate) fn begin_run(&self) {
        if !self.is_writable() {
            return;
        }
        let access = &self.inner.access;
        loop {
            let users = access.load(Ordering::Relaxed);
            if users < 0 {
                std::thread::yield_now();
            } else if access
                .compare_exchange_weak(users, users + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }

    /// Ends what [`Buffer::begin_run`] began.
    pub(crate) fn end_run(&self) {
        if self.is_writable() {
            self.inner.access.fetch_sub(1, Ordering::Release);
        }
    }

    /// Takes the buffer for a copy by the host; waits for another copy.
    fn host_access(&self) -> Result<Option<HostAccess<'_>>> {
        if !self.is_writable() {
            return Ok(None);
        }
        let access = &self.inner.access;
        loop {
            match access.compare_exchange_weak(0, -1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Some(HostAccess(access))),
                Err(users) if users > 0 => return Err(RuntimeError::Busy),
                Err(_) => std::thread::yield_now(),
            }
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.is_writable() { "memory" } else { "file" };
        write!(f, "Buffer({kind}, {} bytes at {:p})", self.len(), self.as_ptr())
    }
}

#[repr(align(64))]
struct CacheLine;

struct HostAccess<'a>(&'a AtomicI32);

impl Drop for HostAccess<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Checks that `bytes` bytes at `offset` lie inside a buffer of `len`; `None` is a size that overflowed.
pub(crate) fn check_range(
    what: &'static str,
    offset: usize,
    bytes: Option<usize>,
    len: usize,
) -> Result<()> {
    match bytes.and_then(|bytes| offset.checked_add(bytes)) {
        Some(end) if end <= len => Ok(()),
        end => Err(RuntimeError::OutOfBounds {
            what,
            start: offset,
            end: end.unwrap_or(usize::MAX),
            len,
        }),
    }
}
