//! Every function on every instruction set of this machine, against plain Rust references.

mod dense;
mod dot_f32;
mod dot_int8;
mod isa;
mod math;
mod nn;
mod pack;
mod quantize;
