//! Kernel instances: one choice for every generic, variant and schedule constant of a kernel.

use std::collections::BTreeMap;

use iron_core::ir::ActivationKind;
use iron_core::syntax::{Bound, Function};
use iron_core::{DType, Diagnostic, Format};

/// What a generic parameter stands for in one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Binding {
    /// An element type.
    DType(DType),
    /// A weight format.
    Format(Format),
    /// A way to store activations.
    Activation(ActivationKind),
}

impl Binding {
    /// The spelling used in instance names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DType(dtype) => dtype.name(),
            Self::Format(format) => format.name(),
            Self::Activation(kind) => kind.name(),
        }
    }

    /// Whether `bound` admits this binding.
    pub fn satisfies(self, bound: Bound) -> bool {
        match (self, bound) {
            (Self::DType(dtype), Bound::Float) => dtype.is_float(),
            (Self::DType(dtype), Bound::Int) => matches!(dtype, DType::I32 | DType::U32),
            (Self::Format(_), Bound::Format) | (Self::Activation(_), Bound::Activation) => true,
            _ => false,
        }
    }
}

/// A kernel with every compile-time choice made.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The source.
    pub function: &'static Function,
    /// One binding per generic, in declaration order.
    pub bindings: Vec<Binding>,
    /// Variants and schedule constants by name.
    pub constants: BTreeMap<String, i64>,
    /// The schedule's name.
    pub schedule: String,
    /// Threads per program on a GPU, when the schedule says so.
    pub threads: Option<u32>,
    /// Software pipeline stages on a GPU, when the schedule says so.
    pub stages: Option<u32>,
}

impl Instance {
    /// The name of the instance without its schedule: `matmul_int8_q4_1_f32`.
    pub fn stem(&self) -> String {
        let mut name = self.function.name.to_owned();
        for binding in &self.bindings {
            name.push('_');
            name.push_str(binding.name());
        }
        name
    }

    /// The unique name in the manifest: `matmul_int8_q4_1_f32__decode`.
    pub fn name(&self) -> String {
        format!("{}__{}", self.stem(), self.schedule)
    }

    /// Checks that the bindings fit the generics.
    pub fn check(&self) -> Result<(), Diagnostic> {
        let generics = self.function.generics;
        if generics.len() != self.bindings.len() {
            return Err(Diagnostic::new(
                self.function.span,
                format!(
                    "`{}` has {} generics, the instance list binds {}",
                    self.function.name,
                    generics.len(),
                    self.bindings.len()
                ),
            )
            .help("give one binding per generic, in declaration order"));
        }
        for (generic, binding) in generics.iter().zip(&self.bindings) {
            if !binding.satisfies(generic.bound) {
                return Err(Diagnostic::new(
                    generic.span,
                    format!(
                        "`{}` is bound by {:?}, the instance list gives `{}`",
                        generic.name,
                        generic.bound,
                        binding.name()
                    ),
                ));
            }
        }
        Ok(())
    }
}
