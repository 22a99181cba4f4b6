//! Reading back what [`crate::print`] writes.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::ir::{
    ActivationKind, BinaryOp, Block, CompareOp, Const, DimExpr, DimOp, DotOperand, Element, Guard,
    Index, Kernel, Launch, Map, MapInput, MapOutput, MapSchedule, Op, OpKind, Param, ParamKind,
    ReduceOp, Storage, TileRef, Type, UnaryOp, Value, ValueInfo,
};
use crate::lex::{Cursor, ParseError, Placed, Token};
use crate::{DType, Format, Span};

type Result<T> = std::result::Result<T, ParseError>;

impl Kernel {
    /// Reads a kernel from its text. The result has the form of a kernel; [`crate::verify`] says whether it is sound.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser::new(text)?;
        let kernel = parser.kernel()?;
        parser.cursor.end()?;
        Ok(kernel)
    }
}

impl FromStr for Kernel {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl DimExpr {
    /// Reads an expression over these dimensions.
    pub fn parse(text: &str, dims: &[String]) -> Result<Self> {
        let mut parser = Parser::new(text)?;
        parser.dims = dims.to_vec();
        let expr = parser.dim_expr()?;
        parser.cursor.end()?;
        Ok(expr)
    }
}

struct Parser {
    cursor: Cursor,
    dims: Vec<String>,
    params: Vec<Param>,
    values: BTreeMap<u32, ValueInfo>,
    /// Values that were used, to be checked against the definitions at the end.
    uses: Vec<(Placed, u32, Option<String>)>,
}

impl Parser {
    fn new(text: &str) -> Result<Self> {
        Ok(Self {
            cursor: Cursor::new(text)?,
            dims: Vec::new(),
            params: Vec::new(),
            values: BTreeMap::new(),
            uses: Vec::new(),
        })
    }

    // ---- the signature ----------------------------------------------------------------------------------------

    fn kernel(&mut self) -> Result<Kernel> {
        self.cursor.keyword("kernel")?;
        let Token::Text(name) = self.cursor.peek().clone() else {
            return self.cursor.expected("the name of the kernel in quotes");
        };
        self.cursor.advance();
        self.cursor.mark("{")?;
        if self.cursor.eat_word("dims") {
            self.dims = self.list(|this| this.cursor.word("the name of a dimension"))?;
        }
        while self.cursor.eat_word("param") {
            let param = self.param()?;
            self.params.push(param);
        }
        self.cursor.keyword("grid")?;
        let grid = self.bracketed("[", "]", Self::dim_expr)?;
        let launch =
            if self.cursor.eat_word("launch") { self.launch()? } else { Launch::default() };
        while self.cursor.eat_word("unused") {
            self.definition(Span::NONE)?;
        }
        self.cursor.keyword("body")?;
        let body = self.block()?;
        self.cursor.mark("}")?;
        let values = self.value_table()?;
        let (dims, params) = (std::mem::take(&mut self.dims), std::mem::take(&mut self.params));
        Ok(Kernel { name, dims, params, grid, launch, values, body })
    }

    fn param(&mut self) -> Result<Param> {
        let name = self.cursor.word("the name of a parameter")?;
        self.cursor.mark(":")?;
        let start = self.cursor.here().clone();
        let kind = match self.cursor.word("a parameter type")?.as_str() {
            tensor @ ("tensor" | "tensor_mut") => {
                let dtype = self.angled("an element type", DType::parse)?;
                let mutable = tensor == "tensor_mut";
                ParamKind::Tensor { dtype, shape: self.shape()?, mutable }
            }
            "quantized" => {
                let format = self.angled("a weight format", Format::parse)?;
                ParamKind::Quantized { format, shape: self.shape()? }
            }
            activations @ ("activations" | "activations_mut") => {
                let kind = self.angled("an activation kind", ActivationKind::parse)?;
                let mutable = activations == "activations_mut";
                ParamKind::Activations { kind, shape: self.shape()?, mutable }
            }
            scalar => ParamKind::Scalar(DType::parse(scalar).ok_or_else(|| {
                start.expected(
                    "tensor, tensor_mut, quantized, activations, activations_mut or a scalar type",
                )
            })?),
        };
        let span = self.span(Span::NONE)?;
        Ok(Param { name, kind, span })
    }

