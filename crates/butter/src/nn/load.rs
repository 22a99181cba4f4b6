//! Binding layers to a model's tensors.

use std::path::PathBuf;

use iron_runtime::tile::{pack_rows, packed_bytes, row_groups};
use iron_runtime::{Buffer, DType, Device, QuantizedTensor, RuntimeError, Tensor};

use super::{Embedding, Linear, Precision, RmsNorm};
use crate::Error;
use crate::placement::Placement;
use crate::weights::{TensorData, Weights, WeightsError};

/// Makes layers from the tensors under a path of names, such as `model.layers.0.self_attn`.
///
/// Plain float weights stay in the mapped file. Quantised ones are packed for the device, and their pages of the file
/// given back, one tensor at a time.
#[derive(Clone)]
pub struct Loader<'a> {
    weights: &'a Weights,
    placement: &'a Placement,
    device: &'a Device,
    precision: Precision,
    path: String,
    loaded: &'a dyn Fn(&str),
}

impl<'a> Loader<'a> {
    /// A loader at the root of the names. `loaded` is called with the name of each tensor once it is ready.
    pub fn new(
        weights: &'a Weights,
        placement: &'a Placement,
        precision: Precision,
        loaded: &'a dyn Fn(&str),
    ) -> Self {
        let device = placement.main_device();
        Self { weights, placement, device, precision, path: String::new(), loaded }
    }

    /// The loader for what belongs to `layer`, under `layers.N`.
    #[must_use]
    pub fn layer(&self, layer: usize) -> Self {
        let device = self.placement.device_of(layer);
        Self { device, ..self.at(format_args!("layers.{layer}")) }
    }

    /// The loader for what lies under `name`.
    #[must_use]
    pub fn at(&self, name: impl std::fmt::Display) -> Self {
        Self { path: self.name(name), ..self.clone() }
    }

    /// The device that layers are made for.
    pub fn device(&self) -> &Device {
        self.device
    }

    /// `name.weight`, `[out_features, in_features]`, and `name.bias` where `has_bias`.
    pub fn linear(
        &self,
        name: &str,
        out_features: usize,
        in_features: usize,
        has_bias: bool,
    ) -> Result<Linear, Error> {
        let weight = self.matrix(&format!("{name}.weight"), out_features, in_features)?;
        let bias =
            has_bias.then(|| self.vector(&format!("{name}.bias"), out_features)).transpose()?;
        let input = self.precision.activations(weight.format());
        Ok(Linear { weight, bias, input })
    }

    /// `name.weight`, `[vocab_size, hidden_size]`.
    pub fn embedding(
        &self,
        name: &str,
        vocab_size: usize,
        hidden_size: usize,
    ) -> Result<Embedding, Error> {
        let table = self.matrix(&format!("{name}.weight"), vocab_size, hidden_size)?;
        Ok(Embedding { table, precision: self.precision })
    }

    /// `name.weight`, `[width]`, as the weight of a norm.
    pub fn rms_norm(
        &self,
        name: &str,
        width: usize,
        eps: f32,
        offset: f32,
    ) -> Result<RmsNorm, Error> {
        Ok(RmsNorm { weight: self.vector(&format!("{name}.weight"), width)?, eps, offset })
    }

    /// A small tensor `[width]` as f32.
    fn vector(&self, name: &str, width: usize) -> Result<Tensor, Error> {
        let data = self.tensor(name, &[width])?;
        let tensor = self.device.tensor(DType::F32, &[width])?;
        tensor.write(&data.to_f32())?;
        (self.loaded)(&data.name);
        Ok(tensor)
    }

    /// A weight matrix in the layout of the device's kernels.
    fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<QuantizedTensor, Error> {
        let data = self.tensor(name, &[rows, cols])?;
        let matrix = if data.format.is_dense() {
            dense(&data, rows, cols)?
        } else {
            let packed = pack(&data, rows, cols, self.device.threads())?;
            data.release();
            packed
        };
        (self.loaded)(&data.name);
        Ok(matrix)
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorData, Error> {
        let data = self.weights.get(&self.name(name))?;
        if data.shape == shape {
            return Ok(data);
        }
        Err(WeightsError::BadTensor {
            path: self.weights.path().to_owned(),
            tensor: data.name,
            expected: format!("shape {shape:?}"),
            found: format!("{:?}", data.shape),
        }
        .into())
    }

    fn name(&self, name: impl std::fmt::Display) -> String {
        if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) }
    }
}

/// Plain floats as they lie in the file, or a copy where their address is odd.
fn dense(data: &TensorData, rows: usize, cols: usize) -> Result<QuantizedTensor, Error> {
    let in_place = |buffer| QuantizedTensor::dense(buffer, 0, data.format, rows, cols, cols);
    match in_place(data.bytes.buffer()?) {
        Err(RuntimeError::Misaligned { .. }) => {
            Ok(in_place(Buffer::from_slice::<u8>(&data.bytes)?)?)
        }
        matrix => Ok(matrix?),
    }
}

/// Packs a quantised matrix with `threads` threads.
fn pack(
    data: &TensorData,
    rows: usize,
    cols: usize,
    threads: usize,
) -> Result<QuantizedTensor, Error> {
    let format = data.format;
    let failed = |reason: String| Error::Pack {
        path: PathBuf::from(data.bytes.path()),
        tensor: data.name.clone(),
        reason,
    };
    let bytes = packed_bytes(format, rows, cols).map_err(|error| failed(error.to_string()))?;
    let groups = row_groups(rows);
    let per_thread = groups.div_ceil(threads.max(1)).max(1);
    let group_bytes = bytes.checked_div(groups).unwrap_or(0);
    let buffer = Buffer::filled(bytes, |packed| {
        std::thread::scope(|scope| {
            let parts = packed.chunks_mut((per_thread * group_bytes).max(1)).enumerate();
            let workers: Vec<_> = parts
                .map(|(part, target)| {
                    let first = part * per_thread;
                    let groups = first..groups.min(first + per_thread);
                    scope.spawn(move || pack_rows(format, &data.bytes, rows, cols, groups, target))
                })
                .collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(result) => result.map_err(|error| failed(error.to_string())),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    })?;
    Ok(QuantizedTensor::cpu_packed(buffer, 0, bytes, format, rows, cols)?)
}
