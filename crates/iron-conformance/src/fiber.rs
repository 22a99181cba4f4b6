//! One block at a time: a fiber per thread, switched at barriers and collectives.
#![expect(unsafe_code, reason = "fibers switch stacks, and kernels are foreign code")]

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use crate::memory::{Memory, Violation};
use crate::{Error, Order};

/// `iron_emulator.h` describes the same structure to the stand-in headers.
#[repr(C)]
pub(crate) struct Shared {
    thread: u32,
    threads: u32,
    block: [u32; 3],
    grid: [u32; 3],
    slots: *mut u8,
    stack_low: *const u8,
    stack_high: *const u8,
    wait_block: extern "C" fn(),
    wait_warp: extern "C" fn(),
    touch: extern "C" fn(*const c_void, u32, u32),
}

/// What the compiled kernel offers: calls the entry once, for the current thread, with pointers to the arguments.
pub(crate) type Launch = unsafe extern "C" fn(*const *const c_void);

const STACK: usize = 512 << 10;
const WARP: usize = 32;
const SLOT: usize = 64;

core::arch::global_asm!(
    ".globl iron_fiber_switch",
    "iron_fiber_switch:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rdi], rsp",
    "mov rsp, rsi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
);

unsafe extern "C" {
    /// Saves the registers that a callee keeps, stores the stack pointer through `save` and goes on at `to`.
    fn iron_fiber_switch(save: *mut *mut u8, to: *mut u8);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    AtWarp,
    AtBlock,
    Done,
    Failed,
}

impl State {
    const fn doing(self) -> &'static str {
        match self {
            Self::Ready => "runs",
            Self::AtWarp => "waits in a collective of its warp",
            Self::AtBlock => "waits at a block barrier",
            Self::Done => "has ended",
            Self::Failed => "has failed",
        }
    }
}

struct Fiber {
    /// Lowest byte of the mapping, which is aligned to pages.
    stack: *mut usize,
    pointer: *mut u8,
    state: State,
}

