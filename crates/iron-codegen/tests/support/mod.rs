//! Shared by the tests: the interpreter, snapshots, instances of test kernels.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses a part of it")]

pub mod interpret;

use std::collections::BTreeMap;
use std::path::Path;

use iron_codegen::passes::typecheck::Library;
use iron_codegen::{Binding, Instance};
use iron_core::ir::ActivationKind;
use iron_core::syntax::{Bound, Function};
use iron_core::{DType, Format};

/// An instance of `function`: one name per generic, constants by name.
pub fn instance(
    function: &'static Function,
    bindings: &[&str],
    constants: &[(&str, i64)],
) -> Instance {
    let bind = |(bound, name): (Bound, &&str)| match bound {
        Bound::Float | Bound::Int => Binding::DType(DType::parse(name).expect("a number type")),
        Bound::Format => Binding::Format(Format::parse(name).expect("a weight format")),
        Bound::Activation if *name == "int8" => Binding::Activation(ActivationKind::Int8),
        Bound::Activation => Binding::Activation(ActivationKind::Plain(
            DType::parse(name).expect("an activation kind"),
        )),
    };
    let bounds = function.generics.iter().map(|generic| generic.bound);
    Instance {
        function,
        bindings: bounds.zip(bindings).map(bind).collect(),
        constants: constants.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        schedule: "test".to_owned(),
        threads: None,
        stages: None,
    }
}

/// The kernels of the standard library by name.
pub fn standard() -> Library {
    iron_std::functions().into_iter().map(|function| (function.name, function)).collect()
}

/// No helpers.
pub fn no_helpers() -> Library {
    BTreeMap::<&'static str, &'static Function>::new().into_iter().collect()
}

/// Compares `found` with the recorded text; `IRON_BLESS=1` records it anew. The difference, if there is one.
pub fn differs(path: &Path, found: &str) -> Option<String> {
    if std::env::var_os("IRON_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a writable folder");
        std::fs::write(path, found).expect("a writable snapshot");
        return None;
    }
    let recorded = std::fs::read_to_string(path).unwrap_or_default();
    (recorded != found).then(|| {
        let line = recorded.lines().zip(found.lines()).take_while(|(a, b)| a == b).count();
        let show = |text: &str| text.lines().nth(line).unwrap_or("<end>").to_owned();
        format!(
            "{} differs at line {}:\n  recorded: {}\n  found:    {}",
            path.display(),
            line + 1,
            show(&recorded),
            show(found)
        )
    })
}
