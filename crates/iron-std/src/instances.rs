//! The explicit list of kernel instances. What is not here is not compiled.

/// The kernels to compile, each with the bindings of its generics in declaration order.
pub const INSTANCES: &[(&str, &[&[&str]])] = &[
    ("matmul", MATMUL),
    ("attention", &[&["f16"], &["f32"]]),
    ("append_kv", &[&["f16"], &["f32"]]),
    ("embed", &[&["f32"], &["f16"], &["bf16"], &["q8_0"], &["q4_0"], &["q4_1"], &["q4_k"], &["q6_k"]]),
    ("take_rows", PLAIN),
    ("rms_norm", ACTIVATIONS),
    ("add_rms_norm", ACTIVATIONS),
    ("rope", PLAIN),
    ("rope_interleaved", PLAIN),
    ("silu_mul", ACTIVATIONS),
    ("gelu_mul", ACTIVATIONS),
    ("gelu_erf_mul", ACTIVATIONS),
    ("add", PLAIN),
    ("add_bias", PLAIN),
    ("softmax", PLAIN),
    ("argmax", PLAIN),
    ("quantize", ACTIVATIONS),
    ("sample", PLAIN),
];

/// Kernels without generics.
const PLAIN: &[&[&str]] = &[&[]];

/// Kernels that write activations: plain for truth and for dense weights, int8 for quantised weights.
const ACTIVATIONS: &[&[&str]] = &[&["f32"], &["int8"]];

const MATMUL: &[&[&str]] = &[
    &["int8", "q8_0"],
    &["int8", "q4_0"],
    &["int8", "q4_1"],
    &["int8", "q4_k"],
    &["int8", "q6_k"],
    &["f32", "q8_0"],
    &["f32", "q4_0"],
    &["f32", "q4_1"],
    &["f32", "q4_k"],
    &["f32", "q6_k"],
    &["f32", "f32"],
    &["f32", "f16"],
    &["f32", "bf16"],
];

/// Schedules for the CPU.
pub const TUNING_CPU: &str = include_str!("../tuning/cpu.toml");
