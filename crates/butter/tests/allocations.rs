//! A file that claims to be huge must not make us allocate what it claims.

#![expect(unsafe_code, reason = "counting allocations takes an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use butter::weights::Weights;

struct Counting;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MOST: usize = 2 << 20;

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// GGUF's start: magic, version, counts.
fn head(tensors: u64, entries: u64) -> Vec<u8> {
    [b"GGUF".as_slice(), &3_u32.to_le_bytes(), &tensors.to_le_bytes(), &entries.to_le_bytes()]
        .concat()
}

fn hostile_files() -> Vec<(&'static str, Vec<u8>)> {
    let mut files = Vec::new();
    for huge in [u64::MAX, 1 << 40, 1 << 32, 1 << 28, (1 << 18) - 1] {
        files.push(("model.gguf", head(huge, 0)));
        files.push(("model.gguf", head(0, huge)));
        files.push(("model.gguf", [head(0, 1), huge.to_le_bytes().to_vec()].concat()));
        for kind in 0..=12_u32 {
            let list = [
                &9_u32.to_le_bytes(),
                &kind.to_le_bytes(),
                huge.to_le_bytes().as_slice(),
                &[0; 64],
            ]
            .concat();
            files.push(("model.gguf", [head(0, 1), string("k"), list].concat()));
        }
        let text = [&8_u32.to_le_bytes(), huge.to_le_bytes().as_slice()].concat();
        files.push(("model.gguf", [head(0, 1), string("k"), text].concat()));
        let tensor = [&1_u32.to_le_bytes(), huge.to_le_bytes().as_slice(), &[0; 12]].concat();
        files.push(("model.gguf", [head(1, 0), string("t"), tensor].concat()));
        files.push(("model.safetensors", huge.to_le_bytes().to_vec()));
        let header =
            format!(r#"{{"t":{{"dtype":"F32","shape":[{huge}],"data_offsets":[0,{huge}]}}}}"#);
        files.push(("model.safetensors", string(&header)));
    }
    files
}

fn read_all(path: &Path) -> bool {
    let Ok(weights) = Weights::open(path) else { return false };
    weights.names().into_iter().all(|name| weights.get(name).is_ok()) && weights.config().is_ok()
}

#[test]
fn claims_are_not_allocated() {
    let folder: PathBuf =
        std::env::temp_dir().join(format!("butter-allocations-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("writable");
    for (name, bytes) in hostile_files() {
        let path = folder.join(name);
        std::fs::write(&path, &bytes).expect("writable");
        LARGEST.store(0, Ordering::Relaxed);
        assert!(!read_all(&path), "{name} of {} bytes was accepted", bytes.len());
        let largest = LARGEST.load(Ordering::Relaxed);
        assert!(
            largest < MOST,
            "{name} of {} bytes made us allocate {largest} at once",
            bytes.len()
        );
    }
    let _ = std::fs::remove_dir_all(&folder);
}
