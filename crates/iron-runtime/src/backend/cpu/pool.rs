//! Worker threads that run phases of dispatches.
//!
//! A phase ends when all its units were run, not when all threads arrived: whoever runs the last one opens the next
//! phase. So a thread that is preempted while it has nothing claimed holds nobody up; the others take its units.
//!
//! The signal's word is `phase << 1 | open`. A worker raises its `inside` flag before it looks at the job, and lowers it
//! before it waits. The caller writes the job only while the word is closed and no flag is up.

use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::commands::{Commands, Dispatch, Phase};
use crate::pipeline::Pipeline;
use crate::{Launch, Result, RuntimeError};

use super::signal::Signal;
use super::slots::{Claim, PHASE_LIMIT, Slots};

/// How long a thread with nothing to do keeps its processor: longer than the host's work between two tokens.
const SPIN: Duration = Duration::from_micros(50);

/// The same when there are more threads than processors, where spinning takes time from whoever has work.
const SPIN_OVERSUBSCRIBED: Duration = Duration::from_micros(1);

/// Polls of another worker's slots before taking from them; an owner that runs claims within this time.
const POLLS_BEFORE_STEAL: u32 = 32;

/// Polls for the other threads to leave a job before yielding to them.
const POLLS_BEFORE_YIELD: u32 = 256;

pub(super) struct Pool {
    shared: Arc<Shared>,
    /// Held while a job runs; the number of the last phase that was opened.
    last_phase: Mutex<u32>,
    workers: Vec<JoinHandle<()>>,
}

#[repr(align(128))]
struct Padded<T>(T);

struct Shared {
    signal: Padded<Signal>,
    /// Units of the current phase that were run.
    done: Padded<AtomicU64>,
    /// Per thread, whether it may look at the job.
    inside: Box<[Padded<AtomicBool>]>,
    job: UnsafeCell<Job>,
    threads: u32,
    stop: AtomicBool,
    failed: AtomicBool,
    failure: Mutex<Option<RuntimeError>>,
}

// SAFETY: `job` is written only by the caller that holds `last_phase`, while the signal is closed and no `inside` flag
// is up; it is read only by that caller and by workers whose flag is up and who saw the signal open after raising it.
unsafe impl Sync for Shared {}
// SAFETY: the pointers in `job` are only followed under the rule above, while the caller of `run` keeps them valid.
unsafe impl Send for Shared {}

struct Job {
    commands: *const Commands,
    phases: *const [Phase],
    /// Number of the first phase.
    first: u32,
    slots: Slots,
}

