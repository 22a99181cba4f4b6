//! The explicit list of kernel instances. What is not here is not compiled.

/// The kernels to compile, each with the bindings of its generics in declaration order.
pub const INSTANCES: &[(&str, &[&[&str]])] = &[
    ("matmul", MATMUL),
    ("attention", &[&["f16"], &["f32"]]),
    ("append_kv", &[&["f16"], &["f32"]]),
    ("embed", WEIGHTS),
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
    ("soft_cap", PLAIN),
    ("softmax", PLAIN),
    ("argmax", PLAIN),
    ("quantize", ACTIVATIONS),
    ("sample", PLAIN),
];

/// Every format.
const WEIGHTS: &[&[&str]] = &[
    &["f32"],
    &["f16"],
    &["bf16"],
    &["q8_0"],
    &["q4_0"],
    &["q4_1"],
    &["q5_0"],
    &["q5_1"],
    &["q2_k"],
    &["q3_k"],
    &["q4_k"],
    &["q5_k"],
    &["q6_k"],
];

/// Kernels without generics.
const PLAIN: &[&[&str]] = &[&[]];

/// Kernels that write activations: plain for truth and for dense weights, int8 for quantised weights.
const ACTIVATIONS: &[&[&str]] = &[&["f32"], &["int8"]];

const MATMUL: &[&[&str]] = &[
    &["int8", "q8_0"],
    &["int8", "q4_0"],
    &["int8", "q4_1"],
    &["int8", "q5_0"],
    &["int8", "q5_1"],
    &["int8", "q2_k"],
    &["int8", "q3_k"],
    &["int8", "q4_k"],
    &["int8", "q5_k"],
    &["int8", "q6_k"],
    &["f32", "q8_0"],
    &["f32", "q4_0"],
    &["f32", "q4_1"],
    &["f32", "q5_0"],
    &["f32", "q5_1"],
    &["f32", "q2_k"],
    &["f32", "q3_k"],
    &["f32", "q4_k"],
    &["f32", "q5_k"],
    &["f32", "q6_k"],
    &["f32", "f32"],
    &["f32", "f16"],
    &["f32", "bf16"],
];

/// Schedules for the CPU.
pub const TUNING_CPU: &str = include_str!("../tuning/cpu.toml");

/// The kernels to compile for GPUs: activations are floats there, so nothing is int8.
pub const INSTANCES_GPU: &[(&str, &[&[&str]])] = &[
    ("matmul", MATMUL_GPU),
    ("attention", &[&["f16"], &["f32"]]),
    ("append_kv", &[&["f16"], &["f32"]]),
    ("embed", WEIGHTS),
    ("take_rows", PLAIN),
    ("rms_norm", ACTIVATIONS_GPU),
    ("add_rms_norm", ACTIVATIONS_GPU),
    ("rope", PLAIN),
    ("rope_interleaved", PLAIN),
    ("silu_mul", ACTIVATIONS_GPU),
    ("gelu_mul", ACTIVATIONS_GPU),
    ("gelu_erf_mul", ACTIVATIONS_GPU),
    ("add", PLAIN),
    ("add_bias", PLAIN),
    ("soft_cap", PLAIN),
    ("softmax", PLAIN),
    ("argmax", PLAIN),
    ("quantize", ACTIVATIONS_GPU),
    ("sample", PLAIN),
];

/// f32 for truth; f16 and bf16 are what matrix units multiply.
const ACTIVATIONS_GPU: &[&[&str]] = &[&["f32"], &["f16"], &["bf16"]];

const MATMUL_GPU: &[&[&str]] = &[
    &["f16", "q8_0"],
    &["f16", "q4_0"],
    &["f16", "q4_1"],
    &["f16", "q5_0"],
    &["f16", "q5_1"],
    &["f16", "q2_k"],
    &["f16", "q3_k"],
    &["f16", "q4_k"],
    &["f16", "q5_k"],
    &["f16", "q6_k"],
    &["f16", "f16"],
    &["bf16", "q8_0"],
    &["bf16", "q4_0"],
    &["bf16", "q4_1"],
    &["bf16", "q5_0"],
    &["bf16", "q5_1"],
    &["bf16", "q2_k"],
    &["bf16", "q3_k"],
    &["bf16", "q4_k"],
    &["bf16", "q5_k"],
    &["bf16", "q6_k"],
    &["bf16", "bf16"],
    &["f32", "q8_0"],
    &["f32", "q4_0"],
    &["f32", "q4_1"],
    &["f32", "q5_0"],
    &["f32", "q5_1"],
    &["f32", "q2_k"],
    &["f32", "q3_k"],
    &["f32", "q4_k"],
    &["f32", "q5_k"],
    &["f32", "q6_k"],
    &["f32", "f32"],
    &["f32", "f16"],
    &["f32", "bf16"],
];

/// Schedules for CUDA.
pub const TUNING_CUDA: &str = include_str!("../tuning/cuda.toml");

/// Schedules for Metal.
pub const TUNING_METAL: &str = include_str!("../tuning/metal.toml");

/// The most functions that may be compiled for each target. Build times grow with them: raise it knowingly.
pub const BUDGET: &[(&str, usize)] = &[("cpu", 140), ("cuda", 140), ("metal", 140)];

/// Instances that a target cannot run, by name. A page of keys or values is one tile of shared memory, which these heads
/// outgrow; `iron check` lists them.
pub const EXCLUDED: &[(&str, &[&str])] = &[
    ("cuda", &["attention_f32__wide_512"]),
    (
        "metal",
        &[
            "attention_f16__wide_256",
            "attention_f16__wide_512",
            "attention_f32__wide_128",
            "attention_f32__wide_256",
            "attention_f32__wide_512",
        ],
    ),
];
