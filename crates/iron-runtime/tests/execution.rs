//! The thread pool: every program once, in order between calls, whatever the threads do.

#![expect(unsafe_code, reason = "toy kernels")]

mod common;

use std::time::{Duration, Instant};

use common::{COUNT, HUGE_GRID, MIX, PANICS, SLEEPY, device};
use iron_runtime::{Arg, Buffer, CommandBuffer, DType, Device, Recording, RuntimeError, Tensor};

fn u32s(shape: &[usize]) -> Tensor {
    Tensor::zeros(DType::U32, shape).unwrap()
}

/// Encodes a chain of `mix` calls with these grid sizes, and returns its tensors.
fn encode_chain(commands: &CommandBuffer, sizes: &[usize]) -> Vec<Tensor> {
    let mut tensors = vec![Tensor::from_slice(&[7u32], &[1]).unwrap()];
    for &size in sizes {
        let out = u32s(&[size]);
        commands
            .encode(&MIX, &[Arg::Tensor(&tensors[tensors.len() - 1]), Arg::Tensor(&out)])
            .unwrap();
        tensors.push(out);
    }
    tensors
}

/// What the last tensor of the chain must hold.
fn chain_reference(sizes: &[usize]) -> Vec<u32> {
    sizes.iter().fold(vec![7u32], |x, &size| {
        let mix = |program| {
            x.iter().fold(program, |sum: u32, value| sum.wrapping_mul(31).wrapping_add(*value))
        };
        (0..size as u32).map(mix).collect()
    })
}

/// Grid sizes from a fixed generator: often 1, sometimes fewer than the threads, sometimes many.
fn sizes(count: usize) -> Vec<usize> {
    let mut state = 1u64;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            match state >> 60 {
                0..5 => 1,
                5..8 => 2 + (state >> 40) as usize % 5,
                _ => 8 + (state >> 40) as usize % 90,
            }
        })
        .collect()
}

#[test]
fn every_program_runs_once() {
    for threads in [1, 2, 3, 7] {
        let device = device(threads);
        let commands = device.command_buffer();
        for shape in
            [[1, 1, 1], [1, 1, 2], [1, 1, 13], [3, 5, 7], [2, 1, 101], [1, 64, 16], [9, 1, 1]]
        {
            let counts = u32s(&shape);
            commands.encode(&COUNT, &[Arg::Tensor(&counts)]).unwrap();
            commands.run().unwrap();
            assert!(
                counts.read::<u32>().unwrap().iter().all(|&count| count == 1),
                "{threads} threads, {shape:?}"
            );
        }
    }
}

#[test]
fn a_grid_of_millions_runs_every_program() {
    let total = u32s(&[4]);
    let commands = device(3).command_buffer();
    commands.encode(&HUGE_GRID, &[Arg::Tensor(&total)]).unwrap();
    commands.run().unwrap();
    assert_eq!(total.read::<u32>().unwrap()[0], 3_000_001);
}

#[test]
fn calls_see_what_earlier_calls_wrote() {
    let sizes = sizes(300);
    let expected = chain_reference(&sizes);
    for threads in [1, 2, 3, 7] {
        let commands = device(threads).command_buffer();
        let tensors = encode_chain(&commands, &sizes);
        commands.run().unwrap();
        assert_eq!(
            tensors[tensors.len() - 1].read::<u32>().unwrap(),
            expected,
            "{threads} threads"
        );
    }
}

#[test]
fn a_recording_replays() {
    let sizes = sizes(40);
    let expected = chain_reference(&sizes);
    let commands = device(2).command_buffer();
    let tensors = encode_chain(&commands, &sizes);
    let recording = commands.finish();
    let last = tensors[tensors.len() - 1].clone();
    drop(tensors);
    for _ in 0..500 {
        last.write(&vec![0u32; expected.len()]).unwrap();
        recording.run().unwrap();
        assert_eq!(last.read::<u32>().unwrap(), expected);
    }
}

#[test]
fn consecutive_single_programs_share_a_barrier() {
    let commands = device(2).command_buffer();
    let tensors = encode_chain(&commands, &[1, 1, 1, 5, 1, 1]);
    let recording = commands.finish();
    assert_eq!((recording.len(), recording.barriers()), (6, 3));
    recording.run().unwrap();
    assert_eq!(tensors[6].read::<u32>().unwrap(), chain_reference(&[1, 1, 1, 5, 1, 1]));
}

#[test]
fn a_parallel_group_has_one_barrier_and_runs_everything() {
    for threads in [1, 2, 3, 7] {
        let commands = device(threads).command_buffer();
        // More members than slots in a cache line pair, fewer and more programs than threads.
        let counts: Vec<Tensor> = (1..40).map(|n| u32s(&[1, 1, n])).collect();
        commands.encode(&COUNT, &[Arg::Tensor(&counts[0])]).unwrap();
        commands.parallel(|group| {
            for tensor in &counts {
                group.encode(&COUNT, &[Arg::Tensor(tensor)]).unwrap();
            }
            group.parallel(|nested| nested.encode(&COUNT, &[Arg::Tensor(&counts[1])]).unwrap());
        });
        commands.encode(&COUNT, &[Arg::Tensor(&counts[0])]).unwrap();
        let recording = commands.finish();
        assert_eq!(recording.barriers(), 3);
        for _ in 0..20 {
            recording.run().unwrap();
        }
        for (index, tensor) in counts.iter().enumerate() {
            let expected = [60, 40].get(index).copied().unwrap_or(20);
            assert!(
                tensor.read::<u32>().unwrap().iter().all(|&count| count == expected),
                "{threads}, {index}"
            );
        }
    }
}

