//! Writes the CUDA text of a set of kernels and a manifest, for `scripts/cuda_check`.
//!
//! `cargo run -p iron-conformance --example cuda_check -- OUT_DIR`

#[path = "../tests/support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use iron_codegen::Binding;
use iron_codegen::target::abi::{self, Slot};
use iron_codegen::target::cuda::TILE_LIBRARY;
use iron_conformance::Target;
use iron_core::ir::{ActivationKind, DimExpr, DimOp, Kernel};
use iron_core::syntax::Bound;
use iron_core::{DType, Format};
use iron_std::reference::{self, Random};

/// Weights of the largest matrix that `check.py` multiplies with: 333 rows of 1536.
const WEIGHTS: usize = 333 * 1536;

/// A Python expression.
fn python(kernel: &Kernel, expr: &DimExpr) -> String {
    match expr {
        DimExpr::Const(value) => value.to_string(),
        DimExpr::Dim(dim) => kernel.dims[*dim as usize].clone(),
        DimExpr::Op(op, a, b) => {
            let (a, b) = (python(kernel, a), python(kernel, b));
            match op {
                DimOp::Add => format!("({a} + {b})"),
                DimOp::Sub => format!("({a} - {b})"),
                DimOp::Mul => format!("({a} * {b})"),
                DimOp::Div => format!("({a} // {b})"),
                DimOp::DivCeil => format!("-(-{a} // {b})"),
                DimOp::Min => format!("min({a}, {b})"),
                DimOp::Max => format!("max({a}, {b})"),
            }
        }
    }
}

fn entry(kernel: &Kernel, file: &str, tags: &[(&str, String)]) -> String {
    let name = |param: u32| &kernel.params[param as usize].name;
    let slots: Vec<String> = abi::cuda(kernel)
        .iter()
        .map(|slot| match slot {
            Slot::Pointer { param } => format!("[\"pointer\", \"{}\"]", name(*param)),
            Slot::Stride { param, axis } => format!("[\"stride\", \"{}\", {axis}]", name(*param)),
            Slot::Scalar { param } => format!("[\"scalar\", \"{}\"]", name(*param)),
            Slot::Dim { dim } => format!("[\"dim\", \"{}\"]", kernel.dims[*dim as usize]),
        })
        .collect();
    let grid: Vec<String> =
        kernel.grid.iter().map(|expr| format!("\"{}\"", python(kernel, expr))).collect();
    let tags: Vec<String> =
        tags.iter().map(|(key, value)| format!("\"{key}\": \"{value}\"")).collect();
    format!(
        "  {{\"entry\": \"{}\", \"file\": \"{file}\", \"threads\": {}, \"shared_bytes\": {}, \"grid\": [{}], \"slots\": [{}], {}}}",
        kernel.name,
        kernel.launch.threads,
        kernel.launch.shared_bytes,
        grid.join(", "),
        slots.join(", "),
        tags.join(", ")
    )
}

