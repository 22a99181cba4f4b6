//! Tiny checkpoints with the logits of Hugging Face transformers: see `tests/data/README.md`.
#![allow(dead_code, reason = "each test program uses its part")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use butter::batch::{Run, WantedLogits};
use butter::cache::SequenceId;
use butter::{Dispatch, Executor, LoadOptions, Model};
use serde_json::Value as Json;

/// What the logits of an f32 model may differ from the reference.
pub(crate) const TOLERANCE: f32 = 1e-4;

pub(crate) fn checkpoint(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny").join(name)
}

/// How a test loads a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub f32: bool,
    pub threads: usize,
    pub dispatch: Dispatch,
}

impl Setup {
    pub(crate) const F32: Self = Self { f32: true, threads: 2, dispatch: Dispatch::Eager };

    pub(crate) fn load(self, path: &Path) -> Model {
        let Self { f32, threads, dispatch } = self;
        let threads = Some(threads);
        let options =
            LoadOptions { f32, threads, dispatch, prewarm: false, ..LoadOptions::default() };
        Model::open(path, &options).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// The sequences of a `truth.safetensors`.
pub(crate) struct Truth {
    bytes: Vec<u8>,
    header: HashMap<String, Json>,
    data: usize,
}

impl Truth {
    pub(crate) fn of(name: &str) -> Self {
        Self::read(&checkpoint(name).join("truth.safetensors"))
    }

    pub(crate) fn read(path: &Path) -> Self {
        let bytes =
            std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let data = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
        let header = serde_json::from_slice(&bytes[8..data]).expect("a safetensors header");
        Self { bytes, header, data }
    }

    fn words(&self, name: &str) -> impl Iterator<Item = [u8; 4]> {
        let offsets = &self.header[name]["data_offsets"];
        let offset =
            |index: usize| self.data + offsets[index].as_u64().expect("an offset") as usize;
        let words = self.bytes[offset(0)..offset(1)].chunks_exact(4);
        words.map(|word| word.try_into().expect("four bytes"))
    }

    pub(crate) fn shape(&self, name: &str) -> Vec<usize> {
        let shape = self.header[name]["shape"].as_array().expect("a shape");
        shape.iter().map(|length| length.as_u64().expect("a length") as usize).collect()
    }

    pub(crate) fn integers(&self, name: &str) -> Vec<i32> {
        self.words(name).map(i32::from_le_bytes).collect()
    }

    pub(crate) fn floats(&self, name: &str) -> Vec<f32> {
        self.words(name).map(f32::from_le_bytes).collect()
    }

    pub(crate) fn tokens(&self, sequence: &str) -> Vec<u32> {
        self.words(&format!("{sequence}.tokens")).map(u32::from_le_bytes).collect()
    }

    pub(crate) fn number(&self, name: &str) -> usize {
        self.words(name).map(u32::from_le_bytes).next().expect("one number") as usize
    }

    /// `[positions, vocab_size]`.
    pub(crate) fn logits(&self, sequence: &str) -> Vec<f32> {
        self.floats(&format!("{sequence}.logits"))
    }
}

/// Appends tokens to their sequences and returns the logits of them all, run by run.
pub(crate) fn forward(executor: &mut Executor, runs: &[(SequenceId, &[u32])]) -> Vec<Vec<f32>> {
    let mut batch = executor.batch();
    for (sequence, tokens) in runs {
        let start = executor.cache_mut().append(*sequence, tokens.len()).expect("room");
        let run = Run::tokens(*sequence, start, tokens).with_logits(WantedLogits::All);
        batch.push(&run).expect("a valid run");
    }
    let logits = executor.logits(&batch).expect("a valid batch");
    let (mut rest, vocab_size) = (logits.as_slice(), executor.vocab_size());
    let mut taken = Vec::new();
    for (_, tokens) in runs {
        let (these, others) = rest.split_at(tokens.len() * vocab_size);
        taken.push(these.to_vec());
        rest = others;
    }
    taken
}

pub(crate) fn largest_difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    // Not `max` of floats: it would pass over NaN.
    found.iter().zip(expected).fold(0.0, |most, (a, b)| {
        let difference = (a - b).abs();
        if difference <= most { most } else { difference }
    })
}

#[track_caller]
pub(crate) fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    let difference = largest_difference(found, expected);
    assert!(difference <= TOLERANCE, "{what}: logits differ by {difference}");
}

#[track_caller]
pub(crate) fn assert_same_bits(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let different = found.iter().zip(expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    let of = found.len();
    assert_eq!(different, 0, "{what}: {different} of {of} logits have other bits");
}

/// A copy of a checkpoint with a changed configuration, removed at the end.
pub(crate) struct ChangedCheckpoint(pub PathBuf);

impl ChangedCheckpoint {
    pub(crate) fn new(name: &str, change: impl FnOnce(&mut Json)) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir();
        let folder = folder.join(format!("butter-changed-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        for entry in std::fs::read_dir(checkpoint(name)).expect("a checkpoint") {
            let path = entry.expect("a file").path();
            let copy = folder.join(path.file_name().expect("a file"));
            std::fs::copy(&path, copy).expect("the temporary folder is writable");
        }
        let config = folder.join("config.json");
        let text = std::fs::read(&config).expect("just copied");
        let mut json = serde_json::from_slice(&text).expect("JSON");
        change(&mut json);
        std::fs::write(&config, json.to_string()).expect("the temporary folder is writable");
        Self(folder)
    }
}

impl Drop for ChangedCheckpoint {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
