//! Commands on a tiny model: random weights, a token for each byte.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{VOCABULARY, butter, run, run_with_input, tiny_model};
use serde_json::Value;

#[test]
fn inspect_shows_sizes_formats_memory_and_tensors() {
    let (_folder, model) = tiny_model();
    let ran = run(["inspect", &model, "--tensors", "--template"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for text in [
        "safetensors",
        "llama",
        "257, output tied to the embedding",
        "f32",
        "keys and values",
        "byte-pair encoding, 257 tokens",
        "model.layers.0.self_attn.q_proj.weight",
        "257 x 64",
        "{{ message.content }}",
    ] {
        assert!(ran.stdout.contains(text), "no {text:?} in\n{}", ran.stdout);
    }
}

#[test]
fn logits_file_has_a_row_for_each_token() {
    let (folder, model) = tiny_model();
    let tokens = folder.file("tokens.json", "[72, 101, 256, 0]");
    let out = folder.path("logits.safetensors");
    let ran =
        run(["logits", &model, "--tokens", &tokens, "--out", &out, "--f32", "--threads", "1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let bytes = std::fs::read(&out).expect("written");
    let data = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..data]).expect("JSON");
    assert_eq!(header["logits"]["shape"], serde_json::json!([4, VOCABULARY]));
    assert_eq!(header["logits"]["dtype"], "F32");
    let values: Vec<f32> = bytes[data..]
        .chunks_exact(4)
        .map(|word| f32::from_le_bytes(word.try_into().expect("4 bytes")))
        .collect();
    assert_eq!(values.len(), 4 * VOCABULARY);
    assert!(values.iter().all(|value| value.is_finite()));
    assert!((values[0] - values[VOCABULARY]).abs() > 1e-6, "two positions have the same logits");
}

#[test]
fn token_that_the_model_lacks_is_an_error_and_leaves_no_file() {
    let (folder, model) = tiny_model();
    let out = folder.path("logits.safetensors");
    let ran = run_with_input(["logits", &model, "--tokens", "-", "--out", &out, "-q"], "[1, 257]");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.starts_with("error: token 257 does not exist"), "{}", ran.stderr);
    assert!(!std::path::Path::new(&out).exists());
    assert!(!std::path::Path::new(&format!("{out}.partial")).exists());
}

#[test]
fn greedy_answer_is_the_same_for_any_number_of_threads() {
    let (_folder, model) = tiny_model();
    let answer = |threads: &str| {
        let ran = run([
            "run",
            &model,
            "Hello",
            "--temperature",
            "0",
            "-n",
            "24",
            "--threads",
            threads,
            "-q",
        ]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        ran.stdout
    };
    assert_eq!(answer("1"), answer("2"));
}

#[test]
fn seed_repeats_an_answer() {
    let (_folder, model) = tiny_model();
    let answer =
        |seed: &str| run(["run", &model, "Hello", "--seed", seed, "-n", "24", "-q"]).stdout;
    assert_eq!(answer("1"), answer("1"));
    assert_ne!(answer("1"), answer("2"));
}

#[test]
fn prompt_can_be_piped_in_behind_the_one_given() {
    let (_folder, model) = tiny_model();
    let flags = ["--raw", "--temperature", "0", "-n", "8", "-q"];
    let with = |arguments: &[&str], input: &str| {
        let ran = run_with_input([&["run", &model][..], arguments, &flags].concat(), input);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout
    };
    let whole = with(&["one\n\ntwo"], "");
    assert_eq!(with(&["one"], "two"), whole);
    assert_eq!(with(&[], "one\n\ntwo"), whole);
    assert_ne!(with(&["one"], ""), whole);
}

#[test]
fn chat_template_is_applied_unless_raw() {
    let (_folder, model) = tiny_model();
    let prompt_tokens = |flags: &[&str]| {
        let ran = run([&["run", &model, "Hi", "-n", "1", "--stats"][..], flags].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let (_, rest) = ran.stderr.split_once("prompt ").expect("stats");
        rest.split(' ').next().expect("a number").parse::<usize>().expect("a number")
    };
    assert_eq!(prompt_tokens(&["--raw"]), "Hi".len());
    assert_eq!(prompt_tokens(&[]), "user: Hi".len() + 2);
    assert_eq!(prompt_tokens(&["--system", "S"]), "system: Suser: Hi".len() + 3);
}

#[test]
fn prompt_beyond_the_context_is_an_error() {
    let (_folder, model) = tiny_model();
    let ran = run(["run", &model, "A prompt of more than eight bytes", "--ctx", "8", "-q"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains('8'), "{}", ran.stderr);
    let ran = run(["run", &model, "Hi", "--ctx", "99999999", "-q"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

#[test]
fn answer_that_fills_the_context_says_so() {
    let (_folder, model) = tiny_model();
    let ran = run(["run", &model, "Hi", "--ctx", "32"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: the context is full"), "{}", ran.stderr);
}

#[cfg(unix)]
#[test]
fn reader_that_goes_away_ends_it_quietly() {
    let (_folder, model) = tiny_model();
    let mut child = butter(["run", &model, "Hi", "-q"]).spawn().expect("the program starts");
    let mut first = [0; 1];
    child.stdout.take().expect("piped").read_exact(&mut first).expect("an answer");
    let output = child.wait_with_output().expect("it ends by itself");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[cfg(unix)]
#[test]
fn interrupt_ends_the_answer_with_130() {
    let (_folder, model) = tiny_model();
    let mut child = butter(["run", &model, "Hi", "-q"]).spawn().expect("the program starts");
    let mut stdout = child.stdout.take().expect("piped");
    let mut first = [0; 1];
    stdout.read_exact(&mut first).expect("an answer");
    let rest = std::thread::spawn(move || {
        let mut rest = Vec::new();
        stdout.read_to_end(&mut rest).expect("readable");
        rest
    });
    common::interrupt(&child);
    let start = Instant::now();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    assert!(start.elapsed() < Duration::from_secs(20), "it went on for {:?}", start.elapsed());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(rest.join().expect("no panic").last(), Some(&b'\n'), "the line is ended");
}

#[test]
fn stages_are_lines_outside_a_terminal_and_nothing_when_quiet() {
    let (_folder, model) = tiny_model();
    let loud = run(["run", &model, "Hi", "-n", "1"]);
    assert!(loud.stderr.lines().any(|line| line.starts_with("loaded ")), "{}", loud.stderr);
    assert!(!loud.stderr.contains('\x1b') && !loud.stderr.contains('\r'), "{:?}", loud.stderr);
    assert_eq!(run(["--quiet", "run", &model, "Hi", "-n", "1"]).stderr, "");
}

#[test]
fn perplexity_of_a_repeated_text_is_a_number() {
    let (folder, model) = tiny_model();
    let text = folder.file("text.txt", "The quick brown fox jumps over the lazy dog. ".repeat(8));
    let ran = run(["perplexity", &model, "--file", &text, "--ctx", "64", "--chunks", "2", "--f32"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let number = ran.stdout.strip_prefix("perplexity ").and_then(|rest| rest.split(' ').next());
    let number: f64 = number.expect("a result").parse().expect("a number");
    assert!(number.is_finite() && number > 1.0, "{number}");
    // Of each chunk of 64, the tokens at positions 33 to 63 are scored.
    assert!(ran.stderr.contains("2 chunks of 64 tokens, 62 tokens scored"), "{}", ran.stderr);
}

#[test]
fn text_shorter_than_a_chunk_is_an_error() {
    let (folder, model) = tiny_model();
    let text = folder.file("text.txt", "short");
    let ran = run(["perplexity", &model, "--file", &text, "-q"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("has 5 tokens") && ran.stderr.contains("help: "), "{}", ran.stderr);
}

#[test]
fn bench_reports_numbers_and_a_profile_as_json() {
    let (_folder, model) = tiny_model();
    let ran = run(["bench", &model, "-p", "70", "-n", "4", "-r", "2", "--json", "--profile", "-q"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    for number in ["load_seconds", "read_bandwidth_bytes_per_second", "share_of_read_bandwidth"] {
        assert!(json[number].as_f64().is_some_and(|value| value > 0.0), "{number}: {json:#}");
    }
    for rates in ["prefill_tokens_per_second", "decode_tokens_per_second"] {
        let rate = |name: &str| json[rates][name].as_f64().expect("a number");
        assert!(rate("min") <= rate("median") && rate("median") <= rate("max"), "{json:#}");
    }
    let kernels = json["profile"]["decode"].as_array().expect("rows");
    assert!(kernels.iter().any(|row| row["kernel"] == "matmul"), "{json:#}");
}

#[test]
fn bench_prints_a_table() {
    let (_folder, model) = tiny_model();
    let ran = run(["bench", &model, "-p", "8", "-n", "2", "-r", "1", "-d", "5", "--profile"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for text in
        ["prefill 8", "decode 2 behind 5", "share of bandwidth", "Decode, one token", "schedule"]
    {
        assert!(ran.stdout.contains(text), "no {text:?} in\n{}", ran.stdout);
    }
}

#[test]
fn output_that_cannot_be_written_names_the_file() {
    let (folder, model) = tiny_model();
    let tokens = folder.file("tokens.json", "[1]");
    let out = folder.path("no/such/folder/x.safetensors");
    let ran = run(["logits", &model, "--tokens", &tokens, "--out", &out, "-q"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("x.safetensors`"), "{}", ran.stderr);
}

#[test]
fn real_model_knows_the_capital_of_france() {
    let Some(model) = common::real_model("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let question = "What is the capital of France? Answer with one word.";
    let ran = run(["run", &model, question, "--temperature", "0", "-n", "16", "-q"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(ran.stdout.contains("Paris"), "{}", ran.stdout);
}

#[test]
fn real_model_streams_its_answer() {
    let Some(model) = common::real_model("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let mut child = butter(["run", &model, "Tell me a story.", "-n", "200", "-q"])
        .stdin(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let first = stdout.fill_buf().expect("readable").len();
    assert!(first > 0 && first < 200, "{first} bytes at once");
    assert!(child.try_wait().expect("a child").is_none(), "the answer came only when it was whole");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}
