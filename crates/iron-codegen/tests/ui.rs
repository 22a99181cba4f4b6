//! Kernels that do not type-check, each with the message that its author sees: `tests/ui/*.rs` with `*.stderr` beside.
//!
//! `IRON_BLESS=1 cargo test -p iron-codegen --test ui` records the messages anew.

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "`#[kernel]` declares statics; their names say what they are"
)]

mod support;

#[path = "ui/control.rs"]
mod control;
#[path = "ui/memory.rs"]
mod memory;
#[path = "ui/names.rs"]
mod names;
#[path = "ui/ranges.rs"]
mod ranges;
#[path = "ui/shapes.rs"]
mod shapes;
#[path = "ui/types.rs"]
mod types;

use std::path::Path;

use iron_codegen::compile::{Options, Pass, compile_cpu};
use iron_codegen::passes::typecheck::Library;
use iron_core::render;
use iron_core::syntax::Function;

fn messages(cases: &[&'static Function], library: &Library) -> String {
    let mut text = String::new();
    for function in cases {
        // The only generics here are activations.
        let bindings = vec!["int8"; function.generics.len()];
        let instance = support::instance(function, &bindings, &[]);
        let options = Options { until: Some(Pass::TileLowering), ..Options::default() };
        match compile_cpu(&instance, library, &options) {
            Ok(_) => panic!("`{}` was accepted", function.name),
            Err(fault) => {
                assert!(fault.help.is_some(), "no word on what to write instead: {fault}");
                assert!(fault.span.line > 0, "no position: {fault}");
                text.push_str(&render(&fault));
                text.push('\n');
            }
        }
    }
    text
}

fn check(name: &str, cases: &[&'static Function], library: &Library) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui").join(name);
    let found = messages(cases, library);
    if let Some(difference) = support::differs(&path.with_extension("stderr"), &found) {
        panic!("{difference}\n{found}");
    }
}

#[test]
fn shapes_that_do_not_fit() {
    check("shapes", shapes::CASES, &support::no_helpers());
}

#[test]
fn numbers_of_the_wrong_type() {
    check("types", types::CASES, &support::no_helpers());
}

#[test]
fn names_and_calls() {
    let helpers = names::HELPERS.iter().map(|helper| (helper.name, *helper)).collect();
    check("names", names::CASES, &helpers);
}

#[test]
fn ranges_used_as_something_else() {
    check("ranges", ranges::CASES, &support::no_helpers());
}

#[test]
fn reads_and_writes_that_cannot_be() {
    check("memory", memory::CASES, &support::no_helpers());
}

#[test]
fn variables_loops_and_branches() {
    check("control", control::CASES, &support::no_helpers());
}
