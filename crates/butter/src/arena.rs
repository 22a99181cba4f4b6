//! Memory of the activations of one forward pass.

use std::cell::RefCell;

use iron_runtime::{ActivationKind, Activations, Buffer, DType, Device, Tensor};

use crate::Error;

/// A stack of activations. Each forward pass of the same batch shape allocates in the same order, and so gets the same
/// addresses.
///
/// Calls of one command buffer run in order, so memory of a closed scope is used again by later calls of the same
/// command buffer. Blocks are never freed while the arena lives: recordings point into them.
#[derive(Debug)]
pub(crate) struct Arena {
    device: Device,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    blocks: Vec<Buffer>,
    top: Mark,
}

/// A height of the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    block: usize,
    offset: usize,
}

/// Frees, when dropped, what was allocated since it was opened.
#[derive(Debug)]
pub struct Scope<'a> {
    arena: &'a Arena,
    start: Mark,
}

/// Only address space until it is touched.
const LEAST_BLOCK: usize = 64 << 20;
const ALIGN: usize = 64;

impl Arena {
    /// An empty arena in the memory of `device`.
    pub(crate) fn new(device: Device) -> Self {
        Self { device, state: RefCell::default() }
    }

    /// Opens a scope; scopes close in the opposite order.
    pub(crate) fn scope(&self) -> Scope<'_> {
        Scope { arena: self, start: self.state.borrow().top }
    }

    /// A tensor of unspecified values that lives until the innermost scope closes.
    pub(crate) fn tensor(&self, dtype: DType, shape: &[usize]) -> Result<Tensor, Error> {
        let elements =
            shape.iter().try_fold(dtype.size(), |bytes, &length| bytes.checked_mul(length));
        let bytes = elements.unwrap_or(usize::MAX).max(1);
        let (block, offset) = self.state.borrow_mut().allocate(&self.device, bytes)?;
        Ok(Tensor::new(block, offset, dtype, shape)?)
    }

    /// Activations `[rows, width]` of unspecified values that live until the innermost scope closes.
    pub(crate) fn activations(
        &self,
        kind: ActivationKind,
        rows: usize,
        width: usize,
    ) -> Result<Activations, Error> {
        Ok(match kind {
            ActivationKind::F32 => Activations::plain(self.tensor(DType::F32, &[rows, width])?)?,
            ActivationKind::F16 => Activations::plain(self.tensor(DType::F16, &[rows, width])?)?,
            ActivationKind::BF16 => Activations::plain(self.tensor(DType::BF16, &[rows, width])?)?,
            ActivationKind::Int8 => {
                let blocks = [rows, width / 32];
                Activations::int8(
                    self.tensor(DType::I8, &[rows, width])?,
                    self.tensor(DType::F32, &blocks)?,
                    self.tensor(DType::F32, &blocks)?,
                )?
            }
        })
    }

    /// Bytes of address space that the arena holds.
    #[cfg(test)]
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.state.borrow().blocks.iter().map(Buffer::len).sum()
    }
}

impl State {
    fn allocate(
        &mut self,
        device: &Device,
        bytes: usize,
    ) -> Result<(Buffer, usize), iron_runtime::RuntimeError> {
        let bytes = bytes.checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX);
        loop {
            match self.blocks.get(self.top.block) {
                Some(block) if block.len() - self.top.offset >= bytes => {
                    let offset = self.top.offset;
                    self.top.offset += bytes;
                    return Ok((block.clone(), offset));
                }
                Some(_) => self.top = Mark { block: self.top.block + 1, offset: 0 },
                None => self.blocks.push(device.buffer(bytes.max(LEAST_BLOCK))?),
            }
        }
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        self.arena.state.borrow_mut().top = self.start;
    }
}

#[cfg(test)]
mod tests {
    use iron_runtime::{CpuOptions, DType, Device};

    use super::{Arena, LEAST_BLOCK};

    fn arena() -> Arena {
        let options = CpuOptions { threads: Some(1), ..CpuOptions::default() };
        Arena::new(Device::cpu(options).expect("one thread"))
    }

    #[test]
    fn same_order_gives_same_addresses() {
        let arena = arena();
        let pass = || {
            let _scope = arena.scope();
            let first = arena.tensor(DType::F32, &[3, 5]).expect("small");
            let inner = arena.scope();
            let second = arena.tensor(DType::I8, &[7]).expect("small");
            drop(inner);
            let third = arena.tensor(DType::F32, &[9]).expect("small");
            [first, second, third].map(|tensor| tensor.as_ptr().addr())
        };
        let addresses = pass();
        assert_eq!(addresses, pass());
        assert_eq!(addresses[1], addresses[2], "memory of a closed scope is used again");
        assert!(addresses[0] < addresses[1]);
    }

    #[test]
    fn large_tensors_get_blocks_of_their_own_size() {
        let arena = arena();
        let _scope = arena.scope();
        arena.tensor(DType::F32, &[1]).expect("small");
        arena.tensor(DType::I8, &[LEAST_BLOCK + 1]).expect("address space");
        assert!(arena.reserved_bytes() > 2 * LEAST_BLOCK);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(arena().tensor(DType::F32, &[usize::MAX / 2, 8]).is_err());
    }
}
