//! What an operation needs of its operands, and the types of its results.
//!
//! The builder gets result types from here and the verifier compares them with the recorded ones, so the rules are
//! written once. Scoping, and what may stand inside a map, is the verifier's own business.

use crate::ir::{
    ActivationKind, BinaryOp, Block, CompareOp, DotOperand, Element, Guard, Index, Kernel, Map,
    MapOutput, OpKind, Param, ParamKind, ReduceOp, TileRef, Type, UnaryOp, Value,
};
use crate::{DType, Format};

/// Values in a block of int8 activations.
const INT8_BLOCK: u32 = 32;

/// A rule broken: what was found and what was expected.
pub(crate) type Check<T> = Result<T, String>;

/// The result types of `kind`. `requested` is the type of the only result, needed by the operations that convert to it
/// (`cast`, `bitcast`, `broadcast`, `reshape`) and ignored by the others.
pub(crate) fn result_types(
    kernel: &Kernel,
    kind: &OpKind,
    requested: Option<&Type>,
) -> Check<Vec<Type>> {
    let rules = Rules { kernel };
    let one = |ty: Type| Ok(vec![ty]);
    match kind {
        OpKind::Barrier => Ok(Vec::new()),
        OpKind::Const(literal) => one(Type::Scalar(literal.dtype())),
        OpKind::ProgramId(axis) => rules.program_id(*axis),
        OpKind::Dim(dim) => rules.dim(*dim),
        OpKind::Param(index) => rules.scalar_param(*index),
        OpKind::Unary(op, value) => one(rules.unary(*op, *value)?),
        OpKind::Binary(op, a, b) => one(rules.binary(*op, *a, *b)?),
        OpKind::Fma(a, b, c) => {
            let ty = rules.plain(*a, "operand")?;
            rules.dtype_in(*a, &[DType::F32])?;
            rules.same(*b, ty, *a)?;
            rules.same(*c, ty, *a)?;
            one(ty.clone())
        }
        OpKind::Compare(op, a, b) => one(rules.compare(*op, *a, *b)?),
        OpKind::Select(condition, a, b) => {
            let ty = rules.plain(*a, "operand")?;
            rules.is(*condition, &ty.with_dtype(DType::Bool), "condition")?;
            rules.same(*b, ty, *a)?;
            one(ty.clone())
        }
        OpKind::Cast(value) => one(rules.cast(*value, rules.requested(requested)?)?),
        OpKind::Bitcast(value) => one(rules.bitcast(*value, rules.requested(requested)?)?),
        OpKind::Broadcast { value, axes } => {
            one(rules.broadcast(*value, axes, rules.requested(requested)?)?)
        }
        OpKind::Reshape(value) => one(rules.reshape(*value, rules.requested(requested)?)?),
        OpKind::Transpose(value) => one(rules.transpose(*value)?),
        OpKind::Iota { start, stride } => {
            rules.scalar(*start, DType::I32, "start")?;
            rules.positive(*stride, "stride")?;
            let requested = rules.requested(requested)?;
            if requested.dtype() != Some(DType::I32) || requested.shape().len() != 1 {
                return Err(format!("the result is {requested}, expected a 1-D tile of i32"));
            }
            one(requested.clone())
        }
        OpKind::Reduce { op, value, axis } => one(rules.reduce(*op, *value, *axis)?),
        OpKind::Dot { a, b, acc } => {
            let a = rules.matrix(*a, "a")?;
            let b = rules.matrix(*b, "b")?;
            one(rules.dot(a, b, *acc)?)
        }
        OpKind::Load { tensor, index, fill } => {
            let param = rules.tensor(*tensor)?;
            let shape = rules.index(param, index)?;
            let ty = rules.loaded(param, index, shape)?;
            if let Some(fill) = fill {
                let dtype = ty.dtype().ok_or_else(|| {
                    format!(
                        "`{}` is made of {}, which has no fill",
                        param.name,
                        param.kind.element()
                    )
                })?;
                rules.scalar(*fill, dtype, "fill")?;
            }
            one(ty)
        }
        OpKind::Store { tensor, index, value } => {
            rules.store(*tensor, index, *value)?;
            Ok(Vec::new())
        }
        OpKind::For { lower, upper, step, carried, body } => {
            rules.for_loop([*lower, *upper], *step, carried, body)
        }
        OpKind::If { condition, then, otherwise } => rules.branches(*condition, then, otherwise),
        OpKind::Map(map) => rules.map(map),
        OpKind::DotTile { a, b, acc, k } => {
            let a = rules.dot_operand(a, "a")?;
            let b = rules.dot_operand(b, "b")?;
            if a.1[1] != *k {
                return Err(format!("a and b are {} along k, but the step is k = {k}", a.1[1]));
            }
            one(rules.dot(a, b, *acc)?)
        }
        OpKind::ElementLoad { tensor, index, guards, fill } => {
            let (param, dtype) = rules.element(*tensor, index, guards)?;
            rules.scalar(*fill, dtype, "fill")?;
            debug_assert!(!matches!(param.kind, ParamKind::Scalar(_)));
            one(Type::Scalar(dtype))
        }
        OpKind::ElementStore { tensor, index, guards, value } => {
            let (param, _) = rules.element(*tensor, index, guards)?;
            rules.mutable(param)?;
            let ty = rules.plain(*value, "value")?;
            if !ty.is_scalar() {
                return Err(rules.found(*value, "value", "a scalar"));
            }
            rules.converts(*value, param)?;
            Ok(Vec::new())
        }
        OpKind::QuantizeStore { tensor, index, value } => {
            let param = rules.tensor(*tensor)?;
            rules.mutable(param)?;
            if !matches!(param.kind, ParamKind::Activations { kind: ActivationKind::Int8, .. }) {
                return Err(format!(
                    "`{}` is made of {}, expected int8",
                    param.name,
                    param.kind.element()
                ));
            }
            let shape = rules.index(param, index)?;
            rules.quantized_value(param, index, &shape, *value)?;
            Ok(Vec::new())
        }
        OpKind::DecodeRow { tensor, index } => {
            let param = rules.tensor(*tensor)?;
            if !matches!(param.kind, ParamKind::Quantized { .. }) {
                return Err(format!("`{}` is not quantised, expected `Quantized`", param.name));
            }
            let shape = rules.index(param, index)?;
            match index.as_slice() {
                [Index::At(_), Index::Range { stride: 1, .. }] => {
                    one(Type::tile(DType::F32, shape))
                }
                _ => Err("the index must be one row and a range along k of stride 1".into()),
            }
        }
    }
}

