//! Pass 5, Schedule: where tiles live, what shares memory, how loops run: the launch contract.

pub mod cpu;
pub mod gpu;
