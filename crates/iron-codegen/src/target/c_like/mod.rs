//! What Metal Shading Language and CUDA C++ share: both are C++ with the same tile library, so one printer serves both.
//!
//! A scheduled kernel becomes a function of structured C++: scalars are constants named after their source variables,
//! tiles in registers are arrays declared at the top, tiles in shared memory are pointers into one block of it, maps are
//! loops over the points that a thread owns, everything else calls the tile library.

mod dot;
mod map;
mod names;
mod scalar;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use iron_core::ir::{
    ActivationKind, Block, DimExpr, DimOp, Index, Kernel, Op, OpKind, ParamKind, Storage, Type,
    Value,
};
use iron_core::visit::Uses;
use iron_core::{DType, Diagnostic, Format, Span};

use self::names::Names;
use super::abi::{self, Slot};
use crate::passes::schedule::gpu::{Machine, SharedLayout};

type Result<T> = std::result::Result<T, Diagnostic>;

/// Where the two languages differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Metal,
    Cuda,
}

impl Dialect {
    pub(crate) fn machine(self) -> Machine {
        match self {
            Self::Metal => Machine::METAL,
            Self::Cuda => Machine::CUDA,
        }
    }

    /// Prefix of a type that lies in device memory.
    fn device(self) -> &'static str {
        match self {
            Self::Metal => "device ",
            Self::Cuda => "",
        }
    }

    /// Prefix of a type that lies in shared memory.
    fn shared(self) -> &'static str {
        match self {
            Self::Metal => "threadgroup ",
            Self::Cuda => "",
        }
    }
}

/// The spelling of an element type; both tile libraries define the same names.
pub(crate) fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F16 => "iron::f16",
        DType::BF16 => "iron::bf16",
        DType::I32 => "iron::i32",
        DType::U32 => "iron::u32",
        DType::I8 => "iron::i8",
        DType::U8 => "iron::u8",
        DType::Bool => "bool",
    }
}

/// The class of the tile library that decodes a packed format.
pub(crate) fn format_name(format: Format) -> Option<&'static str> {
    match format {
        Format::F32 | Format::F16 | Format::BF16 => None,
        Format::Q8_0 => Some("iron::Q8_0"),
        Format::Q4_0 => Some("iron::Q4_0"),
        Format::Q4_1 => Some("iron::Q4_1"),
        Format::Q5_0 => Some("iron::Q5_0"),
        Format::Q5_1 => Some("iron::Q5_1"),
        Format::Q2K => Some("iron::Q2_K"),
        Format::Q3K => Some("iron::Q3_K"),
        Format::Q4K => Some("iron::Q4_K"),
        Format::Q5K => Some("iron::Q5_K"),
        Format::Q6K => Some("iron::Q6_K"),
    }
}

/// What a parameter points at: its element type, or the format of packed blocks.
pub(crate) enum Pointee {
    Plain(DType),
    Packed(Format),
}

pub(crate) fn pointee(kind: &ParamKind) -> Option<Pointee> {
    Some(match kind {
        ParamKind::Tensor { dtype, .. }
        | ParamKind::Activations { kind: ActivationKind::Plain(dtype), .. } => {
            Pointee::Plain(*dtype)
        }
        ParamKind::Activations { kind: ActivationKind::Int8, .. } => Pointee::Plain(DType::I8),
        ParamKind::Quantized { format: Format::F32, .. } => Pointee::Plain(DType::F32),
        ParamKind::Quantized { format: Format::F16, .. } => Pointee::Plain(DType::F16),
        ParamKind::Quantized { format: Format::BF16, .. } => Pointee::Plain(DType::BF16),
        ParamKind::Quantized { format, .. } => Pointee::Packed(*format),
        ParamKind::Scalar(_) => return None,
    })
}

/// Prints a scheduled kernel, without the `#include` of the tile library.
pub(crate) fn emit(kernel: &Kernel, dialect: Dialect) -> Result<String> {
    let mut printer = Printer {
        kernel,
        dialect,
        layout: SharedLayout::of(kernel, dialect.machine()),
        uses: kernel.uses(),
        names: Names::new(kernel),
        scalars: BTreeMap::new(),
        tiles: BTreeMap::new(),
        used: BTreeSet::new(),
        uses_scratch: false,
        text: String::new(),
        indent: 1,
    };
    printer.name_tiles();
    printer.block(&kernel.body)?;
    let body = std::mem::take(&mut printer.text);
    Ok(printer.function(&body))
}

/// A tile's variable.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TileName {
    name: String,
    storage: Storage,
    ty: Type,
}