struct Rules<'a> {
    kernel: &'a Kernel,
}

impl<'a> Rules<'a> {
    fn ty(&self, value: Value) -> Check<&'a Type> {
        let info = self.kernel.values.get(value.0 as usize);
        info.map(|info| &info.ty).ok_or_else(|| format!("%{} does not exist", value.0))
    }

    /// "`role` `%value` is `type`, expected `expected`".
    fn found(&self, value: Value, role: &str, expected: &str) -> String {
        let text = self.kernel.value_text(value);
        match self.ty(value) {
            Ok(ty) => format!("{role} {text} is {ty}, expected {expected}"),
            Err(missing) => missing,
        }
    }

    fn is(&self, value: Value, ty: &Type, role: &str) -> Check<()> {
        if self.ty(value)? == ty { Ok(()) } else { Err(self.found(value, role, &ty.to_string())) }
    }

    fn scalar(&self, value: Value, dtype: DType, role: &str) -> Check<()> {
        if *self.ty(value)? == Type::Scalar(dtype) {
            return Ok(());
        }
        Err(self.found(value, role, &format!("a scalar {dtype}")))
    }

    fn same(&self, value: Value, ty: &Type, other: Value) -> Check<()> {
        if self.ty(value)? == ty {
            return Ok(());
        }
        let other = self.kernel.value_text(other);
        Err(self.found(value, "operand", &format!("{ty}, the type of {other}")))
    }

    fn plain(&self, value: Value, role: &str) -> Check<&'a Type> {
        let ty = self.ty(value)?;
        if ty.dtype().is_some() { Ok(ty) } else { Err(self.found(value, role, "plain numbers")) }
    }

    fn dtype_in(&self, value: Value, allowed: &[DType]) -> Check<DType> {
        let dtype = self.plain(value, "operand")?.dtype();
        match dtype {
            Some(dtype) if allowed.contains(&dtype) => Ok(dtype),
            _ => {
                let names: Vec<_> = allowed.iter().map(|dtype| dtype.name()).collect();
                Err(self.found(value, "operand", &format!("elements of {}", names.join(" or "))))
            }
        }
    }

    fn requested<'t>(&self, requested: Option<&'t Type>) -> Check<&'t Type> {
        let _ = self;
        requested.ok_or_else(|| "has no result, expected one".to_owned())
    }

    fn positive(&self, number: u32, what: &str) -> Check<()> {
        let _ = self;
        if number > 0 { Ok(()) } else { Err(format!("{what} is 0, expected a positive number")) }
    }

    fn program_id(&self, axis: u8) -> Check<Vec<Type>> {
        let axes = self.kernel.grid.len();
        if usize::from(axis) >= axes {
            return Err(format!("axis {axis} of a grid of {axes} axes, expected less than {axes}"));
        }
        Ok(vec![Type::Scalar(DType::I32)])
    }

    fn dim(&self, dim: u32) -> Check<Vec<Type>> {
        let dims = self.kernel.dims.len();
        if dim as usize >= dims {
            return Err(format!("dimension {dim} of a kernel that has {dims}"));
        }
        Ok(vec![Type::Scalar(DType::I32)])
    }

    fn param(&self, index: u32) -> Check<&'a Param> {
        let params = self.kernel.params.len();
        let param = self.kernel.params.get(index as usize);
        param.ok_or_else(|| format!("parameter {index} of a kernel that has {params}"))
    }

    fn scalar_param(&self, index: u32) -> Check<Vec<Type>> {
        let param = self.param(index)?;
        match param.kind {
            ParamKind::Scalar(dtype) => Ok(vec![Type::Scalar(dtype)]),
            _ => Err(format!("`{}` is a tensor, expected a scalar parameter", param.name)),
        }
    }

    fn tensor(&self, index: u32) -> Check<&'a Param> {
        let param = self.param(index)?;
        match param.kind {
            ParamKind::Scalar(dtype) => {
                Err(format!("`{}` is a scalar {dtype}, expected a tensor parameter", param.name))
            }
            _ => Ok(param),
        }
    }

    fn mutable(&self, param: &Param) -> Check<()> {
        let _ = self;
        if param.kind.is_mutable() {
            return Ok(());
        }
        Err(format!("`{}` is read-only, expected a parameter that is `Mut`", param.name))
    }

    fn unary(&self, op: UnaryOp, value: Value) -> Check<Type> {
        let allowed: &[DType] = match op {
            UnaryOp::Neg | UnaryOp::Abs => &[DType::F32, DType::I32],
            UnaryOp::Not => &[DType::I32, DType::U32, DType::Bool],
            _ => &[DType::F32],
        };
        self.dtype_in(value, allowed)?;
        Ok(self.ty(value)?.clone())
    }

    fn binary(&self, op: BinaryOp, a: Value, b: Value) -> Check<Type> {
        let allowed: &[DType] = match op {
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::Min
            | BinaryOp::Max => &[DType::F32, DType::I32, DType::U32],
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => &[DType::I32, DType::U32, DType::Bool],
            BinaryOp::Rem | BinaryOp::Shl | BinaryOp::Shr => &[DType::I32, DType::U32],
        };
        self.dtype_in(a, allowed)?;
        let ty = self.ty(a)?;
        self.same(b, ty, a)?;
        Ok(ty.clone())
    }

    fn compare(&self, op: CompareOp, a: Value, b: Value) -> Check<Type> {
        let allowed: &[DType] = match op {
            CompareOp::Eq | CompareOp::Ne => &[DType::F32, DType::I32, DType::U32, DType::Bool],
            _ => &[DType::F32, DType::I32, DType::U32],
        };
        self.dtype_in(a, allowed)?;
        let ty = self.ty(a)?;
        self.same(b, ty, a)?;
        Ok(ty.with_dtype(DType::Bool))
    }

    fn cast(&self, value: Value, requested: &Type) -> Check<Type> {
        let from = self.ty(value)?;
        let to = requested.dtype();
        let allowed = match from {
            Type::Tile { element: Element::Packed(_), .. } => to == Some(DType::F32),
            Type::Tile { element: Element::Int8, .. } => false,
            _ => to.is_some() && (to != Some(DType::Bool) || from.dtype() == Some(DType::Bool)),
        };
        if !allowed
            || from.shape() != requested.shape()
            || from.is_scalar() != requested.is_scalar()
        {
            let text = self.kernel.value_text(value);
            return Err(format!(
                "{text} is {from} and the result {requested}, expected the same shape and a number type it converts to"
            ));
        }
        Ok(requested.clone())
    }

    fn bitcast(&self, value: Value, requested: &Type) -> Check<Type> {
        let from = self.plain(value, "operand")?;
        let size = |ty: &Type| ty.dtype().map(DType::size);
        if *requested != from.with_dtype(requested.dtype().unwrap_or(DType::Bool))
            || size(from) != size(requested)
        {
            let text = self.kernel.value_text(value);
            return Err(format!(
                "{text} is {from} and the result {requested}, expected the same shape and element size"
            ));
        }
        Ok(requested.clone())
    }

    fn broadcast(&self, value: Value, axes: &[u32], requested: &Type) -> Check<Type> {
        let from = self.plain(value, "operand")?;
        let text = self.kernel.value_text(value);
        let rank = requested.shape().len();
        if requested.is_scalar() || requested.dtype() != from.dtype() {
            return Err(format!(
                "the result is {requested}, expected a tile of the elements of {from}"
            ));
        }
        if axes.len() != from.shape().len() {
            return Err(format!(
                "axes {axes:?} for {text} of {from}, expected one result axis per axis"
            ));
        }
        if !axes.is_sorted_by(|a, b| a < b) || axes.iter().any(|axis| *axis as usize >= rank) {
            return Err(format!("axes {axes:?}, expected ascending axes below {rank}"));
        }
        for (extent, axis) in from.shape().iter().zip(axes) {
            let result = requested.shape()[*axis as usize];
            if *extent != result {
                return Err(format!(
                    "{text} is {from} and result axis {axis} has extent {result}, expected {extent}"
                ));
            }
        }
        Ok(requested.clone())
    }

    fn reshape(&self, value: Value, requested: &Type) -> Check<Type> {
        let from = self.plain(value, "operand")?;
        let count = |ty: &Type| ty.shape().iter().map(|extent| u64::from(*extent)).product::<u64>();
        if requested.dtype() != from.dtype() || count(from) != count(requested) {
            let text = self.kernel.value_text(value);
            return Err(format!(
                "{text} is {from} and the result {requested}, expected as many elements of the same type"
            ));
        }
        Ok(requested.clone())
    }

    fn transpose(&self, value: Value) -> Check<Type> {
        match self.ty(value)? {
            Type::Tile { element: Element::Plain(dtype), shape } if shape.len() == 2 => {
                Ok(Type::tile(*dtype, [shape[1], shape[0]]))
            }
            _ => Err(self.found(value, "operand", "a 2-D tile of plain numbers")),
        }
    }

    fn reduce(&self, op: ReduceOp, value: Value, axis: Option<u32>) -> Check<Type> {
        let ty = self.ty(value)?;
        let dtype = self.dtype_in(value, reducible(op))?;
        if ty.is_scalar() {
            return Err(self.found(value, "operand", "a tile"));
        }
        let mut shape = ty.shape().to_vec();
        match axis {
            None => shape.clear(),
            Some(axis) if (axis as usize) < shape.len() => {
                shape.remove(axis as usize);
            }
            Some(axis) => {
                let text = self.kernel.value_text(value);
                return Err(format!(
                    "axis {axis} of {text}, which is {ty}, expected below {}",
                    shape.len()
                ));
            }
        }
        Ok(scalar_or_tile(dtype, shape))
    }

    fn matrix(&self, value: Value, role: &str) -> Check<(Element, [u32; 2])> {
        match self.ty(value)? {
            Type::Tile { element, shape } if shape.len() == 2 => {
                Ok((*element, [shape[0], shape[1]]))
            }
            _ => Err(self.found(value, role, "a 2-D tile")),
        }
    }

    fn dot_operand(&self, operand: &DotOperand, role: &str) -> Check<(Element, [u32; 2])> {
        let TileRef { tensor, index, transposed } = match operand {
            DotOperand::Tile(value) => return self.matrix(*value, role),
            DotOperand::Memory(tile) => tile,
        };
        let param = self.tensor(*tensor)?;
        let shape = self.index(param, index)?;
        self.loaded(param, index, shape.clone())?;
        match (shape.as_slice(), transposed) {
            ([rows, k], false) | ([k, rows], true) => Ok((param.kind.element(), [*rows, *k])),
            _ => Err(format!("{role} takes {} axes of `{}`, expected 2", shape.len(), param.name)),
        }
    }

    fn dot(
        &self,
        (a_element, a): (Element, [u32; 2]),
        (b_element, b): (Element, [u32; 2]),
        acc: Value,
    ) -> Check<Type> {
        let float = |element: Element| matches!(element, Element::Plain(dtype) if dtype.is_float());
        let packed = matches!(b_element, Element::Packed(_));
        if !float(a_element) && a_element != Element::Int8 {
            return Err(format!("a is made of {a_element}, expected floats or int8 activations"));
        }
        if !packed && (!float(b_element) || a_element == Element::Int8) {
            let expected =
                if float(a_element) { "floats or packed weights" } else { "packed weights" };
            return Err(format!("b is made of {b_element}, expected {expected}"));
        }
        if a[1] != b[1] {
            return Err(format!(
                "a is {a:?} and b is {b:?}, expected the same extent along k (axis 1)"
            ));
        }
        let ty = Type::tile(DType::F32, [a[0], b[0]]);
        self.is(acc, &ty, "acc")?;
        Ok(ty)
    }

    /// The extents that an index leaves.
    fn index(&self, param: &Param, index: &[Index]) -> Check<Vec<u32>> {
        let rank = param.kind.shape().len();
        if index.len() != rank {
            return Err(format!(
                "`{}` is indexed along {} axes, expected {rank}",
                param.name,
                index.len()
            ));
        }
        let mut shape = Vec::with_capacity(rank);
        for entry in index {
            match entry {
                Index::At(value) => self.scalar(*value, DType::I32, "index")?,
                Index::Range { start, len, stride, bound } => {
                    self.scalar(*start, DType::I32, "start")?;
                    self.positive(*len, "range length")?;
                    self.positive(*stride, "range stride")?;
                    if let Some(bound) = bound {
                        self.scalar(*bound, DType::I32, "bound")?;
                    }
                    shape.push(*len);
                }
                Index::Gather(value) => match self.ty(*value)? {
                    Type::Tile { element: Element::Plain(DType::I32), shape: list }
                        if list.len() == 1 =>
                    {
                        shape.push(list[0]);
                    }
                    _ => return Err(self.found(*value, "gathered index", "a 1-D tile of i32")),
                },
            }
        }
        Ok(shape)
    }

    fn loaded(&self, param: &Param, index: &[Index], shape: Vec<u32>) -> Check<Type> {
        let _ = self;
        match param.kind.element() {
            Element::Plain(dtype) => Ok(scalar_or_tile(dtype, shape)),
            element => match index.last() {
                Some(Index::Range { stride: 1, .. }) => Ok(Type::Tile { element, shape }),
                _ => Err(format!(
                    "`{}` is made of {element}, expected a range of stride 1 along its last axis",
                    param.name
                )),
            },
        }
    }

    fn store(&self, tensor: u32, index: &[Index], value: Value) -> Check<()> {
        let param = self.tensor(tensor)?;
        self.mutable(param)?;
        let shape = self.index(param, index)?;
        if param.kind.element() == Element::Int8 {
            return self.quantized_value(param, index, &shape, value);
        }
        let ty = self.plain(value, "value")?;
        if ty.shape() != shape || ty.is_scalar() != shape.is_empty() {
            return Err(self.found(value, "value", &format!("the indexed shape {shape:?}")));
        }
        self.converts(value, param)
    }

    fn quantized_value(
        &self,
        param: &Param,
        index: &[Index],
        shape: &[u32],
        value: Value,
    ) -> Check<()> {
        self.is(value, &scalar_or_tile(DType::F32, shape.to_vec()), "value")?;
        match index.last() {
            Some(Index::Range { len, stride: 1, .. }) if len.is_multiple_of(INT8_BLOCK) => Ok(()),
            Some(Index::Range { len, stride: 1, .. }) => Err(format!(
                "{len} values along k of `{}`, expected a multiple of {INT8_BLOCK}",
                param.name
            )),
            _ => Err(format!("the k axis of `{}` needs a range of stride 1", param.name)),
        }
    }

    /// Whether a number can be stored to a parameter: floats to floats, integers to integers.
    fn converts(&self, value: Value, param: &Param) -> Check<()> {
        let found = self.plain(value, "value")?.dtype();
        let Element::Plain(wanted) = param.kind.element() else {
            return Err(format!("`{}` does not hold plain numbers", param.name));
        };
        let fits = |found: DType| {
            found.is_float() == wanted.is_float() && found.is_int() == wanted.is_int()
        };
        if found.is_some_and(fits) {
            return Ok(());
        }
        let class = if wanted.is_float() { "floats" } else { "integers" };
        Err(self.found(value, "value", &format!("{class}, the elements of `{}`", param.name)))
    }

    fn element(&self, tensor: u32, index: &[Value], guards: &[Guard]) -> Check<(&'a Param, DType)> {
        let param = self.tensor(tensor)?;
        let rank = param.kind.shape().len();
        if index.len() != rank {
            return Err(format!(
                "`{}` is indexed along {} axes, expected {rank}",
                param.name,
                index.len()
            ));
        }
        for value in index {
            self.scalar(*value, DType::I32, "index")?;
        }
        for guard in guards {
            self.scalar(guard.index, DType::I32, "guarded index")?;
            self.scalar(guard.bound, DType::I32, "guard bound")?;
        }
        match param.kind.element() {
            Element::Plain(dtype) => Ok((param, dtype)),
            element => {
                Err(format!("`{}` is made of {element}, expected plain numbers", param.name))
            }
        }
    }

    fn types(&self, values: &[Value]) -> Check<Vec<Type>> {
        values.iter().map(|value| self.ty(*value).cloned()).collect()
    }

    /// That `values` have the types of `expected`, one by one.
    fn all(&self, values: &[Value], expected: &[Type], role: &str) -> Check<()> {
        if values.len() != expected.len() {
            return Err(format!("{} {role}s, expected {}", values.len(), expected.len()));
        }
        values.iter().zip(expected).try_for_each(|(value, ty)| self.is(*value, ty, role))
    }

    fn for_loop(
        &self,
        bounds: [Value; 2],
        step: u32,
        carried: &[Value],
        body: &Block,
    ) -> Check<Vec<Type>> {
        self.scalar(bounds[0], DType::I32, "lower bound")?;
        self.scalar(bounds[1], DType::I32, "upper bound")?;
        self.positive(step, "step")?;
        let types = self.types(carried)?;
        let mut args = vec![Type::Scalar(DType::I32)];
        args.extend(types.iter().cloned());
        self.all(&body.args, &args, "body argument")?;
        self.all(&body.yields, &types, "carried yield")?;
        Ok(types)
    }

    fn branches(&self, condition: Value, then: &Block, otherwise: &Block) -> Check<Vec<Type>> {
        self.scalar(condition, DType::Bool, "condition")?;
        for block in [then, otherwise] {
            self.all(&block.args, &[], "argument")?;
        }
        let types = self.types(&then.yields)?;
        self.all(&otherwise.yields, &types, "`else` yield")?;
        Ok(types)
    }

    fn map(&self, map: &Map) -> Check<Vec<Type>> {
        let rank = map.space.len();
        if rank == 0 || map.space.contains(&0) {
            return Err(format!("the space is {:?}, expected positive extents", map.space));
        }
        self.positive(map.schedule.lanes, "lanes")?;
        self.positive(map.schedule.unroll, "unroll")?;
        let mut args = vec![Type::Scalar(DType::I32); rank];
        for input in &map.inputs {
            let ty = self.plain(input.value, "input")?;
            self.map_input(ty, input.value, &input.axes, &map.space)?;
            args.extend(ty.dtype().map(Type::Scalar));
        }
        self.all(&map.body.args, &args, "body argument")?;
        let yields = &map.body.yields;
        if yields.len() != map.outputs.len() {
            return Err(format!("{} yields, expected {}", yields.len(), map.outputs.len()));
        }
        map.outputs
            .iter()
            .zip(yields)
            .map(|(output, value)| self.map_output(output, *value, &map.space))
            .collect()
    }

    fn map_input(&self, ty: &Type, value: Value, axes: &[u32], space: &[u32]) -> Check<()> {
        let text = self.kernel.value_text(value);
        if ty.is_scalar() {
            return Err(self.found(
                value,
                "input",
                "a tile (the body may use outer scalars directly)",
            ));
        }
        if axes.len() != ty.shape().len() {
            return Err(format!(
                "input {text} is {ty} with axes {axes:?}, expected one per tile axis"
            ));
        }
        for (position, (axis, extent)) in axes.iter().zip(ty.shape()).enumerate() {
            if axes[..position].contains(axis) {
                return Err(format!("input {text} has axes {axes:?}, expected each at most once"));
            }
            match space.get(*axis as usize) {
                Some(space_extent) if space_extent == extent => {}
                Some(space_extent) => {
                    return Err(format!(
                        "input {text} is {ty} and space axis {axis} has extent {space_extent}, expected {extent}"
                    ));
                }
                None => {
                    return Err(format!(
                        "input {text} has axis {axis} of a space of {} axes",
                        space.len()
                    ));
                }
            }
        }
        Ok(())
    }

    fn map_output(&self, output: &MapOutput, value: Value, space: &[u32]) -> Check<Type> {
        let ty = self.plain(value, "yield")?;
        let (Type::Scalar(dtype), output) = (ty, output) else {
            return Err(self.found(value, "yield", "a scalar"));
        };
        let (op, axes) = match output {
            MapOutput::Element => return Ok(Type::tile(*dtype, space)),
            MapOutput::Reduce { op, axes } => (*op, axes),
        };
        self.dtype_in(value, reducible(op))?;
        let ascending = axes.is_sorted_by(|a, b| a < b);
        if axes.is_empty() || !ascending || axes.iter().any(|axis| *axis as usize >= space.len()) {
            return Err(format!(
                "reduced axes {axes:?}, expected ascending axes below {}",
                space.len()
            ));
        }
        let kept = (0..).zip(space).filter(|(axis, _)| !axes.contains(axis));
        Ok(scalar_or_tile(*dtype, kept.map(|(_, extent)| *extent).collect()))
    }
}

/// The type of `shape`, which is a scalar's when it has no axes.
fn scalar_or_tile(dtype: DType, shape: Vec<u32>) -> Type {
    if shape.is_empty() { Type::Scalar(dtype) } else { Type::tile(dtype, shape) }
}

fn reducible(op: ReduceOp) -> &'static [DType] {
    match op {
        ReduceOp::Sum | ReduceOp::Max | ReduceOp::Min => &[DType::F32, DType::I32, DType::U32],
        ReduceOp::Any => &[DType::Bool],
    }
}

/// Whether a tile of this type may exist: extents are positive and plain formats are not called packed.
pub(crate) fn type_exists(ty: &Type) -> Check<()> {
    if let Type::Tile { element, shape } = ty {
        if shape.is_empty() || shape.contains(&0) {
            return Err(format!(
                "{ty} is no type, expected at least one axis and positive extents"
            ));
        }
        if let Element::Packed(format @ (Format::F32 | Format::F16 | Format::BF16)) = element {
            return Err(format!(
                "{ty} is no type, expected f32 elements for the plain format {format}"
            ));
        }
    }
    Ok(())
}
