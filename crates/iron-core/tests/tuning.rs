//! Tuning files and the conditions in them.

use iron_core::predicate::Predicate;
use iron_core::tuning::{Tuning, TuningFault};

const MATMUL: &str = r#"
[matmul]
[[matmul.schedule]]
name = "decode"
when = "m == 1 && HEAD_DIM <= 64"
BM = 1
BN = 0x10
BK = 512
threads = 128
stages = 2
only = { W = ["q4_0", "q4_1"], A = ["int8"] }

[[matmul.schedule]]
name = "general"
BM = 64
"#;

fn holds(text: &str, names: &[(&str, i64)]) -> Option<bool> {
    let predicate = Predicate::parse(text).expect("a condition");
    predicate.eval(&|name| names.iter().find(|(known, _)| *known == name).map(|(_, value)| *value))
}

#[test]
fn a_file_is_read_in_full() {
    let tuning = Tuning::parse(MATMUL).expect("a tuning file");
    let [decode, general] = tuning.kernels["matmul"].as_slice() else { panic!("{tuning:?}") };
    assert_eq!((decode.name.as_str(), decode.line), ("decode", 3));
    assert_eq!((decode.threads, decode.stages), (Some(128), Some(2)));
    assert_eq!(decode.constants["BN"], 16);
    assert_eq!(decode.constants.len(), 3);
    assert_eq!(decode.only["W"], ["q4_0", "q4_1"]);
    assert_eq!(
        decode.when.as_ref().map(ToString::to_string).as_deref(),
        Some("m == 1 && HEAD_DIM <= 64")
    );
    assert!(general.is_unconditional());
}

#[test]
fn only_selects_by_binding() {
    let tuning = Tuning::parse(MATMUL).expect("a tuning file");
    let names = |bindings: &[(&str, &str)]| -> Vec<String> {
        tuning.schedules("matmul", bindings).map(|schedule| schedule.name.clone()).collect()
    };
    assert_eq!(names(&[("W", "q4_1"), ("A", "int8"), ("T", "f16")]), ["decode", "general"]);
    assert_eq!(names(&[("W", "q6_k"), ("A", "int8")]), ["general"]);
    assert!(tuning.schedules("softmax", &[]).next().is_none());
}

#[track_caller]
fn fault(text: &str, expected: &str) -> TuningFault {
    let error = Tuning::parse(text).expect_err("a fault");
    assert_eq!(error.to_string(), expected);
    error.fault
}

#[test]
fn faults_name_the_line_and_what_was_expected() {
    let with = |line: &str| format!("[[norm.schedule]]\nname = \"all\"\n{line}\n");
    assert!(matches!(
        fault("[norm\n", "line 1: unclosed table, expected `]`"),
        TuningFault::Toml(_)
    ));
    fault(&with("BLOCK = 0"), "line 3: `BLOCK` is the integer 0, expected a positive integer");
    fault(
        &with("BLOCK = \"x\""),
        "line 3: `BLOCK` is the string \"x\", expected a positive integer",
    );
    fault(
        &with("threads = -1"),
        "line 3: `threads` is the integer -1, expected a positive integer",
    );
    fault(
        &with("thread = 1"),
        "line 3: unknown key `thread`, expected name, when, only, threads, stages or a constant in capitals",
    );
    fault(
        &with("only = { W = [] }"),
        "line 3: `W` is of type array, expected a list of names in quotes",
    );
    fault(
        &with("when = \"m ==\""),
        "line 3: `when`, column 5: expected a dimension, a constant or an integer, found the end of the text",
    );
    fault(
        "[[norm.schedule]]\nBLOCK = 3\n",
        "line 1: a schedule of `norm` has no name, expected `name = \"..\"`",
    );
    fault("[norm]\n", "line 1: `norm` has no schedules, expected `[[norm.schedule]]`");
    fault(
        "norm = 3\n",
        "line 1: `norm` is the integer 3, expected a table with `[[kernel.schedule]]` entries",
    );
    fault("[norm]\nx = 3\n", "line 2: unknown key `x`, expected `schedule`");
}