impl Fiber {
    fn new() -> Result<Self, Error> {
        // SAFETY: an anonymous private mapping; checked below, unmapped on drop.
        let stack = unsafe {
            libc::mmap(
                ptr::null_mut(),
                STACK,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if stack == libc::MAP_FAILED {
            return Err(Error::Io {
                what: "mapping a stack".into(),
                source: std::io::Error::last_os_error(),
            });
        }
        // SAFETY: the lowest page of our own mapping becomes a guard.
        unsafe { libc::mprotect(stack, 4096, libc::PROT_NONE) };
        Ok(Self { stack: stack.cast(), pointer: ptr::null_mut(), state: State::Ready })
    }

    /// Prepares the stack such that the first switch to it enters `enter`.
    fn reset(&mut self) {
        // SAFETY: all writes stay in the mapping; the layout is what `iron_fiber_switch` pops.
        unsafe {
            let mut top = self.stack.byte_add(STACK - 64);
            top = top.sub(1);
            top.write(0);
            top = top.sub(1);
            top.write(enter as extern "C" fn() as usize);
            for _ in 0..6 {
                top = top.sub(1);
                top.write(0);
            }
            self.pointer = top.cast();
        }
        self.state = State::Ready;
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`.
        unsafe { libc::munmap(self.stack.cast(), STACK) };
    }
}

/// A grid being executed.
pub(crate) struct Grid<'a> {
    pub(crate) entry: &'a str,
    pub(crate) launch: Launch,
    pub(crate) arguments: &'a [*const c_void],
    pub(crate) memory: Memory,
    pub(crate) order: Order,
    /// Accesses after which a block hangs.
    pub(crate) budget: u64,
}

/// What the callbacks need.
struct Running {
    launch: Launch,
    arguments: *const *const c_void,
    scheduler: *mut u8,
    fibers: Vec<Fiber>,
    current: usize,
    memory: Memory,
    /// Barriers of the block so far, and waits of each warp.
    epoch: u32,
    warp_epochs: Vec<u32>,
    violation: Option<Violation>,
    accesses: u64,
    budget: u64,
}

thread_local! {
    static RUNNING: Cell<*mut Running> = const { Cell::new(ptr::null_mut()) };
}

fn running() -> *mut Running {
    RUNNING.get()
}

/// Goes back to the scheduler.
fn suspend(state: State) {
    let running = running();
    // SAFETY: called on a fiber, while `run` waits in the scheduler and keeps `Running` alive; no reference is held
    // across the switch.
    unsafe {
        let current = (*running).current;
        let fibers = &raw mut (*running).fibers;
        let fiber = (*fibers).as_mut_ptr().add(current);
        (*fiber).state = state;
        iron_fiber_switch(&raw mut (*fiber).pointer, (*running).scheduler);
    }
}

extern "C" fn enter() {
    let running = running();
    // SAFETY: `launch` is the trampoline that was compiled with the kernel; the arguments match its signature.
    unsafe { ((*running).launch)((*running).arguments) };
    suspend(State::Done);
    std::process::abort();
}

extern "C" fn wait_block() {
    suspend(State::AtBlock);
}

extern "C" fn wait_warp() {
    suspend(State::AtWarp);
}

extern "C" fn touch(address: *const c_void, size: u32, write: u32) {
    let running = running();
    // SAFETY: as in `suspend`; the reference ends before the switch.
    let failed = unsafe {
        let state = &mut *running;
        state.accesses += 1;
        let thread = state.current as u32;
        let warp_epoch = state.warp_epochs[state.current / WARP];
        let found = state.memory.access(
            address as usize,
            size as usize,
            write != 0,
            thread,
            state.epoch,
            warp_epoch,
        );
        if let Err(violation) = found {
            state.violation = Some(violation);
        }
        state.violation.is_some() || state.accesses > state.budget
    };
    if failed {
        suspend(State::Failed);
    }
}

fn permutation(len: usize, order: Order, seed: u64) -> Vec<usize> {
    let mut list: Vec<usize> = (0..len).collect();
    match order {
        Order::Forward => {}
        Order::Reverse => list.reverse(),
        Order::Shuffled => {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            for i in (1..len).rev() {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                list.swap(i, (state >> 33) as usize % (i + 1));
            }
        }
    }
    list
}

/// Runs every block of the grid.
pub(crate) fn run(
    grid: Grid<'_>,
    shared: *mut *mut Shared,
    blocks: [u32; 3],
    threads: u32,
) -> Result<(), Error> {
    let count = threads as usize;
    let mut slots = vec![0u8; 2 * count.div_ceil(WARP) * WARP * SLOT];
    let mut fibers = Vec::with_capacity(count);
    for _ in 0..count {
        fibers.push(Fiber::new()?);
    }
    let mut state = Running {
        launch: grid.launch,
        arguments: grid.arguments.as_ptr(),
        scheduler: ptr::null_mut(),
        fibers,
        current: 0,
        memory: grid.memory,
        epoch: 0,
        warp_epochs: vec![0; count.div_ceil(WARP)],
        violation: None,
        accesses: 0,
        budget: grid.budget,
    };
    let mut table = Shared {
        thread: 0,
        threads,
        block: [0; 3],
        grid: blocks,
        slots: slots.as_mut_ptr(),
        stack_low: ptr::null(),
        stack_high: ptr::null(),
        wait_block,
        wait_warp,
        touch,
    };
    // SAFETY: `shared` is the variable `iron_rt` of the loaded kernel; both structures outlive the loop below.
    unsafe { shared.write(&raw mut table) };
    RUNNING.set(&raw mut state);
    let mut result = Ok(());
    'grid: for z in 0..blocks[2] {
        for y in 0..blocks[1] {
            for x in 0..blocks[0] {
                let block = [x, y, z];
                result = run_block(
                    &raw mut state,
                    &raw mut table,
                    slots.as_mut_ptr(),
                    block,
                    &grid.order,
                    grid.entry,
                );
                if result.is_err() {
                    break 'grid;
                }
            }
        }
    }
    RUNNING.set(ptr::null_mut());
    result
}

fn run_block(
    state: *mut Running,
    table: *mut Shared,
    slots: *mut u8,
    block: [u32; 3],
    order: &Order,
    entry: &str,
) -> Result<(), Error> {
    // SAFETY: `state` and `table` live in `run`; while a fiber runs nothing here holds a reference into them.
    unsafe {
        (*table).block = block;
        let fibers = &mut (*state).fibers;
        for fiber in fibers.iter_mut() {
            fiber.reset();
        }
        let count = fibers.len();
        let warps = count.div_ceil(WARP);
        (*state).epoch = 0;
        (*state).accesses = 0;
        let warp_epochs = &mut (*state).warp_epochs;
        warp_epochs.fill(0);
        let memory = &mut (*state).memory;
        memory.enter_block(block);
        let half = warps * WARP * SLOT;
        let mut round = 0u64;
        loop {
            // Each warp runs until all its lanes wait at a block barrier or have ended.
            let mut first: Option<(usize, State)> = None;
            for warp in permutation(warps, *order, round) {
                let lanes = warp * WARP..count.min(warp * WARP + WARP);
                loop {
                    let mut reached: Option<(usize, State)> = None;
                    for lane in permutation(lanes.len(), *order, round + 1) {
                        let thread = lanes.start + lane;
                        (*state).current = thread;
                        (*table).thread = thread as u32;
                        let parity = (&(*state).warp_epochs)[warp] as usize % 2;
                        (*table).slots = slots.add(parity * half + warp * WARP * SLOT);
                        let fibers = &mut (*state).fibers;
                        let fiber = fibers.as_mut_ptr().add(thread);
                        if (*fiber).state != State::Done {
                            (*table).stack_low = (*fiber).stack.cast();
                            (*table).stack_high = (*fiber).stack.byte_add(STACK).cast();
                            iron_fiber_switch(&raw mut (*state).scheduler, (*fiber).pointer);
                        }
                        let now = (*fiber).state;
                        if now == State::Failed {
                            let violation = (*state).violation.take();
                            return Err(match violation {
                                Some(violation) => Error::Memory {
                                    entry: entry.into(),
                                    block,
                                    thread: thread as u32,
                                    violation,
                                },
                                None => Error::Hang {
                                    entry: entry.into(),
                                    block,
                                    accesses: (*state).accesses,
                                },
                            });
                        }
                        same(&mut reached, thread, now, block, entry)?;
                    }
                    round += 1;
                    let warp_epochs = &mut (*state).warp_epochs;
                    warp_epochs[warp] += 1;
                    let (thread, now) = reached.expect("a warp has lanes");
                    if now != State::AtWarp {
                        same(&mut first, thread, now, block, entry)?;
                        break;
                    }
                }
            }
            (*state).epoch += 1;
            if first.is_none_or(|(_, now)| now == State::Done) {
                return Ok(());
            }
        }
    }
}

/// All threads must wait for the same thing.
fn same(
    seen: &mut Option<(usize, State)>,
    thread: usize,
    now: State,
    block: [u32; 3],
    entry: &str,
) -> Result<(), Error> {
    match *seen {
        None => *seen = Some((thread, now)),
        Some((other, that)) if that != now => {
            return Err(Error::Divergent {
                entry: entry.into(),
                block,
                thread: thread as u32,
                this: now.doing(),
                other: other as u32,
                that: that.doing(),
            });
        }
        Some(_) => {}
    }
    Ok(())
}
