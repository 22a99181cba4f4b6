//! IR text: every operation is written and read back exactly, and faults in the text are named with their line.

mod common;

use common::{every_op, random_kernel};
use iron_core::ir::{Block, Const, DimExpr, DimOp, Kernel, OpKind, Storage};
use iron_core::{Builder, Span, verify};

#[track_caller]
fn round_trip(kernel: &Kernel) {
    let text = kernel.to_string();
    let read = Kernel::parse(&text).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    assert_eq!(read, *kernel, "{text}");
    assert_eq!(read.to_string(), text);
}

#[test]
fn every_operation_is_read_back() {
    let kernel = every_op();
    verify(&kernel).unwrap_or_else(|faults| panic!("{faults:?}\n{kernel}"));
    round_trip(&kernel);
}

#[test]
fn every_operation_occurs_in_the_round_trip() {
    let kernel = every_op();
    let mut names: Vec<&str> = Vec::new();
    kernel.body.walk(&mut |op| names.push(op.kind.name()));
    for name in [
        "const",
        "program_id",
        "dim",
        "param",
        "exp",
        "add",
        "fma",
        "cmp.lt",
        "select",
        "cast",
        "bitcast",
        "broadcast",
        "reshape",
        "transpose",
        "iota",
        "reduce.sum",
        "dot",
        "load",
        "store",
        "for",
        "if",
        "map",
        "dot_tile",
        "element_load",
        "element_store",
        "quantize_store",
        "decode_row",
    ] {
        assert!(names.contains(&name), "{name} is not covered");
    }
}

#[test]
fn random_kernels_are_read_back_and_sound() {
    for seed in 0..400 {
        let kernel = random_kernel(seed);
        verify(&kernel).unwrap_or_else(|faults| panic!("seed {seed}: {faults:?}\n{kernel}"));
        round_trip(&kernel);
    }
}

#[test]
fn compacting_keeps_the_text_up_to_numbers() {
    let mut kernel = random_kernel(7);
    kernel.compact();
    verify(&kernel).unwrap_or_else(|faults| panic!("{faults:?}\n{kernel}"));
    let again = kernel.clone();
    kernel.compact();
    assert_eq!(kernel, again);
}

#[test]
fn storage_buffers_launch_and_unused_values_are_read_back() {
    let mut kernel = every_op();
    for (number, info) in kernel.values.iter_mut().enumerate() {
        info.storage = Storage::ALL.get(number % 6).copied();
        info.buffer = (number % 3 == 0).then_some(number as u32);
    }
    kernel.launch.threads = 128;
    kernel.launch.shared_bytes = 4096;
    kernel.launch.stages = 3;
    let unused =
        kernel.new_value(iron_core::ir::Type::tile(iron_core::DType::BF16, [3, 5]), Span::NONE);
    kernel.info_mut(unused).name = Some("left_over".to_owned());
    kernel.name = "a \"quoted\"\\name\n".to_owned();
    round_trip(&kernel);
}

#[test]
fn spans_are_read_back_without_their_file() {
    let mut kernel = every_op();
    for (number, info) in kernel.values.iter_mut().enumerate() {
        info.span = Span::new("", number as u32 % 5, 2);
    }
    for (number, param) in kernel.params.iter_mut().enumerate() {
        param.span = Span::new("", number as u32 + 1, 9);
    }
    let mut line = 0;
    kernel.body.walk_mut(&mut |op| {
        line += 1;
        op.span = Span::new("", line % 4, 2);
    });
    let text = kernel.text_with_spans();
    assert_eq!(Kernel::parse(&text).expect("what was printed"), kernel, "{text}");
}

#[test]
fn unsound_kernels_are_read_back_too() {
    let mut builder = Builder::new("broken");
    let one = builder.i32(1);
    let mut kernel = builder.finish();
    kernel.body.args = vec![one];
    kernel.body.yields = vec![one, one];
    round_trip(&kernel);
    kernel.body.ops[0].kind = OpKind::If {
        condition: one,
        then: Block { args: vec![one], ..Block::default() },
        otherwise: Block::default(),
    };
    round_trip(&kernel);
}

#[test]
fn float_literals_keep_their_bits() {
    let bits = [
        0,
        1,
        0x8000_0000,
        0x3f80_0001,
        0x7f7f_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0xffc0_1234,
    ];
    for bits in bits {
        let mut builder = Builder::new("floats");
        builder.f32(f32::from_bits(bits));
        let kernel = builder.finish();
        let read = Kernel::parse(&kernel.to_string()).expect("what was printed");
        let OpKind::Const(Const::F32(number)) = read.body.ops[0].kind else { panic!("{read}") };
        assert_eq!(number.to_bits(), bits, "{kernel}");
    }
}

