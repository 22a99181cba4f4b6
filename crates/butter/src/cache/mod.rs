//! Keys and values of every sequence, in pages.
//!
//! A page holds [`PAGE`] consecutive positions of one sequence, in every layer. A sequence is a table of pages; pages
//! are shared by forks and copied when one of their holders is about to write into them.

mod error;
mod pool;

use iron_runtime::{Buffer, DType, Device, Tensor};

use self::pool::{PageId, PagePool};
use crate::Error;

pub use self::error::CacheError;

/// Positions of one page: what the attention kernel reads at once.
pub const PAGE: usize = 64;

/// What a cache is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Layers with attention.
    pub num_layers: usize,
    /// Key and value heads of each.
    pub num_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Element type of keys and values: f16 or f32.
    pub dtype: DType,
    /// The most positions of one sequence.
    pub context_length: usize,
    /// The most sequences at once.
    pub max_sequences: usize,
    /// The most bytes that keys and values may occupy; `None`: enough for all sequences at full length. Memory is
    /// taken when it is first used.
    pub byte_limit: Option<u64>,
}

/// A sequence of one cache. It stays valid until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceId {
    slot: u32,
    generation: u32,
}

/// Keys and values of one layer.
#[derive(Clone, Debug)]
pub struct LayerCache {
    /// `[pages, kv_heads, head_dim, PAGE]`.
    pub keys: Tensor,
    /// `[pages, kv_heads, PAGE, head_dim]`.
    pub values: Tensor,
}

/// The paged cache of one model.
#[derive(Debug)]
pub struct KvCache {
    options: CacheOptions,
    layers: Vec<LayerCache>,
    pool: PagePool,
    slots: Vec<Slot>,
    /// `[max_sequences, pages of the context]`, what the attention kernel reads.
    page_table: Tensor,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    live: bool,
    pages: Vec<PageId>,
    length: usize,
}

impl KvCache {
    /// Reserves address space for all pages in the memory of `device`.
    pub fn new(device: &Device, options: CacheOptions) -> Result<Self, Error> {
        let per_sequence = options.context_length.div_ceil(PAGE);
        let wanted = per_sequence.saturating_mul(options.max_sequences);
        let shape = [options.num_kv_heads, options.head_dim];
        let page_bytes = shape.iter().product::<usize>() * PAGE * options.dtype.size();
        let all_layers = 2 * page_bytes as u64 * options.num_layers as u64;
        let pages = match options.byte_limit {
            Some(limit) => wanted.min((limit / all_layers.max(1)) as usize),
            None => wanted,
        };
        let [kv_heads, head_dim] = shape;
        let layers = (0..options.num_layers).map(|_| {
            let keys = device.tensor(options.dtype, &[pages, kv_heads, head_dim, PAGE])?;
            let values = device.tensor(options.dtype, &[pages, kv_heads, PAGE, head_dim])?;
            Ok(LayerCache { keys, values })
        });
        Ok(Self {
            layers: layers.collect::<Result<_, Error>>()?,
            pool: PagePool::new(pages),
            slots: (0..options.max_sequences).map(|_| Slot::default()).collect(),
            page_table: device.tensor(DType::I32, &[options.max_sequences, per_sequence])?,
            options,
        })
    }

    /// What the cache was made for.
    pub fn options(&self) -> &CacheOptions {
        &self.options
    }

    /// Starts an empty sequence.
    pub fn create(&mut self) -> Result<SequenceId, CacheError> {
        let limit = self.slots.len();
        let free = self.slots.iter().position(|slot| !slot.live);
        let slot = free.ok_or(CacheError::TooManySequences { limit })?;
        self.slots[slot].live = true;
        Ok(SequenceId { slot: slot as u32, generation: self.slots[slot].generation })
    }

    /// The number of positions of a sequence.
    pub fn len(&self, id: SequenceId) -> Result<usize, CacheError> {
        Ok(self.slot(id)?.length)
    }

