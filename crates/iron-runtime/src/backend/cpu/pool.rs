//! Worker threads that run phases of dispatches.
//!
//! A phase ends when all its units were run, not when all threads arrived. So a thread that is preempted while it has
//! nothing claimed holds nobody up; the others take its units.
//!
//! One word says everything: the number of the job in its upper half, and in its lower half how many of the job's units
//! are still to be run. Each phase knows how many units come after it, so whoever subtracts the last units of a phase
//! has ended it, with one transfer of one cache line. At zero the job is over.
//!
//! A worker raises its `inside` flag before it looks at the job, and lowers it before it waits for long. The caller writes
//! the job only while the word's lower half is zero and no flag is up.

use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Polls for the end of a phase before taking units from others: one to three microseconds, in which a thread that runs
/// has begun.
const PATIENT_POLLS: u32 = 64;

/// The same after another thread was found not to run, until one is seen again.
const IMPATIENT_POLLS: u32 = 4;

/// Polls for the other threads to leave a job before yielding to them.
const POLLS_BEFORE_YIELD: u32 = 256;

/// The most units of one job; a longer list is several jobs.
const MAX_JOB_UNITS: u64 = u32::MAX as u64;

pub(super) struct Pool {
    shared: Arc<Shared>,
    /// Held while a job runs.
    last: Mutex<Last>,
    workers: Vec<JoinHandle<()>>,
}

/// Numbers that were used last.
#[derive(Default)]
struct Last {
    job: u32,
    phase: u32,
}

#[repr(align(128))]
struct Padded<T>(T);

struct Shared {
    signal: Padded<Signal>,
    /// Per thread, whether it may look at the job.
    inside: Box<[Padded<AtomicBool>]>,
    job: UnsafeCell<Job>,
    threads: u32,
    stop: AtomicBool,
    failed: AtomicBool,
    failure: Mutex<Option<RuntimeError>>,
}

// SAFETY: `job` is written only by the caller that holds `Pool::last`, while no units are left and no `inside` flag is
// up; it is read only by that caller, and by workers who saw units left after raising their flag.
unsafe impl Sync for Shared {}
// SAFETY: the pointers in `job` are only followed under the rule above, while the caller of `run` keeps them valid.
unsafe impl Send for Shared {}

struct Job {
    commands: *const Commands,
    phases: *const [Phase],
    /// Number of the first phase.
    first: u32,
    /// [`Phase::end`] of the last phase.
    end: u64,
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
            end: 0,
            slots: Slots::new(threads, 1),
        };
        let shared = Arc::new(Shared {
            signal: Padded(Signal::new(word(0, 0), spin)),
            inside: (0..threads).map(|_| Padded(AtomicBool::new(false))).collect(),
            job: UnsafeCell::new(job),
            threads: threads as u32,
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        });
        let mut pool = Self { shared, last: Mutex::default(), workers: Vec::new() };
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
    pub(super) fn run(&self, commands: &Commands, mut phases: &[Phase]) -> Result<()> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.threads == 1 || phases.iter().all(|phase| phase.serial) {
            self.shared.run_alone(commands, phases);
        } else {
            let mut before = 0;
            while let Some(end) = phases.last().map(|phase| phase.end) {
                let fits = |phase: &Phase| phase.end - before <= MAX_JOB_UNITS;
                let count = if end - before <= MAX_JOB_UNITS {
                    phases.len()
                } else {
                    phases.partition_point(fits)
                };
                let (part, rest) = phases.split_at(count.clamp(1, PHASE_LIMIT as usize / 2));
                before = self.run_job(commands, part, before, &mut last);
                phases = rest;
            }
        }
        if self.shared.failed.swap(false, Ordering::Relaxed) {
            let failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
            return failure.map_or(Ok(()), Err);
        }
        Ok(())
    }

    /// Runs phases that come after `before` units, and returns how many units come before the next.
    fn run_job(&self, commands: &Commands, phases: &[Phase], before: u64, last: &mut Last) -> u64 {
        let shared = &*self.shared;
        let end = phases.last().map_or(before, |phase| phase.end);
        let wraps = last.phase as usize + phases.len() + 1 >= PHASE_LIMIT as usize;
        if wraps {
            last.phase = 0;
        }
        {
            // SAFETY: `last` is locked, no units are left, and the last job waited for every flag to go down.
            let job = unsafe { &mut *shared.job.get() };
            let claims = phases.iter().map(Phase::claims).max().unwrap_or(1);
            if wraps || claims > job.slots.per_worker() {
                job.slots = Slots::new(self.threads(), claims);
            }
            job.commands = commands;
            job.phases = phases;
            job.first = last.phase + 1;
            job.end = end;
        }
        last.phase += phases.len() as u32;
        last.job = last.job.wrapping_add(1);
        shared.signal.0.publish(word(last.job, (end - before) as u32));
        shared.participate(0, last.job);
        shared.wait_until_left();
        end
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // No job is running, because `run` borrows the pool.
        let job = self.last.get_mut().unwrap_or_else(PoisonError::into_inner).job;
        self.shared.signal.0.publish(word(job.wrapping_add(1), 0));
        for worker in self.workers.drain(..) {
            // Workers catch the panics of kernels, so there is nothing to report.
            let _ = worker.join();
        }
    }
}