struct Printer<'k> {
    kernel: &'k Kernel,
    dialect: Dialect,
    layout: SharedLayout,
    uses: Uses,
    names: Names,
    /// The expression that stands for a scalar value.
    scalars: BTreeMap<Value, String>,
    /// The variable of a tile, by buffer and type.
    tiles: BTreeMap<(u32, String), TileName>,
    /// Arguments that the body reads.
    used: BTreeSet<String>,
    uses_scratch: bool,
    text: String,
    indent: usize,
}

impl<'k> Printer<'k> {
    fn line(&mut self, text: impl AsRef<str>) {
        let indent = self.indent;
        let _ = writeln!(self.text, "{:1$}{2}", "", indent * 4, text.as_ref());
    }

    fn open(&mut self, text: impl AsRef<str>) {
        self.line(text);
        self.indent += 1;
    }

    fn close(&mut self) {
        self.indent -= 1;
        self.line("}");
    }

    fn fail<T>(&self, span: Span, message: impl Into<String>) -> Result<T> {
        Err(Diagnostic { kernel: self.kernel.name.clone(), ..Diagnostic::new(span, message) })
    }

    fn threads(&self) -> u32 {
        self.kernel.launch.threads
    }

    // ---- names ---------------------------------------------------------------------------------------------------

    fn name_tiles(&mut self) {
        for number in 0..self.kernel.values.len() as u32 {
            let info = self.kernel.info(Value(number));
            let (Some(storage), Some(buffer)) = (info.storage, info.buffer) else { continue };
            let key = (buffer, format!("{:?}", info.ty));
            if self.tiles.contains_key(&key) {
                continue;
            }
            let name = self.names.fresh(info.name.as_deref().unwrap_or("tile"));
            self.tiles.insert(key, TileName { name, storage, ty: info.ty.clone() });
        }
    }

    fn tile(&self, value: Value, span: Span) -> Result<TileName> {
        let info = self.kernel.info(value);
        let found =
            info.buffer.and_then(|buffer| self.tiles.get(&(buffer, format!("{:?}", info.ty))));
        match found {
            Some(tile) => Ok(tile.clone()),
            None => self.fail(span, format!("%{} was not scheduled", value.0)),
        }
    }

    fn scalar(&self, value: Value, span: Span) -> Result<String> {
        match self.scalars.get(&value) {
            Some(text) => Ok(text.clone()),
            None => self.fail(span, format!("%{} has no scalar here", value.0)),
        }
    }

    /// Declares a constant for a scalar value, unless nobody reads it.
    fn define(&mut self, value: Value, expression: &str) {
        if self.uses.of(value) == 0 {
            return;
        }
        let info = self.kernel.info(value);
        let ty = type_name(info.ty.dtype().unwrap_or(DType::F32));
        let name = self.names.fresh(info.name.as_deref().unwrap_or("t"));
        self.line(format!("const {ty} {name} = {expression};"));
        self.scalars.insert(value, name);
    }

    fn param(&mut self, param: u32) -> String {
        let name = self.names.param(param).to_owned();
        self.used.insert(name.clone());
        name
    }

    /// Distance in elements along an axis; the last axis is contiguous.
    fn stride(&mut self, param: u32, axis: usize) -> String {
        let rank = self.kernel.params[param as usize].kind.shape().len();
        if axis + 1 == rank {
            return "1".to_owned();
        }
        let name = self.names.stride(param, axis as u32);
        self.used.insert(name.clone());
        name
    }

    fn dim(&mut self, dim: u32) -> String {
        let name = self.names.dim(dim).to_owned();
        self.used.insert(name.clone());
        name
    }

    fn dim_expr(&mut self, expr: &DimExpr) -> String {
        match expr {
            DimExpr::Const(value) => value.to_string(),
            DimExpr::Dim(dim) => self.dim(*dim),
            DimExpr::Op(op, a, b) => {
                let (a, b) = (self.dim_expr(a), self.dim_expr(b));
                match op {
                    DimOp::Add => format!("({a} + {b})"),
                    DimOp::Sub => format!("({a} - {b})"),
                    DimOp::Mul => format!("({a} * {b})"),
                    DimOp::Div => format!("({a} / {b})"),
                    DimOp::DivCeil => format!("(({a} + {b} - 1) / {b})"),
                    DimOp::Min => format!("iron::min({a}, {b})"),
                    DimOp::Max => format!("iron::max({a}, {b})"),
                }
            }
        }
    }

