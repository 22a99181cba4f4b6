//! The targets: each prints what the passes left, in terms of its tile library.

pub mod cpu;
