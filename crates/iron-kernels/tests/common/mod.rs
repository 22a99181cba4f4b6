//! What the kernel tests share: a device for every instruction set, activations, comparison.

#![allow(dead_code, reason = "each test file uses its part")]

use iron_runtime::Format;
use iron_runtime::{
    Activations, Buffer, CpuOptions, DType, Device, IsaLevel, QuantizedTensor, Tensor, tile,
};

/// Runs `test` on a device for every instruction set of this processor.
pub(crate) fn on_every_level(test: impl Fn(&Device)) {
    for level in IsaLevel::ALL {
        if !level.is_available() {
            eprintln!("{level} is not available on this processor: skipped");
            continue;
        }
        let device = Device::cpu(CpuOptions { threads: Some(2), isa: Some(level) })
            .expect("a device for an available level");
        test(&device);
    }
}

/// Activations of both kinds: plain ones, and int8 with planes to read back.
pub(crate) fn activations(kind: &str, m: usize, k: usize) -> Activations {
    match kind {
        "int8" => Activations::int8_zeros(m, k).expect("valid shape"),
        _ => Activations::plain(Tensor::zeros(DType::F32, &[m, k]).expect("valid shape"))
            .expect("plain"),
    }
}

/// The values that activations stand for.
pub(crate) fn values(activations: &Activations) -> Vec<f64> {
    match activations {
        Activations::Plain(tensor) => {
            tensor.read_f32().expect("readable").into_iter().map(f64::from).collect()
        }
        Activations::Int8 { q, scale, .. } => {
            let (q, scale) =
                (q.read::<i8>().expect("readable"), scale.read::<f32>().expect("readable"));
            q.iter().enumerate().map(|(at, q)| f64::from(*q) * f64::from(scale[at / 32])).collect()
        }
    }
}

/// Weights in the layout that the CPU computes with.
pub(crate) fn weights(format: Format, storage: &[u8], n: usize, k: usize) -> QuantizedTensor {
    if format.is_dense() {
        let dtype = DType::parse(format.name()).expect("a plain format is an element type");
        let buffer = Buffer::from_slice(storage).expect("fits memory");
        return QuantizedTensor::from_tensor(
            &Tensor::new(buffer, 0, dtype, &[n, k]).expect("valid shape"),
        )
        .expect("dense");
    }
    let bytes = tile::packed_bytes(format, n, k).expect("valid shape");
    let buffer = Buffer::filled::<iron_runtime::RuntimeError>(bytes, |packed| {
        tile::pack_rows(format, storage, n, k, 0..tile::row_groups(n), packed)
            .expect("valid shape");
        Ok(())
    })
    .expect("fits memory");
    QuantizedTensor::cpu_packed(buffer, 0, bytes, format, n, k).expect("valid")
}

/// Fails when an element differs by more than `tolerance` times the root mean square of the reference.
pub(crate) fn close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}: lengths");
    let rms = (expected.iter().map(|v| v * v).sum::<f64>() / expected.len().max(1) as f64)
        .sqrt()
        .max(1e-30);
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / rms;
        assert!(
            error <= tolerance,
            "{what}: element {at} is {found}, expected {expected} (error {error:.2e} of the rms)"
        );
    }
}

/// f32 as f64.
pub(crate) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}
