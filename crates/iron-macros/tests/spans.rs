//! What `#[kernel]` records, and where it says that it stands.

use iron_core::syntax::{
    BinaryOp, Block, Bound, CompareOp, Expr, ExprKind, Function, ParamType, Stmt, StmtKind, UnaryOp,
};
use iron_macros::kernel;

/// Divides each row by
/// its root mean square.
#[kernel(grid = (rows, n.div_ceil(BN)), variants(HEAD_DIM = (64, 128)), native(cuda = "norm.cu"))]
fn rms_norm<T: Float, W: Format, A: Activation, I: Int>(
    x: Tensor<T, (rows, n)>,
    w: Quantized<W, (n, k)>,
    a: Activations<A, { (rows, HEAD_DIM / 2 * n) }>,
    out: TensorMut<I, (n,)>,
    eps: f32,
) {
    let row = program_id(0);
    let mut squares = zeros::<f32>((BLOCK,));
    for j in tiles(n, BLOCK) {
        let v = load(x[(row, j)]).f32();
        squares += v * v;
    }
    if row < 3u32 && !true {
        squares = -squares;
    } else if row == 4 {
        let (a, _) = (1.5, 0x10);
    } else {
        store(out[row], { eps })
    }
    store(out[row], sum(squares).cast::<I>())
}

/// Picks the larger one.
#[kernel]
fn pick(x: Value, y: Value) -> Value {
    let z = if x > y { x } else { y };
    z % 2
}

const NORM_LINE: u32 = 11;

fn stmt(function: &'static Function, index: usize) -> &'static Stmt {
    &function.body.stmts[index]
}

fn place(expr: &Expr) -> (u32, u32) {
    (expr.span.line, expr.span.column)
}

#[test]
fn the_head_is_recorded() {
    assert_eq!(RMS_NORM.name, "rms_norm");
    assert_eq!(RMS_NORM.docs, "Divides each row by its root mean square.");
    assert_eq!(RMS_NORM.native, [("cuda", "norm.cu")]);
    let variant = &RMS_NORM.variants[0];
    assert_eq!((variant.name, variant.values), ("HEAD_DIM", &[64, 128][..]));
    let bounds: Vec<_> = RMS_NORM.generics.iter().map(|it| (it.name, it.bound)).collect();
    let expected =
        [("T", Bound::Float), ("W", Bound::Format), ("A", Bound::Activation), ("I", Bound::Int)];
    assert_eq!(bounds, expected);
    assert_eq!(RMS_NORM.grid.len(), 2);
    assert!(PICK.grid.is_empty());
    assert!(matches!(PICK.params[1].ty, ParamType::Value));
    assert!(matches!(RMS_NORM.params[4].ty, ParamType::Scalar("f32")));
}

#[test]
fn computed_extents_stand_in_braces() {
    let ParamType::Activations { kind: "A", shape, mutable: false } = &RMS_NORM.params[2].ty else {
        panic!("{:?}", RMS_NORM.params[2]);
    };
    assert!(matches!(shape[1].kind, ExprKind::Binary(BinaryOp::Mul, _, _)));
}

#[test]
fn the_file_is_the_one_that_the_kernel_stands_in() {
    assert_eq!(RMS_NORM.span.file, file!());
    assert_eq!(stmt(&RMS_NORM, 0).span.file, file!());
}

#[test]
fn spans_are_lines_and_columns_of_the_source() {
    assert_eq!((RMS_NORM.span.line, RMS_NORM.span.column), (NORM_LINE, 4));
    let param = &RMS_NORM.params[0];
    assert_eq!((param.span.line, param.span.column), (NORM_LINE + 1, 5));
    let generic = &RMS_NORM.generics[1];
    assert_eq!((generic.span.line, generic.span.column), (NORM_LINE, 23));
    assert_eq!(place(&RMS_NORM.grid[0]), (NORM_LINE - 1, 18));

    let first = stmt(&RMS_NORM, 0);
    assert_eq!((first.span.line, first.span.column), (NORM_LINE + 7, 5));
    let StmtKind::Let { names: ["row"], tuple: false, mutable: false, value } = first.kind else {
        panic!("{first:?}");
    };
    assert_eq!(place(value), (NORM_LINE + 7, 15));

    let StmtKind::For { name: "j", iterator, body } = &stmt(&RMS_NORM, 2).kind else {
        panic!("{:?}", stmt(&RMS_NORM, 2));
    };
    assert_eq!(place(iterator), (NORM_LINE + 9, 14));
    let StmtKind::Let { value, .. } = body.stmts[0].kind else { panic!("{body:?}") };
    // A method call stands where its name does.
    assert_eq!(place(value), (NORM_LINE + 10, 35));
    let ExprKind::Method { receiver, name: "f32", .. } = value.kind else { panic!("{value:?}") };
    let ExprKind::Call { function: "load", args, .. } = receiver.kind else {
        panic!("{receiver:?}")
    };
    assert_eq!(place(&args[0]), (NORM_LINE + 10, 22));
    let StmtKind::Assign { name: "squares", op: Some(BinaryOp::Add), .. } = body.stmts[1].kind
    else {
        panic!("{body:?}")
    };
}

#[test]
fn branches_nest_and_keep_their_values() {
    let StmtKind::Expr(Expr { kind: ExprKind::If { condition, otherwise, .. }, .. }) =
        &stmt(&RMS_NORM, 3).kind
    else {
        panic!("{:?}", stmt(&RMS_NORM, 3));
    };
    let ExprKind::Binary(BinaryOp::And, compare, not) = condition.kind else {
        panic!("{condition:?}")
    };
    let ExprKind::Compare(CompareOp::Lt, _, suffixed) = compare.kind else { panic!("{compare:?}") };
    assert!(matches!(suffixed.kind, ExprKind::Method { name: "u32", .. }));
    assert!(matches!(not.kind, ExprKind::Unary(UnaryOp::Not, _)));
    let Some(Block { stmts: [], tail: Some(inner) }) = otherwise else { panic!("{otherwise:?}") };
    let ExprKind::If { otherwise: Some(last), .. } = inner.kind else { panic!("{inner:?}") };
    assert!(last.tail.is_some());
}

#[test]
fn a_kernel_has_no_value_and_a_helper_has() {
    assert!(RMS_NORM.body.tail.is_none());
    assert_eq!(RMS_NORM.body.stmts.len(), 5);
    assert!(PICK.body.tail.is_some());
}