#[test]
fn the_text_reads_like_this() {
    let mut builder = Builder::new("scale");
    let x = builder.tensor("x", iron_core::DType::F16, &["rows", "n"], false);
    let out = builder.tensor("out", iron_core::DType::F32, &["rows", "n"], true);
    let rows = builder.dim_expr("rows");
    builder.grid(vec![rows]);
    let n = builder.dim("n");
    let row = builder.program_id(0);
    builder.name(row, "row");
    let zero = builder.i32(0);
    builder.for_loop((zero, n), 64, &[], |builder, j, _| {
        builder.name(j, "j");
        let index = || vec![iron_core::ir::Index::At(row), iron_core::ir::Index::bounded(j, 64, n)];
        let v = builder.load(x, index(), None);
        let doubled = builder.add(v, v);
        builder.store(out, index(), doubled);
        Vec::new()
    });
    let expected = r#"kernel "scale" {
  dims rows, n
  param x: tensor<f16>[rows, n]
  param out: tensor_mut<f32>[rows, n]
  grid [rows]
  body {
    %n.0: i32 = dim n
    %row.1: i32 = program_id 0
    %2: i32 = const i32 0
    for from %2 to %n.0 step 64 (%j.3: i32) {
      %4: f32[64] = load x[%row.1, range(%j.3, 64, bound %n.0)]
      %5: f32[64] = add %4, %4
      store out[%row.1, range(%j.3, 64, bound %n.0)], %5
    }
  }
}
"#;
    assert_eq!(builder.finish().to_string(), expected);
}

#[track_caller]
fn fault(text: &str, expected: &str) {
    let fault = Kernel::parse(text).expect_err("a fault in the text");
    assert_eq!(fault.to_string(), expected);
}

#[test]
fn faults_name_the_line_and_what_was_expected() {
    fault("kernel x", "line 1, column 8: expected the name of the kernel in quotes, found `x`");
    fault(
        "kernel \"x\" {\n  param y: tensor<f33>[n]",
        "line 2, column 19: expected an element type, found `f33`",
    );
    fault(
        "kernel \"x\" {\n  dims n\n  grid [m]",
        "line 3, column 9: expected one of the dimensions n, found `m`",
    );
    let body = |ops: &str| format!("kernel \"x\" {{\n  grid [1]\n  body {{\n    {ops}\n  }}\n}}");
    fault(&body("%0: i32 = konst 3"), "line 4, column 15: expected an operation, found `konst`");
    fault(&body("%0: i32 = const i32 x"), "line 4, column 25: expected an i32, found `x`");
    fault(
        &body("%0: i32 = const i32 9999999999"),
        "line 4, column 25: expected an i32, found `9999999999`",
    );
    fault(&body("%0: f32 = exp %1"), "line 4, column 19: `%1` is defined nowhere");
    fault(
        &body("%a.0: f32 = const f32 1\n%1: f32 = exp %b.0"),
        "line 5, column 15: expected `%a.0`, found `%b.0`",
    );
    fault(
        &body("%1: f32 = const f32 1"),
        "line 6, column 2: expected %0 to be defined or listed as `unused`",
    );
    fault(
        &body("%0: f32 = load x[3]"),
        "line 4, column 20: expected the name of a parameter, found `x`",
    );
    fault(&body("%0: i32 = const i32 1 $"), "line 4, column 27: unknown character in `$`");
    fault(&(body("") + "x"), "line 6, column 2: expected the end of the text, found `x`");
}

#[test]
fn dimension_expressions_are_read_back() {
    let dims = ["n".to_owned(), "k".to_owned()];
    let mut random = common::Random::new(3);
    for _ in 0..500 {
        let expr = random.dim_expr(4);
        let text = expr.display(&dims).to_string();
        assert_eq!(DimExpr::parse(&text, &dims), Ok(expr.clone()), "{text}");
        let extents = [random.below(9) as i64 - 4, random.below(9) as i64 - 4];
        if let Some(number) = expr.eval(&extents) {
            assert_eq!(expr.simplified().eval(&extents), Some(number), "{text}");
        }
    }
    let text = "(n + 31) / 32 * k.max(2)";
    let expr = DimExpr::parse(text, &dims).expect("an expression");
    assert_eq!(expr.eval(&[33, 5]), Some(10));
    assert!(matches!(expr, DimExpr::Op(DimOp::Mul, _, _)));
    let fault = DimExpr::parse("n +", &dims).expect_err("no operand");
    assert_eq!(
        fault.to_string(),
        "line 1, column 4: expected a dimension or an integer, found the end of the text"
    );
}