fn main() -> std::io::Result<()> {
    let out = PathBuf::from(env::args().nth(1).unwrap_or_else(|| "target/cuda_check".into()));
    fs::create_dir_all(&out)?;
    fs::write(out.join("iron_tile.cuh"), TILE_LIBRARY)?;
    let mut entries = Vec::new();
    let mut emit = |name: String, kernel: &Kernel, text: &str, tags: &[(&str, String)]| {
        entries.push(entry(kernel, &name, tags));
        fs::write(out.join(format!("{name}.cu")), text)
    };
    let plain = |dtype| Binding::Activation(ActivationKind::Plain(dtype));
    // Every kernel of the library once, to be compiled only.
    for function in iron_std::functions() {
        if function.grid.is_empty() || function.name == "quantize" {
            continue;
        }
        let bindings: Vec<Binding> = function
            .generics
            .iter()
            .map(|generic| match generic.bound {
                Bound::Float => Binding::DType(DType::BF16),
                Bound::Int => Binding::DType(DType::I32),
                Bound::Format => Binding::Format(Format::Q6K),
                Bound::Activation => plain(DType::BF16),
            })
            .collect();
        let mut constants = vec![("BLOCK", 256), ("BM", 16), ("BN", 64), ("BK", 64)];
        constants.extend(
            function.variants.iter().map(|variant| (variant.name, i64::from(variant.values[0]))),
        );
        let (kernel, text) = support::lower(Target::Cuda, function, &bindings, &constants, 128);
        emit(format!("library_{}", function.name), &kernel, &text, &[("kind", "library".into())])?;
    }
    for dtype in [DType::F32, DType::BF16] {
        let function = &iron_std::mlx::rms_norm::RMS_NORM;
        let (kernel, text) =
            support::lower(Target::Cuda, function, &[plain(dtype)], &[("BLOCK", 1024)], 256);
        emit(
            format!("rms_norm_{dtype}"),
            &kernel,
            &text,
            &[("kind", "rms_norm".into()), ("dtype", dtype.to_string())],
        )?;
    }
    for format in Format::ALL.into_iter().filter(|format| !format.is_dense()) {
        let blocks = reference::random_weights(&mut Random(7), format, WEIGHTS);
        let values = reference::decode(format, &blocks);
        let values: Vec<u8> = values.into_iter().flat_map(f64::to_le_bytes).collect();
        fs::write(out.join(format!("weights_{format}.blocks")), blocks)?;
        fs::write(out.join(format!("weights_{format}.f64")), values)?;
    }
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        let dense = match dtype {
            DType::F16 => Format::F16,
            DType::BF16 => Format::BF16,
            _ => Format::F32,
        };
        let packed = Format::ALL.into_iter().filter(|format| !format.is_dense());
        for format in std::iter::once(dense).chain(packed) {
            // Tiles for one row, a few rows and many.
            for (bm, bn, bk) in [(8, 64, 64), (64, 64, 32), (128, 128, 32)] {
                if dtype == DType::F32 && bm > 64 {
                    continue;
                }
                let threads = if bm > 64 { 256 } else { 128 };
                let constants = [("BM", bm), ("BN", bn), ("BK", bk)];
                let bindings = [plain(dtype), Binding::Format(format)];
                let (kernel, text) = support::lower(
                    Target::Cuda,
                    &iron_std::mlx::matmul::MATMUL,
                    &bindings,
                    &constants,
                    threads,
                );
                let mut tags = vec![
                    ("kind", "matmul".into()),
                    ("dtype", dtype.to_string()),
                    ("format", format.to_string()),
                    ("tile", format!("{bm}x{bn}x{bk}")),
                ];
                if !format.is_dense() {
                    tags.push(("weights", format!("weights_{format}")));
                }
                emit(format!("matmul_{dtype}_{format}_{bm}x{bn}x{bk}"), &kernel, &text, &tags)?;
            }
        }
    }
    for cache in [DType::F16, DType::BF16, DType::F32] {
        for bm in [16, 64] {
            for head_dim in [64, 128] {
                let constants = [("BM", bm), ("HEAD_DIM", head_dim), ("PAGE", 64)];
                let function = &iron_std::mlx::attention::ATTENTION;
                let (kernel, text) = support::lower(
                    Target::Cuda,
                    function,
                    &[Binding::DType(cache)],
                    &constants,
                    128,
                );
                let tags = [
                    ("kind", "attention".into()),
                    ("dtype", cache.to_string()),
                    ("tile", bm.to_string()),
                    ("head_dim", head_dim.to_string()),
                ];
                emit(format!("attention_{cache}_{bm}_{head_dim}"), &kernel, &text, &tags)?;
            }
        }
    }
    let mut manifest = String::new();
    let _ = writeln!(manifest, "[\n{}\n]", entries.join(",\n"));
    fs::write(out.join("manifest.json"), manifest)?;
    println!("{} kernels in {}", entries.len(), out.display());
    Ok(())
}
