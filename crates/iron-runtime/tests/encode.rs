//! Arguments against the contract: words, dimensions, and every mismatch.

#![expect(unsafe_code, reason = "toy kernels")]

mod common;

use std::sync::Arc;

use common::{COUNT, HUGE_GRID, SCALE, SCHEDULED, WORDS, device};
use iron_runtime::{
    Activations, Arg, Buffer, DType, EncodeError, Format, QuantizedTensor, Result, RuntimeError,
    Tensor,
};

fn f32s(shape: &[usize]) -> Tensor {
    Tensor::zeros(DType::F32, shape).unwrap()
}

/// The contract violation that a call reports.
fn violation(result: Result<()>) -> EncodeError {
    match result.unwrap_err() {
        RuntimeError::Encode { error, .. } => *error,
        other => panic!("not an encode error: {other}"),
    }
}

/// The violation of a `scale` call.
fn scale(x: &Tensor, out: &Tensor) -> EncodeError {
    let commands = device(1).command_buffer();
    let error = violation(
        commands.encode(&SCALE, &[Arg::Tensor(x), Arg::Tensor(out), Arg::F32(1.0), Arg::I32(0)]),
    );
    assert!(commands.is_empty());
    error
}

/// The words that the kernel `words` received.
fn words(x: &Activations, w: &QuantizedTensor, y: &Tensor) -> Vec<u64> {
    let out = Tensor::zeros(DType::I32, &[64]).unwrap();
    let args = [
        Arg::Activations(x),
        Arg::Quantized(w),
        Arg::Tensor(y),
        Arg::U32(u32::MAX),
        Arg::Tensor(&out),
    ];
    let commands = device(2).command_buffer();
    commands.encode(&WORDS, &args).unwrap();
    commands.run().unwrap();
    let words = out.buffer().read_vec::<u64>(0, 20).unwrap();
    let position = words.iter().position(|&word| word == out.as_ptr().addr() as u64).unwrap();
    let mut words = words[..position + 4].to_vec();
    words.remove(position);
    words
}

#[test]
fn plain_words_are_addresses_strides_bits_and_dims() {
    let x = f32s(&[3, 40]).slice(1, 4..36).unwrap();
    let w = f32s(&[6, 33]).slice(1, 0..32).unwrap();
    let y = f32s(&[3, 5, 3]).slice(1, 1..3).unwrap();
    let found = words(
        &Activations::plain(x.clone()).unwrap(),
        &QuantizedTensor::from_tensor(&w).unwrap(),
        &y,
    );
    let address = |tensor: &Tensor| tensor.as_ptr().addr() as u64;
    assert_eq!(
        found,
        [address(&x), 40, address(&w), 33, address(&y), 15, 3, u64::from(u32::MAX), 3, 6, 32]
    );
    assert_eq!(address(&x), x.buffer().as_ptr().addr() as u64 + 16);
}

#[test]
fn int8_words_are_three_addresses_and_two_strides() {
    let x = Activations::int8_zeros(5, 64).unwrap().rows(2..5).unwrap();
    let w = QuantizedTensor::cpu_packed(
        Buffer::zeroed(4096).unwrap(),
        64,
        16 * 68,
        Format::Q8_0,
        16,
        64,
    )
    .unwrap();
    let y = Tensor::zeros(DType::F16, &[3, 2, 8]).unwrap();
    let found = words(&x, &w, &y);
    let Activations::Int8 { q, scale, sum } = &x else { unreachable!() };
    let address = |tensor: &Tensor| tensor.as_ptr().addr() as u64;
    let w = w.buffer().as_ptr().addr() as u64 + 64;
    let expected = [
        address(q),
        address(scale),
        address(sum),
        64,
        2,
        w,
        0,
        address(&y),
        16,
        8,
        u64::from(u32::MAX),
        3,
        16,
        64,
    ];
    assert_eq!(found, expected);
    assert_eq!(address(scale), scale.buffer().as_ptr().addr() as u64 + 2 * 2 * 4);
}

#[test]
fn strided_rows_are_computed_in_place() {
    let device = device(2);
    let values: Vec<f32> = (0..24).map(|value| value as f32).collect();
    let wide = Tensor::from_slice(&values, &[4, 6]).unwrap();
    let (x, out) = (wide.slice(1, 0..2).unwrap(), wide.slice(1, 3..5).unwrap());
    let commands = device.command_buffer();
    commands
        .encode(&SCALE, &[Arg::Tensor(&x), Arg::Tensor(&out), Arg::F32(2.0), Arg::I32(-1)])
        .unwrap();
    commands.run().unwrap();
    let expected: Vec<f32> = values
        .iter()
        .enumerate()
        .map(
            |(i, &value)| if (3..5).contains(&(i % 6)) { values[i - 3] * 2.0 - 1.0 } else { value },
        )
        .collect();
    assert_eq!(wide.read::<f32>().unwrap(), expected);
}

