//! Toy kernels, written as the compiler would emit them.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses some of these")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use iron_runtime::{
    ActivationKind, Binding, CpuEntries, CpuKernel, CpuOptions, DType, Device, DimExpr, Element,
    Format, InstanceDescriptor, KernelDescriptor, Launch, ParamDescriptor, ParamKind,
    ScheduleDescriptor,
};

pub const F32: Element = Element::Fixed(Binding::DType(DType::F32));
pub const U32: Element = Element::Fixed(Binding::DType(DType::U32));

/// A device with this many threads.
pub fn device(threads: usize) -> Device {
    Device::cpu(CpuOptions { threads: Some(threads), isa: None }).unwrap()
}

pub const fn portable(portable: CpuKernel) -> CpuEntries {
    CpuEntries { avx512: None, avx2: None, portable }
}

/// A schedule that always applies.
pub const fn schedule(
    name: &'static str,
    grid: fn(&[i64]) -> [i64; 3],
    kernel: CpuKernel,
) -> ScheduleDescriptor {
    ScheduleDescriptor {
        name,
        when: |_| true,
        grid,
        cpu: portable(kernel),
        cuda: None,
        metal: None,
    }
}

const fn tensor(
    name: &'static str,
    element: Element,
    shape: &'static [DimExpr],
    mutable: bool,
) -> ParamDescriptor {
    ParamDescriptor { name, kind: ParamKind::Tensor { element, shape, mutable } }
}

/// Coordinates of a linear program index.
fn coordinates(program: u32, grid: [u32; 3]) -> [u32; 3] {
    [program % grid[0], program / grid[0] % grid[1], program / grid[0] / grid[1]]
}

/// Adds 1 to `counts[z, y, x]` for every program `(x, y, z)`.
pub static COUNT: KernelDescriptor = KernelDescriptor {
    name: "count",
    dims: &["z", "y", "x"],
    params: &[tensor("counts", U32, &[DimExpr::Dim(0), DimExpr::Dim(1), DimExpr::Dim(2)], true)],
    generics: &[],
    instances: &[InstanceDescriptor {
        bindings: &[],
        schedules: &[schedule("each", |dims| [dims[2], dims[1], dims[0]], count)],
    }],
};

