//! Encoding kernel calls and running them.

use std::cell::RefCell;
use std::ptr;

use crate::binder::{self, Bound};
use crate::commands::{Commands, Dispatch, InUse, Phase, Placement, Split};
use crate::error::EncodeError;
use crate::pipeline::Pipeline;
use crate::{
    Arg, Buffer, Device, DispatchTiming, InstanceDescriptor, KernelDescriptor, Recording, Result,
    RuntimeError, ScheduleDescriptor,
};

/// Kernel calls to run together on one device.
///
/// Calls run in the order in which they were encoded, each seeing what the earlier ones wrote. It keeps the buffers of
/// its arguments alive. Calls may come from any thread, one at a time.
pub struct CommandBuffer {
    device: Device,
    state: RefCell<State>,
}

struct State {
    commands: Commands,
    group: Group,
    kept: KeptBuffers,
    memo: Vec<Option<Memo>>,
}

/// Where the next dispatch goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Not inside `parallel`.
    None,
    /// Inside, with nothing encoded yet.
    Opened,
    /// Inside; the next dispatch starts its split at this worker.
    Joined(u32),
}

impl CommandBuffer {
    pub(crate) fn new(device: Device) -> Self {
        let memo = vec![None; MEMO_ENTRIES];
        let state = State {
            commands: Commands::default(),
            group: Group::None,
            kept: KeptBuffers::default(),
            memo,
        };
        Self { device, state: RefCell::new(state) }
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Appends a call of `kernel`.
    ///
    /// The argument words are, for each parameter: a tensor's address and the strides in elements of all axes but the
    /// last; a weight matrix's address and its row stride in elements (0 when packed); plain activations' address and row
    /// stride; int8 activations' three addresses, the row stride of the values and that of the blocks; a scalar's bits.
    /// Then the named dimensions. A call with an empty grid appends nothing.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Encode`] when an argument breaks the kernel's contract; nothing is appended then.
    pub fn encode(&self, kernel: &'static KernelDescriptor, args: &[Arg<'_>]) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        let start = state.commands.words.len();
        let result = state.encode(&self.device, kernel, args, start);
        if result.is_err() {
            state.commands.words.truncate(start);
        }
        result
    }

    /// Lets the calls that `encode` makes run without a barrier between them.
    ///
    /// None of them may write what another of them reads or writes. Nested groups join the outermost.
    pub fn parallel<R>(&self, encode: impl FnOnce(&Self) -> R) -> R {
        struct Close<'a>(&'a CommandBuffer);
        impl Drop for Close<'_> {
            fn drop(&mut self) {
                self.0.state.borrow_mut().group = Group::None;
            }
        }
        let outermost = {
            let mut state = self.state.borrow_mut();
            let outermost = state.group == Group::None;
            if outermost {
                state.group = Group::Opened;
            }
            outermost
        };
        let _close = outermost.then(|| Close(self));
        encode(self)
    }

    /// Number of calls that wait to be run.
    pub fn len(&self) -> usize {
        self.state.borrow().commands.dispatches.len()
    }

    /// Whether no call waits to be run.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs what was encoded, waits for it, and leaves the command buffer empty.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::KernelPanicked`] when a kernel panicked; the outputs are undefined then.
    pub fn run(&self) -> Result<()> {
        let mut state = self.state.borrow_mut();
        if state.group != Group::None {
            return Err(RuntimeError::OpenGroup);
        }
        let result = run(&self.device, &state.commands);
        state.clear();
        result
    }

    /// As [`CommandBuffer::run`], but one call at a time, parallel groups included, with the time of each.
    pub fn run_profiled(&self) -> Result<Vec<DispatchTiming>> {
        let mut state = self.state.borrow_mut();
        if state.group != Group::None {
            return Err(RuntimeError::OpenGroup);
        }
        let result = run_profiled(&self.device, &state.commands);
        state.clear();
        result
    }

    /// Makes what was encoded replayable.
    pub fn finish(self) -> Recording {
        Recording::new(self.device, self.state.into_inner().commands)
    }
}

impl std::fmt::Debug for CommandBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CommandBuffer({} dispatches on {})", self.len(), self.device.name())
    }
}

pub(crate) fn run(device: &Device, commands: &Commands) -> Result<()> {
    let _in_use = InUse::new(&commands.buffers);
    device.backend().run(commands, &commands.phases)
}

pub(crate) fn run_profiled(device: &Device, commands: &Commands) -> Result<Vec<DispatchTiming>> {
    let _in_use = InUse::new(&commands.buffers);
    let mut timings = Vec::with_capacity(commands.dispatches.len());
    for (index, dispatch) in commands.dispatches.iter().enumerate() {
        let start = std::time::Instant::now();
        device.backend().run(commands, &[Phase::single(index, dispatch.split.units, 0)])?;
        timings.push(DispatchTiming {
            kernel: dispatch.kernel.name,
            schedule: dispatch.schedule.name,
            grid: dispatch.grid,
            nanoseconds: start.elapsed().as_nanos() as u64,
        });
    }
    Ok(timings)
}