    /// A pointer into the scratch area.
    fn scratch(&mut self, dtype: &str, offset: u32) -> String {
        self.uses_scratch = true;
        let shared = self.dialect.shared();
        format!("({shared}{dtype}*)(iron_shared + {})", self.layout.scratch + offset)
    }

    /// Address of the element at scalar positions; `base + offset` in 64 bits as soon as a stride takes part.
    fn address(&mut self, param: u32, positions: &[String]) -> String {
        let mut text = self.param(param);
        let last = positions.len() - 1;
        for (axis, position) in positions.iter().enumerate() {
            if position == "0" {
                continue;
            }
            if axis == last {
                let _ = write!(text, " + {position}");
            } else {
                let stride = self.stride(param, axis);
                let _ = write!(text, " + {position} * {stride}");
            }
        }
        text
    }

    // ---- statements ------------------------------------------------------------------------------------------------

    fn block(&mut self, block: &'k Block) -> Result<()> {
        for op in &block.ops {
            self.op(op)?;
        }
        Ok(())
    }

    fn op(&mut self, op: &'k Op) -> Result<()> {
        let span = op.span;
        match &op.kind {
            OpKind::Barrier => self.line("iron::barrier();"),
            OpKind::Map(map) => self.map(map, &op.results, span)?,
            OpKind::DotTile { a, b, acc, k } => self.dot(a, b, *acc, *k, span)?,
            OpKind::DecodeRow { tensor, index } => {
                self.decode_row(*tensor, index, op.results[0], span)?;
            }
            OpKind::For { lower, upper, step, carried, body } => {
                self.for_loop(op, [*lower, *upper], *step, carried, body)?;
            }
            OpKind::If { condition, then, otherwise } => {
                self.branch(op, *condition, then, otherwise)?;
            }
            OpKind::Load { tensor, index, .. } => {
                let positions = self.positions(index, span)?;
                let address = self.address(*tensor, &positions);
                self.define(op.results[0], &format!("iron::load({address})"));
            }
            OpKind::Store { tensor, index, value } => {
                let positions = self.positions(index, span)?;
                let address = self.address(*tensor, &positions);
                let value = self.scalar(*value, span)?;
                self.line(format!("if (tid == 0) iron::store({address}, {value});"));
            }
            kind if op.results.len() == 1 && self.kernel.ty(op.results[0]).is_scalar() => {
                self.scalar_op(kind, op.results[0], span)?;
            }
            kind => return self.fail(span, format!("{kind:?} was not lowered")),
        }
        Ok(())
    }

    fn positions(&mut self, index: &[Index], span: Span) -> Result<Vec<String>> {
        index
            .iter()
            .map(|entry| match entry {
                Index::At(value) => self.scalar(*value, span),
                _ => self.fail(span, "tile accesses must have been lowered to maps"),
            })
            .collect()
    }

    /// Declares a variable for a scalar that a loop carries or a branch decides.
    fn variable(&mut self, value: Value, initial: Option<&str>) -> String {
        let info = self.kernel.info(value);
        let ty = type_name(info.ty.dtype().unwrap_or(DType::F32));
        let name = self.names.fresh(info.name.as_deref().unwrap_or("t"));
        match initial {
            Some(initial) => self.line(format!("{ty} {name} = {initial};")),
            None => self.line(format!("{ty} {name};")),
        }
        name
    }

    fn for_loop(
        &mut self,
        op: &'k Op,
        [lower, upper]: [Value; 2],
        step: u32,
        carried: &[Value],
        body: &'k Block,
    ) -> Result<()> {
        let span = op.span;
        let mut variables = Vec::new();
        for (slot, start) in carried.iter().enumerate() {
            if self.kernel.ty(*start).is_scalar() {
                let initial = self.scalar(*start, span)?;
                let name = self.variable(body.args[slot + 1], Some(&initial));
                self.scalars.insert(body.args[slot + 1], name.clone());
                self.scalars.insert(op.results[slot], name.clone());
                variables.push((slot, name));
            }
        }
        self.names.enter();
        let counter =
            self.names.fresh(self.kernel.info(body.args[0]).name.as_deref().unwrap_or("i"));
        self.scalars.insert(body.args[0], counter.clone());
        let (lower, upper) = (self.scalar(lower, span)?, self.scalar(upper, span)?);
        let advance =
            if step == 1 { format!("++{counter}") } else { format!("{counter} += {step}") };
        self.line("IRON_KEEP");
        self.open(format!("for (int {counter} = {lower}; {counter} < {upper}; {advance}) {{"));
        self.block(body)?;
        // A yield may be another carried variable: all are read before any is written.
        let mut next = Vec::new();
        for (slot, name) in &variables {
            let value = self.scalar(body.yields[*slot], span)?;
            if variables.len() > 1
                && value != *name
                && variables.iter().any(|(_, other)| *other == value)
            {
                let ty =
                    type_name(self.kernel.ty(body.yields[*slot]).dtype().unwrap_or(DType::F32));
                let copy = self.names.fresh("next");
                self.line(format!("const {ty} {copy} = {value};"));
                next.push(copy);
            } else {
                next.push(value);
            }
        }
        for ((_, name), value) in variables.iter().zip(next) {
            if *name != value {
                self.line(format!("{name} = {value};"));
            }
        }
        self.close();
        self.names.leave();
        Ok(())
    }