#[test]
fn the_number_of_arguments_is_checked() {
    let error = violation(device(1).command_buffer().encode(&SCALE, &[]));
    assert_eq!(error, EncodeError::ArgumentCount { expected: 4, found: 0 });
}

#[test]
fn a_dimension_bound_twice_must_agree() {
    let error = scale(&f32s(&[2, 3]), &f32s(&[2, 4]));
    assert_eq!(error.to_string(), "parameter out: expected shape [rows = 2, n = 3], found [2, 4]");
}

#[test]
fn the_rank_is_checked() {
    let error = scale(&f32s(&[6]), &f32s(&[2, 3]));
    assert!(
        error.to_string().contains("parameter x: expected shape [rows = 6, n], found [6]"),
        "{error}"
    );
}

#[test]
fn the_element_type_is_checked() {
    let error = scale(&Tensor::zeros(DType::F16, &[2, 3]).unwrap(), &f32s(&[2, 3]));
    assert_eq!(error.to_string(), "parameter x: expected elements of f32, found f16");
}

#[test]
fn the_last_axis_must_be_contiguous() {
    let error = scale(&f32s(&[3, 2]).transpose(0, 1).unwrap(), &f32s(&[2, 3]));
    assert!(matches!(error, EncodeError::Stride { parameter: "x", .. }), "{error}");
}

#[test]
fn a_last_axis_of_one_needs_no_stride() {
    let x = f32s(&[2, 6]).slice(1, 0..1).unwrap().transpose(0, 1).unwrap();
    let column = f32s(&[1, 2]).transpose(0, 1).unwrap();
    let commands = device(1).command_buffer();
    let x = x.transpose(0, 1).unwrap();
    commands
        .encode(&SCALE, &[Arg::Tensor(&x), Arg::Tensor(&column), Arg::F32(1.0), Arg::I32(0)])
        .unwrap();
}

#[test]
fn a_written_tensor_must_not_repeat() {
    let repeated =
        Tensor::with_strides(Buffer::zeroed(64).unwrap(), 0, DType::F32, &[2, 3], &[0, 1]).unwrap();
    let error = scale(&f32s(&[2, 3]), &repeated);
    assert!(matches!(error, EncodeError::Stride { parameter: "out", .. }), "{error}");
}

#[test]
fn a_file_cannot_be_written() {
    let map = Arc::new(memmap2::MmapMut::map_anon(4096).unwrap().make_read_only().unwrap());
    let file = Tensor::new(Buffer::mapped(map, 0..4096).unwrap(), 0, DType::F32, &[2, 3]).unwrap();
    assert_eq!(scale(&f32s(&[2, 3]), &file), EncodeError::ReadOnly { parameter: "out" });
}

#[test]
fn the_kind_of_argument_is_checked() {
    let x = f32s(&[2, 3]);
    let commands = device(1).command_buffer();
    let error = violation(
        commands.encode(&SCALE, &[Arg::Tensor(&x), Arg::Tensor(&x), Arg::I32(1), Arg::I32(0)]),
    );
    assert_eq!(
        error.to_string(),
        "parameter scale: expected a scalar of type f32, found an i32 scalar"
    );
    let error = violation(
        commands.encode(&SCALE, &[Arg::F32(0.0), Arg::Tensor(&x), Arg::F32(1.0), Arg::I32(0)]),
    );
    assert_eq!(error.to_string(), "parameter x: expected a tensor, found an f32 scalar");
}

/// The violation of a `words` call.
fn words_violation(x: &Activations, w: &QuantizedTensor, y: &Tensor, out: &Tensor) -> EncodeError {
    let args =
        [Arg::Activations(x), Arg::Quantized(w), Arg::Tensor(y), Arg::U32(0), Arg::Tensor(out)];
    violation(device(1).command_buffer().encode(&WORDS, &args))
}

#[test]
fn constant_and_computed_lengths_are_checked() {
    let x = Activations::plain(f32s(&[3, 32])).unwrap();
    let w = QuantizedTensor::from_tensor(&f32s(&[6, 32])).unwrap();
    let out = Tensor::zeros(DType::I32, &[64]).unwrap();
    let error = words_violation(&x, &w, &f32s(&[3, 2, 4]), &out);
    assert_eq!(error.to_string(), "parameter y: expected shape [m = 3, 2, 3], found [3, 2, 4]");
    let out = Tensor::zeros(DType::I32, &[63]).unwrap();
    let error = words_violation(&x, &w, &f32s(&[3, 2, 3]), &out);
    assert_eq!(error.to_string(), "parameter out: expected shape [64], found [63]");
}

#[test]
fn an_instance_that_was_not_compiled_names_those_that_were() {
    let x = Activations::plain(f32s(&[3, 32])).unwrap();
    let w = QuantizedTensor::from_tensor(&f32s(&[6, 32])).unwrap();
    let out = Tensor::zeros(DType::I32, &[64]).unwrap();
    let error = words_violation(&x, &w, &Tensor::zeros(DType::F16, &[3, 2, 3]).unwrap(), &out);
    assert_eq!(
        error.to_string(),
        "no instance was compiled for A = f32, W = f32, T = f16; there is <f32, f32, f32>, <int8, q8_0, f16>; \
         add it to the instance list"
    );
}

