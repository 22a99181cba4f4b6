//! Help, wrong usage and exit codes: nothing here runs a model.

mod common;

use common::{Folder, run, run_with_input};

const COMMANDS: [&str; 6] = ["run", "bench", "inspect", "doctor", "perplexity", "logits"];

#[test]
fn help_lists_every_command_and_teaches_by_example() {
    let help = run(["--help"]);
    assert_eq!(help.code, Some(0));
    for command in COMMANDS {
        assert!(help.stdout.contains(command), "{command} is missing in\n{}", help.stdout);
    }
    assert!(help.stdout.contains("Examples:\n  butter run smollm2"));
}

#[test]
fn help_of_each_command_has_examples() {
    for command in COMMANDS {
        let help = run([command, "--help"]);
        assert_eq!(help.code, Some(0), "{command}");
        let example =
            format!("Examples:\n  {}", if command == "logits" { "echo" } else { "butter" });
        assert!(help.stdout.contains(&example), "{command}:\n{}", help.stdout);
        assert!(help.stdout.contains(&format!("butter {command} ")) || command == "doctor");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [
        &["frobnicate"][..],
        &["run"],
        &["run", "m", "--no-such-flag"],
        &["run", "m", "hi", "--temperature", "-1"],
        &["run", "m", "hi", "--temperature", "warm"],
        &["run", "m", "hi", "--top-p", "0"],
        &["run", "m", "hi", "--max-tokens", "0"],
        &["run", "m", "hi", "--stop", ""],
        &["run", "m", "hi", "--raw", "--system", "s"],
        &["run", "m", "hi", "--threads", "0"],
        &["run", "m", "hi", "--isa", "mmx"],
        &["bench", "m", "-r", "0"],
        &["perplexity", "m"],
        &["perplexity", "m", "--file", "f", "--ctx", "2"],
        &["logits", "m", "--tokens", "t.json"],
    ] {
        let ran = run(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: "), "{arguments:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{arguments:?}");
    }
}

#[test]
fn no_command_shows_the_help() {
    let ran = run::<&str>([]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("Usage: butter"), "{}", ran.stderr);
}

#[test]
fn empty_input_is_no_prompt() {
    let ran = run_with_input(["run", "m"], "\n");
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.starts_with("error: the prompt is empty"), "{}", ran.stderr);
    assert!(ran.stderr.contains("\nhelp: "), "{}", ran.stderr);
}

/// An error is one readable line, and one that says what to do.
#[track_caller]
fn assert_error(arguments: &[&str], expected: &[&str]) {
    let ran = run(arguments);
    assert_eq!(ran.code, Some(1), "{arguments:?}: {}", ran.stderr);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].starts_with("error: "), "{arguments:?}: {}", ran.stderr);
    assert!(lines[1..].iter().all(|line| line.starts_with("help: ")), "{}", ran.stderr);
    assert!(!ran.stderr.contains('\x1b'), "colours outside a terminal: {:?}", ran.stderr);
    for text in expected {
        assert!(ran.stderr.contains(text), "{arguments:?}: no {text:?} in {}", ran.stderr);
    }
}

#[test]
fn missing_file_says_what_a_model_can_be() {
    for command in [
        &["run", "./missing.gguf", "hi"][..],
        &["inspect", "./missing.gguf"],
        &["bench", "./missing.gguf"],
    ] {
        assert_error(command, &["./missing.gguf", "no such file or folder", "smollm2"]);
    }
}

#[test]
fn offline_short_name_says_why_it_is_not_fetched() {
    assert_error(
        &["run", "smollm2", "hi"],
        &["`smollm2`", "HF_HUB_OFFLINE", "help: unset it to download"],
    );
}

#[test]
fn truncated_gguf_names_the_file_and_what_to_do() {
    let folder = Folder::new();
    // Magic, version 3, one tensor, one metadata entry, and then nothing.
    let head =
        [&b"GGUF"[..], &3_u32.to_le_bytes(), &1_u64.to_le_bytes(), &1_u64.to_le_bytes()].concat();
    let path = folder.file("cut.gguf", head);
    for command in [&["run", &path, "hi"][..], &["inspect", &path], &["bench", &path]] {
        assert_error(command, &["cut.gguf", "download it again"]);
    }
}

#[test]
fn file_that_is_no_model_is_an_error() {
    let folder = Folder::new();
    let path = folder.file("notes.txt", "Not a model at all, but a text of some length.");
    assert_error(&["inspect", &path], &["notes.txt", "not a valid model file"]);
}

#[test]
fn folder_without_a_model_says_what_it_should_hold() {
    let folder = Folder::new();
    assert_error(&["inspect", &folder.path("")], &["holds no model", ".safetensors"]);
}

#[test]
fn bad_token_files_are_errors() {
    let folder = Folder::new();
    let out = folder.path("out.safetensors");
    for (name, text) in
        [("a.json", "{}"), ("b.json", "[1, -2]"), ("c.json", "[1, 2"), ("d.json", "[]")]
    {
        let tokens = folder.file(name, text);
        assert_error(&["logits", "m", "--tokens", &tokens, "--out", &out], &[name]);
    }
    assert!(!std::path::Path::new(&out).exists());
}

#[test]
fn doctor_reports_each_check_and_succeeds_offline() {
    let ran = run(["doctor"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for check in [
        "processor",
        "instruction sets",
        "threads",
        "memory",
        "model cache",
        "python and pip",
        "hub",
        "read bandwidth",
    ] {
        let line = ran
            .stdout
            .lines()
            .find(|line| line.get(6..).is_some_and(|rest| rest.starts_with(check)));
        let line = line.unwrap_or_else(|| panic!("no {check} in\n{}", ran.stdout));
        assert!(line.starts_with("ok") || line.starts_with("warn"), "{line}");
    }
}
