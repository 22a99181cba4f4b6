//! Which device runs which layer.

use std::ops::Range;

use iron_runtime::Device;

/// A device for each layer of a model.
///
/// A forward pass is a list of [`Segment`]s, each one command buffer. So far all layers are on one device; with more,
/// the residual stream is copied between segments.
#[derive(Clone, Debug)]
pub struct Placement {
    devices: Vec<Device>,
    /// Index of each layer's device.
    layers: Vec<usize>,
}

/// Neighbouring layers on the same device.
#[derive(Clone, Debug)]
pub struct Segment<'a> {
    /// Their device.
    pub device: &'a Device,
    /// The layers.
    pub layers: Range<usize>,
}

impl Placement {
    /// All of `num_layers` layers on one device.
    pub fn single(device: Device, num_layers: usize) -> Self {
        Self { devices: vec![device], layers: vec![0; num_layers] }
    }

    /// The device of a layer.
    pub fn device_of(&self, layer: usize) -> &Device {
        &self.devices[self.layers[layer]]
    }

    /// The device of embeddings, and of everything that is not in a layer.
    pub fn main_device(&self) -> &Device {
        &self.devices[0]
    }

    /// The segments in order of the layers; one without layers when there are none.
    pub fn segments(&self) -> Vec<Segment<'_>> {
        let mut segments: Vec<Segment<'_>> = Vec::new();
        let mut start = 0;
        for chunk in self.layers.chunk_by(|a, b| a == b) {
            let layers = start..start + chunk.len();
            start = layers.end;
            segments.push(Segment { device: &self.devices[chunk[0]], layers });
        }
        if segments.is_empty() {
            segments.push(Segment { device: self.main_device(), layers: 0..0 });
        }
        segments
    }
}

#[cfg(test)]
mod tests {
    use iron_runtime::{CpuOptions, Device};

    use super::Placement;

    #[test]
    fn neighbouring_layers_of_one_device_are_one_segment() {
        let options = CpuOptions { threads: Some(1), ..CpuOptions::default() };
        let device = || Device::cpu(options).expect("one thread");
        let two = Placement { devices: vec![device(), device()], layers: vec![0, 0, 1, 0] };
        let layers: Vec<_> = two.segments().into_iter().map(|segment| segment.layers).collect();
        assert_eq!(layers, [0..2, 2..3, 3..4]);
        assert_eq!(Placement::single(device(), 5).segments().len(), 1);
    }
}