impl Pool {
    /// A pool of `threads` threads, of which the caller of `run` is one.
    pub(super) fn new(threads: usize, oversubscribed: bool) -> Result<Self> {
        let spin = if oversubscribed { SPIN_OVERSUBSCRIBED } else { SPIN };
        let job = Job {
            commands: ptr::null(),
            phases: ptr::slice_from_raw_parts(ptr::null(), 0),
            first: 0,
            slots: Slots::new(threads, 1),
        };
        let shared = Arc::new(Shared {
            signal: Padded(Signal::new(closed(0), spin)),
            done: Padded(AtomicU64::new(0)),
            inside: (0..threads).map(|_| Padded(AtomicBool::new(false))).collect(),
            job: UnsafeCell::new(job),
            threads: threads as u32,
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        });
        let mut pool = Self { shared, last_phase: Mutex::new(0), workers: Vec::new() };
        for index in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let worker = thread::Builder::new()
                .name(format!("iron-{index}"))
                .spawn(move || shared.work(index as u32))
                .map_err(|source| RuntimeError::ThreadSpawn { index, source })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    pub(super) fn threads(&self) -> usize {
        self.shared.threads as usize
    }

    /// Runs `phases` of `commands` in order and waits for the last.
    pub(super) fn run(&self, commands: &Commands, phases: &[Phase]) -> Result<()> {
        let mut last_phase = self.last_phase.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.threads == 1 || phases.iter().all(|phase| phase.serial) {
            self.shared.run_alone(commands, phases);
        } else {
            // A job's phase numbers must be in order, so a longer list is several jobs.
            for part in phases.chunks(PHASE_LIMIT as usize / 2) {
                self.run_job(commands, part, &mut last_phase);
            }
        }
        if self.shared.failed.swap(false, Ordering::Relaxed) {
            let failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
            return failure.map_or(Ok(()), Err);
        }
        Ok(())
    }

    fn run_job(&self, commands: &Commands, phases: &[Phase], last_phase: &mut u32) {
        let shared = &*self.shared;
        {
            // SAFETY: `last_phase` is locked, the signal is closed, and the last job waited for every flag to go down.
            let job = unsafe { &mut *shared.job.get() };
            let claims = phases.iter().map(Phase::claims).max().unwrap_or(1);
            let wraps = *last_phase as usize + phases.len() + 1 >= PHASE_LIMIT as usize;
            if wraps || claims > job.slots.per_worker() {
                job.slots = Slots::new(self.threads(), claims);
            }
            if wraps {
                *last_phase = 0;
            }
            job.commands = commands;
            job.phases = phases;
            job.first = *last_phase + 1;
        }
        let first = *last_phase + 1;
        *last_phase += phases.len() as u32;
        shared.signal.0.publish(open(first));
        let mut word = open(first);
        while word & 1 == 1 {
            word = match shared.run_phase(0, word >> 1) {
                Some(next) => next,
                None => shared.signal.0.wait(word),
            };
        }
        shared.wait_until_left();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Any other word does; no job can be running, because `run` borrows the pool.
        self.shared.signal.0.publish(closed(PHASE_LIMIT));
        for worker in self.workers.drain(..) {
            // Workers catch the panics of kernels, so there is nothing to report.
            let _ = worker.join();
        }
    }
}

const fn open(phase: u32) -> u32 {
    phase << 1 | 1
}

const fn closed(phase: u32) -> u32 {
    phase << 1
}

impl Shared {
    /// The life of worker `thread`.
    fn work(&self, thread: u32) {
        let inside = &self.inside[thread as usize].0;
        let mut word = self.signal.0.get();
        while !self.stop.load(Ordering::Relaxed) {
            if word & 1 == 0 {
                word = self.signal.0.wait(word);
                continue;
            }
            inside.store(true, Ordering::SeqCst);
            // Pairs with `wait_until_left`: either this sees the signal closed, or the caller sees the flag.
            word = self.signal.0.get();
            let mut waiting = None;
            while word & 1 == 1 {
                let Some(next) = self.run_phase(thread, word >> 1) else {
                    waiting = Some(word);
                    break;
                };
                word = next;
            }
            inside.store(false, Ordering::Release);
            if let Some(seen) = waiting {
                word = self.signal.0.wait(seen);
            }
        }
    }

    /// Waits until no worker looks at the job; the signal is closed.
    fn wait_until_left(&self) {
        for flag in &self.inside[1..] {
            let mut polls = 0;
            while flag.0.load(Ordering::SeqCst) {
                polls += 1;
                if polls < POLLS_BEFORE_YIELD { spin_loop() } else { thread::yield_now() }
            }
        }
    }

    /// Runs everything on the calling thread.
    fn run_alone(&self, commands: &Commands, phases: &[Phase]) {
        for phase in phases {
            for dispatch in dispatches_of(commands, phase) {
                self.execute(commands, dispatch, 0..dispatch.split.units, 0);
            }
        }
    }

    /// Runs units of phase `number` until none is left to claim.
    ///
    /// Returns the next word when this thread ended the phase and published it, `None` when others still run units or
    /// ended it. The caller of `run`, or a worker whose flag is up and who saw the phase open.
    fn run_phase(&self, thread: u32, number: u32) -> Option<u32> {
        // SAFETY: the caller of `run` wrote the job before it opened the phase, and writes it again only once all flags
        // are down; the calling thread is that caller or has its flag up.
        let job = unsafe { &*self.job.get() };
        // SAFETY: `run` borrows both until the job is over.
        let (commands, phases) = unsafe { (&*job.commands, &*job.phases) };
        let index = (number - job.first) as usize;
        let phase = &phases[index];
        let next = if index + 1 == phases.len() { closed(number) } else { open(number + 1) };

        let mut run = 0;
        for claim in 0..phase.claims() {
            let (initial, least) = self.initial(commands, phase, claim, thread);
            loop {
                match job.slots.claim(thread as usize, claim, number, &initial, least) {
                    Claim::Units(units) => {
                        run += self.execute_claim(commands, phase, claim, units, thread);
                    }
                    Claim::Empty => break,
                    Claim::Over => return None,
                }
            }
        }
        if self.complete(run, phase, next) {
            return Some(next);
        }
        self.help(job, commands, phase, (thread, number, next))
    }

