//! What the runtime itself costs: run with `cargo bench -p iron-runtime`.

#![expect(unsafe_code, reason = "empty kernels")]

#[path = "../tests/common/mod.rs"]
mod common;

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

unsafe fn empty(_: &Launch<'_>) {}

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
            let mut times: Vec<f64> =
                (0..2000).map(|_| best(1, || recording.run().unwrap())).collect();
            times.sort_unstable_by(f64::total_cmp);
            println!(
                "{threads} threads, {programs:4} programs: encode {:5.0} ns, dispatch {:6.0} ns best, {:6.0} ns median",
                encode / CALLS as f64,
                times[0] / CALLS as f64,
                times[times.len() / 2] / CALLS as f64,
            );
        }
    }
    println!("read bandwidth {:.1} GB/s", measure_read_bandwidth(&default).unwrap() / 1e9);
}
