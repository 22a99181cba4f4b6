//! How fast this machine reads memory: the bar that decode speed is measured against.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::{
    Arg, Binding, CpuEntries, DType, Device, DimExpr, Element, InstanceDescriptor,
    KernelDescriptor, Launch, ParamDescriptor, ParamKind, Result, ScheduleDescriptor, Tensor,
};

/// Bytes that one program reads.
const CHUNK: usize = 1 << 20;

/// Streams that one program reads side by side; four were faster than one on every machine measured so far.
const STREAMS: usize = 4;

/// Read at least this often, and for at least this long.
const LEAST_PASSES: usize = 5;
const LEAST_TIME: Duration = Duration::from_millis(300);

/// Bytes per second that all threads of the device read together from 512 MiB, the best of several passes.
pub fn measure_read_bandwidth(device: &Device) -> Result<f64> {
    measure_read_bandwidth_of(device, 512 << 20)
}

/// As [`measure_read_bandwidth`], from a buffer of `bytes` bytes, rounded up to whole MiB.
pub fn measure_read_bandwidth_of(device: &Device, bytes: usize) -> Result<f64> {
    let chunks = bytes.div_ceil(CHUNK).max(1);
    let data = Tensor::new(device.buffer(chunks * CHUNK)?, 0, DType::U8, &[chunks, CHUNK])?;
    let commands = device.command_buffer();
    // Untouched pages share one page of zeros, which would be read from the cache.
    commands.encode(&FILL, &[Arg::Tensor(&data)])?;
    commands.run()?;
    commands.encode(&READ, &[Arg::Tensor(&data)])?;
    let read = commands.finish();

    let start = Instant::now();
    let mut best = Duration::MAX;
    let mut passes = 0;
    while passes < LEAST_PASSES || start.elapsed() < LEAST_TIME {
        let pass = Instant::now();
        read.run()?;
        best = best.min(pass.elapsed());
        passes += 1;
    }
    Ok((chunks * CHUNK) as f64 / best.as_secs_f64())
}

const fn schedule(cpu: CpuEntries) -> ScheduleDescriptor {
    ScheduleDescriptor {
        name: "chunks",
        when: |_| true,
        grid: |dims| [dims[0], 1, 1],
        cpu,
        cuda: None,
        metal: None,
    }
}

static FILL: KernelDescriptor = KernelDescriptor {
    name: "fill_chunks",
    dims: &["chunks"],
    params: &[ParamDescriptor {
        name: "data",
        kind: ParamKind::Tensor {
            element: Element::Fixed(Binding::DType(DType::U8)),
            shape: &[DimExpr::Dim(0), DimExpr::Const(CHUNK as i64)],
            mutable: true,
        },
    }],
    generics: &[],
    instances: &[InstanceDescriptor {
        bindings: &[],
        schedules: &[schedule(CpuEntries { avx512: None, avx2: None, portable: fill })],
    }],
};

static READ: KernelDescriptor = KernelDescriptor {
    name: "read_chunks",
    dims: &["chunks"],
    params: &[ParamDescriptor {
        name: "data",
        kind: ParamKind::Tensor {
            element: Element::Fixed(Binding::DType(DType::U8)),
            shape: &[DimExpr::Dim(0), DimExpr::Const(CHUNK as i64)],
            mutable: false,
        },
    }],
    generics: &[],
    instances: &[InstanceDescriptor {
        bindings: &[],
        #[cfg(target_arch = "x86_64")]
        schedules: &[schedule(CpuEntries {
            avx512: Some(x86::read_avx512),
            avx2: Some(x86::read_avx2),
            portable: read_portable,
        })],
        #[cfg(not(target_arch = "x86_64"))]
        schedules: &[schedule(CpuEntries { avx512: None, avx2: None, portable: read_portable })],
    }],
};

/// Start of a program's chunk.
fn chunk_of(launch: &Launch<'_>, program: u32) -> *mut u8 {
    (launch.args[0] as *mut u8).wrapping_add(program as usize * launch.args[1] as usize)
}

unsafe fn fill(launch: &Launch<'_>) {
    for program in launch.programs.clone() {
        // SAFETY: the contract says `[chunks, CHUNK]` writable bytes, and each program has its own chunk.
        unsafe { std::ptr::write_bytes(chunk_of(launch, program), 1, CHUNK) };
    }
}

unsafe fn read_portable(launch: &Launch<'_>) {
    const WORDS: usize = CHUNK / STREAMS / size_of::<u64>();
    for program in launch.programs.clone() {
        let chunk: *const u64 = chunk_of(launch, program).cast();
        let mut sums = [0u64; STREAMS];
        for word in 0..WORDS {
            for (stream, sum) in sums.iter_mut().enumerate() {
                // SAFETY: inside the chunk of `CHUNK` bytes; chunks are aligned to 64 bytes.
                *sum ^= unsafe { chunk.add(stream * WORDS + word).read() };
            }
        }
        black_box(sums);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_load_si256, _mm256_setzero_si256, _mm256_xor_si256,
        _mm512_load_si512, _mm512_setzero_si512, _mm512_xor_si512,
    };
    use std::hint::black_box;

    use super::{CHUNK, STREAMS, chunk_of};
    use crate::Launch;

    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn read_avx512(launch: &Launch<'_>) {
        const VECTORS: usize = CHUNK / STREAMS / size_of::<__m512i>();
        for program in launch.programs.clone() {
            let chunk: *const __m512i = chunk_of(launch, program).cast();
            let mut sums = [_mm512_setzero_si512(); STREAMS];
            for vector in 0..VECTORS {
                for (stream, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: inside the chunk of `CHUNK` bytes; chunks are aligned to 64 bytes.
                    *sum = _mm512_xor_si512(*sum, unsafe {
                        _mm512_load_si512(chunk.add(stream * VECTORS + vector))
                    });
                }
            }
            black_box(sums);
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn read_avx2(launch: &Launch<'_>) {
        const VECTORS: usize = CHUNK / STREAMS / size_of::<__m256i>();
        for program in launch.programs.clone() {
            let chunk: *const __m256i = chunk_of(launch, program).cast();
            let mut sums = [_mm256_setzero_si256(); STREAMS];
            for vector in 0..VECTORS {
                for (stream, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: inside the chunk of `CHUNK` bytes; chunks are aligned to 64 bytes.
                    *sum = _mm256_xor_si256(*sum, unsafe {
                        _mm256_load_si256(chunk.add(stream * VECTORS + vector))
                    });
                }
            }
            black_box(sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::measure_read_bandwidth_of;
    use crate::{CpuOptions, Device, IsaLevel};

    #[test]
    fn every_instruction_set_reads_at_a_plausible_speed() {
        for isa in IsaLevel::ALL.into_iter().filter(|&isa| isa <= IsaLevel::detect()) {
            let device = Device::cpu(CpuOptions { isa: Some(isa), threads: None }).unwrap();
            let speed = measure_read_bandwidth_of(&device, 16 << 20).unwrap();
            assert!((1e8..1e13).contains(&speed), "{isa}: {speed} bytes/s");
        }
    }
}
