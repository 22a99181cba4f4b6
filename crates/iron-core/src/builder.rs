//! Making kernels in code: types of results are inferred, spans are taken from the current position.

use crate::infer::result_types;
use crate::ir::{
    BinaryOp, Block, CompareOp, Const, DimExpr, DotOperand, Element, Guard, Index, Kernel, Launch,
    Map, MapInput, MapOutput, MapSchedule, Op, OpKind, Param, ParamKind, ReduceOp, Type, UnaryOp,
    Value,
};
use crate::{DType, Diagnostic, Span};

/// Builds a kernel, or rewrites one.
///
/// Operations are appended to the innermost open block. The methods named after operations panic when an operand does
/// not fit, because by then the type checker has accepted the program; [`Builder::try_emit`] returns the fault instead.
#[derive(Debug)]
pub struct Builder {
    kernel: Kernel,
    open: Vec<Block>,
    span: Span,
}

impl Builder {
    /// A kernel without parameters, on an empty grid.
    pub fn new(name: impl Into<String>) -> Self {
        let kernel = Kernel {
            name: name.into(),
            dims: Vec::new(),
            params: Vec::new(),
            grid: Vec::new(),
            launch: Launch::default(),
            values: Vec::new(),
            body: Block::default(),
        };
        Self { kernel, open: vec![Block::default()], span: Span::NONE }
    }

    /// Rewrites `kernel`: its values stay, its body is handed out and begins anew.
    pub fn rewrite(mut kernel: Kernel) -> (Self, Block) {
        let body = std::mem::take(&mut kernel.body);
        let open = Block { args: body.args.clone(), ..Block::default() };
        (Self { kernel, open: vec![open], span: Span::NONE }, body)
    }

    /// The finished kernel.
    ///
    /// # Panics
    /// When a block is still open.
    pub fn finish(mut self) -> Kernel {
        assert_eq!(self.open.len(), 1, "blocks left open in kernel {}", self.kernel.name);
        self.kernel.body = self.open.remove(0);
        self.kernel
    }

    /// The kernel so far; its body is empty until [`Builder::finish`].
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The kernel so far, for what the builder has no method for.
    pub fn kernel_mut(&mut self) -> &mut Kernel {
        &mut self.kernel
    }

    // ---- the signature ----------------------------------------------------------------------------------------

    /// The index of the named dimension, new or known.
    pub fn dim_index(&mut self, name: &str) -> u32 {
        let known = self.kernel.dims.iter().position(|dim| dim == name);
        known.unwrap_or_else(|| {
            self.kernel.dims.push(name.to_owned());
            self.kernel.dims.len() - 1
        }) as u32
    }

    /// The named dimension, new or known, as an expression.
    pub fn dim_expr(&mut self, name: &str) -> DimExpr {
        DimExpr::Dim(self.dim_index(name))
    }

    /// Adds a parameter and gives its index.
    pub fn param(&mut self, name: impl Into<String>, kind: ParamKind) -> u32 {
        let span = self.span;
        self.kernel.params.push(Param { name: name.into(), kind, span });
        self.kernel.params.len() as u32 - 1
    }

    /// Adds a plain tensor parameter over named dimensions.
    pub fn tensor(&mut self, name: &str, dtype: DType, dims: &[&str], mutable: bool) -> u32 {
        let shape = dims.iter().map(|dim| self.dim_expr(dim)).collect();
        self.param(name, ParamKind::Tensor { dtype, shape, mutable })
    }

    /// Sets the grid.
    pub fn grid(&mut self, grid: Vec<DimExpr>) {
        self.kernel.grid = grid;
    }

    // ---- positions, names, types ------------------------------------------------------------------------------

    /// What is emitted from now on came from `span`.
    pub fn set_span(&mut self, span: Span) {
        self.span = span;
    }

    /// Where what is emitted now comes from.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Names a value for the text; gives it back.
    pub fn name(&mut self, value: Value, name: &str) -> Value {
        self.kernel.info_mut(value).name = Some(name.to_owned());
        value
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        self.kernel.ty(value)
    }

