//! Compiles the kernels of this crate.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let functions = iron_std::functions();
    let catalog = iron_codegen::emit::Catalog {
        functions: &functions,
        instances: iron_std::INSTANCES,
        tuning_cpu: iron_std::TUNING_CPU,
        without: &[],
    };
    if let Err(error) =
        iron_codegen::emit::build_cpu_crate(&catalog, &|name| name == "attention", &out)
    {
        for line in error.to_string().lines() {
            println!("cargo::error={line}");
        }
    }
}
