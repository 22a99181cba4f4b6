//! The targets: each prints what the passes left, in terms of its tile library.

pub mod abi;
mod c_like;
pub mod cpu;
pub mod cuda;
pub mod metal;

use iron_core::Diagnostic;
use iron_core::ir::Kernel;

use crate::compile::{Options, compile_cpu, compile_gpu};
use crate::instance::Instance;
use crate::passes::schedule::gpu::Machine;
use crate::passes::typecheck::Library;

/// A target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Rust over the CPU's vector units.
    Cpu,
    /// CUDA C++.
    Cuda,
    /// Metal Shading Language.
    Metal,
}

impl Target {
    /// Every target.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Cuda, Self::Metal];

    /// The spelling on the command line and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Metal => "metal",
        }
    }

    /// The least machine that runs this target's text.
    pub const fn arch(self) -> &'static str {
        match self {
            // AVX2 and AVX-512 versions lie beside the portable one.
            Self::Cpu => "any",
            // Matrix steps are `mma.sync` on f16 and bf16.
            Self::Cuda => "sm_80",
            // `bfloat` and `simdgroup_matrix`.
            Self::Metal => "metal3.1",
        }
    }

    /// The inverse of [`Target::name`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name)
    }

    /// Runs the passes for this target.
    pub fn compile(
        self,
        instance: &Instance,
        library: &Library,
        options: &Options,
    ) -> Result<Kernel, Diagnostic> {
        match self {
            Self::Cpu => compile_cpu(instance, library, options),
            Self::Cuda => compile_gpu(instance, library, options, Machine::CUDA),
            Self::Metal => compile_gpu(instance, library, options, Machine::METAL),
        }
    }

    /// The text of one scheduled kernel.
    pub fn emit(self, kernel: &Kernel) -> Result<String, Diagnostic> {
        match self {
            Self::Cpu => cpu::emit(kernel, &kernel.name),
            Self::Cuda => cuda::emit(&[kernel]),
            Self::Metal => metal::emit(&[kernel]),
        }
    }
}