    // ---- blocks -----------------------------------------------------------------------------------------------

    /// Opens a block with arguments of these types and gives the arguments.
    pub fn open_block(&mut self, args: &[Type]) -> Vec<Value> {
        let span = self.span;
        let args: Vec<_> = args.iter().map(|ty| self.kernel.new_value(ty.clone(), span)).collect();
        self.open.push(Block { args: args.clone(), ..Block::default() });
        args
    }

    /// Opens a block whose arguments are values that exist already (when a block is rewritten).
    pub fn open_block_with(&mut self, args: Vec<Value>) {
        self.open.push(Block { args, ..Block::default() });
    }

    /// Closes the innermost block.
    ///
    /// # Panics
    /// When only the body is open.
    pub fn close_block(&mut self, yields: Vec<Value>) -> Block {
        assert!(self.open.len() > 1, "no block to close in kernel {}", self.kernel.name);
        let mut block = self.open.pop().unwrap_or_default();
        block.yields = yields;
        block
    }

    // ---- operations -------------------------------------------------------------------------------------------

    /// Appends an operation as it is.
    pub fn push(&mut self, op: Op) {
        if let Some(block) = self.open.last_mut() {
            block.ops.push(op);
        }
    }

    /// Appends an operation with fresh results of the inferred types. `requested` is the result type of the operations
    /// that convert to one (`cast`, `bitcast`, `broadcast`, `reshape`, `iota`).
    pub fn try_emit(
        &mut self,
        kind: OpKind,
        requested: Option<&Type>,
    ) -> Result<Vec<Value>, Diagnostic> {
        let types = result_types(&self.kernel, &kind, requested).map_err(|message| {
            let mut fault = Diagnostic::new(self.span, format!("`{}`: {message}", kind.name()));
            fault.kernel.clone_from(&self.kernel.name);
            fault
        })?;
        let span = self.span;
        let results: Vec<_> = types.into_iter().map(|ty| self.kernel.new_value(ty, span)).collect();
        self.push(Op { kind, results: results.clone(), span });
        Ok(results)
    }

    /// [`Builder::try_emit`] for operands that are known to fit.
    ///
    /// # Panics
    /// When they do not.
    pub fn emit(&mut self, kind: OpKind, requested: Option<&Type>) -> Vec<Value> {
        self.try_emit(kind, requested).unwrap_or_else(|fault| panic!("{fault}"))
    }

    fn one(&mut self, kind: OpKind, requested: Option<&Type>) -> Value {
        self.emit(kind, requested)[0]
    }

    /// A literal.
    pub fn constant(&mut self, literal: Const) -> Value {
        self.one(OpKind::Const(literal), None)
    }

    /// A float literal.
    pub fn f32(&mut self, number: f32) -> Value {
        self.constant(Const::F32(number))
    }

    /// A signed literal.
    pub fn i32(&mut self, number: i32) -> Value {
        self.constant(Const::I32(number))
    }

    /// An unsigned literal.
    pub fn u32(&mut self, number: u32) -> Value {
        self.constant(Const::U32(number))
    }

    /// A truth value.
    pub fn bool(&mut self, truth: bool) -> Value {
        self.constant(Const::Bool(truth))
    }

    /// A tile filled with one literal.
    pub fn splat(&mut self, literal: Const, shape: &[u32]) -> Value {
        let value = self.constant(literal);
        self.broadcast(value, &[], shape)
    }

    /// This program's position along a grid axis.
    pub fn program_id(&mut self, axis: u8) -> Value {
        self.one(OpKind::ProgramId(axis), None)
    }

    /// A named dimension as a number.
    pub fn dim(&mut self, name: &str) -> Value {
        let dim = self.dim_index(name);
        let value = self.one(OpKind::Dim(dim), None);
        self.name(value, name)
    }

