//! Pass 1, TypeCheck: from recorded syntax to typed IR.
//!
//! Names are resolved, generics and compile-time constants are bound, shapes and element types are checked, helpers are
//! inlined, and mutable variables become carried values. Every error points at the Rust line and says what to write.

mod calls;
mod expressions;
mod scope;
mod statements;

use std::collections::HashMap;

use iron_core::ir::{
    ActivationKind, Block, Const, DimExpr, DimOp, Kernel, Launch, Op, OpKind, Param, ParamKind,
    Type, Value, ValueInfo,
};
use iron_core::syntax::{BinaryOp, Expr, ExprKind, Function, ParamType};
use iron_core::{DType, Diagnostic, Format, Span};

use crate::instance::{Binding, Instance};
use scope::{Item, Scopes};

/// The functions that a kernel may call by name.
pub type Library = HashMap<&'static str, &'static Function>;

type Result<T> = std::result::Result<T, Diagnostic>;

/// Deepest nesting of inlined helpers.
const MAX_INLINE_DEPTH: usize = 16;

/// Type-checks `instance` and returns its IR.
pub fn typecheck(instance: &Instance, library: &Library) -> Result<Kernel> {
    let name = instance.name();
    let with_kernel = |mut diagnostic: Diagnostic| {
        diagnostic.kernel.clone_from(&name);
        diagnostic
    };
    instance.check().map_err(with_kernel)?;
    let mut checker = Checker::new(instance, library).map_err(with_kernel)?;
    checker.declare_dims();
    let body = instance.function.body;
    checker.block_statements(&body).map_err(with_kernel)?;
    Ok(checker.finish())
}

struct Checker<'a> {
    instance: &'a Instance,
    library: &'a Library,
    kernel: Kernel,
    /// Operations of the blocks being built, innermost last.
    stack: Vec<Vec<Op>>,
    scopes: Scopes,
    /// `Dim` values, by dimension index.
    dim_values: Vec<Value>,
    /// Tiles that `.expand` made: the tile without the unit axis, and which result axes its axes are.
    expanded: HashMap<Value, (Value, Vec<u32>)>,
    inline_depth: usize,
}

impl<'a> Checker<'a> {
    fn new(instance: &'a Instance, library: &'a Library) -> Result<Self> {
        let function = instance.function;
        let mut dims: Vec<String> = Vec::new();
        let mut params = Vec::new();
        for param in function.params {
            let kind = match &param.ty {
                ParamType::Tensor { element, shape, mutable } => ParamKind::Tensor {
                    dtype: storage_dtype(instance, element, param.span)?,
                    shape: shape_exprs(instance, &mut dims, shape)?,
                    mutable: *mutable,
                },
                ParamType::Quantized { format, shape } => ParamKind::Quantized {
                    format: format_of(instance, format, param.span)?,
                    shape: shape_exprs(instance, &mut dims, shape)?,
                },
                ParamType::Activations { kind, shape, mutable } => ParamKind::Activations {
                    kind: activation_of(instance, kind, param.span)?,
                    shape: shape_exprs(instance, &mut dims, shape)?,
                    mutable: *mutable,
                },
                ParamType::Scalar(name) => ParamKind::Scalar(
                    DType::parse(name)
                        .filter(|dtype| matches!(dtype, DType::F32 | DType::I32 | DType::U32))
                        .ok_or_else(|| {
                            Diagnostic::new(
                                param.span,
                                format!("`{name}` cannot be passed by value"),
                            )
                            .help("scalar parameters are f32, i32 or u32")
                        })?,
                ),
                ParamType::Value => {
                    return Err(Diagnostic::new(param.span, format!("`{}` has no concrete type", param.name))
                        .help("`Value` is for helpers without a grid; a kernel names Tensor, Quantized, Activations or a scalar type"));
                }
            };
            params.push(Param { name: param.name.to_owned(), kind, span: param.span });
        }
        let mut kernel = Kernel {
            name: instance.name(),
            dims,
            params,
            grid: Vec::new(),
            launch: Launch {
                threads: instance.threads.unwrap_or(0),
                shared_bytes: 0,
                stages: instance.stages.unwrap_or(0),
            },
            values: Vec::new(),
            body: Block::default(),
        };
        for expr in function.grid {
            let mut dims = kernel.dims.clone();
            let known = dims.len();
            let extent = dim_expr(instance, &mut dims, expr)?;
            if dims.len() != known {
                return Err(Diagnostic::new(
                    expr.span,
                    format!("the grid uses `{}`, which no parameter's shape has", dims[known]),
                )
                .help(format!("known dimensions: {}", kernel.dims.join(", "))));
            }
            kernel.grid.push(extent);
        }
        if kernel.grid.is_empty() || kernel.grid.len() > 3 {
            return Err(Diagnostic::new(
                function.span,
                format!("the grid has {} axes", kernel.grid.len()),
            )
            .help("write `#[kernel(grid = (rows,))]` with one to three axes"));
        }
        Ok(Self {
            instance,
            library,
            kernel,
            stack: vec![Vec::new()],
            scopes: Scopes::default(),
            dim_values: Vec::new(),
            expanded: HashMap::new(),
            inline_depth: 0,
        })
    }