#[test]
fn the_last_schedule_always_applies_and_only_the_last() {
    let last = "line 1: the last schedule of `norm`, `a`, has `when` or `only`, expected one that always applies";
    fault("[[norm.schedule]]\nname = \"a\"\nwhen = \"m == 1\"\n", last);
    fault("[[norm.schedule]]\nname = \"a\"\nonly = { W = [\"q4_0\"] }\n", last);
    fault(
        "[[norm.schedule]]\nname = \"a\"\n[[norm.schedule]]\nname = \"b\"\n",
        "line 3: `b` is never reached, because `a` before it always applies",
    );
    fault(
        "[[norm.schedule]]\nname = \"a\"\nwhen = \"m == 1\"\n[[norm.schedule]]\nname = \"a\"\n",
        "line 4: `norm` has a second schedule `a`, expected distinct names",
    );
}

#[test]
fn conditions_follow_the_usual_precedence() {
    let names = [("m", 3), ("n", 130), ("B", 64)];
    assert_eq!(holds("m + 2 * 2 == 7", &names), Some(true));
    assert_eq!(holds("(m + 2) * 2 == 10", &names), Some(true));
    assert_eq!(holds("m == 0 && m == 1 || n > B", &names), Some(true));
    assert_eq!(holds("m == 0 && (m == 1 || n > B)", &names), Some(false));
    assert_eq!(holds("!(n % B == 0) && n / B >= 2", &names), Some(true));
    assert_eq!(holds("-m < -2", &names), Some(true));
    assert_eq!(holds("n - 1 - 1 == 128", &names), Some(true));
}

#[test]
fn an_unknown_name_leaves_the_value_open_unless_it_does_not_matter() {
    assert_eq!(holds("k == 1", &[]), None);
    assert_eq!(holds("k == 1 && m == 2", &[("m", 1)]), Some(false));
    assert_eq!(holds("k == 1 || m == 1", &[("m", 1)]), Some(true));
}

#[test]
fn division_by_zero_is_zero_and_overflow_wraps() {
    assert_eq!(holds("1 / m == 0 && 1 % m == 0", &[("m", 0)]), Some(true));
    assert_eq!(holds("m * m >= 0 || true", &[("m", i64::MAX)]), Some(true));
    assert_eq!(holds("m / -1 == m", &[("m", i64::MIN)]), Some(true));
}

#[test]
fn text_is_read_back() {
    for text in [
        "m == 1",
        "a - (b - c) != a % (b * c)",
        "!(a < b) && (a > b || c <= 3) && !(a == -3 || !(b >= c))",
        "a == 1 && (b == 1 && c == 1)",
        "a == 1 || (b == 1 || c == 1)",
        "!!true",
    ] {
        let predicate = Predicate::parse(text).expect("a condition");
        assert_eq!(predicate.to_string(), text);
    }
}

#[test]
fn rust_text_indexes_the_dimensions() {
    let dims = ["m".to_owned(), "n".to_owned()];
    let predicate =
        Predicate::parse("m == 1 && n % HEAD_DIM == 0 && HEAD_DIM + 1 < 99").expect("a condition");
    let bound = predicate.bind(&|name| (name == "HEAD_DIM").then_some(64));
    assert_eq!(bound.to_rust(&dims).as_deref(), Ok("(d[0] == 1i64) && ((d[1] % 64i64) == 0i64)"));
    let unknown = predicate.to_rust(&dims).expect_err("HEAD_DIM is not bound");
    assert_eq!(unknown.to_string(), "`HEAD_DIM` is neither a dimension (m, n) nor a constant");
    assert_eq!(predicate.names().into_iter().collect::<Vec<_>>(), ["HEAD_DIM", "m", "n"]);
}

#[test]
fn numbers_and_conditions_are_kept_apart() {
    let message = |text: &str| Predicate::parse(text).expect_err("a fault").to_string();
    assert_eq!(message("m"), "line 1, column 1: expected a condition, found the number `m`");
    assert_eq!(
        message("m == 1 && n"),
        "line 1, column 11: expected a condition, found the number `n`"
    );
    assert_eq!(
        message("(m == 1) + 2 == 3"),
        "line 1, column 1: expected a number, found the condition `m == 1`"
    );
    assert_eq!(
        message("1 < m < 3"),
        "line 1, column 7: expected `&&` or `||` after a comparison, found `<`"
    );
    assert_eq!(message("!m == 1"), "line 1, column 2: expected a condition, found the number `m`");
    assert_eq!(message("m == 1 n"), "line 1, column 8: expected the end of the text, found `n`");
}