    /// A scalar parameter.
    pub fn scalar_param(&mut self, index: u32) -> Value {
        self.one(OpKind::Param(index), None)
    }

    /// An operation on one value.
    pub fn unary(&mut self, op: UnaryOp, value: Value) -> Value {
        self.one(OpKind::Unary(op, value), None)
    }

    /// An operation on two values of one type.
    pub fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        self.one(OpKind::Binary(op, a, b), None)
    }

    /// `a + b`
    pub fn add(&mut self, a: Value, b: Value) -> Value {
        self.binary(BinaryOp::Add, a, b)
    }

    /// `a - b`
    pub fn sub(&mut self, a: Value, b: Value) -> Value {
        self.binary(BinaryOp::Sub, a, b)
    }

    /// `a * b`
    pub fn mul(&mut self, a: Value, b: Value) -> Value {
        self.binary(BinaryOp::Mul, a, b)
    }

    /// `a * b + c`
    pub fn fma(&mut self, a: Value, b: Value, c: Value) -> Value {
        self.one(OpKind::Fma(a, b, c), None)
    }

    /// A comparison.
    pub fn compare(&mut self, op: CompareOp, a: Value, b: Value) -> Value {
        self.one(OpKind::Compare(op, a, b), None)
    }

    /// `condition ? a : b`
    pub fn select(&mut self, condition: Value, a: Value, b: Value) -> Value {
        self.one(OpKind::Select(condition, a, b), None)
    }

    /// Converts numbers; packed weights only to f32.
    pub fn cast(&mut self, value: Value, dtype: DType) -> Value {
        let ty = self.ty(value).with_dtype(dtype);
        self.one(OpKind::Cast(value), Some(&ty))
    }

    /// The same bits as another type.
    pub fn bitcast(&mut self, value: Value, dtype: DType) -> Value {
        let ty = self.ty(value).with_dtype(dtype);
        self.one(OpKind::Bitcast(value), Some(&ty))
    }

    /// Repeats along the axes of `shape` that are not in `axes`.
    pub fn broadcast(&mut self, value: Value, axes: &[u32], shape: &[u32]) -> Value {
        let ty = self.tile_like(value, shape);
        self.one(OpKind::Broadcast { value, axes: axes.to_vec() }, Some(&ty))
    }

    /// The same elements with other extents.
    pub fn reshape(&mut self, value: Value, shape: &[u32]) -> Value {
        let ty = self.tile_like(value, shape);
        self.one(OpKind::Reshape(value), Some(&ty))
    }

    fn tile_like(&self, value: Value, shape: &[u32]) -> Type {
        let element = match self.ty(value) {
            Type::Scalar(dtype) => Element::Plain(*dtype),
            Type::Tile { element, .. } => *element,
        };
        Type::Tile { element, shape: shape.to_vec() }
    }

    /// Swaps the axes of a 2-D tile.
    pub fn transpose(&mut self, value: Value) -> Value {
        self.one(OpKind::Transpose(value), None)
    }

    /// `start`, `start + stride` ..
    pub fn iota(&mut self, start: Value, stride: u32, len: u32) -> Value {
        self.one(OpKind::Iota { start, stride }, Some(&Type::tile(DType::I32, [len])))
    }

    /// Folds one axis, or all of them.
    pub fn reduce(&mut self, op: ReduceOp, value: Value, axis: Option<u32>) -> Value {
        self.one(OpKind::Reduce { op, value, axis }, None)
    }

    /// `acc + a · bᵀ`
    pub fn dot(&mut self, a: Value, b: Value, acc: Value) -> Value {
        self.one(OpKind::Dot { a, b, acc }, None)
    }

    /// Reads a tile or a scalar.
    pub fn load(&mut self, tensor: u32, index: Vec<Index>, fill: Option<Value>) -> Value {
        self.one(OpKind::Load { tensor, index, fill }, None)
    }

    /// Writes a tile or a scalar.
    pub fn store(&mut self, tensor: u32, index: Vec<Index>, value: Value) {
        self.emit(OpKind::Store { tensor, index, value }, None);
    }

    /// A loop; `body` gets the counter and the carried values and returns the next ones. The results are the last ones.
    pub fn for_loop(
        &mut self,
        (lower, upper): (Value, Value),
        step: u32,
        carried: &[Value],
        body: impl FnOnce(&mut Self, Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let mut types = vec![Type::Scalar(DType::I32)];
        types.extend(carried.iter().map(|value| self.ty(*value).clone()));
        let args = self.open_block(&types);
        let yields = body(self, args[0], &args[1..]);
        let body = self.close_block(yields);
        self.emit(OpKind::For { lower, upper, step, carried: carried.to_vec(), body }, None)
    }

    /// A branch; both closures return the results.
    pub fn if_else(
        &mut self,
        condition: Value,
        then: impl FnOnce(&mut Self) -> Vec<Value>,
        otherwise: impl FnOnce(&mut Self) -> Vec<Value>,
    ) -> Vec<Value> {
        self.open_block(&[]);
        let yields = then(self);
        let then = self.close_block(yields);
        self.open_block(&[]);
        let yields = otherwise(self);
        let otherwise = self.close_block(yields);
        self.emit(OpKind::If { condition, then, otherwise }, None)
    }

    /// A map; `body` gets the indices and the elements of the inputs and returns one scalar per output.
    ///
    /// # Panics
    /// When an input is no tile of plain numbers.
    pub fn map(
        &mut self,
        space: &[u32],
        inputs: Vec<MapInput>,
        outputs: Vec<MapOutput>,
        body: impl FnOnce(&mut Self, &[Value], &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let mut types = vec![Type::Scalar(DType::I32); space.len()];
        types.extend(inputs.iter().map(|input| {
            let dtype = self.ty(input.value).dtype();
            Type::Scalar(dtype.unwrap_or_else(|| panic!("a map over packed elements")))
        }));
        let args = self.open_block(&types);
        let (indices, elements) = args.split_at(space.len());
        let yields = body(self, indices, elements);
        let body = self.close_block(yields);
        let schedule = MapSchedule::default();
        let map = Map { space: space.to_vec(), inputs, body, outputs, schedule };
        self.emit(OpKind::Map(map), None)
    }

    /// The target's matrix primitive.
    pub fn dot_tile(&mut self, a: DotOperand, b: DotOperand, acc: Value, k: u32) -> Value {
        self.one(OpKind::DotTile { a, b, acc, k }, None)
    }

    /// Inside a map: reads one element.
    pub fn element_load(
        &mut self,
        tensor: u32,
        index: Vec<Value>,
        guards: Vec<Guard>,
        fill: Value,
    ) -> Value {
        self.one(OpKind::ElementLoad { tensor, index, guards, fill }, None)
    }

    /// Inside a map: writes one element.
    pub fn element_store(
        &mut self,
        tensor: u32,
        index: Vec<Value>,
        guards: Vec<Guard>,
        value: Value,
    ) {
        self.emit(OpKind::ElementStore { tensor, index, guards, value }, None);
    }

    /// Quantises an f32 tile into int8 activations.
    pub fn quantize_store(&mut self, tensor: u32, index: Vec<Index>, value: Value) {
        self.emit(OpKind::QuantizeStore { tensor, index, value }, None);
    }

    /// Decodes a piece of a weight row.
    pub fn decode_row(&mut self, tensor: u32, index: Vec<Index>) -> Value {
        self.one(OpKind::DecodeRow { tensor, index }, None)
    }
}

impl Index {
    /// `len` neighbouring positions that are all inside.
    pub const fn range(start: Value, len: u32) -> Self {
        Self::Range { start, len, stride: 1, bound: None }
    }

    /// `len` neighbouring positions, masked from `bound` on.
    pub const fn bounded(start: Value, len: u32, bound: Value) -> Self {
        Self::Range { start, len, stride: 1, bound: Some(bound) }
    }
}
