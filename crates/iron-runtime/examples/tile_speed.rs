//! How fast the tile library's dot products run on this machine, as shares of what its memory and arithmetic units do in
//! the same run.
//!
//! `cargo run --release -p iron-runtime --example tile_speed [avx512|avx2] [gemv|gemm|f32|dense] [MIB]`
//!
//! `MIB` is how much memory matrix-vector products stream: more than the last-level cache holds, 96 unless told.
#![expect(unsafe_code, reason = "calls kernels with raw arguments")]
#![expect(clippy::inline_always, reason = "only inlined code gets the instruction set")]
#![expect(
    clippy::large_stack_arrays,
    reason = "output tiles live on the stack, as in generated kernels"
)]
#![expect(clippy::cast_ptr_alignment, reason = "the buffers start on 2 MiB")]

use std::sync::Barrier;

use iron_core::Format;
use iron_runtime::cpu_entries;
use iron_runtime::launch::{CpuKernel, Launch};
use iron_runtime::tile::{
    BF16, F32Rows, Int8Rows, Isa, PackedFormat, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K,
    Q8_0, dot_dense, dot_dense_panel, dot_f32_packed_panel, dot_int8, dot_int8_panel, packed_bytes,
};
use iron_runtime::{CpuEntries, IsaLevel};

/// Arguments of every kernel here: row groups `programs`, or elements for the two ceilings.
#[derive(Clone, Copy)]
struct Arguments {
    x: *const f32,
    q: *const i8,
    scale: *const f32,
    sum: *const f32,
    w: *const u8,
    out: *mut f32,
    m: usize,
    n: usize,
    k: usize,
}

impl Arguments {
    fn of(launch: &Launch<'_>) -> Self {
        let a = launch.args;
        Self {
            x: a[0] as *const f32,
            q: a[1] as *const i8,
            scale: a[2] as *const f32,
            sum: a[3] as *const f32,
            w: a[4] as *const u8,
            out: a[5] as *mut f32,
            m: a[6] as usize,
            n: a[7] as usize,
            k: a[8] as usize,
        }
    }

    fn words(&self) -> [u64; 9] {
        [
            self.x as u64,
            self.q as u64,
            self.scale as u64,
            self.sum as u64,
            self.w as u64,
            self.out as u64,
            self.m as u64,
            self.n as u64,
            self.k as u64,
        ]
    }

    fn int8(&self, row: usize) -> Int8Rows {
        let blocks = self.k / 32;
        Int8Rows {
            q: self.q.wrapping_add(row * self.k),
            scale: self.scale.wrapping_add(row * blocks),
            sum: self.sum.wrapping_add(row * blocks),
            q_stride: self.k,
            block_stride: blocks,
        }
    }

    fn f32(&self, row: usize) -> F32Rows {
        F32Rows { x: self.x.wrapping_add(row * self.k), stride: self.k }
    }
}

const BM: usize = 128;
const BN: usize = 64;

/// One row of activations times a row group a program.
#[inline(always)]
unsafe fn gemv<I: Isa, W: PackedFormat>(launch: &Launch<'_>) {
    let a = Arguments::of(launch);
    for group in launch.programs.clone() {
        unsafe {
            let mut acc = [[I::splat_f(0.0)]];
            dot_int8::<I, W, 1, 1>(&mut acc, a.int8(0), 1, a.w, group as usize, 16, a.k, 0, a.k);
            I::store_f32(a.out.add(16 * group as usize), acc[0][0]);
        }
    }
}