    /// Takes units from other workers until none has any.
    fn help(
        &self,
        job: &Job,
        commands: &Commands,
        phase: &Phase,
        (thread, number, next): (u32, u32, u32),
    ) -> Option<u32> {
        let mut polls = 0;
        loop {
            let mut pending = false;
            for distance in 1..self.threads {
                let victim = (thread + distance) % self.threads;
                // The phase may have ended, and looking at slots slows their owners.
                if self.signal.0.get() >> 1 != number {
                    return None;
                }
                for claim in 0..phase.claims() {
                    let (initial, least) = self.initial(commands, phase, claim, victim);
                    if job.slots.left(victim as usize, claim, number, &initial) == 0 {
                        continue;
                    }
                    pending = true;
                    if polls < POLLS_BEFORE_STEAL {
                        continue;
                    }
                    let share = (self.threads, least);
                    if let Claim::Units(units) =
                        job.slots.steal(victim as usize, claim, number, &initial, share)
                    {
                        let run = self.execute_claim(commands, phase, claim, units, thread);
                        if self.complete(run, phase, next) {
                            return Some(next);
                        }
                    }
                }
            }
            if !pending {
                return None;
            }
            polls += 1;
            spin_loop();
        }
    }

    /// The units of one claim that `thread` starts with, and the fewest to take at once.
    #[inline]
    fn initial(
        &self,
        commands: &Commands,
        phase: &Phase,
        claim: usize,
        thread: u32,
    ) -> (Range<u32>, u32) {
        if phase.serial {
            return (0..u32::from(thread == 0), 1);
        }
        let split = &commands.dispatches[phase.first as usize + claim].split;
        (split.units_of(thread, self.threads), split.least_claim())
    }

    /// Runs claimed units and returns how many of the phase's units that are.
    #[inline]
    fn execute_claim(
        &self,
        commands: &Commands,
        phase: &Phase,
        claim: usize,
        units: Range<u32>,
        thread: u32,
    ) -> u64 {
        if phase.serial {
            for dispatch in dispatches_of(commands, phase) {
                self.execute(commands, dispatch, 0..1, thread);
            }
            return 1;
        }
        let count = u64::from(units.end - units.start);
        self.execute(commands, &commands.dispatches[phase.first as usize + claim], units, thread);
        count
    }

    /// Runs some units of one dispatch; a panic is kept, and nothing more is run.
    #[inline]
    fn execute(&self, commands: &Commands, dispatch: &Dispatch, units: Range<u32>, thread: u32) {
        if self.failed.load(Ordering::Relaxed) {
            return;
        }
        let launch = Launch {
            args: commands.words_of(dispatch),
            programs: dispatch.split.programs_of(units),
            grid: dispatch.grid,
            thread,
        };
        let Pipeline::Cpu(kernel) = dispatch.pipeline;
        // SAFETY: `encode` checked the arguments against the kernel's contract; `commands` keeps the buffers alive and
        // in use; the phases order dispatches that touch the same memory.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| unsafe { kernel(&launch) })) {
            self.fail(dispatch.kernel.name, &*panic);
        }
    }

    #[cold]
    fn fail(&self, kernel: &'static str, panic: &(dyn Any + Send)) {
        let message = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(RuntimeError::KernelPanicked { kernel, message });
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Counts units that were run; when they were the last of the phase, publishes `next` and returns true.
    #[inline]
    fn complete(&self, run: u64, phase: &Phase, next: u32) -> bool {
        // Acquire and release: the thread that ends the phase hands on what every other one wrote.
        if run == 0 || self.done.0.fetch_add(run, Ordering::AcqRel) + run != phase.units {
            return false;
        }
        self.done.0.store(0, Ordering::Relaxed);
        self.signal.0.publish(next);
        true
    }
}

/// The dispatches of a phase, in order.
fn dispatches_of<'a>(commands: &'a Commands, phase: &Phase) -> &'a [Dispatch] {
    &commands.dispatches[phase.first as usize..][..phase.count as usize]
}
