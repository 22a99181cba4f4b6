//! The six passes, in order.

pub mod const_fold;
pub mod fusion;
pub mod schedule;
pub mod tile_lowering;
pub mod typecheck;
pub mod vectorize;
