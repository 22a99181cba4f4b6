//! What the runtime itself costs: run with `cargo bench -p iron-runtime`.

#![expect(unsafe_code, reason = "empty kernels")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use iron_runtime::{
    Arg, CpuOptions, DType, Device, KernelDescriptor, Launch, Tensor, measure_read_bandwidth,
};
use iron_runtime::{DimExpr, InstanceDescriptor, ParamDescriptor, ParamKind};

/// Three tensors and a scalar, as a small real kernel has, and no work.
static EMPTY: KernelDescriptor = KernelDescriptor {
    name: "empty",
    dims: &["programs", "n"],
    params: &[
        ParamDescriptor {
            name: "x",
            kind: ParamKind::Tensor {
                element: common::F32,
                shape: &[DimExpr::Dim(0), DimExpr::Dim(1)],
                mutable: false,
            },
        },
        ParamDescriptor {
            name: "weight",
            kind: ParamKind::Tensor {
                element: common::F32,
                shape: &[DimExpr::Dim(1)],
                mutable: false,
            },
        },
        ParamDescriptor {
            name: "out",
            kind: ParamKind::Tensor {
                element: common::F32,
                shape: &[DimExpr::Dim(0), DimExpr::Dim(1)],
                mutable: true,
            },
        },
        ParamDescriptor { name: "eps", kind: ParamKind::Scalar(DType::F32) },
    ],
    generics: &[],
    instances: &[InstanceDescriptor {
        bindings: &[],
        schedules: &[common::schedule("rows", |dims| [dims[0], 1, 1], empty)],
    }],
};

unsafe fn empty(launch: &Launch<'_>) {
    if launch.thread != 0 {
        HELPED.0.fetch_add(launch.programs.len() as u64, Ordering::Relaxed);
    }
}

/// Programs that ran on another thread than the caller's: a run in which few did had no second processor.
static HELPED: Line = Line(AtomicU64::new(0));

#[repr(align(128))]
struct Line(AtomicU64);

const CALLS: usize = 300;

fn best(rounds: usize, mut run: impl FnMut()) -> f64 {
    (0..rounds)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_nanos() as f64
        })
        .fold(f64::INFINITY, f64::min)
}

fn main() {
    let default = Device::cpu(CpuOptions::default()).unwrap();
    println!("{}", default.name());
    for threads in [1, 2, 4] {
        let device = Device::cpu(CpuOptions { threads: Some(threads), isa: None }).unwrap();
        for programs in [1, 2, 100, 1000] {
            let x = Tensor::zeros(DType::F32, &[programs, 64]).unwrap();
            let weight = Tensor::zeros(DType::F32, &[64]).unwrap();
            let args = [Arg::Tensor(&x), Arg::Tensor(&weight), Arg::Tensor(&x), Arg::F32(1e-5)];
            let commands = device.command_buffer();
            let mut encode = f64::INFINITY;
            for _ in 0..50 {
                encode = encode.min(best(1, || {
                    for _ in 0..CALLS {
                        commands.encode(&EMPTY, &args).unwrap();
                    }
                }));
                commands.run().unwrap();
            }
            for _ in 0..CALLS {
                commands.encode(&EMPTY, &args).unwrap();
            }
            let recording = commands.finish();
            let expected = CALLS * programs * (threads - 1) / threads;
            let mut times: Vec<f64> = Vec::new();
            for _ in 0..5000 {
                HELPED.0.store(0, Ordering::Relaxed);
                let time = best(1, || recording.run().unwrap());
                let helped = HELPED.0.load(Ordering::Relaxed) as usize;
                if programs == 1 || helped * 10 >= expected * 9 {
                    times.push(time);
                }
            }
            times.sort_unstable_by(f64::total_cmp);
            let at = |quantile: usize| {
                times.get(times.len() * quantile / 100).map_or(f64::NAN, |time| time / CALLS as f64)
            };
            println!(
                "{threads} threads, {programs:4} programs: encode {:4.0} ns, dispatch {:5.0} ns best, {:5.0} ns median of \
                 {} runs that all threads shared",
                encode / CALLS as f64,
                at(0),
                at(50),
                times.len(),
            );
        }
    }
    println!("read bandwidth {:.1} GB/s", measure_read_bandwidth(&default).unwrap() / 1e9);
}