    /// `<name>`
    fn angled<T>(&mut self, what: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        self.cursor.mark("<")?;
        let found = self.named(what, parse)?;
        self.cursor.mark(">")?;
        Ok(found)
    }

    fn named<T>(&mut self, what: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        let start = self.cursor.here().clone();
        let word = self.cursor.word(what)?;
        parse(&word).ok_or_else(|| start.expected(what))
    }

    fn shape(&mut self) -> Result<Vec<DimExpr>> {
        self.bracketed("[", "]", Self::dim_expr)
    }

    fn launch(&mut self) -> Result<Launch> {
        self.cursor.keyword("threads")?;
        let threads = self.cursor.number("a number of threads")?;
        self.cursor.mark(",")?;
        self.cursor.keyword("shared")?;
        let shared_bytes = self.cursor.number("a number of bytes")?;
        self.cursor.mark(",")?;
        self.cursor.keyword("stages")?;
        let stages = self.cursor.number("a number of stages")?;
        Ok(Launch { threads, shared_bytes, stages })
    }

    // ---- dimension expressions --------------------------------------------------------------------------------

    fn dim_expr(&mut self) -> Result<DimExpr> {
        let mut left = self.dim_product()?;
        loop {
            let op = if self.cursor.eat("+") {
                DimOp::Add
            } else if self.cursor.eat("-") {
                DimOp::Sub
            } else {
                return Ok(left);
            };
            left = DimExpr::op(op, left, self.dim_product()?);
        }
    }

    fn dim_product(&mut self) -> Result<DimExpr> {
        let mut left = self.dim_atom()?;
        loop {
            let op = if self.cursor.eat("*") {
                DimOp::Mul
            } else if self.cursor.eat("/") {
                DimOp::Div
            } else {
                return Ok(left);
            };
            left = DimExpr::op(op, left, self.dim_atom()?);
        }
    }

    fn dim_atom(&mut self) -> Result<DimExpr> {
        let what = "a dimension or an integer";
        let mut atom = match self.cursor.peek().clone() {
            Token::Mark("(") => {
                self.cursor.advance();
                let inner = self.dim_expr()?;
                self.cursor.mark(")")?;
                inner
            }
            Token::Number(_) | Token::Mark("-") => DimExpr::Const(self.cursor.number(what)?),
            Token::Word(name) => {
                let Some(dim) = self.dims.iter().position(|dim| *dim == name) else {
                    return self
                        .cursor
                        .expected(&format!("one of the dimensions {}", self.dims.join(", ")));
                };
                self.cursor.advance();
                DimExpr::Dim(dim as u32)
            }
            _ => return self.cursor.expected(what),
        };
        while self.cursor.eat(".") {
            let op = match self.cursor.peek() {
                Token::Word(word) if word == "div_ceil" => DimOp::DivCeil,
                Token::Word(word) if word == "min" => DimOp::Min,
                Token::Word(word) if word == "max" => DimOp::Max,
                _ => return self.cursor.expected("`div_ceil`, `min` or `max`"),
            };
            self.cursor.advance();
            self.cursor.mark("(")?;
            let operand = self.dim_expr()?;
            self.cursor.mark(")")?;
            atom = DimExpr::op(op, atom, operand);
        }
        Ok(atom)
    }

