//! Faulty kernels and the messages they get: `tests/ui/*.rs` with `*.stderr` beside each.
//!
//! `IRON_BLESS=1 cargo test -p iron-macros` writes the messages anew.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use syn::{Item, ItemFn, Meta};

use crate::expand;

/// The errors of each `#[kernel]` in a file, as `line:column: message`.
fn messages(source: &str) -> Vec<String> {
    let file = syn::parse_file(source).expect("cases parse as Rust, else rustc speaks first");
    let functions = file.items.into_iter().filter_map(|item| match item {
        Item::Fn(function) => Some(function),
        _ => None,
    });
    functions.map(messages_of).collect()
}

fn messages_of(mut function: ItemFn) -> String {
    let position = function.attrs.iter().position(|it| it.path().is_ident("kernel"));
    let arguments = match function.attrs.remove(position.expect("a #[kernel]")).meta {
        Meta::List(list) => list.tokens,
        _ => proc_macro2::TokenStream::new(),
    };
    let mut text = String::new();
    if let Err(error) = expand(arguments, &function) {
        report(&mut text, &error);
    }
    text
}

fn report(text: &mut String, error: &syn::Error) {
    for error in error {
        let start = error.span().start();
        let message = error.to_string().replace('\n', "\n  ");
        let _ = writeln!(text, "{}:{}: {message}", start.line, start.column + 1);
    }
}

fn cases() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(directory)
        .expect("tests/ui exists")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    cases.sort();
    cases
}

#[test]
fn faulty_kernels_get_the_recorded_messages() {
    let bless = std::env::var_os("IRON_BLESS").is_some();
    let mut changed = Vec::new();
    for case in cases() {
        let source = std::fs::read_to_string(&case).expect("a readable case");
        let found = messages(&source).concat();
        let expected = case.with_extension("stderr");
        if bless {
            std::fs::write(&expected, &found).expect("a writable case");
        } else if std::fs::read_to_string(&expected).unwrap_or_default() != found {
            changed.push(format!("{}:\n{found}", case.display()));
        }
    }
    assert!(changed.is_empty(), "messages changed:\n{}", changed.join("\n"));
}

#[test]
fn every_faulty_kernel_is_rejected() {
    for case in cases() {
        let source = std::fs::read_to_string(&case).expect("a readable case");
        let accepted = messages(&source).iter().position(String::is_empty);
        assert_eq!(accepted, None, "{}: a kernel was accepted", case.display());
    }
}

#[test]
fn all_faults_of_a_body_are_reported_together() {
    let function: ItemFn =
        syn::parse_str("fn f(x: Value) -> Value { let a = &x; let b = x as f32; a }")
            .expect("Rust syntax");
    let error = expand(proc_macro2::TokenStream::new(), &function).expect_err("two faults");
    assert_eq!(error.into_iter().count(), 2);
}