unsafe fn count(launch: &Launch<'_>) {
    let [base, z_stride, y_stride, ..] = *launch.args else { unreachable!() };
    for program in launch.programs.clone() {
        let [x, y, z] = coordinates(program, launch.grid);
        let index = u64::from(z) * z_stride + u64::from(y) * y_stride + u64::from(x);
        // SAFETY: inside the tensor; atomics make a program that runs twice count twice.
        let counter = unsafe { AtomicU32::from_ptr((base as *mut u32).add(index as usize)) };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// `out[i] = sum(x) + i`, wrapping: every program reads what every program of the last call wrote.
pub static MIX: KernelDescriptor = KernelDescriptor {
    name: "mix",
    dims: &["n", "programs"],
    params: &[
        tensor("x", U32, &[DimExpr::Dim(0)], false),
        tensor("out", U32, &[DimExpr::Dim(1)], true),
    ],
    generics: &[],
    instances: &[InstanceDescriptor {
        bindings: &[],
        schedules: &[schedule("each", |dims| [dims[1], 1, 1], mix)],
    }],
};

unsafe fn mix(launch: &Launch<'_>) {
    let [x, out, n, _] = *launch.args else { unreachable!() };
    for program in launch.programs.clone() {
        // SAFETY: the contract says `n` values of `x`, and one of `out` for each program.
        unsafe {
            let x = std::slice::from_raw_parts(x as *const u32, n as usize);
            let sum =
                x.iter().fold(program, |sum, value| sum.wrapping_mul(31).wrapping_add(*value));
            (out as *mut u32).add(program as usize).write(sum);
        }
    }
}

/// `out[i, j] = x[i, j] * scale + shift`, one row a program.
pub static SCALE: KernelDescriptor = KernelDescriptor {
    name: "scale",
    dims: &["rows", "n"],
    params: &[
        tensor("x", F32, &[DimExpr::Dim(0), DimExpr::Dim(1)], false),
        tensor("out", F32, &[DimExpr::Dim(0), DimExpr::Dim(1)], true),
        ParamDescriptor { name: "scale", kind: ParamKind::Scalar(DType::F32) },
        ParamDescriptor { name: "shift", kind: ParamKind::Scalar(DType::I32) },
    ],
    generics: &[],
    instances: &[InstanceDescriptor {
        bindings: &[],
        schedules: &[schedule("rows", |dims| [dims[0], 1, 1], scale)],
    }],
};

unsafe fn scale(launch: &Launch<'_>) {
    let [x, x_stride, out, out_stride, scale, shift, _, n] = *launch.args else { unreachable!() };
    let (scale, shift) = (f32::from_bits(scale as u32), shift as u32 as i32);
    for row in launch.programs.clone() {
        for column in 0..n {
            // SAFETY: inside both tensors as the contract says.
            unsafe {
                let value =
                    (x as *const f32).add((u64::from(row) * x_stride + column) as usize).read();
                let target = (out as *mut f32).add((u64::from(row) * out_stride + column) as usize);
                target.write(value * scale + shift as f32);
            }
        }
    }
}

/// Copies its own argument words to `out`; takes one parameter of every kind.
pub static WORDS: KernelDescriptor = KernelDescriptor {
    name: "words",
    dims: &["m", "n", "k"],
    params: &[
        ParamDescriptor {
            name: "x",
            kind: ParamKind::Activations {
                element: Element::Generic(0),
                shape: &[DimExpr::Dim(0), DimExpr::Dim(2)],
                mutable: false,
            },
        },
        ParamDescriptor {
            name: "w",
            kind: ParamKind::Quantized {
                element: Element::Generic(1),
                shape: &[DimExpr::Dim(1), DimExpr::Dim(2)],
            },
        },
        tensor(
            "y",
            Element::Generic(2),
            &[DimExpr::Dim(0), DimExpr::Const(2), DimExpr::Computed(|dims| dims[1] / 2)],
            true,
        ),
        ParamDescriptor { name: "seed", kind: ParamKind::Scalar(DType::U32) },
        tensor("out", Element::Fixed(Binding::DType(DType::I32)), &[DimExpr::Const(64)], true),
    ],
    generics: &["A", "W", "T"],
    instances: &[
        InstanceDescriptor {
            bindings: &[
                Binding::Activation(ActivationKind::F32),
                Binding::Format(Format::F32),
                Binding::DType(DType::F32),
            ],
            schedules: &[schedule("plain", |_| [1, 1, 1], words)],
        },
        InstanceDescriptor {
            bindings: &[
                Binding::Activation(ActivationKind::Int8),
                Binding::Format(Format::Q8_0),
                Binding::DType(DType::F16),
            ],
            schedules: &[schedule("int8", |_| [1, 1, 1], words)],
        },
    ],
};

unsafe fn words(launch: &Launch<'_>) {
    // `out` is the last parameter, so its address precedes the three dimensions.
    let out = launch.args[launch.args.len() - 4] as *mut u64;
    // SAFETY: `out` has 256 bytes, and there are at most 20 words.
    unsafe { std::ptr::copy_nonoverlapping(launch.args.as_ptr(), out, launch.args.len()) };
}

/// Writes which schedule ran to `out[0]`: 1 for `m == 1`, 2 for `m <= 4`; there is none for more.
pub static SCHEDULED: KernelDescriptor = KernelDescriptor {
    name: "scheduled",
    dims: &["m", "n"],
    params: &[tensor("out", U32, &[DimExpr::Dim(0), DimExpr::Dim(1)], true)],
    generics: &[],
    instances: &[InstanceDescriptor {
        bindings: &[],
        schedules: &[
            ScheduleDescriptor {
                when: |dims| dims[0] == 1,
                ..schedule("one", |_| [1, 1, 1], write_one)
            },
            ScheduleDescriptor {
                when: |dims| dims[0] <= 4,
                ..schedule("few", |_| [1, 1, 1], write_two)
            },
        ],
    }],
};

unsafe fn write_one(launch: &Launch<'_>) {
    // SAFETY: `out` has at least one element.
    unsafe { (launch.args[0] as *mut u32).write(1) };
}

unsafe fn write_two(launch: &Launch<'_>) {
    // SAFETY: as above.
    unsafe { (launch.args[0] as *mut u32).write(2) };
}

/// `out[i] = 1 + thread`; thread 1 sleeps first, a millisecond a program.
pub static SLEEPY: KernelDescriptor = KernelDescriptor {
    name: "sleepy",
    dims: &["n"],
    params: &[tensor("out", U32, &[DimExpr::Dim(0)], true)],
    generics: &[],
    instances: &[InstanceDescriptor {
        bindings: &[],
        schedules: &[schedule("each", |dims| [dims[0], 1, 1], sleepy)],
    }],
};

unsafe fn sleepy(launch: &Launch<'_>) {
    for program in launch.programs.clone() {
        let pause =
            if launch.thread == 1 { Duration::from_millis(1) } else { Duration::from_micros(100) };
        std::thread::sleep(pause);
        // SAFETY: one element for each program.
        unsafe { (launch.args[0] as *mut u32).add(program as usize).write(1 + launch.thread) };
    }
}

/// Panics in program 3.
pub static PANICS: KernelDescriptor = KernelDescriptor {
    name: "panics",
    dims: &["n"],
    params: &[tensor("out", U32, &[DimExpr::Dim(0)], true)],
    generics: &[],
    instances: &[InstanceDescriptor {
        bindings: &[],
        schedules: &[schedule("each", |dims| [dims[0], 1, 1], panics)],
    }],
};

unsafe fn panics(launch: &Launch<'_>) {
    assert!(!launch.programs.contains(&3), "program 3 is broken");
}

/// A grid of the scalars' making: `[x, y, z]` given as lengths of empty tensors is not possible, so as one dimension.
pub static HUGE_GRID: KernelDescriptor = KernelDescriptor {
    name: "huge_grid",
    dims: &["n"],
    params: &[tensor("out", U32, &[DimExpr::Dim(0)], true)],
    generics: &[],
    instances: &[InstanceDescriptor {
        bindings: &[],
        schedules: &[
            ScheduleDescriptor {
                when: |dims| dims[0] == 1,
                ..schedule("product", |_| [1 << 16, 1 << 16, 1], panics)
            },
            ScheduleDescriptor {
                when: |dims| dims[0] == 2,
                ..schedule("axis", |_| [1 << 32, 1, 1], panics)
            },
            ScheduleDescriptor {
                when: |dims| dims[0] == 3,
                ..schedule("negative", |_| [1, -1, 1], panics)
            },
            ScheduleDescriptor {
                when: |dims| dims[0] == 4,
                ..schedule("many", |_| [3_000_001, 1, 1], count_all)
            },
        ],
    }],
};

/// Adds the number of programs to `out[0]`.
unsafe fn count_all(launch: &Launch<'_>) {
    // SAFETY: `out` has four elements.
    let total = unsafe { AtomicU32::from_ptr(launch.args[0] as *mut u32) };
    total.fetch_add(launch.programs.len() as u32, Ordering::Relaxed);
}