    /// Whether no sequence is live.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| !slot.live)
    }

    /// Makes room for `count` more positions and returns the first. Nothing changes on an error.
    pub fn append(&mut self, id: SequenceId, count: usize) -> Result<usize, Error> {
        let slot = self.slot(id)?;
        let (start, held) = (slot.length, slot.pages.len());
        let context = self.options.context_length;
        let end = start.checked_add(count).filter(|&end| end <= context);
        let end = end.ok_or(CacheError::ContextFull { context, held: start, asked: count })?;
        let shared_tail = slot.pages.get(start / PAGE).copied();
        let shared_tail = shared_tail.filter(|&page| count > 0 && self.pool.is_shared(page));
        let asked = end.div_ceil(PAGE) - held + usize::from(shared_tail.is_some());
        let (available, capacity) = (self.pool.available(), self.pool.capacity());
        if asked > available {
            return Err(CacheError::PoolExhausted { asked, available, capacity }.into());
        }
        if let Some(page) = shared_tail {
            let own = self.allocate()?;
            self.copy_page(page, own)?;
            self.pool.release(page);
            self.slots[id.slot as usize].pages[start / PAGE] = own;
        }
        for _ in held..end.div_ceil(PAGE) {
            let page = self.allocate()?;
            self.slots[id.slot as usize].pages.push(page);
        }
        self.slots[id.slot as usize].length = end;
        self.write_page_table(id, start / PAGE)?;
        Ok(start)
    }

    /// A new sequence with the positions of `id`, which shares its pages.
    pub fn fork(&mut self, id: SequenceId) -> Result<SequenceId, Error> {
        let (pages, length) = (self.slot(id)?.pages.clone(), self.slot(id)?.length);
        let fork = self.create()?;
        for &page in &pages {
            self.pool.retain(page);
        }
        let slot = &mut self.slots[fork.slot as usize];
        (slot.pages, slot.length) = (pages, length);
        self.write_page_table(fork, 0)?;
        Ok(fork)
    }

    /// Forgets the positions from `length` on.
    pub fn truncate(&mut self, id: SequenceId, length: usize) -> Result<(), CacheError> {
        let held = self.slot(id)?.length;
        if length > held {
            return Err(CacheError::TruncateBeyondEnd { held, asked: length });
        }
        let slot = &mut self.slots[id.slot as usize];
        slot.length = length;
        for page in slot.pages.drain(length.div_ceil(PAGE)..) {
            self.pool.release(page);
        }
        Ok(())
    }

    /// Ends a sequence.
    pub fn release(&mut self, id: SequenceId) -> Result<(), CacheError> {
        self.truncate(id, 0)?;
        let slot = &mut self.slots[id.slot as usize];
        slot.live = false;
        slot.generation = slot.generation.wrapping_add(1);
        Ok(())
    }

    /// Where position `position` of a sequence is stored: `page * PAGE + offset`.
    pub(crate) fn storage_slot(&self, id: SequenceId, position: usize) -> Result<i32, CacheError> {
        let slot = self.slot(id)?;
        let page = slot.pages.get(position / PAGE).filter(|_| position < slot.length);
        let page = *page.ok_or(CacheError::UnknownSequence(id))? as usize;
        Ok((page * PAGE + position % PAGE) as i32)
    }

    /// The row of the page table of a sequence.
    pub(crate) fn table_row(&self, id: SequenceId) -> Result<i32, CacheError> {
        self.slot(id).map(|_| id.slot as i32)
    }

    /// Page tables of all sequences, i32 `[max_sequences, pages]`.
    pub(crate) fn page_table(&self) -> &Tensor {
        &self.page_table
    }

    /// Keys and values of a layer.
    pub(crate) fn layer(&self, layer: usize) -> &LayerCache {
        &self.layers[layer]
    }

    /// Bytes of one page in all layers.
    pub fn page_bytes(&self) -> u64 {
        let CacheOptions { num_layers, num_kv_heads, head_dim, dtype, .. } = self.options;
        2 * (num_layers * num_kv_heads * head_dim * PAGE * dtype.size()) as u64
    }

    /// Bytes of the pages in use.
    pub fn used_bytes(&self) -> u64 {
        self.pool.used() as u64 * self.page_bytes()
    }

    /// Bytes of all pages; address space, not memory.
    pub fn reserved_bytes(&self) -> u64 {
        self.pool.capacity() as u64 * self.page_bytes()
    }

    fn slot(&self, id: SequenceId) -> Result<&Slot, CacheError> {
        let slot = self.slots.get(id.slot as usize);
        slot.filter(|slot| slot.live && slot.generation == id.generation)
            .ok_or(CacheError::UnknownSequence(id))
    }

    fn allocate(&mut self) -> Result<PageId, CacheError> {
        let capacity = self.pool.capacity();
        let exhausted = CacheError::PoolExhausted { asked: 1, available: 0, capacity };
        self.pool.allocate().ok_or(exhausted)
    }

    /// Copies a page in every layer; the device is idle.
    fn copy_page(&self, from: PageId, to: PageId) -> Result<(), Error> {
        for tensor in self.layers.iter().flat_map(|layer| [&layer.keys, &layer.values]) {
            let (from, to) = (tensor.row(from as usize)?, tensor.row(to as usize)?);
            let buffer: &Buffer = tensor.buffer();
            let bytes: Vec<u8> =
                buffer.read_vec(from.offset(), from.elements() * from.dtype().size())?;
            buffer.write(to.offset(), &bytes)?;
        }
        Ok(())
    }

    /// Writes the page table of a sequence from entry `first` on.
    fn write_page_table(&self, id: SequenceId, first: usize) -> Result<(), Error> {
        let pages = &self.slots[id.slot as usize].pages;
        let entries: Vec<i32> = pages.iter().skip(first).map(|&page| page as i32).collect();
        let row = self.page_table.row(id.slot as usize)?;
        Ok(row.narrow(0, first.min(pages.len()), entries.len())?.write(&entries)?)
    }
}

#[cfg(test)]
mod tests;