#[test]
fn run_inside_a_group_is_an_error() {
    let commands = device(1).command_buffer();
    assert!(matches!(commands.parallel(CommandBuffer::run), Err(RuntimeError::OpenGroup)));
    commands.run().unwrap();
}

#[test]
fn a_group_is_closed_by_a_panic() {
    let commands = device(1).command_buffer();
    let group = std::panic::AssertUnwindSafe(|| commands.parallel(|_| panic!("in the group")));
    assert!(std::panic::catch_unwind(group).is_err());
    commands.run().unwrap();
}

#[test]
fn others_take_the_programs_of_a_sleeping_thread() {
    // Without stealing, thread 1 would sleep 100 ms for its half; with it, thread 0 takes most of them.
    let out = u32s(&[200]);
    let commands = device(2).command_buffer();
    commands.encode(&SLEEPY, &[Arg::Tensor(&out)]).unwrap();
    commands.run().unwrap();
    let threads = out.read::<u32>().unwrap();
    assert!(threads.iter().all(|&thread| thread == 1 || thread == 2));
    let stolen = threads[100..].iter().filter(|&&thread| thread == 1).count();
    assert!(stolen >= 20, "thread 0 took {stolen} of 100");
}

#[test]
fn more_threads_than_processors_still_finish() {
    let sizes = sizes(100);
    let expected = chain_reference(&sizes);
    let commands = device(16).command_buffer();
    let tensors = encode_chain(&commands, &sizes);
    let recording = commands.finish();
    let start = Instant::now();
    for _ in 0..50 {
        recording.run().unwrap();
    }
    let elapsed = start.elapsed();
    assert_eq!(tensors[tensors.len() - 1].read::<u32>().unwrap(), expected);
    assert!(elapsed < Duration::from_secs(10), "5000 calls took {elapsed:?}");
}

#[test]
fn many_tiny_command_buffers_lose_no_wakeup() {
    let device = device(2);
    let counts = u32s(&[1, 1, 2]);
    let commands = device.command_buffer();
    for round in 0..100_000u32 {
        commands.encode(&COUNT, &[Arg::Tensor(&counts)]).unwrap();
        commands.run().unwrap();
        // Now and then long enough that the worker spins out, yields or parks.
        if round % 1000 == 0 {
            std::thread::sleep(Duration::from_micros(u64::from(round / 1000)));
        }
    }
    assert_eq!(counts.read::<u32>().unwrap(), [100_000; 2]);
}

#[test]
fn a_panic_in_a_kernel_is_an_error_and_the_pool_lives_on() {
    for threads in [1, 2, 3] {
        let commands = device(threads).command_buffer();
        let out = u32s(&[16]);
        let counts = u32s(&[1, 1, 16]);
        commands.encode(&PANICS, &[Arg::Tensor(&out)]).unwrap();
        commands.encode(&COUNT, &[Arg::Tensor(&counts)]).unwrap();
        let error = commands.run().unwrap_err().to_string();
        assert!(error.contains("kernel panics panicked: program 3 is broken"), "{error}");
        commands.encode(&COUNT, &[Arg::Tensor(&counts)]).unwrap();
        commands.run().unwrap();
        assert_eq!(counts.read::<u32>().unwrap(), [1; 16]);
    }
}

#[test]
fn several_threads_take_turns_on_one_device() {
    let device = device(2);
    let sizes = sizes(20);
    let expected = chain_reference(&sizes);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let commands = device.command_buffer();
                for _ in 0..100 {
                    let tensors = encode_chain(&commands, &sizes);
                    commands.run().unwrap();
                    assert_eq!(tensors[tensors.len() - 1].read::<u32>().unwrap(), expected);
                }
            });
        }
    });
}

#[test]
fn a_profile_names_every_call() {
    let commands = device(2).command_buffer();
    let tensors = encode_chain(&commands, &[3, 1, 50]);
    let timings = commands.run_profiled().unwrap();
    assert!(commands.is_empty());
    assert_eq!(timings.len(), 3);
    assert!(timings.iter().all(|timing| (timing.kernel, timing.schedule) == ("mix", "each")));
    assert_eq!(timings[2].grid, [50, 1, 1]);
    assert_eq!(tensors[3].read::<u32>().unwrap(), chain_reference(&[3, 1, 50]));
}

#[test]
fn the_host_cannot_touch_a_buffer_in_use() {
    let device = device(2);
    let out = u32s(&[64]);
    let commands = device.command_buffer();
    commands.encode(&SLEEPY, &[Arg::Tensor(&out)]).unwrap();
    let recording = commands.finish();
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| recording.run().unwrap());
        let mut was_busy = false;
        while !runner.is_finished() {
            was_busy |= matches!(out.read::<u32>(), Err(RuntimeError::Busy));
            std::thread::yield_now();
        }
        assert!(was_busy);
    });
    out.read::<u32>().unwrap();
}

#[test]
fn devices_start_and_stop_idle() {
    for threads in [1, 2, 5] {
        for _ in 0..50 {
            drop(device(threads));
        }
        let parked = device(threads);
        std::thread::sleep(Duration::from_millis(2));
        drop(parked);
    }
}

#[test]
fn types_cross_threads_as_promised() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Device>();
    shared::<Buffer>();
    shared::<Tensor>();
    shared::<Recording>();
    sent::<CommandBuffer>();
}