const fn word(job: u32, units_left: u32) -> u64 {
    (job as u64) << 32 | units_left as u64
}

const fn job_of(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn units_left(word: u64) -> u64 {
    word & 0xffff_ffff
}

impl Shared {
    /// The life of worker `thread`.
    fn work(&self, thread: u32) {
        let mut seen = 0;
        loop {
            seen = job_of(self.signal.0.wait(|word| job_of(word) != seen));
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            self.participate(thread, seen);
        }
    }

    /// Works on job `number` until it is over.
    fn participate(&self, thread: u32, number: u32) {
        let mut index = 0;
        let mut polls = PATIENT_POLLS;
        loop {
            let Some(after) = self.look(thread, number, |job, left| {
                while job.units_after(index) >= left {
                    index += 1;
                }
                self.run_own(job, index, thread);
                job.units_after(index)
            }) else {
                return;
            };
            let over = |word| job_of(word) != number || units_left(word) <= after;
            if self.signal.0.wait_briefly(polls, over).is_some() {
                polls = PATIENT_POLLS;
                continue;
            }
            // Others take long, or do not run at all.
            let absent = self
                .look(thread, number, |job, left| left > after && self.help(job, index, thread));
            polls = if absent == Some(true) { IMPATIENT_POLLS } else { PATIENT_POLLS };
            self.signal.0.wait(over);
        }
    }

    /// Lets `view` look at job `number`, given its units left; `None` when the job is over.
    #[inline]
    fn look<R>(&self, thread: u32, number: u32, view: impl FnOnce(&Job, u64) -> R) -> Option<R> {
        let inside = &self.inside[thread as usize].0;
        inside.store(true, Ordering::SeqCst);
        // Pairs with `wait_until_left`: either this sees that no units are left, or the caller sees the flag.
        let word = self.signal.0.get();
        let open = job_of(word) == number && units_left(word) > 0;
        // SAFETY: the caller of `run` wrote the job before it published its units, and writes it again only once none
        // is left and this flag is down.
        let result = open.then(|| view(unsafe { &*self.job.get() }, units_left(word)));
        inside.store(false, Ordering::Release);
        result
    }

    /// Waits until no worker looks at the job, of which no units are left.
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

    /// Runs the units of a phase that this thread starts with, as far as others do not take them.
    #[inline]
    fn run_own(&self, job: &Job, index: usize, thread: u32) {
        let (commands, phase, number) = job.phase(index);
        let mut run = 0;
        for claim in 0..phase.claims() {
            let (initial, least) = self.initial(commands, phase, claim, thread);
            loop {
                match job.slots.claim(thread as usize, claim, number, &initial, least) {
                    Claim::Units(units) => {
                        run += self.execute_claim(commands, phase, claim, units, thread);
                    }
                    Claim::Empty => break,
                    Claim::Over => return,
                }
            }
        }
        self.complete(job, index, run);
    }

    /// Takes units of a phase from other threads until none is left; returns whether one of them had not begun.
    #[cold]
    fn help(&self, job: &Job, index: usize, thread: u32) -> bool {
        let (commands, phase, number) = job.phase(index);
        let mut absent = false;
        for victim in (1..self.threads).map(|distance| (thread + distance) % self.threads) {
            for claim in 0..phase.claims() {
                let (initial, least) = self.initial(commands, phase, claim, victim);
                absent |=
                    !initial.is_empty() && job.slots.is_untouched(victim as usize, claim, number);
                let share = (self.threads, least);
                loop {
                    match job.slots.steal(victim as usize, claim, number, &initial, share) {
                        Claim::Units(units) => {
                            let run = self.execute_claim(commands, phase, claim, units, thread);
                            self.complete(job, index, run);
                        }
                        Claim::Empty => break,
                        Claim::Over => return absent,
                    }
                }
            }
        }
        absent
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

    /// Counts units of a phase that were run, and wakes the others when they were its last.
    #[inline]
    fn complete(&self, job: &Job, index: usize, run: u64) {
        if run > 0 && units_left(self.signal.0.subtract(run)) == job.units_after(index) {
            self.signal.0.wake();
        }
    }
}

impl Job {
    fn phases(&self) -> &[Phase] {
        // SAFETY: `run` borrows the phases until the job is over and nobody looks at it.
        unsafe { &*self.phases }
    }

    /// Units of the phases after one.
    #[inline]
    fn units_after(&self, index: usize) -> u64 {
        self.end - self.phases()[index].end
    }

    /// A phase, with its commands and its number.
    #[inline]
    fn phase(&self, index: usize) -> (&Commands, &Phase, u32) {
        // SAFETY: `run` borrows the commands until the job is over and nobody looks at it.
        let commands = unsafe { &*self.commands };
        (commands, &self.phases()[index], self.first + index as u32)
    }
}

/// The dispatches of a phase, in order.
fn dispatches_of<'a>(commands: &'a Commands, phase: &Phase) -> &'a [Dispatch] {
    &commands.dispatches[phase.first as usize..][..phase.count as usize]
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{PHASE_LIMIT, Pool};
    use crate::commands::{Commands, Dispatch, Placement, Split};
    use crate::pipeline::Pipeline;
    use crate::{CpuEntries, KernelDescriptor, Launch, ScheduleDescriptor};

    static KERNEL: KernelDescriptor =
        KernelDescriptor { name: "count", dims: &[], params: &[], generics: &[], instances: &[] };
    static SCHEDULE: ScheduleDescriptor = ScheduleDescriptor {
        name: "each",
        when: |_| true,
        grid: |_| [1, 1, 1],
        cpu: CpuEntries { avx512: None, avx2: None, portable: count },
        cuda: None,
        metal: None,
    };

    /// Adds the number of programs to the counter that the only word points to.
    unsafe fn count(launch: &Launch<'_>) {
        // SAFETY: the test keeps the counter alive.
        let counter = unsafe { AtomicU32::from_ptr(launch.args[0] as *mut u32) };
        counter.fetch_add(launch.programs.len() as u32, Ordering::Relaxed);
    }

    #[test]
    fn phase_numbers_start_again_before_they_run_out() {
        let counter = AtomicU32::new(0);
        let mut commands =
            Commands { words: vec![counter.as_ptr().addr() as u64], ..Commands::default() };
        for _ in 0..10 {
            let dispatch = Dispatch {
                kernel: &KERNEL,
                schedule: &SCHEDULE,
                pipeline: Pipeline::Cpu(count),
                words: (0, 1),
                grid: [9, 1, 1],
                split: Split::new(9, 2, 0),
            };
            commands.push(dispatch, Placement::Barrier);
        }
        let pool = Pool::new(2, false).unwrap();
        pool.run(&commands, &commands.phases).unwrap();
        pool.last.lock().unwrap().phase = PHASE_LIMIT - 25;
        pool.last.lock().unwrap().job = u32::MAX - 2;
        for _ in 0..5 {
            pool.run(&commands, &commands.phases).unwrap();
        }
        assert_eq!(pool.last.lock().unwrap().phase, 30);
        assert_eq!(counter.load(Ordering::Relaxed), 6 * 90);
    }
}
