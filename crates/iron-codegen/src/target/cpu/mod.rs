//! The CPU target: a kernel becomes a generic Rust function over the tile library's `Isa`.
//!
//! The text of one instance is
//! `unsafe fn NAME<I: Isa>(launch: &Launch<'_>)`: it reads its arguments, then runs the programs it was given one after
//! the other. `cpu_entries!` compiles it for every instruction set.

pub mod dot;
mod map;
mod scalar;

use std::collections::HashMap;
use std::fmt::Write as _;

use iron_core::ir::{
    ActivationKind, Block, Const, DimExpr, DimOp, Index, Kernel, Op, OpKind, ParamKind, Storage,
    Type, Value,
};
use iron_core::{DType, Diagnostic, Format};

use crate::passes::schedule::cpu::LANES;

type Result<T> = std::result::Result<T, Diagnostic>;

/// Prints `kernel` as a Rust function named `name`.
pub fn emit(kernel: &Kernel, name: &str) -> Result<String> {
    let mut emitter = Emitter::new(kernel);
    emitter.body()?;
    let scratch = emitter.scratch_bytes;
    let mut text = format!(
        "/// `{}`\n#[inline(always)]\npub(crate) unsafe fn {name}<I: Isa>(launch: &Launch<'_>) {{\n",
        kernel.name
    );
    text.push_str("    // SAFETY: the contract of `CpuKernel`: the arguments are those of this kernel's descriptor.\n    unsafe {\n");
    if scratch > 0 {
        let _ = writeln!(text, "        let scratch = tile::scratch({scratch});");
    }
    text.push_str(&emitter.prologue);
    text.push_str(&emitter.text);
    text.push_str("    }\n}\n");
    Ok(text)
}

struct Emitter<'k> {
    kernel: &'k Kernel,
    /// Statements that read the arguments.
    prologue: String,
    text: String,
    indent: usize,
    constants: HashMap<Value, Const>,
    scratch_bytes: usize,
    buffers: HashMap<u32, usize>,
    temporaries: usize,
}

impl<'k> Emitter<'k> {
    fn new(kernel: &'k Kernel) -> Self {
        let mut constants = HashMap::new();
        kernel.body.walk(&mut |op| {
            if let OpKind::Const(constant) = op.kind {
                constants.insert(op.results[0], constant);
            }
        });
        Self {
            kernel,
            prologue: String::new(),
            text: String::new(),
            indent: 2,
            constants,
            scratch_bytes: 0,
            buffers: HashMap::new(),
            temporaries: 0,
        }
    }

