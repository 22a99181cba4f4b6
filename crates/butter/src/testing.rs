//! What several modules' tests share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of its own for one test, removed at the end.
pub(crate) struct TestFolder(PathBuf);

impl TestFolder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("butter-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the system's temporary folder is writable");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into the folder.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("the test folder is writable");
        path
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A real model's file in the folder that `BUTTER_TEST_MODELS` names. Without it the test that asks is skipped, which
/// it says.
pub(crate) fn model_file(name: &str) -> Option<PathBuf> {
    let file = std::env::var_os("BUTTER_TEST_MODELS").map(|folder| Path::new(&folder).join(name));
    let file = file.filter(|file| file.is_file());
    if file.is_none() {
        eprintln!("skipped: BUTTER_TEST_MODELS names no folder with {name}");
    }
    file
}

/// A file under `tests/fixtures`.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