    // ---- values -----------------------------------------------------------------------------------------------

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.cursor.eat(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn bracketed<T>(
        &mut self,
        open: &str,
        close: &str,
        item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.cursor.mark(open)?;
        if self.cursor.eat(close) {
            return Ok(Vec::new());
        }
        let items = self.list(item)?;
        self.cursor.mark(close)?;
        Ok(items)
    }

    fn numbers(&mut self) -> Result<Vec<u32>> {
        self.bracketed("[", "]", |this| this.cursor.number("a number"))
    }

    fn span(&mut self, known: Span) -> Result<Span> {
        if !self.cursor.eat("@") {
            return Ok(known);
        }
        let line = self.cursor.number("a line")?;
        self.cursor.mark(":")?;
        let column = self.cursor.number("a column")?;
        Ok(Span::new("", line, column))
    }

    /// A use of a value.
    fn value(&mut self) -> Result<Value> {
        let Token::Value(number, name) = self.cursor.peek().clone() else {
            return self.cursor.expected("a value");
        };
        let place = self.cursor.advance();
        self.uses.push((place, number, name));
        Ok(Value(number))
    }

    fn values(&mut self) -> Result<Vec<Value>> {
        self.list(Self::value)
    }

    fn definition(&mut self, known: Span) -> Result<Value> {
        let Token::Value(number, name) = self.cursor.peek().clone() else {
            return self.cursor.expected("a value");
        };
        let place = self.cursor.advance();
        self.cursor.mark(":")?;
        let ty = self.ty()?;
        let storage = if self.cursor.eat_word("in") {
            Some(self.named("a storage", Storage::parse)?)
        } else {
            None
        };
        let buffer = if self.cursor.eat_word("buffer") {
            Some(self.cursor.number("the number of a buffer")?)
        } else {
            None
        };
        let span = self.span(known)?;
        let info = ValueInfo { ty, span, name, storage, buffer };
        // A second definition is for the verifier to refuse, as long as it says the same of the value.
        match self.values.get(&number) {
            Some(first) if (ValueInfo { span: first.span, ..info.clone() }) != *first => {
                let message =
                    format!("expected the same facts at each definition of {}", place.token);
                return Err(place.fault(message));
            }
            Some(_) => {}
            None => {
                self.values.insert(number, info);
            }
        }
        Ok(Value(number))
    }

    fn ty(&mut self) -> Result<Type> {
        let what = "a type";
        let start = self.cursor.here().clone();
        let element = match self.cursor.word(what)?.as_str() {
            "packed" => Element::Packed(self.angled("a weight format", Format::parse)?),
            "int8" => Element::Int8,
            dtype => {
                let dtype = DType::parse(dtype).ok_or_else(|| start.expected(what))?;
                if *self.cursor.peek() != Token::Mark("[") {
                    return Ok(Type::Scalar(dtype));
                }
                Element::Plain(dtype)
            }
        };
        Ok(Type::Tile { element, shape: self.numbers()? })
    }

    fn value_table(&mut self) -> Result<Vec<ValueInfo>> {
        for (place, number, name) in &self.uses {
            match self.values.get(number) {
                None => return Err(place.fault(format!("{} is defined nowhere", place.token))),
                Some(info) if info.name != *name => {
                    let known =
                        info.name.as_ref().map_or_else(String::new, |name| format!("{name}."));
                    return Err(
                        place.fault(format!("expected `%{known}{number}`, found {}", place.token))
                    );
                }
                Some(_) => {}
            }
        }
        let missing = self.values.keys().zip(0..).find(|(number, position)| **number != *position);
        if let Some((_, position)) = missing {
            return Err(self
                .cursor
                .here()
                .fault(format!("expected %{position} to be defined or listed as `unused`")));
        }
        Ok(std::mem::take(&mut self.values).into_values().collect())
    }

    // ---- operations -------------------------------------------------------------------------------------------

    fn block(&mut self) -> Result<Block> {
        let mut block = Block::default();
        if *self.cursor.peek() == Token::Mark("(") {
            block.args = self.bracketed("(", ")", |this| this.definition(Span::NONE))?;
        }
        self.cursor.mark("{")?;
        loop {
            if self.cursor.eat_word("yield") {
                block.yields = self.values()?;
                self.cursor.mark("}")?;
                return Ok(block);
            }
            if self.cursor.eat("}") {
                return Ok(block);
            }
            block.ops.push(self.op()?);
        }
    }

    fn op(&mut self) -> Result<Op> {
        let mut results = Vec::new();
        // Results without a position of their own stand where the operation does, which is known at its end.
        let unknown = Span::new("", u32::MAX, u32::MAX);
        if matches!(self.cursor.peek(), Token::Value(..)) {
            results = self.list(|this| this.definition(unknown))?;
            self.cursor.mark("=")?;
        }
        let kind = self.op_kind()?;
        let span = self.span(Span::NONE)?;
        for result in &results {
            if let Some(info) = self.values.get_mut(&result.0)
                && info.span == unknown
            {
                info.span = span;
            }
        }
        Ok(Op { kind, results, span })
    }

    fn op_kind(&mut self) -> Result<OpKind> {
        let start = self.cursor.here().clone();
        let name = self.cursor.word("an operation")?;
        if let Some(op) = UnaryOp::parse(&name) {
            return Ok(OpKind::Unary(op, self.value()?));
        }
        if let Some(op) = BinaryOp::parse(&name) {
            let (a, b) = self.pair()?;
            return Ok(OpKind::Binary(op, a, b));
        }
        Ok(match name.as_str() {
            "const" => OpKind::Const(self.literal()?),
            "program_id" => OpKind::ProgramId(self.cursor.number("a grid axis")?),
            "dim" => {
                let dims = &self.dims;
                let position = match self.cursor.peek() {
                    Token::Word(word) => dims.iter().position(|dim| dim == word),
                    _ => None,
                };
                let Some(position) = position else {
                    return self.cursor.expected("the name of a dimension");
                };
                self.cursor.advance();
                OpKind::Dim(position as u32)
            }
            "param" => OpKind::Param(self.param_index()?),
            "fma" => {
                let (a, b, c) = self.triple()?;
                OpKind::Fma(a, b, c)
            }
            "cmp" => {
                self.cursor.mark(".")?;
                let op = self.named("eq, ne, lt, le, gt or ge", CompareOp::parse)?;
                let (a, b) = self.pair()?;
                OpKind::Compare(op, a, b)
            }
            "select" => {
                let (condition, a, b) = self.triple()?;
                OpKind::Select(condition, a, b)
            }
            "cast" => OpKind::Cast(self.value()?),
            "bitcast" => OpKind::Bitcast(self.value()?),
            "broadcast" => {
                let value = self.value()?;
                self.cursor.keyword("axes")?;
                OpKind::Broadcast { value, axes: self.numbers()? }
            }
            "reshape" => OpKind::Reshape(self.value()?),
            "transpose" => OpKind::Transpose(self.value()?),
            "iota" => {
                let start = self.value()?;
                self.cursor.keyword("stride")?;
                OpKind::Iota { start, stride: self.cursor.number("a stride")? }
            }
            "reduce" => {
                let op = self.reduce_op()?;
                let value = self.value()?;
                let axis = if self.cursor.eat_word("axis") {
                    Some(self.cursor.number("an axis")?)
                } else {
                    None
                };
                OpKind::Reduce { op, value, axis }
            }
            "dot" => {
                let (a, b, acc) = self.triple()?;
                OpKind::Dot { a, b, acc }
            }
            "load" => {
                let (tensor, index) = self.place()?;
                let fill = if self.cursor.eat_word("fill") { Some(self.value()?) } else { None };
                OpKind::Load { tensor, index, fill }
            }
            "store" => {
                let (tensor, index) = self.place()?;
                self.cursor.mark(",")?;
                OpKind::Store { tensor, index, value: self.value()? }
            }
            "quantize_store" => {
                let (tensor, index) = self.place()?;
                self.cursor.mark(",")?;
                OpKind::QuantizeStore { tensor, index, value: self.value()? }
            }
            "decode_row" => {
                let (tensor, index) = self.place()?;
                OpKind::DecodeRow { tensor, index }
            }
            "for" => self.for_loop()?,
            "if" => {
                let condition = self.value()?;
                let then = self.block()?;
                self.cursor.keyword("else")?;
                OpKind::If { condition, then, otherwise: self.block()? }
            }
            "map" => OpKind::Map(self.map()?),
            "dot_tile" => {
                let a = self.dot_operand()?;
                self.cursor.mark(",")?;
                let b = self.dot_operand()?;
                self.cursor.mark(",")?;
                let acc = self.value()?;
                self.cursor.keyword("k")?;
                OpKind::DotTile { a, b, acc, k: self.cursor.number("an extent along k")? }
            }
            "element_load" => {
                let (tensor, index, guards) = self.element()?;
                self.cursor.keyword("fill")?;
                OpKind::ElementLoad { tensor, index, guards, fill: self.value()? }
            }
            "barrier" => OpKind::Barrier,
            "element_store" => {
                let (tensor, index, guards) = self.element()?;
                self.cursor.keyword("value")?;
                OpKind::ElementStore { tensor, index, guards, value: self.value()? }
            }
            _ => return Err(start.expected("an operation")),
        })
    }

    fn pair(&mut self) -> Result<(Value, Value)> {
        let a = self.value()?;
        self.cursor.mark(",")?;
        Ok((a, self.value()?))
    }

    fn triple(&mut self) -> Result<(Value, Value, Value)> {
        let (a, b) = self.pair()?;
        self.cursor.mark(",")?;
        Ok((a, b, self.value()?))
    }

    fn literal(&mut self) -> Result<Const> {
        match self.named("f32, i32, u32 or bool", DType::parse)? {
            DType::F32 => Ok(Const::F32(self.float()?)),
            DType::I32 => Ok(Const::I32(self.cursor.number("an i32")?)),
            DType::U32 => Ok(Const::U32(self.cursor.number("a u32")?)),
            DType::Bool => {
                Ok(Const::Bool(self.named("`true` or `false`", |word| word.parse().ok())?))
            }
            _ => self.cursor.expected("a literal of type f32, i32, u32 or bool before this"),
        }
    }

    fn float(&mut self) -> Result<f32> {
        if self.cursor.eat_word("inf") {
            return Ok(f32::INFINITY);
        }
        if *self.cursor.peek() == Token::Mark("-")
            && *self.cursor.peek_second() == Token::Word("inf".into())
        {
            self.cursor.advance();
            self.cursor.advance();
            return Ok(f32::NEG_INFINITY);
        }
        if !self.cursor.eat_word("nan") {
            return self.cursor.number("a float");
        }
        self.cursor.mark("(")?;
        let bits = match self.cursor.peek() {
            Token::Number(digits) => {
                digits.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok())
            }
            _ => None,
        };
        let Some(bits) = bits else { return self.cursor.expected("the bits in hexadecimal") };
        self.cursor.advance();
        self.cursor.mark(")")?;
        Ok(f32::from_bits(bits))
    }