    fn line(&mut self, line: &str) {
        for _ in 0..self.indent {
            self.text.push_str("    ");
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn open(&mut self, line: &str) {
        self.line(line);
        self.indent += 1;
    }

    fn close(&mut self, line: &str) {
        self.indent -= 1;
        self.line(line);
    }

    fn fresh(&mut self, stem: &str) -> String {
        self.temporaries += 1;
        format!("{stem}{}", self.temporaries)
    }

    /// The Rust name of a value.
    fn name(&self, value: Value) -> String {
        match &self.kernel.info(value).name {
            Some(name) => format!("{}_{}", name.to_lowercase(), value.0),
            None => format!("v{}", value.0),
        }
    }

    /// The Rust expression of a scalar: a literal or a variable.
    fn scalar(&self, value: Value) -> String {
        self.constants.get(&value).map_or_else(|| self.name(value), |constant| literal(*constant))
    }

    fn body(&mut self) -> Result<()> {
        self.arguments();
        self.open("for program in launch.programs.clone() {");
        let kernel = self.kernel;
        self.block(&kernel.body)?;
        self.close("}");
        Ok(())
    }

    /// Reads the argument words; the order is the contract with `iron_runtime`'s command encoder.
    fn arguments(&mut self) {
        let mut lines = Vec::new();
        // One line an argument word, so the next word is the number of lines.
        let next = |lines: &mut Vec<String>, name: String, cast: &str| {
            lines.push(format!("let {name} = launch.args[{}] as {cast};", lines.len()));
        };
        for param in &self.kernel.params {
            let name = param_name(&param.name);
            match &param.kind {
                ParamKind::Tensor { dtype, shape, .. } => {
                    next(&mut lines, name.clone(), &format!("*mut {}", stored(*dtype)));
                    for axis in 0..shape.len().saturating_sub(1) {
                        next(&mut lines, format!("{name}_stride{axis}"), "isize");
                    }
                }
                ParamKind::Quantized { format, .. } => {
                    next(&mut lines, name.clone(), &format!("*const {}", format_element(*format)));
                    next(&mut lines, format!("{name}_stride0"), "isize");
                }
                ParamKind::Activations { kind: ActivationKind::Plain(dtype), .. } => {
                    next(&mut lines, name.clone(), &format!("*mut {}", stored(*dtype)));
                    next(&mut lines, format!("{name}_stride0"), "isize");
                }
                ParamKind::Activations { kind: ActivationKind::Int8, .. } => {
                    next(&mut lines, name.clone(), "*mut i8");
                    next(&mut lines, format!("{name}_scale"), "*mut f32");
                    next(&mut lines, format!("{name}_sum"), "*mut f32");
                    next(&mut lines, format!("{name}_stride0"), "isize");
                    next(&mut lines, format!("{name}_block_stride"), "isize");
                }
                ParamKind::Scalar(dtype) => {
                    let word = lines.len();
                    lines.push(match dtype {
                        DType::F32 => {
                            format!("let {name} = f32::from_bits(launch.args[{word}] as u32);")
                        }
                        DType::U32 => format!("let {name} = launch.args[{word}] as u32;"),
                        _ => format!("let {name} = launch.args[{word}] as i32;"),
                    });
                }
            }
        }
        for dim in &self.kernel.dims {
            lines.push(format!("let {} = launch.args[{}] as i32;", dim_name(dim), lines.len()));
        }
        for line in lines {
            let _ = writeln!(self.prologue, "        {line}");
        }
    }

    /// A pointer to the memory of a tile.
    fn memory(&mut self, value: Value) -> String {
        let info = self.kernel.info(value);
        let buffer = info.buffer.unwrap_or(u32::MAX - value.0);
        let offset = match self.buffers.get(&buffer) {
            Some(offset) => *offset,
            None => {
                let offset = self.scratch_bytes;
                self.scratch_bytes += tile_bytes(&info.ty);
                self.buffers.insert(buffer, offset);
                offset
            }
        };
        format!("scratch.add({offset}).cast::<{}>()", memory_element(&info.ty))
    }

    fn storage(&self, value: Value) -> Option<Storage> {
        self.kernel.info(value).storage
    }

    fn block(&mut self, block: &Block) -> Result<()> {
        for op in &block.ops {
            self.op(op)?;
        }
        Ok(())
    }

    fn op(&mut self, op: &Op) -> Result<()> {
        match &op.kind {
            OpKind::Const(_) => {}
            OpKind::ProgramId(axis) => {
                let expression = match axis {
                    0 => "(program % launch.grid[0]) as i32".to_owned(),
                    1 => "(program / launch.grid[0] % launch.grid[1]) as i32".to_owned(),
                    _ => "(program / (launch.grid[0] * launch.grid[1])) as i32".to_owned(),
                };
                self.bind(op, &expression);
            }
            OpKind::Dim(index) => {
                let expression = dim_name(&self.kernel.dims[*index as usize]);
                self.bind(op, &expression);
            }
            OpKind::Param(index) => {
                let expression = param_name(&self.kernel.params[*index as usize].name);
                self.bind(op, &expression);
            }
            OpKind::Load { tensor, index, .. } => {
                let address = self.scalar_address(*tensor, index);
                let expression = load_scalar(self.param_dtype(*tensor), &address);
                self.bind(op, &expression);
            }
            OpKind::Store { tensor, index, value } => {
                let address = self.scalar_address(*tensor, index);
                let value = self.scalar(*value);
                let line = store_scalar(self.param_dtype(*tensor), &address, &value);
                self.line(&line);
            }
            OpKind::For { .. } => self.for_loop(op)?,
            OpKind::If { .. } => self.branch(op)?,
            OpKind::Map(map) => self.map(op, map)?,
            OpKind::DotTile { .. } => self.dot(op)?,
            OpKind::QuantizeStore { tensor, index, value } => {
                self.quantize_store(*tensor, index, *value);
            }
            OpKind::DecodeRow { tensor, index } => self.decode_row(op.results[0], *tensor, index),
            kind => {
                let operands: Vec<String> =
                    kind.operands().into_iter().map(|value| self.scalar(value)).collect();
                let from = kind.operands().first().and_then(|value| self.kernel.ty(*value).dtype());
                let to = self.kernel.ty(op.results[0]).dtype();
                let expression =
                    scalar::expression(kind, &operands, from, to).ok_or_else(|| {
                        Diagnostic::new(op.span, format!("no scalar form of {kind:?} on the CPU"))
                    })?;
                self.bind(op, &expression);
            }
        }
        Ok(())
    }

    fn bind(&mut self, op: &Op, expression: &str) {
        let line = format!("let {} = {expression};", self.name(op.results[0]));
        self.line(&line);
    }

    /// The element type of a tensor in memory.
    fn param_dtype(&self, tensor: u32) -> DType {
        match &self.kernel.params[tensor as usize].kind {
            ParamKind::Tensor { dtype, .. }
            | ParamKind::Activations { kind: ActivationKind::Plain(dtype), .. }
            | ParamKind::Scalar(dtype) => *dtype,
            ParamKind::Quantized { format, .. } => match format {
                Format::F16 => DType::F16,
                Format::BF16 => DType::BF16,
                _ => DType::F32,
            },
            ParamKind::Activations { .. } => DType::I8,
        }
    }

    /// Elements from one position to the next along `axis`, as a Rust expression.
    fn stride(&self, tensor: u32, axis: usize) -> Option<String> {
        let param = &self.kernel.params[tensor as usize];
        (axis + 1 < param.kind.shape().len())
            .then(|| format!("{}_stride{axis}", param_name(&param.name)))
    }

    fn scalar_address(&self, tensor: u32, index: &[Index]) -> String {
        let mut offset = Vec::new();
        for (axis, entry) in index.iter().enumerate() {
            if let Index::At(value) = entry {
                let position = format!("{} as isize", self.scalar(*value));
                offset.push(match self.stride(tensor, axis) {
                    Some(stride) => format!("({position}) * {stride}"),
                    None => format!("({position})"),
                });
            }
        }
        let name = param_name(&self.kernel.params[tensor as usize].name);
        format!("{name}.wrapping_offset({})", offset.join(" + "))
    }

    /// An extent of a parameter as an i32 expression.
    fn extent(&self, expr: &DimExpr) -> String {
        match expr {
            DimExpr::Const(value) => format!("{value}_i32"),
            DimExpr::Dim(index) => dim_name(&self.kernel.dims[*index as usize]),
            DimExpr::Op(op, a, b) => {
                let (a, b) = (self.extent(a), self.extent(b));
                match op {
                    DimOp::Add => format!("({a} + {b})"),
                    DimOp::Sub => format!("({a} - {b})"),
                    DimOp::Mul => format!("({a} * {b})"),
                    DimOp::Div => format!("tile::div_i({a}, {b})"),
                    DimOp::DivCeil => format!("tile::div_i({a} + {b} - 1, {b})"),
                    DimOp::Min => format!("({a}).min({b})"),
                    DimOp::Max => format!("({a}).max({b})"),
                }
            }
        }
    }

    /// The Rust type of a value kept in variables.
    fn variable_type(&self, value: Value) -> String {
        let ty = self.kernel.ty(value);
        match ty {
            Type::Scalar(dtype) => scalar_type(*dtype).to_owned(),
            Type::Tile { .. } => vectors_type(ty),
        }
    }

    fn for_loop(&mut self, op: &Op) -> Result<()> {
        let OpKind::For { lower, upper, step, carried, body } = &op.kind else { unreachable!() };
        let counter = self.name(body.args[0]);
        for (slot, start) in carried.iter().enumerate() {
            let arg = body.args[slot + 1];
            if self.storage(*start) == Some(Storage::Memory) {
                self.copy_memory(*start, arg);
            } else {
                let line = format!(
                    "let mut {}: {} = {};",
                    self.name(arg),
                    self.variable_type(arg),
                    self.scalar(*start)
                );
                self.line(&line);
            }
        }
        let line = format!("let mut {counter} = {};", self.scalar(*lower));
        self.line(&line);
        let line = format!("while {counter} < {} {{", self.scalar(*upper));
        self.open(&line);
        self.block(body)?;
        let mut moved = Vec::new();
        for (slot, value) in body.yields.iter().enumerate() {
            let arg = body.args[slot + 1];
            if self.storage(arg) == Some(Storage::Memory) {
                self.copy_memory(*value, arg);
            } else if *value != arg {
                let next = self.fresh("next");
                let line = format!("let {next} = {};", self.scalar(*value));
                self.line(&line);
                moved.push((self.name(arg), next));
            }
        }
        for (arg, next) in moved {
            let line = format!("{arg} = {next};");
            self.line(&line);
        }
        let line = format!("{counter} += {step};");
        self.line(&line);
        self.close("}");
        for (slot, result) in op.results.iter().enumerate() {
            if self.storage(*result) != Some(Storage::Memory) {
                let line =
                    format!("let {} = {};", self.name(*result), self.name(body.args[slot + 1]));
                self.line(&line);
            }
        }
        Ok(())
    }

    fn branch(&mut self, op: &Op) -> Result<()> {
        let OpKind::If { condition, then, otherwise } = &op.kind else { unreachable!() };
        let in_variables: Vec<usize> = (0..op.results.len())
            .filter(|slot| self.storage(op.results[*slot]) != Some(Storage::Memory))
            .collect();
        for slot in &in_variables {
            let result = op.results[*slot];
            let line = format!("let {}: {};", self.name(result), self.variable_type(result));
            self.line(&line);
        }
        let line = format!("if {} {{", self.scalar(*condition));
        self.open(&line);
        for (index, block) in [then, otherwise].into_iter().enumerate() {
            if index == 1 {
                if block.ops.is_empty() && op.results.is_empty() {
                    break;
                }
                self.indent -= 1;
                self.open("} else {");
            }
            self.block(block)?;
            for (slot, result) in op.results.iter().enumerate() {
                let value = block.yields[slot];
                if in_variables.contains(&slot) {
                    let line = format!("{} = {};", self.name(*result), self.scalar(value));
                    self.line(&line);
                } else {
                    self.copy_memory(value, *result);
                }
            }
        }
        self.close("}");
        Ok(())
    }

    /// Copies a tile in memory, unless both are the same memory.
    fn copy_memory(&mut self, from: Value, to: Value) {
        let (source, target) = (self.memory(from), self.memory(to));
        if source != target {
            let count = tile_bytes(self.kernel.ty(from)) / 4;
            let line = format!("std::ptr::copy_nonoverlapping({source}, {target}, {count});");
            self.line(&line);
        }
    }

    /// `value` as vectors: its variable, or a load from memory.
    fn quantize_store(&mut self, tensor: u32, index: &[Index], value: Value) {
        let name = param_name(&self.kernel.params[tensor as usize].name);
        let (Some(Index::Range { start, bound, .. }), shape) =
            (index.last(), self.kernel.ty(value).shape().to_vec())
        else {
            return;
        };
        let start = self.scalar(*start);
        let len = *shape.last().expect("a tile has axes");
        let vectors = len / LANES;
        let valid = bound.map_or_else(
            || format!("{len}"),
            |bound| format!("({} - {start}).min({len})", self.scalar(bound)),
        );
        let (rows, row) = match &index[0] {
            Index::At(row) => (1, self.scalar(*row)),
            Index::Range { start, .. } => (shape[0], self.scalar(*start)),
            Index::Gather(_) => (1, "0".to_owned()),
        };
        let row_bound = match &index[0] {
            Index::Range { bound: Some(bound), .. } => Some(self.scalar(*bound)),
            _ => None,
        };
        let in_memory = self.storage(value) == Some(Storage::Memory);
        let memory = if in_memory { self.memory(value) } else { String::new() };
        self.open(&format!("for row in 0..{rows}_i32 {{"));
        if let Some(bound) = row_bound {
            self.line(&format!("if {row} + row >= {bound} {{ break; }}"));
        }
        if in_memory {
            let pitch = pitch(&shape);
            self.line(&format!("let values: [I::F; {vectors}] = tile::load_vectors::<I, {vectors}>({memory}.add(row as usize * {pitch}));"));
        } else {
            let line = format!("let values = {};", self.name(value));
            self.line(&line);
        }
        self.line(&format!("let row = ({row} + row) as isize;"));
        self.line(&format!("let at = row * {name}_stride0 + ({start}) as isize;"));
        self.line(&format!("let block = row * {name}_block_stride + ({start}) as isize / 32;"));
        self.line(&format!(
            "tile::quantize_row_tile::<I, {vectors}>(&values, {name}.wrapping_offset(at), {name}_scale.wrapping_offset(block), {name}_sum.wrapping_offset(block), {valid});"
        ));
        self.close("}");
    }

    fn decode_row(&mut self, result: Value, tensor: u32, index: &[Index]) {
        let param = &self.kernel.params[tensor as usize];
        let ParamKind::Quantized { format, shape } = &param.kind else { return };
        let (Index::At(row), Index::Range { start, len, bound, .. }) = (&index[0], &index[1])
        else {
            return;
        };
        let (row, start) = (self.scalar(*row), self.scalar(*start));
        let vectors = len / LANES;
        let valid = bound
            .map_or_else(|| format!("{len}"), |bound| format!("{} - {start}", self.scalar(bound)));
        let k = self.extent(&shape[1]);
        let name = param_name(&param.name);
        let expression = format!(
            "tile::load_packed_row::<I, tile::{}, {vectors}>({name}, ({row}) as usize, ({k}) as usize, ({start}) as usize, {valid})",
            format_marker(*format)
        );
        if self.storage(result) == Some(Storage::Memory) {
            let memory = self.memory(result);
            self.line(&format!("tile::store_vectors::<I, {vectors}>({memory}, &{expression});"));
        } else {
            let line = format!("let {} = {expression};", self.name(result));
            self.line(&line);
        }
    }
}

fn param_name(name: &str) -> String {
    format!("p_{}", name.to_lowercase())
}

fn dim_name(name: &str) -> String {
    format!("d_{}", name.to_lowercase())
}

/// The Rust type of an element in memory.
fn stored(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F16 | DType::BF16 => "u16",
        DType::I32 | DType::U32 | DType::Bool => "i32",
        DType::I8 => "i8",
        DType::U8 => "u8",
    }
}

fn scalar_type(dtype: DType) -> &'static str {
    match dtype.compute() {
        DType::F32 => "f32",
        DType::U32 => "u32",
        DType::Bool => "bool",
        _ => "i32",
    }
}

