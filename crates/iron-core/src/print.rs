//! IR as text: stable, readable, and read back exactly by [`Kernel::parse`].
//!
//! ```text
//! kernel "scale" {
//!   dims n
//!   param x: tensor<f32>[n]
//!   param out: tensor_mut<f32>[n]
//!   grid [n.div_ceil(64)]
//!   body {
//!     %n.0: i32 = dim n
//!     %1: i32 = program_id 0
//!     %2: f32[64] = load x[range(%1, 64, bound %n.0)]
//!     store out[range(%1, 64, bound %n.0)], %2
//!   }
//! }
//! ```
//!
//! A value is `%12`, or `%acc.12` when a variable was bound to it; where it is defined its type follows, and `in memory`
//! and `buffer 3` once a target has placed it. Values that nothing defines are listed as `unused`. Positions (`@line:column`)
//! are printed on request; the file is not.

use std::fmt::{self, Display, Formatter, Write as _};

use crate::Span;
use crate::ir::{
    Block, Const, DotOperand, Guard, Index, Kernel, Launch, Map, MapOutput, MapSchedule, Op,
    OpKind, ParamKind, Value,
};

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Printer { kernel: self, spans: false }.kernel(f)
    }
}

impl Kernel {
    /// The text with the position of every operation.
    pub fn text_with_spans(&self) -> String {
        struct WithSpans<'a>(&'a Kernel);
        impl Display for WithSpans<'_> {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                Printer { kernel: self.0, spans: true }.kernel(f)
            }
        }
        WithSpans(self).to_string()
    }

    /// The text of one operation, as it stands in the kernel.
    pub fn op_text(&self, op: &Op) -> String {
        struct One<'a>(Printer<'a>, &'a Op);
        impl Display for One<'_> {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                self.0.op(f, self.1, 0)
            }
        }
        One(Printer { kernel: self, spans: false }, op).to_string()
    }
}

/// The text of a float literal, exact also for what is not a number.
pub(crate) fn float_text(number: f32) -> String {
    if number.is_nan() { format!("nan(0x{:08x})", number.to_bits()) } else { format!("{number:?}") }
}

struct Printer<'a> {
    kernel: &'a Kernel,
    spans: bool,
}