impl State {
    fn encode(
        &mut self,
        device: &Device,
        kernel: &'static KernelDescriptor,
        args: &[Arg<'_>],
        start: usize,
    ) -> Result<()> {
        let commands = &mut self.commands;
        let fail = |error: Box<EncodeError>| RuntimeError::Encode { kernel: kernel.name, error };
        let bound =
            binder::bind(device.backend(), kernel, args, &mut commands.words).map_err(fail)?;
        let dims = &bound.dims[..kernel.dims.len()];

        let memo = find_memo(&mut self.memo, kernel, &bound).map_err(fail)?;
        let (index, schedule) = memo
            .instance
            .schedules
            .iter()
            .enumerate()
            .find(|(_, schedule)| (schedule.when)(dims))
            .ok_or_else(|| fail(binder::no_schedule(kernel, memo.instance, dims).into()))?;
        let Some((grid, programs)) = checked_grid(schedule, dims) else {
            return Err(fail(binder::bad_grid(kernel, (schedule.grid)(dims), dims).into()));
        };
        if programs == 0 {
            commands.words.truncate(start);
            return Ok(());
        }
        let pipeline = match memo.pipelines.get(index) {
            Some(Some(pipeline)) => *pipeline,
            _ => memo.build(device, kernel, index, schedule)?,
        };

        let workers = device.threads() as u32;
        let (placement, first) = match self.group {
            Group::None => (Placement::Barrier, 0),
            Group::Opened => (Placement::Open, 0),
            Group::Joined(first) => (Placement::Join, first),
        };
        let split = Split::new(programs, workers, first);
        let end = commands.words.len();
        let dispatch =
            Dispatch { kernel, schedule, pipeline, words: (start as u32, end as u32), grid, split };
        commands.push(dispatch, placement);
        if self.group != Group::None {
            self.group = Group::Joined((first + split.units % workers) % workers);
        }
        for arg in args {
            arg.for_each_buffer(|buffer| self.kept.keep(&mut commands.buffers, buffer));
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.commands.clear();
        self.kept = KeptBuffers::default();
    }
}

/// The grid and its number of programs, when both fit a launch.
#[inline]
fn checked_grid(schedule: &ScheduleDescriptor, dims: &[i64]) -> Option<([u32; 3], u32)> {
    let [x, y, z] = (schedule.grid)(dims);
    let grid = [u32::try_from(x).ok()?, u32::try_from(y).ok()?, u32::try_from(z).ok()?];
    if grid.contains(&0) {
        return Some((grid, 0));
    }
    let programs = grid[0].checked_mul(grid[1])?.checked_mul(grid[2])?;
    Some((grid, programs))
}

const MEMO_ENTRIES: usize = 32;

/// What the last call with the same kernel and types found.
#[derive(Clone)]
struct Memo {
    kernel: &'static KernelDescriptor,
    codes: u64,
    instance: &'static InstanceDescriptor,
    pipelines: [Option<Pipeline>; 6],
}

impl Memo {
    #[cold]
    fn build(
        &mut self,
        device: &Device,
        kernel: &'static KernelDescriptor,
        index: usize,
        schedule: &'static ScheduleDescriptor,
    ) -> Result<Pipeline> {
        let pipeline = device.pipelines().get(device.backend(), kernel, self.instance, schedule)?;
        if let Some(slot) = self.pipelines.get_mut(index) {
            *slot = Some(pipeline);
        }
        Ok(pipeline)
    }
}

fn find_memo<'a>(
    memo: &'a mut [Option<Memo>],
    kernel: &'static KernelDescriptor,
    bound: &Bound,
) -> std::result::Result<&'a mut Memo, Box<EncodeError>> {
    let hash = ptr::from_ref(kernel).addr() as u64 ^ bound.codes;
    let slot = &mut memo[(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as usize % MEMO_ENTRIES];
    let hit =
        slot.as_ref().is_some_and(|memo| ptr::eq(memo.kernel, kernel) && memo.codes == bound.codes);
    if !hit {
        let instance = binder::find_instance(kernel, bound.codes)?;
        *slot = None;
        return Ok(slot.insert(Memo {
            kernel,
            codes: bound.codes,
            instance,
            pipelines: [None; 6],
        }));
    }
    slot.as_mut().ok_or_else(|| unreachable!("a hit is not empty"))
}

/// Which buffers the commands already keep: a small filter, so that most duplicates are not stored again.
#[derive(Default)]
struct KeptBuffers {
    recent: [usize; 16],
}

impl KeptBuffers {
    #[inline]
    fn keep(&mut self, buffers: &mut Vec<Buffer>, buffer: &Buffer) {
        let id = buffer.id();
        let slot = &mut self.recent[(id >> 6) % 16];
        if *slot != id {
            *slot = id;
            buffers.push(buffer.clone());
        }
    }
}
