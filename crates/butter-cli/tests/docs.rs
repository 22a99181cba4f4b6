//! `docs/cli.md` is made of the program's own help.

mod common;

use std::fmt::Write;
use std::path::Path;

use common::butter;

const INTRODUCTION: &str = "\
# The `butter` command

This page is the program's own help. A test keeps it true; `BUTTER_UPDATE_DOCS=1 cargo test -p butter-cli --test docs`
writes it anew.

Results go to standard output; progress, notes and errors to standard error. Progress bars and colours appear on a
terminal only (`NO_COLOR` turns colours off); elsewhere each stage is a line, and `--quiet` silences them. An error is
one line `error: ...`, mostly followed by a line `help: ...`.

Models are kept in the Hugging Face cache (`HF_HUB_CACHE`, `HF_HOME`), where other programs find them too.
`HF_ENDPOINT` names a mirror, `HF_TOKEN` opens private repositories, `HF_HUB_OFFLINE=1` forbids the network.
";

fn help(arguments: &[&str]) -> String {
    let output = butter([arguments, &["--help"]].concat()).env("COLUMNS", "100").output();
    let output = output.expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!("```text\n{}\n```\n", lines.join("\n").trim_end())
}

fn page() -> String {
    let mut page = format!("{INTRODUCTION}\n{}", help(&[]));
    for command in ["run", "bench", "inspect", "doctor", "perplexity", "logits"] {
        // Writing to a string does not fail.
        let _ = write!(page, "\n## `butter {command}`\n\n{}", help(&[command]));
    }
    page
}

#[test]
fn page_is_the_help() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = page();
    if std::env::var_os("BUTTER_UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().expect("docs")).expect("writable");
        std::fs::write(&path, &page).expect("writable");
    }
    let found = std::fs::read_to_string(&path).expect("docs/cli.md");
    assert!(found == page, "docs/cli.md is not the help: run with BUTTER_UPDATE_DOCS=1");
}