    fn reduce_op(&mut self) -> Result<ReduceOp> {
        self.cursor.mark(".")?;
        self.named("sum, max, min or any", ReduceOp::parse)
    }

    fn param_index(&mut self) -> Result<u32> {
        let position = match self.cursor.peek() {
            Token::Word(word) => self.params.iter().position(|param| param.name == *word),
            _ => None,
        };
        let Some(position) = position else {
            return self.cursor.expected("the name of a parameter");
        };
        self.cursor.advance();
        Ok(position as u32)
    }

    fn place(&mut self) -> Result<(u32, Vec<Index>)> {
        let tensor = self.param_index()?;
        Ok((tensor, self.bracketed("[", "]", Self::index)?))
    }

    fn index(&mut self) -> Result<Index> {
        if self.cursor.eat_word("gather") {
            return Ok(Index::Gather(self.value()?));
        }
        if !self.cursor.eat_word("range") {
            if !matches!(self.cursor.peek(), Token::Value(..)) {
                return self.cursor.expected("a value, `range(..)` or `gather`");
            }
            return Ok(Index::At(self.value()?));
        }
        self.cursor.mark("(")?;
        let start = self.value()?;
        self.cursor.mark(",")?;
        let len = self.cursor.number("a length")?;
        let (mut stride, mut bound) = (1, None);
        while self.cursor.eat(",") {
            if self.cursor.eat_word("stride") {
                stride = self.cursor.number("a stride")?;
            } else if self.cursor.eat_word("bound") {
                bound = Some(self.value()?);
            } else {
                return self.cursor.expected("`stride` or `bound`");
            }
        }
        self.cursor.mark(")")?;
        Ok(Index::Range { start, len, stride, bound })
    }

