//! The six passes, in order.

pub mod typecheck;
