//! Buffers, tensors and their views.

use std::io::Write as _;
use std::sync::Arc;

use half::{bf16, f16};
use iron_runtime::{
    Activations, Buffer, CpuOptions, DType, Device, Format, IsaLevel, QuantizedTensor,
    RuntimeError, Tensor,
};

fn counting(shape: &[usize]) -> Tensor {
    let values: Vec<i32> = (0..shape.iter().product::<usize>() as i32).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

#[test]
fn buffers_are_aligned_and_zero() {
    for len in [0, 1, 63, 4096, (2 << 20) - 1, 2 << 20, (4 << 20) + 5] {
        let buffer = Buffer::zeroed(len).unwrap();
        assert_eq!((buffer.len(), buffer.as_ptr().addr() % 64), (len, 0));
        assert!(buffer.read_vec::<u8>(0, len).unwrap().iter().all(|&byte| byte == 0));
    }
}

#[test]
fn absurd_sizes_are_errors() {
    for len in [usize::MAX, isize::MAX as usize, isize::MAX as usize - (4 << 20), 1 << 60] {
        assert!(matches!(Buffer::zeroed(len), Err(RuntimeError::Allocation { .. })), "{len}");
    }
    assert!(Tensor::zeros(DType::F32, &[1 << 40, 1 << 20]).is_err());
    assert!(Tensor::zeros(DType::F32, &[usize::MAX, 2]).is_err());
}

#[test]
fn address_space_is_reserved_without_memory() {
    let buffer = Buffer::zeroed(64 << 30).unwrap();
    buffer.write(63 << 30, &[1u8, 2, 3]).unwrap();
    assert_eq!(buffer.read_vec::<u8>(63 << 30, 4).unwrap(), [1, 2, 3, 0]);
}

#[test]
fn reads_and_writes_are_bounded() {
    let buffer = Buffer::from_slice(&[1u32, 2, 3]).unwrap();
    assert_eq!(buffer.read_vec::<u32>(4, 2).unwrap(), [2, 3]);
    for offset in [5, 12, usize::MAX] {
        assert!(matches!(buffer.read_vec::<u32>(offset, 2), Err(RuntimeError::OutOfBounds { .. })));
        assert!(matches!(buffer.write(offset, &[0u32; 2]), Err(RuntimeError::OutOfBounds { .. })));
    }
    assert!(buffer.read_vec::<u64>(0, usize::MAX).is_err());
}

#[test]
fn a_file_region_is_read_and_never_written() {
    let path = std::env::temp_dir().join(format!("iron-buffer-{}", std::process::id()));
    std::fs::File::create(&path).unwrap().write_all(&[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    #[expect(unsafe_code, reason = "the file is ours")]
    // SAFETY: nobody changes the file while it is mapped.
    let map = Arc::new(unsafe { memmap2::Mmap::map(&file) }.unwrap());
    std::fs::remove_file(path).unwrap();
    let buffer = Buffer::mapped(Arc::clone(&map), 2..6).unwrap();
    assert!(Buffer::mapped(Arc::clone(&map), 2..9).is_err());
    #[expect(clippy::reversed_empty_ranges, reason = "what is tested")]
    let reversed = 6..2;
    assert!(Buffer::mapped(map, reversed).is_err());
    assert_eq!(buffer.file_bytes(), Some(&[2, 3, 4, 5][..]));
    assert!(matches!(buffer.write(0, &[0u8]), Err(RuntimeError::ReadOnly)));
    buffer.advise_dont_need(0..4).unwrap();
    assert_eq!(buffer.read_vec::<u8>(0, 4).unwrap(), [2, 3, 4, 5]);
}

#[test]
fn released_pages_read_as_zero_and_their_neighbours_stay() {
    let buffer = Buffer::filled(4 << 20, |bytes| {
        bytes.fill(7);
        Ok::<_, RuntimeError>(())
    })
    .unwrap();
    buffer.advise_dont_need(100..(2 << 20) + 100).unwrap();
    assert_eq!(buffer.read_vec::<u8>(0, 100).unwrap(), [7; 100]);
    assert_eq!(buffer.read_vec::<u8>(1 << 20, 1).unwrap(), [0]);
    assert_eq!(buffer.read_vec::<u8>((2 << 20) + 100, 1).unwrap(), [7]);
    assert!(buffer.advise_dont_need(0..(4 << 20) + 1).is_err());
}

#[test]
fn slices_rows_and_transposes_are_views() {
    let tensor = counting(&[3, 4]);
    let part = tensor.slice(1, 1..3).unwrap();
    assert_eq!(part.read::<i32>().unwrap(), [1, 2, 5, 6, 9, 10]);
    assert_eq!(part.row(2).unwrap().read::<i32>().unwrap(), [9, 10]);
    assert_eq!(part.transpose(0, 1).unwrap().read::<i32>().unwrap(), [1, 5, 9, 2, 6, 10]);
    part.narrow(0, 1, 1).unwrap().write(&[50, 60]).unwrap();
    assert_eq!(tensor.read::<i32>().unwrap(), [0, 1, 2, 3, 4, 50, 60, 7, 8, 9, 10, 11]);
    assert!(part.buffer().same_as(tensor.buffer()));
}

#[test]
fn views_outside_are_errors() {
    let tensor = counting(&[3, 4]);
    assert!(tensor.slice(1, 3..5).is_err());
    assert!(tensor.slice(2, 0..0).is_err());
    assert!(tensor.narrow(0, 2, usize::MAX).is_err());
    assert!(tensor.row(3).is_err());
    assert!(tensor.transpose(0, 2).is_err());
    assert!(counting(&[]).row(0).is_err());
}

#[test]
fn only_contiguous_tensors_are_reshaped() {
    let tensor = counting(&[3, 4]);
    assert_eq!(
        tensor.reshape(&[2, 6]).unwrap().row(1).unwrap().read::<i32>().unwrap(),
        [6, 7, 8, 9, 10, 11]
    );
    assert!(tensor.reshape(&[5]).is_err());
    assert!(tensor.slice(1, 0..2).unwrap().reshape(&[6]).is_err());
    assert!(tensor.slice(0, 1..3).unwrap().reshape(&[8]).is_ok());
    let message = tensor.slice(1, 0..2).unwrap().reshape(&[6]).unwrap_err().to_string();
    assert!(
        message.contains("expected a contiguous tensor (tensor is i32 [3, 2] with strides [4, 1])"),
        "{message}"
    );
}

#[test]
fn an_axis_of_a_strided_tensor_can_be_split() {
    let heads = counting(&[2, 9]).slice(1, 0..6).unwrap().split_axis(1, 2).unwrap();
    assert_eq!((heads.shape(), heads.strides()), (&[2, 3, 2][..], &[9, 2, 1][..]));
    assert_eq!(heads.read::<i32>().unwrap(), [0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14]);
    assert!(heads.split_axis(1, 2).is_err());
    assert!(heads.split_axis(1, 0).is_err());
    assert!(heads.split_axis(0, 1).unwrap().split_axis(0, 1).is_err());
}

#[test]
fn bytes_are_viewed_as_another_type() {
    let tensor = Tensor::from_slice(&[1.0f32, 2.0], &[2]).unwrap();
    assert_eq!(
        tensor.view(DType::U32, &[1, 2]).unwrap().read::<u32>().unwrap(),
        [0x3f80_0000, 0x4000_0000]
    );
    assert_eq!(tensor.view(DType::I8, &[8]).unwrap().elements(), 8);
    assert!(tensor.view(DType::F16, &[2]).is_err());
    let bytes = tensor.view(DType::U8, &[8]).unwrap().slice(0, 1..5).unwrap();
    assert!(matches!(bytes.view(DType::F32, &[1]), Err(RuntimeError::Misaligned { .. })));
}

#[test]
fn tensors_stay_inside_their_buffer() {
    let buffer = Buffer::zeroed(64).unwrap();
    assert!(Tensor::new(buffer.clone(), 4, DType::F32, &[15]).is_ok());
    assert!(Tensor::new(buffer.clone(), 4, DType::F32, &[16]).is_err());
    assert!(Tensor::new(buffer.clone(), 68, DType::F32, &[0]).is_err());
    assert!(Tensor::with_strides(buffer.clone(), 0, DType::F32, &[2, 4], &[12, 1]).is_ok());
    assert!(Tensor::with_strides(buffer.clone(), 0, DType::F32, &[2, 4], &[13, 1]).is_err());
    assert!(
        Tensor::with_strides(buffer.clone(), 0, DType::F32, &[2, 4], &[usize::MAX, 1]).is_err()
    );
    assert!(Tensor::with_strides(buffer.clone(), 0, DType::F32, &[2, 4], &[4]).is_err());
    assert!(Tensor::new(buffer, 0, DType::F32, &[1; 5]).is_err());
}

#[test]
fn host_values_must_match() {
    let tensor = counting(&[2, 2]);
    assert!(matches!(tensor.read::<f32>(), Err(RuntimeError::ElementType { .. })));
    assert!(matches!(
        tensor.write(&[1i32]),
        Err(RuntimeError::ElementCount { expected: 4, found: 1 })
    ));
    assert!(Tensor::from_slice(&[1i32], &[2]).is_err());
}

#[test]
fn narrow_floats_are_read_as_f32() {
    let halves = Tensor::from_slice(&[f16::from_f32(0.5), f16::from_f32(-2.0)], &[2]).unwrap();
    assert_eq!(halves.read_f32().unwrap(), [0.5, -2.0]);
    let brains = Tensor::from_slice(&[bf16::from_f32(1.5)], &[1]).unwrap();
    assert_eq!(brains.read_f32().unwrap(), [1.5]);
}

#[test]
fn weights_are_checked_when_made() {
    let buffer = Buffer::zeroed(16 * 34).unwrap();
    assert_eq!(
        QuantizedTensor::storage(buffer.clone(), 0, Format::Q8_0, 16, 32).unwrap().bytes(),
        16 * 34
    );
    assert!(QuantizedTensor::storage(buffer.clone(), 0, Format::Q8_0, 17, 32).is_err());
    assert!(QuantizedTensor::storage(buffer.clone(), 0, Format::Q8_0, 1, 33).is_err());
    assert!(QuantizedTensor::storage(buffer.clone(), 0, Format::Q8_0, usize::MAX, 64).is_err());
    assert!(QuantizedTensor::cpu_packed(buffer.clone(), 0, 16 * 34, Format::Q8_0, 16, 32).is_ok());
    assert!(QuantizedTensor::cpu_packed(buffer.clone(), 0, 16 * 33, Format::Q8_0, 16, 32).is_err());
    assert!(
        QuantizedTensor::cpu_packed(buffer.clone(), 32, 15 * 34, Format::Q8_0, 15, 32).is_err()
    );
    assert!(QuantizedTensor::dense(buffer.clone(), 2, Format::F32, 2, 2, 2).is_err());
    assert!(QuantizedTensor::dense(buffer.clone(), 0, Format::Q8_0, 2, 32, 32).is_err());
    assert!(QuantizedTensor::dense(buffer, 0, Format::F16, 2, 16, 256).is_ok());
}

#[test]
fn int8_activations_need_matching_parts() {
    let q = Tensor::zeros(DType::I8, &[2, 64]).unwrap();
    let blocks = Tensor::zeros(DType::F32, &[2, 2]).unwrap();
    let wrong = Tensor::zeros(DType::F32, &[2, 3]).unwrap();
    let activations = Activations::int8(q.clone(), blocks.clone(), blocks.clone()).unwrap();
    assert_eq!(activations.rows(1..2).unwrap().shape(), [1, 64]);
    assert!(activations.rows(1..3).is_err());
    assert!(Activations::int8(q, blocks.clone(), wrong).is_err());
    assert!(Activations::int8(blocks.clone(), blocks.clone(), blocks).is_err());
    assert!(Activations::int8_zeros(2, 33).is_err());
}

#[test]
fn impossible_devices_are_errors() {
    for threads in [0, 1 << 20] {
        let options = CpuOptions { threads: Some(threads), isa: None };
        assert!(matches!(Device::cpu(options), Err(RuntimeError::ThreadCount { .. })));
    }
    if IsaLevel::detect() < IsaLevel::Avx512 {
        let options = CpuOptions { threads: None, isa: Some(IsaLevel::Avx512) };
        assert!(matches!(Device::cpu(options), Err(RuntimeError::UnsupportedIsa { .. })));
    }
    let device = Device::cpu(CpuOptions { threads: None, isa: Some(IsaLevel::Portable) }).unwrap();
    assert!((1..=std::thread::available_parallelism().unwrap().get()).contains(&device.threads()));
}
