//! A batch in the device's memory, at addresses that never change.

use iron_runtime::{DType, Device, Tensor};

use super::{Batch, BatchError, Inputs, tiles};
use crate::Error;
use crate::cache::KvCache;

/// Buffers for batches of up to a number of tokens.
#[derive(Debug)]
pub(crate) struct DeviceBatch {
    capacity: usize,
    hidden_size: usize,
    group: usize,
    window: Option<usize>,
    ids: Tensor,
    embeddings: Tensor,
    positions: Tensor,
    slots: Tensor,
    visible: Tensor,
    visible_window: Tensor,
    tiles: Tensor,
    wanted: Tensor,
    row_numbers: Tensor,
}

/// The parts of the buffers that one batch uses.
#[derive(Clone, Debug)]
pub(crate) struct BatchTensors {
    /// Tokens, with padding.
    pub(crate) tokens: usize,
    /// Rows of logits, with padding.
    pub(crate) wanted_rows: usize,
    /// Token ids, i32 `[tokens]`; `None` when there are embeddings.
    pub(crate) ids: Option<Tensor>,
    /// Embeddings from elsewhere, f32 `[tokens, hidden_size]`.
    pub(crate) embeddings: Option<Tensor>,
    /// 0, 1, 2 .., i32 `[tokens]`.
    pub(crate) row_numbers: Tensor,
    /// Rotary positions, i32 `[tokens]`.
    pub(crate) positions: Tensor,
    /// Where keys and values are stored, i32 `[tokens]`; -1: nowhere.
    pub(crate) slots: Tensor,
    /// Positions that each token sees, i32 `[tokens, 2]`.
    pub(crate) visible: Tensor,
    /// The same for layers with a sliding window.
    pub(crate) visible_window: Tensor,
    /// Work list of the attention kernel, i32 `[tiles, 4]`.
    pub(crate) tiles: Tensor,
    /// Tokens whose logits are wanted, i32 `[wanted_rows]`; `None`: all, in order.
    pub(crate) wanted: Option<Tensor>,
}

impl DeviceBatch {
    /// Buffers for up to `capacity` tokens of a model with `group` query heads per key head.
    pub(crate) fn new(
        device: &Device,
        capacity: usize,
        hidden_size: usize,
        group: usize,
        window: Option<usize>,
    ) -> Result<Self, Error> {
        let integers = |shape: &[usize]| device.tensor(DType::I32, shape);
        let row_numbers = integers(&[capacity])?;
        write_padded(&row_numbers, 0..capacity as i32, 0)?;
        Ok(Self {
            capacity,
            hidden_size,
            group,
            window,
            ids: integers(&[capacity])?,
            embeddings: device.tensor(DType::F32, &[capacity, hidden_size])?,
            positions: integers(&[capacity])?,
            slots: integers(&[capacity])?,
            visible: integers(&[capacity, 2])?,
            visible_window: integers(&[capacity, 2])?,
            tiles: integers(&[capacity, 4])?,
            wanted: integers(&[capacity])?,
            row_numbers,
        })
    }

    /// The most tokens of a batch.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Copies a batch to the device, padded to `tokens` tokens that store and see nothing.
    pub(crate) fn upload(
        &self,
        batch: &Batch,
        cache: &KvCache,
        tokens: usize,
    ) -> Result<BatchTensors, Error> {
        let count = batch.tokens();
        if count == 0 {
            return Err(BatchError::Empty.into());
        }
        let (tokens, limit) = (tokens.max(count), self.capacity);
        if tokens > limit {
            return Err(BatchError::TooLarge { tokens, limit }.into());
        }
        let (slots, runs) = place(batch, cache)?;
        let mut tiles = tiles::tiles(runs.into_iter(), self.group);
        let is_padded = tokens > count;
        if is_padded {
            tiles.resize(tokens, [0; 4]);
        }
        let narrow = |tensor: &Tensor| tensor.narrow(0, 0, tokens);
        let (mut ids, mut embeddings) = (None, None);
        match &batch.inputs {
            Inputs::Tokens(values) => {
                write_padded(&narrow(&self.ids)?, values.iter().map(|&id| id as i32), 0)?;
                ids = Some(narrow(&self.ids)?);
            }
            Inputs::Embeddings(values) => {
                self.embeddings.narrow(0, 0, count)?.write(values)?;
                embeddings = Some(narrow(&self.embeddings)?);
            }
        }
        let tensors = BatchTensors {
            tokens,
            wanted_rows: batch.wanted.len(),
            ids,
            embeddings,
            row_numbers: narrow(&self.row_numbers)?,
            positions: narrow(&self.positions)?,
            slots: narrow(&self.slots)?,
            visible: narrow(&self.visible)?,
            visible_window: narrow(&self.visible_window)?,
            tiles: self.tiles.narrow(0, 0, tiles.len())?,
            wanted: None,
        };
        write_padded(&tensors.positions, batch.positions.iter().copied(), 0)?;
        write_padded(&tensors.slots, slots.into_iter(), -1)?;
        let range = |[begin, end]: [usize; 2]| [begin as i32, end as i32];
        write_padded(&tensors.visible, batch.visible.iter().flat_map(|&pair| range(pair)), 0)?;
        if let Some(window) = self.window {
            let windowed = batch.visible.iter().zip(positions_in_cache(batch)).flat_map(
                |(&[begin, end], position)| {
                    range([begin.max((position + 1).saturating_sub(window)), end])
                },
            );
            write_padded(&tensors.visible_window, windowed, 0)?;
        }
        write_padded(&tensors.tiles, tiles.into_iter().flatten(), 0)?;
        if batch.wanted.len() == count {
            return Ok(BatchTensors { wanted_rows: tokens, ..tensors });
        }
        let wanted = self.wanted.narrow(0, 0, batch.wanted.len())?;
        write_padded(&wanted, batch.wanted.iter().map(|&row| row as i32), 0)?;
        Ok(BatchTensors { wanted: Some(wanted), ..tensors })
    }

    /// Width of a row of embeddings.
    pub(crate) fn hidden_size(&self) -> usize {
        self.hidden_size
    }
}

/// Storage slots of all tokens, and the runs as the attention kernel's work list takes them.
#[expect(clippy::type_complexity, reason = "two lists that are made in one pass")]
fn place(batch: &Batch, cache: &KvCache) -> Result<(Vec<i32>, Vec<(usize, usize, i32)>), Error> {
    let mut slots = Vec::with_capacity(batch.tokens());
    let mut runs = Vec::with_capacity(batch.spans.len());
    for span in &batch.spans {
        let (start, end, held) = (span.start, span.start + span.tokens, cache.len(span.sequence)?);
        if end > held {
            return Err(BatchError::NotInCache { start, end, held }.into());
        }
        for position in start..end {
            slots.push(cache.storage_slot(span.sequence, position)?);
        }
        runs.push((span.first_row, span.tokens, cache.table_row(span.sequence)?));
    }
    Ok((slots, runs))
}

fn positions_in_cache(batch: &Batch) -> impl Iterator<Item = usize> {
    batch.spans.iter().flat_map(|span| span.start..span.start + span.tokens)
}

/// Fills a tensor with `values`, then with `padding`.
fn write_padded(
    tensor: &Tensor,
    values: impl Iterator<Item = i32>,
    padding: i32,
) -> Result<(), Error> {
    let mut all: Vec<i32> = values.collect();
    all.resize(tensor.elements(), padding);
    Ok(tensor.write(&all)?)
}