    fn finish(mut self) -> Kernel {
        self.kernel.body = Block {
            args: Vec::new(),
            ops: self.stack.pop().unwrap_or_default(),
            yields: Vec::new(),
        };
        self.kernel
    }

    fn declare_dims(&mut self) {
        for (index, name) in self.kernel.dims.clone().into_iter().enumerate() {
            let value = self.emit(
                OpKind::Dim(index as u32),
                Type::Scalar(DType::I32),
                self.instance.function.span,
            );
            self.kernel.values[value.0 as usize].name = Some(name);
            self.dim_values.push(value);
        }
        for (index, param) in self.kernel.params.clone().into_iter().enumerate() {
            if let ParamKind::Scalar(dtype) = param.kind {
                let value = self.emit(OpKind::Param(index as u32), Type::Scalar(dtype), param.span);
                self.kernel.values[value.0 as usize].name = Some(param.name.clone());
                self.scopes.declare(param.name, Item::Value(value), false);
            }
        }
    }

    fn new_value(&mut self, ty: Type, span: Span) -> Value {
        let value = Value(self.kernel.values.len() as u32);
        self.kernel.values.push(ValueInfo { ty, span, name: None, storage: None, buffer: None });
        value
    }

    fn emit(&mut self, kind: OpKind, ty: Type, span: Span) -> Value {
        let value = self.new_value(ty, span);
        self.push(Op { kind, results: vec![value], span });
        value
    }

    fn push(&mut self, op: Op) {
        self.stack.last_mut().expect("a block is open").push(op);
    }

    fn ty(&self, value: Value) -> &Type {
        &self.kernel.values[value.0 as usize].ty
    }

    fn i32(&mut self, constant: i64, span: Span) -> Result<Value> {
        let constant = i32::try_from(constant).map_err(|_| {
            Diagnostic::new(span, format!("{constant} does not fit i32"))
                .help("index arithmetic is 32-bit")
        })?;
        Ok(self.emit(OpKind::Const(Const::I32(constant)), Type::Scalar(DType::I32), span))
    }

    /// A compile-time integer of the instance: a variant or a schedule constant.
    fn constant(&self, name: &str) -> Option<i64> {
        self.instance.constants.get(name).copied()
    }

    /// The scalar i32 value of a dimension expression.
    fn dim_value(&mut self, expr: &DimExpr, span: Span) -> Result<Value> {
        Ok(match expr {
            DimExpr::Const(constant) => self.i32(*constant, span)?,
            DimExpr::Dim(index) => self.dim_values[*index as usize],
            DimExpr::Op(op, a, b) => {
                let (a, b) = (self.dim_value(a, span)?, self.dim_value(b, span)?);
                let int = Type::Scalar(DType::I32);
                let op = match op {
                    DimOp::Add => BinaryOp::Add,
                    DimOp::Sub => BinaryOp::Sub,
                    DimOp::Mul => BinaryOp::Mul,
                    DimOp::Div => BinaryOp::Div,
                    DimOp::Min => BinaryOp::Min,
                    DimOp::Max => BinaryOp::Max,
                    DimOp::DivCeil => {
                        let one = self.i32(1, span)?;
                        let sum = self.emit(OpKind::Binary(BinaryOp::Add, a, b), int.clone(), span);
                        let sum =
                            self.emit(OpKind::Binary(BinaryOp::Sub, sum, one), int.clone(), span);
                        return Ok(self.emit(OpKind::Binary(BinaryOp::Div, sum, b), int, span));
                    }
                };
                self.emit(OpKind::Binary(op, a, b), int, span)
            }
        })
    }

    fn binding(&self, name: &str) -> Option<Binding> {
        binding(self.instance, name)
    }

    /// The number type that a turbofish names.
    fn dtype_named(&self, name: &str, span: Span) -> Result<DType> {
        match self.binding(name) {
            Some(Binding::DType(dtype) | Binding::Activation(ActivationKind::Plain(dtype))) => {
                return Ok(dtype.compute());
            }
            Some(_) => {
                return Err(Diagnostic::new(
                    span,
                    format!("`{name}` is no number type in this instance"),
                )
                .help("name f32, i32, u32 or a `Float` generic"));
            }
            None => {}
        }
        DType::parse(name).map(DType::compute).ok_or_else(|| {
            Diagnostic::new(span, format!("unknown type `{name}`"))
                .help("name f32, i32, u32, bool or a generic")
        })
    }
}

fn binding(instance: &Instance, name: &str) -> Option<Binding> {
    let at = instance.function.generics.iter().position(|generic| generic.name == name)?;
    Some(instance.bindings[at])
}

