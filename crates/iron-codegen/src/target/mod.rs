//! The targets: each prints what the passes left, in terms of its tile library.

pub mod abi;
mod c_like;
pub mod cpu;
pub mod cuda;
pub mod metal;