    fn branch(
        &mut self,
        op: &'k Op,
        condition: Value,
        then: &'k Block,
        otherwise: &'k Block,
    ) -> Result<()> {
        let span = op.span;
        let mut variables = Vec::new();
        for (slot, result) in op.results.iter().enumerate() {
            if self.kernel.ty(*result).is_scalar() {
                let name = self.variable(*result, None);
                self.scalars.insert(*result, name.clone());
                variables.push((slot, name));
            }
        }
        let condition = self.scalar(condition, span)?;
        self.open(format!("if ({condition}) {{"));
        for (number, block) in [then, otherwise].into_iter().enumerate() {
            if number == 1 {
                if block.ops.is_empty() && variables.is_empty() {
                    break;
                }
                self.indent -= 1;
                self.open("} else {");
            }
            self.names.enter();
            self.block(block)?;
            self.names.leave();
            for (slot, name) in &variables {
                let value = self.scalar(block.yields[*slot], span)?;
                self.line(format!("{name} = {value};"));
            }
        }
        self.close();
        Ok(())
    }

    // ---- the function around the body ------------------------------------------------------------------------------

    fn function(&self, body: &str) -> String {
        let kernel = self.kernel;
        let mut text = String::new();
        let launch = &kernel.launch;
        let grid: Vec<String> = kernel.grid.iter().map(|expr| self.grid_text(expr)).collect();
        let _ = writeln!(text, "// {}", kernel.name);
        let _ = writeln!(
            text,
            "// grid ({}), {} threads, {} bytes of shared memory",
            grid.join(", "),
            launch.threads,
            launch.shared_bytes
        );
        let mut prologue = String::new();
        let shared_memory = launch.shared_bytes > 0;
        match self.dialect {
            Dialect::Cuda => {
                let parameters: Vec<String> =
                    abi::cuda(kernel).iter().map(|slot| self.cuda_parameter(*slot)).collect();
                let _ = write!(
                    text,
                    "extern \"C\" __global__ void __launch_bounds__({}) {}(\n    {}) {{\n",
                    launch.threads,
                    kernel.name,
                    parameters.join(",\n    ")
                );
                if shared_memory {
                    prologue.push_str(
                        "    extern __shared__ __align__(16) unsigned char iron_shared[];\n",
                    );
                }
                if word(body, "tid") {
                    prologue.push_str("    const int tid = int(threadIdx.x);\n");
                }
            }
            Dialect::Metal => {
                let (buffers, members) = abi::metal(kernel);
                let _ = writeln!(text, "struct {}_args {{", kernel.name);
                for slot in &members {
                    let _ = writeln!(text, "    {};", self.metal_member(*slot));
                }
                text.push_str("};\n");
                let mut parameters: Vec<String> = buffers
                    .iter()
                    .enumerate()
                    .map(|(i, slot)| format!("{} [[buffer({i})]]", self.pointer(*slot)))
                    .collect();
                parameters.push(format!(
                    "constant {}_args& args [[buffer({})]]",
                    kernel.name,
                    buffers.len()
                ));
                if shared_memory {
                    parameters.push("threadgroup uchar* iron_shared [[threadgroup(0)]]".to_owned());
                }
                parameters.push("uint3 program [[threadgroup_position_in_grid]]".to_owned());
                parameters.push("uint thread_index [[thread_index_in_threadgroup]]".to_owned());
                let _ = write!(
                    text,
                    "kernel void {}(\n    {}) {{\n",
                    kernel.name,
                    parameters.join(",\n    ")
                );
                if word(body, "tid") {
                    prologue.push_str("    const int tid = int(thread_index);\n");
                }
                for slot in &members {
                    let name = self.names.slot(*slot);
                    match slot {
                        Slot::Stride { .. } if self.used.contains(&name) => {
                            let _ = writeln!(prologue, "    const iron::i64 {name} = args.{name};");
                        }
                        Slot::Scalar { param } if self.used.contains(&name) => {
                            let ty = self.scalar_type(*param);
                            let _ = writeln!(prologue, "    const {ty} {name} = args.{name};");
                        }
                        _ => {}
                    }
                }
            }
        }
        for (dim, _) in kernel.dims.iter().enumerate() {
            let name = self.names.dim(dim as u32);
            if self.used.contains(name) {
                let argument = self.names.slot(Slot::Dim { dim: dim as u32 });
                let from = if self.dialect == Dialect::Metal { "args." } else { "" };
                let _ = writeln!(prologue, "    const int {name} = int({from}{argument});");
            }
        }
        text.push_str(&prologue);
        text.push_str(&self.tile_declarations());
        text.push_str(body);
        text.push_str("}\n");
        text
    }