    fn for_loop(&mut self) -> Result<OpKind> {
        self.cursor.keyword("from")?;
        let lower = self.value()?;
        self.cursor.keyword("to")?;
        let upper = self.value()?;
        self.cursor.keyword("step")?;
        let step = self.cursor.number("a step")?;
        let carried = if self.cursor.eat_word("with") {
            self.bracketed("(", ")", Self::value)?
        } else {
            Vec::new()
        };
        Ok(OpKind::For { lower, upper, step, carried, body: self.block()? })
    }

    fn map(&mut self) -> Result<Map> {
        let space = self.numbers()?;
        let mut inputs = Vec::new();
        if self.cursor.eat_word("inputs") {
            inputs = self.bracketed("(", ")", |this| {
                let value = this.value()?;
                this.cursor.keyword("axes")?;
                Ok(MapInput { value, axes: this.numbers()? })
            })?;
        }
        let mut outputs = Vec::new();
        if self.cursor.eat_word("outputs") {
            outputs = self.bracketed("(", ")", |this| {
                if this.cursor.eat_word("element") {
                    return Ok(MapOutput::Element);
                }
                if !this.cursor.eat_word("reduce") {
                    return this.cursor.expected("`element` or `reduce`");
                }
                let op = this.reduce_op()?;
                Ok(MapOutput::Reduce { op, axes: this.numbers()? })
            })?;
        }
        let mut schedule = MapSchedule::default();
        if self.cursor.eat_word("lanes") {
            schedule.lanes = self.cursor.number("a number of lanes")?;
            self.cursor.keyword("unroll")?;
            schedule.unroll = self.cursor.number("a number of vectors")?;
        }
        Ok(Map { space, inputs, body: self.block()?, outputs, schedule })
    }