/// All rows of activations times 64 weight rows a program.
#[inline(always)]
unsafe fn gemm<I: Isa, W: PackedFormat>(launch: &Launch<'_>) {
    let a = Arguments::of(launch);
    let mut tile = [0f32; BM * BN];
    for program in launch.programs.clone() {
        let col = program as usize * BN;
        for row in (0..a.m).step_by(BM) {
            tile.fill(0.0);
            let rows = (a.m - row).min(BM);
            unsafe {
                dot_int8_panel::<I, W>(
                    tile.as_mut_ptr(),
                    BN,
                    a.int8(row),
                    rows as i32,
                    a.w,
                    col / 16,
                    BN as i32,
                    a.k,
                    0,
                    a.k,
                );
                for i in 0..rows {
                    for v in (0..BN).step_by(16) {
                        I::store_f32(
                            a.out.add((row + i) * a.n + col + v),
                            I::load_f32(tile[i * BN + v..].as_ptr()),
                        );
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn gemm_f32<I: Isa, W: PackedFormat>(launch: &Launch<'_>) {
    let a = Arguments::of(launch);
    let mut tile = [0f32; BM * BN];
    for program in launch.programs.clone() {
        let col = program as usize * BN;
        for row in (0..a.m).step_by(BM) {
            tile.fill(0.0);
            let rows = (a.m - row).min(BM);
            unsafe {
                dot_f32_packed_panel::<I, W>(
                    tile.as_mut_ptr(),
                    BN,
                    a.f32(row),
                    rows as i32,
                    a.w,
                    col / 16,
                    BN as i32,
                    a.k,
                    0,
                    a.k,
                );
                for i in 0..rows {
                    for v in (0..BN).step_by(16) {
                        I::store_f32(
                            a.out.add((row + i) * a.n + col + v),
                            I::load_f32(tile[i * BN + v..].as_ptr()),
                        );
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn dense_gemv<I: Isa>(launch: &Launch<'_>) {
    let a = Arguments::of(launch);
    for group in launch.programs.clone() {
        unsafe {
            let mut acc = [[I::splat_f(0.0)]];
            let w = a.w.cast::<u16>().add(16 * group as usize * a.k);
            dot_dense::<I, BF16, 1, 1>(&mut acc, a.f32(0), 1, w, a.k, 16, 0, a.k);
            I::store_f32(a.out.add(16 * group as usize), acc[0][0]);
        }
    }
}

#[inline(always)]
unsafe fn dense_gemm<I: Isa>(launch: &Launch<'_>) {
    let a = Arguments::of(launch);
    for program in launch.programs.clone() {
        let col = program as usize * BN;
        for row in (0..a.m).step_by(BM) {
            let rows = (a.m - row).min(BM);
            unsafe {
                let w = a.w.cast::<u16>().add(col * a.k);
                let out = a.out.add(row * a.n + col);
                dot_dense_panel::<I, BF16>(
                    out,
                    a.n,
                    a.f32(row),
                    rows as i32,
                    w,
                    a.k,
                    BN as i32,
                    0,
                    a.k,
                );
            }
        }
    }
}

/// Reads `n` bytes of `w` from `k` on per program, four streams.
#[inline(always)]
unsafe fn read<I: Isa>(launch: &Launch<'_>) {
    let a = Arguments::of(launch);
    unsafe {
        let mut any = [I::splat_i(0); 8];
        for program in launch.programs.clone() {
            let start = a.w.add(program as usize * a.k);
            let part = a.k / 4 / 128 * 128;
            for at in (0..part).step_by(128) {
                for stream in 0..4 {
                    let p = start.add(stream * part + at);
                    I::prefetch(p.wrapping_add(1024));
                    I::prefetch(p.wrapping_add(1088));
                    any[2 * stream] = I::or_i(any[2 * stream], I::load_i32(p.cast()));
                    any[2 * stream + 1] =
                        I::or_i(any[2 * stream + 1], I::load_i32(p.add(64).cast()));
                }
            }
        }
        let mut all = any[0];
        for any in &any[1..] {
            all = I::or_i(all, *any);
        }
        *a.out = I::reduce_add_i(all) as f32;
    }
}

/// Integer dot steps of a program of [`integer_peak`], per unit of `k`.
const fn peak_chains(level: IsaLevel) -> usize {
    // As many as leave registers for their operands.
    if matches!(level, IsaLevel::Avx512) { 12 } else { 3 }
}

/// `k` rounds of independent integer dot steps per program, operands in registers.
#[inline(always)]
unsafe fn integer_peak<I: Isa>(launch: &Launch<'_>) {
    unsafe { if I::WIDE { chains_i::<I, 12>(launch) } else { chains_i::<I, 3>(launch) } }
}

#[inline(always)]
unsafe fn chains_i<I: Isa, const C: usize>(launch: &Launch<'_>) {
    let a = Arguments::of(launch);
    unsafe {
        let mut codes = [I::splat_i(0); C];
        for (c, codes) in codes.iter_mut().enumerate() {
            *codes = I::load_i32(a.w.add(64 * c).cast());
        }
        let mut acc = [I::splat_i(0); C];
        for round in 0..launch.programs.len() * a.k {
            let x = I::splat_i(a.q.add(round % 64 * 4).cast::<i32>().read_unaligned());
            for c in 0..C {
                acc[c] = I::dot4(4, acc[c], codes[c], x);
            }
        }
        for (c, acc) in acc.into_iter().enumerate() {
            I::store_i32(a.out.add(16 * c).cast(), acc);
        }
    }
}

/// The same with f32 multiply-adds.
#[inline(always)]
unsafe fn float_peak<I: Isa>(launch: &Launch<'_>) {
    unsafe { if I::WIDE { chains_f::<I, 12>(launch) } else { chains_f::<I, 6>(launch) } }
}

#[inline(always)]
unsafe fn chains_f<I: Isa, const C: usize>(launch: &Launch<'_>) {
    let a = Arguments::of(launch);
    unsafe {
        let mut acc = [I::splat_f(0.0); C];
        let w = I::load_f32(a.x);
        for round in 0..launch.programs.len() * a.k {
            let x = I::splat_f(*a.x.add(round % 64));
            for acc in &mut acc {
                *acc = I::fma_f(x, w, *acc);
            }
        }
        for (c, acc) in acc.into_iter().enumerate() {
            I::store_f32(a.out.add(16 * c), acc);
        }
    }
}

/// Zeroed memory on a boundary of 2 MiB.
struct Memory(Vec<u8>, usize);

impl Memory {
    fn new(bytes: usize) -> Self {
        let memory = vec![0u8; bytes + (2 << 20) + 8192];
        let offset = memory.as_ptr().align_offset(2 << 20);
        Self(memory, offset)
    }
    fn ptr(&mut self) -> *mut u8 {
        self.0[self.1..].as_mut_ptr()
    }
}

/// Seconds of processor time that this thread has had.
fn processor_time() -> f64 {
    // SAFETY: the clock exists and the result is written.
    unsafe {
        let mut time = std::mem::zeroed::<libc::timespec>();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    }
}

/// Repetitions of every measurement, of which the best counts.
const ROUNDS: usize = 8;

struct Bench {
    level: IsaLevel,
    threads: usize,
}

impl Bench {
    /// The best time in seconds of `programs` programs shared out in equal runs, by the processor time of the slowest
    /// thread: what other programs take of a shared machine drops out of it, though not what they take of its caches and
    /// memory.
    fn best(&self, entries: CpuEntries, a: Arguments, programs: usize) -> f64 {
        let kernel: CpuKernel = entries.select(self.level);
        let words = a.words();
        let barrier = Barrier::new(self.threads);
        let times: Vec<Vec<f64>> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (barrier, words) = (&barrier, &words);
                    scope.spawn(move || {
                        let mut times = vec![];
                        for _ in 0..ROUNDS {
                            barrier.wait();
                            let start = processor_time();
                            let first = programs * thread / self.threads;
                            let last = programs * (thread + 1) / self.threads;
                            let launch = Launch {
                                args: words,
                                programs: first as u32..last as u32,
                                grid: [programs as u32, 1, 1],
                                thread: thread as u32,
                            };
                            // SAFETY: the level is available and the arguments are live buffers of their sizes.
                            unsafe { kernel(&launch) };
                            times.push(processor_time() - start);
                        }
                        times
                    })
                })
                .collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).collect()
        });
        (0..ROUNDS)
            .map(|round| times.iter().map(|times| times[round]).fold(0.0, f64::max))
            .fold(f64::MAX, f64::min)
    }
}

fn arguments(memory: &mut Memory, x: &mut [f32], q: &mut Memory, out: &mut Memory) -> Arguments {
    let q = q.ptr();
    Arguments {
        x: x.as_ptr(),
        q: q.cast(),
        scale: x.as_ptr(),
        sum: x.as_ptr(),
        w: memory.ptr(),
        out: out.ptr().cast(),
        m: 1,
        n: 0,
        k: 0,
    }
}

fn formats<F: FnMut(Format, CpuEntries, CpuEntries, CpuEntries)>(mut f: F) {
    macro_rules! each {
        ($($format:ident)*) => {$({
            #[inline(always)]
            unsafe fn gemv_of<I: Isa>(launch: &Launch<'_>) {
                unsafe { gemv::<I, $format>(launch) }
            }
            #[inline(always)]
            unsafe fn gemm_of<I: Isa>(launch: &Launch<'_>) {
                unsafe { gemm::<I, $format>(launch) }
            }
            #[inline(always)]
            unsafe fn gemm_f32_of<I: Isa>(launch: &Launch<'_>) {
                unsafe { gemm_f32::<I, $format>(launch) }
            }
            const GEMV: CpuEntries = cpu_entries!(gemv_of);
            const GEMM: CpuEntries = cpu_entries!(gemm_of);
            const GEMM_F32: CpuEntries = cpu_entries!(gemm_f32_of);
            f(Format::$format, GEMV, GEMM, GEMM_F32);
        })*};
    }
    each!(Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K);
}

const READ: CpuEntries = cpu_entries!(read);
const INTEGER_PEAK: CpuEntries = cpu_entries!(integer_peak);
const FLOAT_PEAK: CpuEntries = cpu_entries!(float_peak);
const DENSE_GEMV: CpuEntries = cpu_entries!(dense_gemv);
const DENSE_GEMM: CpuEntries = cpu_entries!(dense_gemm);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let requested = words.iter().find_map(|word| IsaLevel::parse(word));
    let level = requested.unwrap_or_else(IsaLevel::detect);
    assert!(level.is_available(), "{level} is not available on this processor");
    let wanted = |what: &str| {
        !["gemv", "gemm", "f32", "dense"].iter().any(|w| words.iter().any(|word| word == w))
            || words.iter().any(|word| word == what)
    };
    let streamed = words.iter().find_map(|word| word.parse::<usize>().ok()).unwrap_or(96) << 20;
    let mut weights = Memory::new(streamed.max(32 << 20));
    let (mut q, mut out) = (Memory::new(16 << 20), Memory::new(16 << 20));
    let mut x = vec![0.5f32; 512 * 4864];
    let start = arguments(&mut weights, &mut x, &mut q, &mut out);
    // Not zeros everywhere: the pages must be real.
    weights.0.fill(0x11);
    q.0.fill(1);
    println!("level {level}");
    for threads in [1, 2] {
        let bench = Bench { level, threads };
        let giga = |amount: f64, seconds: f64| amount / seconds / 1e9;
        let bandwidth = || {
            let total = streamed;
            let a = Arguments { k: total / 8, ..start };
            giga(total as f64, bench.best(READ, a, 8))
        };
        let integers = || {
            let a = Arguments { k: 20_000, ..start };
            let macs = 8 * 20_000 * peak_chains(level) * 64;
            giga(macs as f64, bench.best(INTEGER_PEAK, a, 8))
        };
        let floats = || {
            let a = Arguments { k: 20_000, ..start };
            let macs = 8 * 20_000 * if level == IsaLevel::Avx512 { 12 } else { 6 } * 16;
            giga(macs as f64, bench.best(FLOAT_PEAK, a, 8))
        };
        formats(|format, gemv, gemm, gemm_f32| {
            let k_quant = format.block() == 256;
            if wanted("gemv") {
                let k = if k_quant { 1536 } else { 896 };
                let row_bytes = packed_bytes(format, 16, k).unwrap();
                let groups = streamed / row_bytes;
                let a = Arguments { n: 16 * groups, k, ..start };
                let read = bandwidth();
                let rate = giga((groups * row_bytes) as f64, bench.best(gemv, a, groups));
                let read = read.max(bandwidth());
                println!(
                    "gemv {format} {threads}t {rate:.1} GB/s = {:.0}% of read {read:.1}",
                    rate / read * 100.0
                );
            }
            if wanted("gemm") {
                let shapes = [(1536, 576), (4864, 896), (896, 4864), (896, 1536)];
                for (n, k) in shapes {
                    if k_quant && k % 256 != 0 {
                        continue;
                    }
                    let a = Arguments { m: 512, n, k, ..start };
                    let peak = integers();
                    let rate = giga((512 * n * k) as f64, bench.best(gemm, a, n / BN));
                    let peak = peak.max(integers());
                    println!(
                        "gemm {format} {n}x{k} {threads}t {rate:.1} GMAC/s = {:.0}% of integer peak {peak:.0}",
                        rate / peak * 100.0
                    );
                }
            }
            if wanted("f32") {
                let (n, k) = (896, 1536);
                let a = Arguments { m: 512, n, k, ..start };
                let peak = floats();
                let rate = giga((512 * n * k) as f64, bench.best(gemm_f32, a, n / BN));
                let peak = peak.max(floats());
                println!(
                    "gemm f32 x {format} {n}x{k} {threads}t {rate:.1} GMAC/s = {:.0}% of float peak {peak:.0}",
                    rate / peak * 100.0
                );
            }
        });
        if wanted("dense") {
            let k = 1024;
            let groups = streamed / (16 * k * 2);
            let a = Arguments { n: 16 * groups, k, ..start };
            let read = bandwidth();
            let rate = giga((groups * 16 * k * 2) as f64, bench.best(DENSE_GEMV, a, groups));
            println!(
                "gemv bf16 {threads}t {rate:.1} GB/s = {:.0}% of read {read:.1}",
                rate / read * 100.0
            );
            let (n, k) = (896, 1536);
            let a = Arguments { m: 512, n, k, ..start };
            let peak = floats();
            let rate = giga((512 * n * k) as f64, bench.best(DENSE_GEMM, a, n / BN));
            println!(
                "gemm bf16 {n}x{k} {threads}t {rate:.1} GMAC/s = {:.0}% of float peak {peak:.0}",
                rate / peak * 100.0
            );
        }
    }
}