    fn tile_declarations(&self) -> String {
        let mut text = String::new();
        let threads = self.threads();
        let shared = self.dialect.shared();
        for ((buffer, _), tile) in &self.tiles {
            let dtype = tile.ty.dtype().unwrap_or(DType::F32);
            let (ty, name, shape) = (type_name(dtype), &tile.name, tile.ty.shape());
            let extents = shape.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let _ = match tile.storage {
                Storage::Shared => {
                    let offset = self.layout.buffers.get(buffer).copied().unwrap_or(0);
                    writeln!(
                        text,
                        "    {shared}{ty}* const {name} = ({shared}{ty}*)(iron_shared + {offset});  // [{extents}]"
                    )
                }
                Storage::Fragment if dtype == DType::F32 => {
                    writeln!(text, "    {} {name};", map::fragment(shape, threads))
                }
                Storage::Fragment => {
                    writeln!(
                        text,
                        "    {ty} {name}[{}::COUNT];  // [{extents}]",
                        map::fragment(shape, threads)
                    )
                }
                _ => {
                    let slots = shape.iter().product::<u32>().div_ceil(threads);
                    writeln!(text, "    {ty} {name}[{slots}];  // [{extents}]")
                }
            };
        }
        text
    }

    fn pointer(&self, slot: Slot) -> String {
        let Slot::Pointer { param } = slot else { unreachable!("only pointers are buffers") };
        let declared = &self.kernel.params[param as usize];
        let ty = match pointee(&declared.kind) {
            Some(Pointee::Plain(dtype)) => type_name(dtype),
            _ => "iron::u8",
        };
        let readonly = if declared.kind.is_mutable() { "" } else { "const " };
        format!("{}{readonly}{ty}* {}", self.dialect.device(), self.names.param(param))
    }

    fn cuda_parameter(&self, slot: Slot) -> String {
        match slot {
            Slot::Pointer { .. } => self.pointer(slot),
            Slot::Scalar { param } => {
                format!("const {} {}", self.scalar_type(param), self.names.slot(slot))
            }
            Slot::Stride { .. } | Slot::Dim { .. } => {
                format!("const iron::i64 {}", self.names.slot(slot))
            }
        }
    }

    fn metal_member(&self, slot: Slot) -> String {
        let ty = match slot {
            Slot::Scalar { param } => self.scalar_type(param),
            _ => "iron::i64",
        };
        format!("{ty} {}", self.names.slot(slot))
    }

    fn scalar_type(&self, param: u32) -> &'static str {
        match self.kernel.params[param as usize].kind {
            ParamKind::Scalar(dtype) => type_name(dtype.compute()),
            _ => "float",
        }
    }

    fn grid_text(&self, expr: &DimExpr) -> String {
        match expr {
            DimExpr::Const(value) => value.to_string(),
            DimExpr::Dim(dim) => self.kernel.dims[*dim as usize].clone(),
            DimExpr::Op(op, a, b) => {
                let (a, b) = (self.grid_text(a), self.grid_text(b));
                match op {
                    DimOp::Add => format!("{a} + {b}"),
                    DimOp::Sub => format!("{a} - {b}"),
                    DimOp::Mul => format!("{a} * {b}"),
                    DimOp::Div => format!("{a} / {b}"),
                    DimOp::DivCeil => format!("ceil({a} / {b})"),
                    DimOp::Min => format!("min({a}, {b})"),
                    DimOp::Max => format!("max({a}, {b})"),
                }
            }
        }
    }
}

/// Whether `name` occurs in `text` as a whole identifier.
fn word(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(part) && !text[at + name.len()..].starts_with(part))
}
