//! Compiles some kernels several times: with all passes, and with some left out.

use std::path::PathBuf;

use iron_codegen::compile::Pass;
use iron_codegen::emit::{Catalog, build_cpu_crate};

const INSTANCES: &[(&str, &[&[&str]])] = &[
    ("rms_norm", &[&["int8"]]),
    ("add_rms_norm", &[&["int8"]]),
    ("silu_mul", &[&["int8"]]),
    ("softmax", &[&[]]),
    ("argmax", &[&[]]),
    ("rope", &[&[]]),
    ("attention", &[&["f16"]]),
    ("append_kv", &[&["f16"]]),
    ("matmul", &[&["int8", "q4_1"], &["f32", "f16"]]),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let functions = iron_std::functions();
    let variants: [(&str, &[Pass]); 5] = [
        ("all", &[]),
        ("without_fusion", &[Pass::Fusion]),
        ("without_schedule", &[Pass::Schedule]),
        ("without_vectorize", &[Pass::Vectorize]),
        ("without_fusion_and_schedule", &[Pass::Fusion, Pass::Schedule]),
    ];
    for (name, without) in variants {
        let folder = out.join(name);
        std::fs::create_dir_all(&folder).expect("OUT_DIR is writable");
        let catalog = Catalog {
            functions: &functions,
            instances: INSTANCES,
            tuning_cpu: iron_std::TUNING_CPU,
            without,
        };
        if let Err(error) = build_cpu_crate(&catalog, &|_| true, &folder) {
            for line in error.to_string().lines() {
                println!("cargo::error={name}: {line}");
            }
        }
    }
}