    fn dot_operand(&mut self) -> Result<DotOperand> {
        if matches!(self.cursor.peek(), Token::Value(..)) {
            return Ok(DotOperand::Tile(self.value()?));
        }
        let (tensor, index) = self.place()?;
        let transposed = self.cursor.eat(".");
        if transposed {
            self.cursor.keyword("t")?;
        }
        Ok(DotOperand::Memory(TileRef { tensor, index, transposed }))
    }

    fn element(&mut self) -> Result<(u32, Vec<Value>, Vec<Guard>)> {
        let tensor = self.param_index()?;
        let index = self.bracketed("[", "]", Self::value)?;
        let guards = if self.cursor.eat_word("guard") {
            self.bracketed("(", ")", Self::guard)?
        } else {
            Vec::new()
        };
        Ok((tensor, index, guards))
    }

    fn guard(&mut self) -> Result<Guard> {
        let signed = matches!(self.cursor.peek(), Token::Number(_));
        if signed {
            let zero = self.cursor.here().clone();
            if self.cursor.number::<u32>("0")? != 0 {
                return Err(zero.expected("0"));
            }
            self.cursor.mark("<=")?;
        }
        let index = self.value()?;
        self.cursor.mark("<")?;
        Ok(Guard { index, bound: self.value()?, signed })
    }
}