impl Printer<'_> {
    fn kernel(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kernel = self.kernel;
        writeln!(f, "kernel {} {{", quoted(&kernel.name))?;
        if !kernel.dims.is_empty() {
            writeln!(f, "  dims {}", kernel.dims.join(", "))?;
        }
        for param in &kernel.params {
            write!(f, "  param {}: ", param.name)?;
            self.param_kind(f, &param.kind)?;
            self.span(f, param.span, Span::NONE)?;
            f.write_char('\n')?;
        }
        let grid: Vec<_> =
            kernel.grid.iter().map(|axis| axis.display(&kernel.dims).to_string()).collect();
        writeln!(f, "  grid [{}]", grid.join(", "))?;
        if kernel.launch != Launch::default() {
            let Launch { threads, shared_bytes, stages } = kernel.launch;
            writeln!(f, "  launch threads {threads}, shared {shared_bytes}, stages {stages}")?;
        }
        let defined = kernel.body.defined_values();
        for number in 0..kernel.values.len() as u32 {
            if !defined.contains(&Value(number)) {
                f.write_str("  unused ")?;
                self.definition(f, Value(number), Span::NONE)?;
                f.write_char('\n')?;
            }
        }
        f.write_str("  body ")?;
        self.block(f, &kernel.body, 1)?;
        f.write_str("\n}\n")
    }

    fn param_kind(&self, f: &mut Formatter<'_>, kind: &ParamKind) -> fmt::Result {
        let suffix = if kind.is_mutable() { "_mut" } else { "" };
        match kind {
            ParamKind::Tensor { dtype, .. } => write!(f, "tensor{suffix}<{dtype}>")?,
            ParamKind::Quantized { format, .. } => write!(f, "quantized<{format}>")?,
            ParamKind::Activations { kind, .. } => write!(f, "activations{suffix}<{kind}>")?,
            ParamKind::Scalar(dtype) => return write!(f, "{dtype}"),
        }
        let dims = &self.kernel.dims;
        let shape: Vec<_> =
            kind.shape().iter().map(|axis| axis.display(dims).to_string()).collect();
        write!(f, "[{}]", shape.join(", "))
    }

    fn span(&self, f: &mut Formatter<'_>, span: Span, known: Span) -> fmt::Result {
        if self.spans && span != known {
            write!(f, " @{}:{}", span.line, span.column)?;
        }
        Ok(())
    }

    fn value(&self, value: Value) -> String {
        self.kernel.value_text(value)
    }

    fn values(&self, values: &[Value]) -> String {
        values.iter().map(|value| self.value(*value)).collect::<Vec<_>>().join(", ")
    }

    /// `%acc.3: f32[4] in memory buffer 2 @7:3`; the position only where it is not `known`.
    fn definition(&self, f: &mut Formatter<'_>, value: Value, known: Span) -> fmt::Result {
        let Some(info) = self.kernel.values.get(value.0 as usize) else {
            return write!(f, "{}: ?", self.value(value));
        };
        write!(f, "{}: {}", self.value(value), info.ty)?;
        if let Some(storage) = info.storage {
            write!(f, " in {storage}")?;
        }
        if let Some(buffer) = info.buffer {
            write!(f, " buffer {buffer}")?;
        }
        self.span(f, info.span, known)
    }

    fn definitions(&self, f: &mut Formatter<'_>, values: &[Value], known: Span) -> fmt::Result {
        for (position, value) in values.iter().enumerate() {
            if position > 0 {
                f.write_str(", ")?;
            }
            self.definition(f, *value, known)?;
        }
        Ok(())
    }

    /// `(arguments) { operations }`, from the end of a line on to before the end of another.
    fn block(&self, f: &mut Formatter<'_>, block: &Block, depth: usize) -> fmt::Result {
        if !block.args.is_empty() {
            f.write_char('(')?;
            self.definitions(f, &block.args, Span::NONE)?;
            f.write_str(") ")?;
        }
        f.write_str("{\n")?;
        for op in &block.ops {
            indent(f, depth + 1)?;
            self.op(f, op, depth + 1)?;
            f.write_char('\n')?;
        }
        if !block.yields.is_empty() {
            indent(f, depth + 1)?;
            writeln!(f, "yield {}", self.values(&block.yields))?;
        }
        indent(f, depth)?;
        f.write_char('}')
    }

    fn op(&self, f: &mut Formatter<'_>, op: &Op, depth: usize) -> fmt::Result {
        if !op.results.is_empty() {
            self.definitions(f, &op.results, op.span)?;
            f.write_str(" = ")?;
        }
        f.write_str(op.kind.name())?;
        self.operands(f, &op.kind, depth)?;
        self.span(f, op.span, Span::NONE)
    }

    fn operands(&self, f: &mut Formatter<'_>, kind: &OpKind, depth: usize) -> fmt::Result {
        match kind {
            OpKind::Barrier => Ok(()),
            OpKind::Const(literal) => match literal {
                Const::F32(number) => write!(f, " f32 {}", float_text(*number)),
                Const::I32(number) => write!(f, " i32 {number}"),
                Const::U32(number) => write!(f, " u32 {number}"),
                Const::Bool(truth) => write!(f, " bool {truth}"),
            },
            OpKind::ProgramId(axis) => write!(f, " {axis}"),
            OpKind::Dim(dim) => match self.kernel.dims.get(*dim as usize) {
                Some(name) => write!(f, " {name}"),
                None => write!(f, " ?{dim}"),
            },
            OpKind::Param(param) => write!(f, " {}", self.param(*param)),
            OpKind::Unary(_, value)
            | OpKind::Cast(value)
            | OpKind::Bitcast(value)
            | OpKind::Reshape(value)
            | OpKind::Transpose(value) => write!(f, " {}", self.value(*value)),
            OpKind::Binary(_, a, b) | OpKind::Compare(_, a, b) => {
                write!(f, " {}", self.values(&[*a, *b]))
            }
            OpKind::Fma(a, b, c) | OpKind::Select(a, b, c) | OpKind::Dot { a, b, acc: c } => {
                write!(f, " {}", self.values(&[*a, *b, *c]))
            }
            OpKind::Broadcast { value, axes } => write!(f, " {} axes {axes:?}", self.value(*value)),
            OpKind::Iota { start, stride } => write!(f, " {} stride {stride}", self.value(*start)),
            OpKind::Reduce { value, axis, .. } => {
                write!(f, " {}", self.value(*value))?;
                axis.map_or(Ok(()), |axis| write!(f, " axis {axis}"))
            }
            OpKind::Load { tensor, index, fill } => {
                write!(f, " {}", self.place(*tensor, index))?;
                fill.map_or(Ok(()), |fill| write!(f, " fill {}", self.value(fill)))
            }
            OpKind::Store { tensor, index, value }
            | OpKind::QuantizeStore { tensor, index, value } => {
                write!(f, " {}, {}", self.place(*tensor, index), self.value(*value))
            }
            OpKind::DecodeRow { tensor, index } => write!(f, " {}", self.place(*tensor, index)),
            OpKind::For { lower, upper, step, carried, body } => {
                write!(f, " from {} to {} step {step} ", self.value(*lower), self.value(*upper))?;
                if !carried.is_empty() {
                    write!(f, "with ({}) ", self.values(carried))?;
                }
                self.block(f, body, depth)
            }
            OpKind::If { condition, then, otherwise } => {
                write!(f, " {} ", self.value(*condition))?;
                self.block(f, then, depth)?;
                f.write_str(" else ")?;
                self.block(f, otherwise, depth)
            }
            OpKind::Map(map) => self.map(f, map, depth),
            OpKind::DotTile { a, b, acc, k } => {
                let (a, b) = (self.dot_operand(a), self.dot_operand(b));
                write!(f, " {a}, {b}, {} k {k}", self.value(*acc))
            }
            OpKind::ElementLoad { tensor, index, guards, fill } => {
                write!(f, " {}[{}]", self.param(*tensor), self.values(index))?;
                self.guards(f, guards)?;
                write!(f, " fill {}", self.value(*fill))
            }
            OpKind::ElementStore { tensor, index, guards, value } => {
                write!(f, " {}[{}]", self.param(*tensor), self.values(index))?;
                self.guards(f, guards)?;
                write!(f, " value {}", self.value(*value))
            }
        }
    }

    fn param(&self, index: u32) -> String {
        match self.kernel.params.get(index as usize) {
            Some(param) => param.name.clone(),
            None => format!("?{index}"),
        }
    }

    /// `x[%0, range(%1, 64, stride 2, bound %3), gather %4]`
    fn place(&self, tensor: u32, index: &[Index]) -> String {
        let entries = index.iter().map(|entry| match entry {
            Index::At(value) => self.value(*value),
            Index::Gather(value) => format!("gather {}", self.value(*value)),
            Index::Range { start, len, stride, bound } => {
                let mut text = format!("range({}, {len}", self.value(*start));
                if *stride != 1 {
                    let _ = write!(text, ", stride {stride}");
                }
                if let Some(bound) = bound {
                    let _ = write!(text, ", bound {}", self.value(*bound));
                }
                text + ")"
            }
        });
        format!("{}[{}]", self.param(tensor), entries.collect::<Vec<_>>().join(", "))
    }

    fn dot_operand(&self, operand: &DotOperand) -> String {
        match operand {
            DotOperand::Tile(value) => self.value(*value),
            DotOperand::Memory(tile) => {
                let transposed = if tile.transposed { ".t" } else { "" };
                self.place(tile.tensor, &tile.index) + transposed
            }
        }
    }

    fn guards(&self, f: &mut Formatter<'_>, guards: &[Guard]) -> fmt::Result {
        if guards.is_empty() {
            return Ok(());
        }
        let tests = guards.iter().map(|guard| {
            let lower = if guard.signed { "0 <= " } else { "" };
            format!("{lower}{} < {}", self.value(guard.index), self.value(guard.bound))
        });
        write!(f, " guard ({})", tests.collect::<Vec<_>>().join(", "))
    }

    fn map(&self, f: &mut Formatter<'_>, map: &Map, depth: usize) -> fmt::Result {
        write!(f, " {:?}", map.space)?;
        if !map.inputs.is_empty() {
            let inputs =
                map.inputs.iter().map(|it| format!("{} axes {:?}", self.value(it.value), it.axes));
            write!(f, " inputs ({})", inputs.collect::<Vec<_>>().join(", "))?;
        }
        if !map.outputs.is_empty() {
            let outputs = map.outputs.iter().map(|output| match output {
                MapOutput::Element => "element".to_owned(),
                MapOutput::Reduce { op, axes } => format!("reduce.{op} {axes:?}"),
            });
            write!(f, " outputs ({})", outputs.collect::<Vec<_>>().join(", "))?;
        }
        if map.schedule != MapSchedule::default() {
            let MapSchedule { lanes, unroll } = map.schedule;
            write!(f, " lanes {lanes} unroll {unroll}")?;
        }
        f.write_char(' ')?;
        self.block(f, &map.body, depth)
    }
}

fn indent(f: &mut Formatter<'_>, depth: usize) -> fmt::Result {
    (0..depth).try_for_each(|_| f.write_str("  "))
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}
