//! The emulator finds what a wrong kernel does: each text below is wrong in one way.

mod support;

use iron_conformance::{Arg, Emulated, Error, Order, Target, Violation};
use support::targets;

/// A kernel of 64 threads with 256 bytes of shared memory and one output buffer of 64 floats.
fn run(target: Target, body: &str) -> Result<Vec<f32>, Error> {
    let text = match target {
        Target::Cuda => format!(
            "#include \"iron_tile.cuh\"\nextern \"C\" __global__ void __launch_bounds__(64) probe(float* out) {{\n    \
             extern __shared__ __align__(16) unsigned char iron_shared[];\n    const int tid = int(threadIdx.x);\n    \
             float* const s = (float*)(iron_shared);\n(void)s;\n{body}}}\n"
        ),
        Target::Metal => format!(
            "#include \"iron_tile.metal\"\nkernel void probe(device float* out [[buffer(0)]],\n    \
             threadgroup uchar* iron_shared [[threadgroup(0)]], uint thread_index [[thread_index_in_threadgroup]]) {{\n    \
             const int tid = int(thread_index);\n    threadgroup float* const s = (threadgroup float*)(iron_shared);\n{body}}}\n"
        ),
    };
    let mut emulated = Emulated::compile(target, &text, "probe")?;
    emulated.limit_accesses(100_000);
    let mut bytes = vec![0u8; 64 * 4];
    for order in Order::ALL {
        emulated.run_ordered([1, 1, 1], 64, 256, &mut [Arg::Output(&mut bytes)], order)?;
    }
    Ok(support::floats(&bytes, iron_core::DType::F32))
}

fn violation(target: Target, body: &str) -> Violation {
    match run(target, body) {
        Err(Error::Memory { violation, .. }) => violation,
        other => panic!("{target:?}: expected a memory error, found {other:?}"),
    }
}

#[test]
fn a_correct_exchange_through_shared_memory_passes() {
    for target in targets() {
        let out = run(target, "s[tid] = float(tid);\niron::barrier();\nout[tid] = s[63 - tid];\n")
            .unwrap();
        assert_eq!(out, (0..64).rev().map(|v| v as f32).collect::<Vec<_>>(), "{target:?}");
    }
}

#[test]
fn a_missing_barrier_is_a_race() {
    for target in targets() {
        let found = violation(target, "s[tid] = 1.0f;\nout[tid] = s[63 - tid];\n");
        // Which of the two is seen first depends on the order of threads.
        assert!(
            matches!(found, Violation::Race { .. } | Violation::Uninitialised { .. }),
            "{target:?}: {found}"
        );
    }
}

#[test]
fn a_missing_barrier_before_the_next_write_is_a_race() {
    for target in targets() {
        let body = "for (int i = 0; i < 2; ++i) {\ns[tid] = 1.0f;\niron::barrier();\nout[tid] = s[63 - tid];\n}\n";
        let found = violation(target, body);
        assert!(matches!(found, Violation::Race { .. }), "{target:?}: {found}");
    }
}

#[test]
fn two_threads_that_write_one_element_race() {
    for target in targets() {
        let found = violation(target, "out[tid / 2] = float(tid);\n");
        assert!(matches!(found, Violation::Race { other_write: true, .. }), "{target:?}: {found}");
    }
}

#[test]
fn an_access_past_a_buffer_is_out_of_bounds() {
    for target in targets() {
        let found = violation(target, "out[tid + 1] = 1.0f;\n");
        assert!(
            matches!(found, Violation::OutOfBounds { offset: 256, write: true, .. }),
            "{target:?}: {found}"
        );
    }
}

#[test]
fn shared_memory_past_the_launch_contract_is_out_of_bounds() {
    for target in targets() {
        let found = violation(target, "s[tid + 1] = 1.0f;\nout[tid] = 0.0f;\n");
        assert!(matches!(found, Violation::OutOfBounds { .. }), "{target:?}: {found}");
    }
}

#[test]
fn shared_memory_is_not_initialised() {
    for target in targets() {
        let found = violation(target, "out[tid] = s[tid];\n");
        assert!(matches!(found, Violation::Uninitialised { .. }), "{target:?}: {found}");
    }
}

#[test]
fn a_barrier_that_some_threads_skip_is_divergent() {
    for target in targets() {
        let result = run(target, "if (tid < 40) iron::barrier();\nout[tid] = 1.0f;\n");
        assert!(matches!(result, Err(Error::Divergent { .. })), "{target:?}: {result:?}");
    }
}

#[test]
fn a_collective_that_some_lanes_skip_is_divergent() {
    for target in targets() {
        let body =
            "float x = 1.0f;\nif (tid % 32 < 7) x = iron::shuffle_xor(x, 1);\nout[tid] = x;\n";
        let result = run(target, body);
        assert!(matches!(result, Err(Error::Divergent { .. })), "{target:?}: {result:?}");
    }
}

#[test]
fn a_loop_without_end_is_a_hang() {
    for target in targets() {
        let result = run(target, "out[tid] = 0.0f;\nwhile (out[tid] < 1.0f) iron::barrier();\n");
        assert!(matches!(result, Err(Error::Hang { .. })), "{target:?}: {result:?}");
    }
}

#[test]
fn a_text_that_does_not_compile_is_an_error() {
    for target in targets() {
        let result = run(target, "out[tid] = iron::no_such_primitive(1.0f);\n");
        assert!(matches!(result, Err(Error::Compile { .. })), "{target:?}: {result:?}");
    }
}

#[test]
fn a_metal_pointer_into_the_wrong_memory_does_not_compile() {
    if targets().is_empty() {
        return;
    }
    let result = run(Target::Metal, "device float* p = s;\np[tid] = 1.0f;\nout[tid] = 1.0f;\n");
    assert!(matches!(result, Err(Error::Compile { .. })), "{result:?}");
}
