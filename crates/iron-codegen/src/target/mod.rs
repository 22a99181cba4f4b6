//! The targets: each prints scheduled IR as text.

pub mod abi;
mod c_like;
pub mod cuda;
pub mod metal;
