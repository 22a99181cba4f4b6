//! Shadow memory: which thread touched each byte last, and what no correct kernel does.

use std::fmt;
use std::ops::Range;

/// Bytes on either side of a buffer that no kernel may touch.
pub(crate) const REDZONE: usize = 64 << 10;

/// What a kernel did wrong with memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An access outside every buffer.
    OutOfBounds {
        /// Name of the nearest buffer.
        buffer: String,
        /// Offset from its start in bytes.
        offset: i64,
        /// Its size.
        size: usize,
        /// Whether it was a write.
        write: bool,
    },
    /// An access to an address that belongs to no argument.
    Wild {
        /// Whether it was a write.
        write: bool,
    },
    /// A write to a buffer passed as input.
    ReadOnly {
        /// Name of the buffer.
        buffer: String,
        /// Offset in bytes.
        offset: usize,
    },
    /// A read of shared memory that no thread of this block wrote.
    Uninitialised {
        /// Offset in shared memory.
        offset: usize,
    },
    /// Two threads touched a byte, one of them writing, and no barrier orders them.
    Race {
        /// Name of the buffer.
        buffer: String,
        /// Offset in bytes.
        offset: usize,
        /// Whether this access writes.
        write: bool,
        /// The other thread.
        other: u32,
        /// The other thread's block, when it is another one.
        other_block: Option<[u32; 3]>,
        /// Whether the other access wrote.
        other_write: bool,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = |write: &bool| if *write { "writes" } else { "reads" };
        match self {
            Self::OutOfBounds { buffer, offset, size, write } => {
                write!(f, "{} at byte {offset} of {buffer}, which has {size} bytes", verb(write))
            }
            Self::Wild { write } => {
                write!(f, "{} at an address outside every argument", verb(write))
            }
            Self::ReadOnly { buffer, offset } => {
                write!(f, "writes at byte {offset} of {buffer}, an input")
            }
            Self::Uninitialised { offset } => {
                write!(
                    f,
                    "reads shared memory at byte {offset}, which no thread of the block wrote"
                )
            }
            Self::Race { buffer, offset, write, other, other_block, other_write } => {
                write!(f, "race: {} byte {offset} of {buffer}, which thread {other}", verb(write))?;
                if let Some(block) = other_block {
                    write!(f, " of block {block:?}")?;
                }
                write!(
                    f,
                    " {} with no barrier between",
                    if *other_write { "wrote" } else { "read" }
                )
            }
        }
    }
}

/// An access that shadow memory remembers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Access {
    /// 0 means never; otherwise one more than the index of the block.
    block: u32,
    thread: u32,
    epoch: u32,
    warp_epoch: u32,
}

impl Access {
    const NEVER: Self = Self { block: 0, thread: 0, epoch: 0, warp_epoch: 0 };

    /// Whether a barrier, a collective or program order puts this access before `later`.
    fn before(self, later: Self) -> bool {
        if self.block == 0 {
            return true;
        }
        self.block == later.block
            && (self.thread == later.thread
                || self.epoch < later.epoch
                || (self.thread / 32 == later.thread / 32 && self.warp_epoch < later.warp_epoch))
    }
}

/// The last write of a byte, and two reads by different threads.
#[derive(Clone, Copy)]
struct Cell {
    write: Access,
    reads: [Access; 2],
}

const UNTOUCHED: Cell = Cell { write: Access::NEVER, reads: [Access::NEVER; 2] };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Input,
    Output,
    Shared,
}

struct Region {
    name: String,
    kind: Kind,
    range: Range<usize>,
    shadow: Vec<Cell>,
}

/// All memory that a kernel may touch.
#[derive(Default)]
pub(crate) struct Memory {
    regions: Vec<Region>,
    /// Constants and code of the loaded kernel.
    image: Vec<Range<usize>>,
    block: u32,
    blocks: Vec<[u32; 3]>,
}

impl Memory {
    pub(crate) fn new(image: Vec<Range<usize>>) -> Self {
        Self { image, ..Self::default() }
    }

    pub(crate) fn add(&mut self, name: String, kind: Kind, start: usize, len: usize) {
        let shadow = if kind == Kind::Input { Vec::new() } else { vec![UNTOUCHED; len] };
        self.regions.push(Region { name, kind, range: start..start + len, shadow });
    }

    pub(crate) fn enter_block(&mut self, block: [u32; 3]) {
        self.blocks.push(block);
        self.block = self.blocks.len() as u32;
        for region in &mut self.regions {
            if region.kind == Kind::Shared {
                region.shadow.fill(UNTOUCHED);
                poison(region.range.clone());
            }
        }
    }

    pub(crate) fn access(
        &mut self,
        address: usize,
        size: usize,
        write: bool,
        thread: u32,
        epoch: u32,
        warp_epoch: u32,
    ) -> Result<(), Violation> {
        let end = address + size;
        let now = Access { block: self.block, thread, epoch, warp_epoch };
        let Some(region) =
            self.regions.iter_mut().find(|r| r.range.start <= address && end <= r.range.end)
        else {
            return self.outside(address, end, write);
        };
        let offset = address - region.range.start;
        if region.kind == Kind::Input {
            if write {
                return Err(Violation::ReadOnly { buffer: region.name.clone(), offset });
            }
            return Ok(());
        }
        for (i, cell) in region.shadow[offset..offset + size].iter_mut().enumerate() {
            let conflict = if !cell.write.before(now) {
                Some((cell.write, true))
            } else if write {
                cell.reads.iter().find(|read| !read.before(now)).map(|read| (*read, false))
            } else {
                None
            };
            if let Some((other, other_write)) = conflict {
                return Err(Violation::Race {
                    buffer: region.name.clone(),
                    offset: offset + i,
                    write,
                    other: other.thread,
                    other_block: (other.block != now.block)
                        .then(|| self.blocks[other.block as usize - 1]),
                    other_write,
                });
            }
            if write {
                *cell = Cell { write: now, reads: [Access::NEVER; 2] };
            } else {
                if region.kind == Kind::Shared && cell.write == Access::NEVER {
                    return Err(Violation::Uninitialised { offset: offset + i });
                }
                remember(&mut cell.reads, now);
            }
        }
        Ok(())
    }

    fn outside(&self, address: usize, end: usize, write: bool) -> Result<(), Violation> {
        if !write && self.image.iter().any(|range| range.start <= address && end <= range.end) {
            return Ok(());
        }
        let near = self.regions.iter().find(|r| {
            address < r.range.end.saturating_add(REDZONE)
                && end > r.range.start.saturating_sub(REDZONE)
        });
        Err(match near {
            Some(region) => Violation::OutOfBounds {
                buffer: region.name.clone(),
                offset: address as i64 - region.range.start as i64,
                size: region.range.len(),
                write,
            },
            None => Violation::Wild { write },
        })
    }
}

/// Keeps two reads that a later write must be ordered after; readers of different warps say most.
fn remember(reads: &mut [Access; 2], now: Access) {
    for read in reads.iter_mut() {
        if read.before(now) {
            *read = now;
            return;
        }
    }
    if reads[0].thread / 32 == reads[1].thread / 32 {
        reads[1] = now;
    }
}

/// Fills shared memory with NaNs, so that what a kernel reads before writing it shows.
fn poison(range: Range<usize>) {
    #[expect(
        unsafe_code,
        reason = "shared memory belongs to the emulator; no reference to it exists"
    )]
    // SAFETY: the range is the shared memory of the loaded kernel, and no fiber runs.
    unsafe {
        std::ptr::write_bytes(range.start as *mut u8, 0xff, range.len());
    }
}
