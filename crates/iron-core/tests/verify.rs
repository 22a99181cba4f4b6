//! Broken kernels and what the verifier says of each.

mod common;

use iron_core::ir::{Kernel, OpKind, Type};
use iron_core::{DType, Span, verify};

/// Parameters of every kind, and a few values of every type.
const HEAD: &str = r#"kernel "broken" {
  dims m, n, k
  param x: tensor<f16>[m, k]
  param out: tensor_mut<f32>[m, n]
  param ids: tensor<i32>[m]
  param w: quantized<q4_0>[n, k]
  param a: activations<int8>[m, k]
  param q: activations_mut<int8>[m, k]
  param eps: f32
  grid [m]
  body {
    %i.0: i32 = const i32 0
    %f.1: f32 = const f32 1.0
    %c.2: bool = const bool true
    %t.3: f32[4, 32] = broadcast %f.1 axes []
    %v.4: f32[32] = broadcast %f.1 axes []
    %b.5: bool[32] = broadcast %c.2 axes []
    %l.6: i32[4] = iota %i.0 stride 1
    %u.7: u32 = const u32 1
    %acc.8: f32[4, 16] = broadcast %f.1 axes []
    %w.9: packed<q4_0>[16, 32] = load w[range(%i.0, 16), range(%i.0, 32)]
    %a.10: int8[4, 32] = load a[range(%i.0, 4), range(%i.0, 32)]
"#;

fn kernel(ops: &str) -> Kernel {
    let text = format!("{HEAD}{ops}\n}}\n}}");
    Kernel::parse(&text).unwrap_or_else(|fault| panic!("{fault}\n{text}"))
}

fn messages(kernel: &Kernel) -> Vec<String> {
    let faults = verify(kernel).err().unwrap_or_default();
    faults.into_iter().map(|fault| fault.message).collect()
}

/// `ops` after the head are refused with this message alone.
#[track_caller]
fn refused(ops: &str, message: &str) {
    assert_eq!(messages(&kernel(ops)), [message], "{ops}");
}

#[track_caller]
fn accepted(ops: &str) {
    assert_eq!(messages(&kernel(ops)), [""; 0], "{ops}");
}

#[test]
fn the_head_is_sound() {
    accepted("");
}

#[test]
fn a_fault_carries_kernel_and_position() {
    let mut broken = kernel("%11: f32 = neg %c.2");
    broken.body.ops.last_mut().expect("an operation").span = Span::new("norm.rs", 3, 7);
    let faults = verify(&broken).expect_err("a fault");
    let text =
        "norm.rs:3:7: `neg`: operand %c.2 is bool, expected elements of f32 or i32 (in `broken`)";
    assert_eq!(faults[0].to_string(), text);
}

#[test]
fn the_grid_has_one_to_three_axes() {
    let mut broken = kernel("");
    broken.grid.clear();
    assert_eq!(messages(&broken), ["the grid has 0 axes, expected 1 to 3"]);
}

#[test]
fn dimensions_in_shapes_exist() {
    let mut broken = kernel("");
    broken.dims.pop();
    let expected = [
        "parameter `x` names dimension 2 of a kernel that has 2",
        "parameter `w` names dimension 2 of a kernel that has 2",
        "parameter `a` names dimension 2 of a kernel that has 2",
        "parameter `q` names dimension 2 of a kernel that has 2",
    ];
    assert_eq!(messages(&broken), expected);
}

#[test]
fn parameter_names_are_distinct() {
    let mut broken = kernel("");
    broken.params[1].name = "x".to_owned();
    assert_eq!(messages(&broken), ["parameter `x`, expected a name that occurs once"]);
}

#[test]
fn the_body_takes_and_gives_nothing() {
    refused("yield %i.0", "the kernel body has arguments or yields, expected none");
}

#[test]
fn uses_come_after_definitions() {
    refused(
        "%11: f32 = neg %12\n%12: f32 = neg %f.1",
        "`neg` uses %12, which is not defined before this",
    );
    refused("%11: f32 = neg %11", "`neg` uses %11, which is not defined before this");
}

#[test]
fn values_stay_in_their_block() {
    refused(
        "if %c.2 {\n%11: f32 = neg %f.1\n} else {\n}\n%12: f32 = neg %11",
        "`neg` uses %11, which is out of scope here",
    );
    refused(
        "if %c.2 {\n%11: f32 = neg %f.1\n} else {\n%12: f32 = neg %11\n}",
        "`neg` uses %11, which is out of scope here",
    );
}

#[test]
fn each_value_is_defined_once() {
    refused(
        "%11: f32 = neg %f.1\n%11: f32 = neg %f.1",
        "`neg` defines %11, which is defined already",
    );
    refused(
        "if %c.2 {\n%11: f32 = neg %f.1\n} else {\n%11: f32 = neg %f.1\n}",
        "`neg` defines %11, which is defined already",
    );
}

#[test]
fn results_are_in_the_value_table() {
    let mut broken = kernel("%11: f32 = neg %f.1");
    broken.values.pop();
    assert_eq!(messages(&broken), ["`neg` defines %11, which is not in the value table"]);
}

#[test]
fn types_exist() {
    let mut broken = kernel("");
    broken.new_value(Type::tile(DType::F32, [4, 0]), Span::NONE);
    broken.new_value(Type::tile(DType::F32, []), Span::NONE);
    let expected = [
        "%11: f32[4, 0] is no type, expected at least one axis and positive extents",
        "%12: f32[] is no type, expected at least one axis and positive extents",
    ];
    assert_eq!(messages(&broken), expected);
}

#[test]
fn result_types_are_those_of_the_operation() {
    refused("%11: i32 = neg %f.1", "`neg`: result %11 is i32, expected f32");
    refused("neg %f.1", "`neg` has 0 results, expected 1");
    refused("%11: f32 = const i32 1", "`const`: result %11 is f32, expected i32");
}

#[test]
fn indices_into_the_signature_exist() {
    refused(
        "%11: i32 = program_id 1",
        "`program_id`: axis 1 of a grid of 1 axes, expected less than 1",
    );
    refused("%11: f32 = param x", "`param`: `x` is a tensor, expected a scalar parameter");
    let mut broken = kernel("%11: i32 = dim n");
    broken.body.ops.last_mut().expect("an operation").kind = OpKind::Dim(9);
    assert_eq!(messages(&broken), ["`dim`: dimension 9 of a kernel that has 3"]);
    refused(
        "%11: f32 = load eps[%i.0]",
        "`load`: `eps` is a scalar f32, expected a tensor parameter",
    );
}

#[test]
fn arithmetic_takes_fitting_operands() {
    refused(
        "%11: f32[32] = add %v.4, %f.1",
        "`add`: operand %f.1 is f32, expected f32[32], the type of %v.4",
    );
    refused(
        "%11: f32 = rem %f.1, %f.1",
        "`rem`: operand %f.1 is f32, expected elements of i32 or u32",
    );
    refused(
        "%11: i32 = fma %i.0, %i.0, %i.0",
        "`fma`: operand %i.0 is i32, expected elements of f32",
    );
    refused(
        "%11: f32 = exp %w.9",
        "`exp`: operand %w.9 is packed<q4_0>[16, 32], expected plain numbers",
    );
    refused(
        "%11: bool = cmp.lt %c.2, %c.2",
        "`cmp.lt`: operand %c.2 is bool, expected elements of f32 or i32 or u32",
    );
    refused(
        "%11: f32[32] = select %c.2, %v.4, %v.4",
        "`select`: condition %c.2 is bool, expected bool[32]",
    );
}

#[test]
fn conversions_keep_the_shape() {
    let tail = "expected the same shape and a number type it converts to";
    refused(
        "%11: f32[4] = cast %i.0",
        &format!("`cast`: %i.0 is i32 and the result f32[4], {tail}"),
    );
    refused("%11: bool = cast %i.0", &format!("`cast`: %i.0 is i32 and the result bool, {tail}"));
    refused(
        "%11: f32[4, 32] = cast %a.10",
        &format!("`cast`: %a.10 is int8[4, 32] and the result f32[4, 32], {tail}"),
    );
    accepted("%11: f32[16, 32] = cast %w.9");
    refused(
        "%11: f16 = bitcast %i.0",
        "`bitcast`: %i.0 is i32 and the result f16, expected the same shape and element size",
    );
    refused(
        "%11: f32[16] = reshape %v.4",
        "`reshape`: %v.4 is f32[32] and the result f32[16], expected as many elements of the same type",
    );
}

#[test]
fn broadcast_axes_ascend_and_extents_agree() {
    refused(
        "%11: f32[32, 4] = broadcast %t.3 axes [1, 0]",
        "`broadcast`: axes [1, 0], expected ascending axes below 2",
    );
    refused(
        "%11: f32[4, 32] = broadcast %v.4 axes [2]",
        "`broadcast`: axes [2], expected ascending axes below 2",
    );
    refused(
        "%11: f32[4, 32] = broadcast %v.4 axes [0]",
        "`broadcast`: %v.4 is f32[32] and result axis 0 has extent 4, expected 32",
    );
    refused(
        "%11: f32[4, 32] = broadcast %v.4 axes []",
        "`broadcast`: axes [] for %v.4 of f32[32], expected one result axis per axis",
    );
    refused(
        "%11: f32 = broadcast %f.1 axes []",
        "`broadcast`: the result is f32, expected a tile of the elements of f32",
    );
}

#[test]
fn transpose_takes_two_axes() {
    refused(
        "%11: f32[32] = transpose %v.4",
        "`transpose`: operand %v.4 is f32[32], expected a 2-D tile of plain numbers",
    );
}

#[test]
fn iota_makes_one_axis_of_i32() {
    refused(
        "%11: f32[4] = iota %i.0 stride 1",
        "`iota`: the result is f32[4], expected a 1-D tile of i32",
    );
    refused("%11: i32[4] = iota %f.1 stride 1", "`iota`: start %f.1 is f32, expected a scalar i32");
    refused("%11: i32[4] = iota %i.0 stride 0", "`iota`: stride is 0, expected a positive number");
}

#[test]
fn reduced_axes_are_in_range() {
    refused(
        "%11: f32[4] = reduce.sum %t.3 axis 2",
        "`reduce.sum`: axis 2 of %t.3, which is f32[4, 32], expected below 2",
    );
    refused("%11: f32 = reduce.sum %f.1", "`reduce.sum`: operand %f.1 is f32, expected a tile");
    refused(
        "%11: f32 = reduce.any %v.4",
        "`reduce.any`: operand %v.4 is f32[32], expected elements of bool",
    );
    refused(
        "%11: bool = reduce.max %b.5",
        "`reduce.max`: operand %b.5 is bool[32], expected elements of f32 or i32 or u32",
    );
}

#[test]
fn dot_shapes_and_elements_agree() {
    accepted("%11: f32[4, 16] = dot %a.10, %w.9, %acc.8");
    accepted("%11: f32[4, 16] = dot %t.3, %w.9, %acc.8");
    refused(
        "%11: f32[4, 16] = dot %acc.8, %w.9, %acc.8",
        "`dot`: a is [4, 16] and b is [16, 32], expected the same extent along k (axis 1)",
    );
    refused(
        "%11: f32[4, 16] = dot %a.10, %t.3, %acc.8",
        "`dot`: b is made of f32, expected packed weights",
    );
    refused(
        "%11: f32[4, 16] = dot %w.9, %w.9, %acc.8",
        "`dot`: a is made of packed<q4_0>, expected floats or int8 activations",
    );
    refused(
        "%11: f32[4, 32] = dot %t.3, %w.9, %t.3",
        "`dot`: acc %t.3 is f32[4, 32], expected f32[4, 16]",
    );
    refused(
        "%11: f32[4, 16] = dot %v.4, %w.9, %acc.8",
        "`dot`: a %v.4 is f32[32], expected a 2-D tile",
    );
}

#[test]
fn dot_tile_reads_two_axes_and_steps_by_its_k() {
    accepted("%11: f32[4, 16] = dot_tile %a.10, w[range(%i.0, 16), range(%i.0, 32)], %acc.8 k 32");
    refused(
        "%11: f32[4, 16] = dot_tile %a.10, w[range(%i.0, 16), range(%i.0, 32)], %acc.8 k 16",
        "`dot_tile`: a and b are 32 along k, but the step is k = 16",
    );
    refused(
        "%11: f32[4, 16] = dot_tile %a.10, w[%i.0, range(%i.0, 32)], %acc.8 k 32",
        "`dot_tile`: b takes 1 axes of `w`, expected 2",
    );
}

#[test]
fn an_index_has_the_rank_of_its_parameter() {
    refused("%11: f32 = load x[%i.0]", "`load`: `x` is indexed along 1 axes, expected 2");
    refused("%11: f32 = load x[%i.0, %f.1]", "`load`: index %f.1 is f32, expected a scalar i32");
    refused(
        "%11: f32[4] = load x[%i.0, range(%u.7, 4)]",
        "`load`: start %u.7 is u32, expected a scalar i32",
    );
    refused(
        "%11: f32[4] = load x[%i.0, range(%i.0, 4, bound %u.7)]",
        "`load`: bound %u.7 is u32, expected a scalar i32",
    );
    refused(
        "%11: f32[4] = load x[%i.0, range(%i.0, 4, stride 0)]",
        "`load`: range stride is 0, expected a positive number",
    );
    refused(
        "%11: f32[32] = load x[gather %v.4, %i.0]",
        "`load`: gathered index %v.4 is f32[32], expected a 1-D tile of i32",
    );
    accepted("%11: f32[4] = load x[gather %l.6, %i.0]");
}

#[test]
fn loads_have_the_element_and_fill_of_the_parameter() {
    refused("%11: f16 = load x[%i.0, %i.0]", "`load`: result %11 is f16, expected f32");
    refused(
        "%11: f32 = load x[%i.0, %i.0] fill %i.0",
        "`load`: fill %i.0 is i32, expected a scalar f32",
    );
    refused(
        "%11: f32 = load w[%i.0, %i.0]",
        "`load`: `w` is made of packed<q4_0>, expected a range of stride 1 along its last axis",
    );
    refused(
        "%11: packed<q4_0>[32] = load w[%i.0, range(%i.0, 32)] fill %f.1",
        "`load`: `w` is made of packed<q4_0>, which has no fill",
    );
}

#[test]
fn stores_go_to_mutable_parameters_of_the_shape_and_class() {
    refused(
        "store x[%i.0, %i.0], %f.1",
        "`store`: `x` is read-only, expected a parameter that is `Mut`",
    );
    refused(
        "store out[%i.0, range(%i.0, 16)], %v.4",
        "`store`: value %v.4 is f32[32], expected the indexed shape [16]",
    );
    refused(
        "store out[%i.0, %i.0], %i.0",
        "`store`: value %i.0 is i32, expected floats, the elements of `out`",
    );
    refused(
        "store q[%i.0, range(%i.0, 4)], %v.4",
        "`store`: value %v.4 is f32[32], expected f32[4]",
    );
}

#[test]
fn loops_carry_what_they_yield() {
    let refused_loop = |ops: &str, message: &str| refused(ops, &format!("`for`: {message}"));
    refused_loop(
        "%11: f32 = for from %i.0 to %i.0 step 1 with (%f.1) (%12: i32, %13: f32) {\n}",
        "0 carried yields, expected 1",
    );
    refused_loop(
        "%11: f32 = for from %i.0 to %i.0 step 1 with (%f.1) (%12: i32) {\nyield %f.1\n}",
        "1 body arguments, expected 2",
    );
    refused_loop(
        "%11: f32 = for from %i.0 to %i.0 step 1 with (%f.1) (%12: i32, %13: f32) {\nyield %12\n}",
        "carried yield %12 is i32, expected f32",
    );
    refused_loop(
        "for from %i.0 to %i.0 step 1 (%11: u32) {\n}",
        "body argument %11 is u32, expected i32",
    );
    refused_loop(
        "for from %f.1 to %i.0 step 1 (%11: i32) {\n}",
        "lower bound %f.1 is f32, expected a scalar i32",
    );
    refused_loop(
        "for from %i.0 to %i.0 step 0 (%11: i32) {\n}",
        "step is 0, expected a positive number",
    );
    refused(
        "for from %i.0 to %i.0 step 1 with (%f.1) (%11: i32, %12: f32) {\nyield %12\n}",
        "`for` has 0 results, expected 1",
    );
}

#[test]
fn branches_yield_alike() {
    refused("if %i.0 {\n} else {\n}", "`if`: condition %i.0 is i32, expected a scalar bool");
    refused("%11: f32 = if %c.2 {\nyield %f.1\n} else {\n}", "`if`: 0 `else` yields, expected 1");
    refused(
        "%11: f32 = if %c.2 {\nyield %f.1\n} else {\nyield %i.0\n}",
        "`if`: `else` yield %i.0 is i32, expected f32",
    );
    refused("if %c.2 (%11: i32) {\n} else {\n}", "`if`: 1 arguments, expected 0");
}

#[test]
fn map_inputs_index_the_space() {
    let map = |inputs: &str| {
        let args = "(%12: i32, %13: i32, %14: f32)";
        format!(
            "%11: f32[4, 32] = map [4, 32] inputs ({inputs}) outputs (element) {args} {{\nyield %14\n}}"
        )
    };
    accepted(&map("%t.3 axes [0, 1]"));
    accepted(&map("%v.4 axes [1]"));
    refused(
        &map("%t.3 axes [1, 0]"),
        "`map`: input %t.3 is f32[4, 32] and space axis 1 has extent 32, expected 4",
    );
    refused(&map("%v.4 axes [2]"), "`map`: input %v.4 has axis 2 of a space of 2 axes");
    refused(
        &map("%t.3 axes [0, 0]"),
        "`map`: input %t.3 has axes [0, 0], expected each at most once",
    );
    refused(
        &map("%v.4 axes []"),
        "`map`: input %v.4 is f32[32] with axes [], expected one per tile axis",
    );
    refused(
        &map("%f.1 axes []"),
        "`map`: input %f.1 is f32, expected a tile (the body may use outer scalars directly)",
    );
}

#[test]
fn map_arguments_and_outputs_agree_with_the_body() {
    refused("map [0] (%11: i32) {\n}", "`map`: the space is [0], expected positive extents");
    refused("map [4] {\n}", "`map`: 0 body arguments, expected 1");
    refused(
        "%11: f32[4] = map [4] outputs (element) (%12: i32) {\n}",
        "`map`: 0 yields, expected 1",
    );
    refused(
        "%11: f32 = map [4] outputs (reduce.sum [1]) (%12: i32) {\nyield %f.1\n}",
        "`map`: reduced axes [1], expected ascending axes below 1",
    );
    refused(
        "%11: f32[4] = map [4] outputs (reduce.sum [0]) (%12: i32) {\nyield %f.1\n}",
        "`map`: result %11 is f32[4], expected f32",
    );
    refused(
        "map [4] lanes 0 unroll 1 (%11: i32) {\n}",
        "`map`: lanes is 0, expected a positive number",
    );
}

#[test]
fn element_operations_stand_in_maps_only() {
    refused(
        "%11: f32 = element_load x[%i.0, %i.0] fill %f.1",
        "`element_load` outside a map, expected it inside one",
    );
    refused(
        "element_store out[%i.0, %i.0] value %f.1",
        "`element_store` outside a map, expected it inside one",
    );
    refused(
        "map [4] (%11: i32) {\n%12: f32 = load x[%i.0, %11]\n}",
        "`load` inside a map, expected scalar operations only",
    );
    refused(
        "map [4] (%11: i32) {\n%12: f32[32] = neg %v.4\n}",
        "`neg` inside a map uses the tile %v.4, expected a scalar",
    );
}

#[test]
fn guards_are_i32_scalars() {
    let load = |guard: &str| {
        format!(
            "map [4] (%11: i32) {{\n%12: f32 = element_load x[%i.0, %11] guard ({guard}) fill %f.1\n}}"
        )
    };
    accepted(&load("%11 < %i.0, 0 <= %i.0 < %11"));
    refused(
        &load("%f.1 < %i.0"),
        "`element_load`: guarded index %f.1 is f32, expected a scalar i32",
    );
    refused(&load("%11 < %u.7"), "`element_load`: guard bound %u.7 is u32, expected a scalar i32");
}

#[test]
fn element_operations_check_rank_mutability_and_value() {
    let body = |op: &str| format!("map [4] (%11: i32) {{\n{op}\n}}");
    refused(
        &body("element_store x[%i.0, %11] value %f.1"),
        "`element_store`: `x` is read-only, expected a parameter that is `Mut`",
    );
    refused(
        &body("element_store out[%11] value %f.1"),
        "`element_store`: `out` is indexed along 1 axes, expected 2",
    );
    refused(
        &body("element_store out[%11, %11] value %11"),
        "`element_store`: value %11 is i32, expected floats, the elements of `out`",
    );
    refused(
        &body("%12: f32 = element_load w[%11, %11] fill %f.1"),
        "`element_load`: `w` is made of packed<q4_0>, expected plain numbers",
    );
    refused(
        &body("%12: f32 = element_load x[%11, %11] fill %i.0"),
        "`element_load`: fill %i.0 is i32, expected a scalar f32",
    );
}

#[test]
fn quantised_rows_are_whole_blocks() {
    accepted("quantize_store q[range(%i.0, 4), range(%i.0, 32)], %t.3");
    refused(
        "%11: f32[16] = broadcast %f.1 axes []\nquantize_store q[%i.0, range(%i.0, 16)], %11",
        "`quantize_store`: 16 values along k of `q`, expected a multiple of 32",
    );
    refused(
        "quantize_store a[%i.0, range(%i.0, 32)], %v.4",
        "`quantize_store`: `a` is read-only, expected a parameter that is `Mut`",
    );
    refused(
        "quantize_store out[%i.0, range(%i.0, 32)], %v.4",
        "`quantize_store`: `out` is made of f32, expected int8",
    );
}

#[test]
fn decode_row_takes_one_row_of_weights() {
    accepted("%11: f32[32] = decode_row w[%i.0, range(%i.0, 32)]");
    refused(
        "%11: f32[32] = decode_row x[%i.0, range(%i.0, 32)]",
        "`decode_row`: `x` is not quantised, expected `Quantized`",
    );
    refused(
        "%11: f32[4, 32] = decode_row w[range(%i.0, 4), range(%i.0, 32)]",
        "`decode_row`: the index must be one row and a range along k of stride 1",
    );
}

#[test]
fn every_fault_is_reported() {
    let broken = kernel("%11: f32 = neg %c.2\n%12: i32 = exp %f.1");
    assert_eq!(messages(&broken).len(), 2);
}

#[test]
fn operations_of_the_builder_return_faults() {
    let mut builder = iron_core::Builder::new("f");
    let number = builder.i32(1);
    let truth = builder.bool(true);
    let fault =
        builder.try_emit(OpKind::Select(truth, number, truth), None).expect_err("two types");
    assert_eq!(fault.message, "`select`: operand %1 is bool, expected i32, the type of %0");
}