#[test]
fn weights_in_storage_layout_are_not_read() {
    let x = Activations::int8_zeros(3, 32).unwrap();
    let w = QuantizedTensor::storage(Buffer::zeroed(16 * 34).unwrap(), 0, Format::Q8_0, 16, 32)
        .unwrap();
    let out = Tensor::zeros(DType::I32, &[64]).unwrap();
    let error = words_violation(&x, &w, &Tensor::zeros(DType::F16, &[3, 2, 8]).unwrap(), &out);
    assert_eq!(
        error,
        EncodeError::Layout { parameter: "w", expected: "CPU-packed", found: "storage-format" }
    );
}

#[test]
fn scales_of_another_shape_or_stride_are_refused() {
    let (q, blocks) = (Tensor::zeros(DType::I8, &[3, 64]).unwrap(), f32s(&[3, 2]));
    let w = QuantizedTensor::cpu_packed(
        Buffer::zeroed(4096).unwrap(),
        0,
        16 * 68,
        Format::Q8_0,
        16,
        64,
    )
    .unwrap();
    let y = Tensor::zeros(DType::F16, &[3, 2, 8]).unwrap();
    let out = Tensor::zeros(DType::I32, &[64]).unwrap();
    let x = Activations::Int8 { q: q.clone(), scale: f32s(&[3, 1]), sum: blocks.clone() };
    assert!(matches!(words_violation(&x, &w, &y, &out), EncodeError::Shape { parameter: "x", .. }));
    let wide = f32s(&[3, 4]).slice(1, 0..2).unwrap();
    let x = Activations::Int8 { q, scale: blocks, sum: wide };
    assert!(matches!(
        words_violation(&x, &w, &y, &out),
        EncodeError::Stride { parameter: "x", .. }
    ));
}

#[test]
fn the_first_schedule_that_applies_is_used() {
    let commands = device(1).command_buffer();
    for (m, expected) in [(1, 1), (2, 2), (4, 2)] {
        let out = Tensor::zeros(DType::U32, &[m, 8]).unwrap();
        commands.encode(&SCHEDULED, &[Arg::Tensor(&out)]).unwrap();
        commands.run().unwrap();
        assert_eq!(out.read::<u32>().unwrap()[0], expected, "m = {m}");
    }
}

#[test]
fn dimensions_without_a_schedule_are_an_error() {
    let out = Tensor::zeros(DType::U32, &[5, 8]).unwrap();
    let error = violation(device(1).command_buffer().encode(&SCHEDULED, &[Arg::Tensor(&out)]));
    assert_eq!(error.to_string(), "no schedule accepts m = 5, n = 8; there is one, few");
}

#[test]
fn a_grid_that_no_launch_can_number_is_an_error() {
    let commands = device(1).command_buffer();
    for n in 1..=3 {
        let out = Tensor::zeros(DType::U32, &[n]).unwrap();
        let error = violation(commands.encode(&HUGE_GRID, &[Arg::Tensor(&out)]));
        assert!(matches!(error, EncodeError::Grid { .. }), "n = {n}: {error}");
    }
}

#[test]
fn an_empty_grid_is_nothing() {
    let out = Tensor::zeros(DType::U32, &[2, 0, 3]).unwrap();
    let commands = device(2).command_buffer();
    commands.encode(&COUNT, &[Arg::Tensor(&out)]).unwrap();
    assert!(commands.is_empty());
    commands.run().unwrap();
}

#[test]
fn a_failed_call_leaves_the_others_alone() {
    let commands = device(2).command_buffer();
    let counts = Tensor::zeros(DType::U32, &[1, 1, 9]).unwrap();
    commands.encode(&COUNT, &[Arg::Tensor(&counts)]).unwrap();
    assert!(commands.encode(&COUNT, &[Arg::Tensor(&f32s(&[1, 1, 9]))]).is_err());
    commands.encode(&COUNT, &[Arg::Tensor(&counts)]).unwrap();
    assert_eq!(commands.len(), 2);
    commands.run().unwrap();
    assert_eq!(counts.read::<u32>().unwrap(), [2; 9]);
}

#[test]
fn pipelines_are_counted_once() {
    let device = device(1);
    let commands = device.command_buffer();
    for m in [1, 1, 2, 3] {
        let out = Tensor::zeros(DType::U32, &[m, 8]).unwrap();
        commands.encode(&SCHEDULED, &[Arg::Tensor(&out)]).unwrap();
    }
    assert_eq!(device.pipelines().len(), 2);
    assert_eq!(device.prewarm(&WORDS).unwrap(), 2);
    assert_eq!(device.pipelines().len(), 4);
    assert!(
        device
            .pipelines()
            .keys()
            .iter()
            .any(|key| (key.kernel, key.schedule) == ("scheduled", "few"))
    );
}