fn format_element(format: Format) -> &'static str {
    match format {
        Format::F32 => "f32",
        Format::F16 | Format::BF16 => "u16",
        _ => "u8",
    }
}

/// The marker type of a format in the tile library.
fn format_marker(format: Format) -> String {
    format!("{format:?}")
}

fn memory_element(ty: &Type) -> &'static str {
    match ty.dtype() {
        Some(DType::F32) => "f32",
        _ => "i32",
    }
}

/// Elements from one row of a tile in memory to the next.
fn pitch(shape: &[u32]) -> u32 {
    shape.last().copied().unwrap_or(1).next_multiple_of(LANES)
}

fn tile_bytes(ty: &Type) -> usize {
    let shape = ty.shape();
    let rows: u32 = shape[..shape.len() - 1].iter().product();
    (rows * pitch(shape)) as usize * 4
}

fn vectors_type(ty: &Type) -> String {
    let lane = match ty.dtype() {
        Some(DType::F32) => "I::F",
        Some(DType::Bool) => "I::M",
        _ => "I::I",
    };
    match ty.shape() {
        [n] => format!("[{lane}; {}]", n / LANES),
        [m, n] => format!("[[{lane}; {}]; {m}]", n / LANES),
        _ => unreachable!("tiles of more axes live in memory"),
    }
}