fn storage_dtype(instance: &Instance, name: &str, span: Span) -> Result<DType> {
    match binding(instance, name) {
        Some(Binding::DType(dtype)) => Ok(dtype),
        Some(_) => Err(Diagnostic::new(span, format!("`{name}` is no element type"))
            .help(format!("bound it by Float or Int: `<{name}: Float>`"))),
        None => DType::parse(name).filter(|dtype| *dtype != DType::Bool).ok_or_else(|| {
            Diagnostic::new(span, format!("unknown element type `{name}`"))
                .help("use f32, f16, bf16, i32, u32, i8, u8 or a generic")
        }),
    }
}

fn format_of(instance: &Instance, name: &str, span: Span) -> Result<Format> {
    match binding(instance, name) {
        Some(Binding::Format(format)) => Ok(format),
        _ => Format::parse(name).ok_or_else(|| {
            Diagnostic::new(span, format!("`{name}` is no weight format"))
                .help(format!("declare it: `<{name}: Format>`"))
        }),
    }
}

fn activation_of(instance: &Instance, name: &str, span: Span) -> Result<ActivationKind> {
    match binding(instance, name) {
        Some(Binding::Activation(kind)) => Ok(kind),
        Some(Binding::DType(dtype)) => Ok(ActivationKind::Plain(dtype)),
        _ => match DType::parse(name) {
            Some(dtype) if dtype.is_float() => Ok(ActivationKind::Plain(dtype)),
            _ => Err(Diagnostic::new(span, format!("`{name}` is no activation kind"))
                .help(format!("declare it: `<{name}: Activation>`"))),
        },
    }
}

fn shape_exprs(
    instance: &Instance,
    dims: &mut Vec<String>,
    shape: &[Expr],
) -> Result<Vec<DimExpr>> {
    shape.iter().map(|expr| dim_expr(instance, dims, expr)).collect()
}

/// Reads an expression over named dimensions; unknown lower-case names become dimensions.
fn dim_expr(instance: &Instance, dims: &mut Vec<String>, expr: &Expr) -> Result<DimExpr> {
    let fold = |op: DimOp, a: DimExpr, b: DimExpr| match (op, &a, &b) {
        (DimOp::Add, DimExpr::Const(a), DimExpr::Const(b)) => DimExpr::Const(a + b),
        (DimOp::Sub, DimExpr::Const(a), DimExpr::Const(b)) => DimExpr::Const(a - b),
        (DimOp::Mul, DimExpr::Const(a), DimExpr::Const(b)) => DimExpr::Const(a * b),
        (DimOp::Div, DimExpr::Const(a), DimExpr::Const(b)) if *b > 0 => DimExpr::Const(a / b),
        (DimOp::DivCeil, DimExpr::Const(a), DimExpr::Const(b)) if *b > 0 => {
            DimExpr::Const((a + b - 1) / b)
        }
        _ => DimExpr::Op(op, Box::new(a), Box::new(b)),
    };
    Ok(match &expr.kind {
        ExprKind::Int(value) => DimExpr::Const(*value),
        ExprKind::Name(name) => match instance.constants.get(*name) {
            Some(constant) => DimExpr::Const(*constant),
            None if name
                .chars()
                .all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit()) =>
            {
                return Err(Diagnostic::new(
                    expr.span,
                    format!("`{name}` has no value in this instance"),
                )
                .help("give it in the kernel's schedule (tuning file) or in `variants(..)`"));
            }
            None => {
                let at = dims.iter().position(|dim| dim == name).unwrap_or_else(|| {
                    dims.push((*name).to_owned());
                    dims.len() - 1
                });
                DimExpr::Dim(at as u32)
            }
        },
        ExprKind::Binary(op, a, b) => {
            let op = match op {
                BinaryOp::Add => DimOp::Add,
                BinaryOp::Sub => DimOp::Sub,
                BinaryOp::Mul => DimOp::Mul,
                BinaryOp::Div => DimOp::Div,
                _ => return Err(bad_dim(expr)),
            };
            let (a, b) = (dim_expr(instance, dims, a)?, dim_expr(instance, dims, b)?);
            fold(op, a, b)
        }
        ExprKind::Method { receiver, name, args: [argument], .. } => {
            let op = match *name {
                "div_ceil" => DimOp::DivCeil,
                "min" => DimOp::Min,
                "max" => DimOp::Max,
                _ => return Err(bad_dim(expr)),
            };
            let (a, b) = (dim_expr(instance, dims, receiver)?, dim_expr(instance, dims, argument)?);
            fold(op, a, b)
        }
        _ => return Err(bad_dim(expr)),
    })
}

fn bad_dim(expr: &Expr) -> Diagnostic {
    Diagnostic::new(expr.span, "this is no dimension expression")
        .help("use names, integers, + - * /, .div_ceil(), .min() and .max()")
}
