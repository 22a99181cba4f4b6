//! Every function on every instruction set of this machine, against plain Rust references.
#![expect(clippy::float_cmp, reason = "equality of bits or of exact values is what is tested")]
#![expect(clippy::vec_init_then_push, reason = "a macro pushes a list")]

mod dense;
mod dot_f32;
mod dot_int8;
mod isa;
mod math;
mod nn;
mod pack;
mod quantize;