fn literal(constant: Const) -> String {
    match constant {
        Const::F32(value) if value == f32::INFINITY => "f32::INFINITY".to_owned(),
        Const::F32(value) if value == f32::NEG_INFINITY => "f32::NEG_INFINITY".to_owned(),
        Const::F32(value) if value.is_nan() => "f32::NAN".to_owned(),
        Const::F32(value) => format!("{value:?}_f32"),
        Const::I32(value) if value < 0 => format!("({value}_i32)"),
        Const::I32(value) => format!("{value}_i32"),
        Const::U32(value) => format!("{value}_u32"),
        Const::Bool(value) => format!("{value}"),
    }
}

fn load_scalar(dtype: DType, address: &str) -> String {
    match dtype {
        DType::F16 => format!("tile::f16_value(*{address})"),
        DType::BF16 => format!("tile::bf16_value(*{address})"),
        DType::I8 | DType::U8 => format!("i32::from(*{address})"),
        DType::U32 => format!("(*{address}) as u32"),
        DType::Bool => format!("(*{address}) != 0"),
        DType::F32 | DType::I32 => format!("*{address}"),
    }
}

fn store_scalar(dtype: DType, address: &str, value: &str) -> String {
    match dtype {
        DType::F16 => format!("*{address} = tile::f16_bits({value});"),
        DType::BF16 => format!("*{address} = tile::bf16_bits({value});"),
        DType::I8 => format!("*{address} = ({value}) as i8;"),
        DType::U8 => format!("*{address} = ({value}) as u8;"),
        DType::U32 | DType::Bool => format!("*{address} = ({value}) as i32;"),
        DType::F32 | DType::I32 => format!("*{address} = {value};"),
    }
}
