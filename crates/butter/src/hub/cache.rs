//! The layout of the Hugging Face cache: `blobs/HASH`, `snapshots/COMMIT/FILE` pointing there, `refs/NAME` holding a
//! commit. Reference: <https://huggingface.co/docs/huggingface_hub/guides/manage-cache>.

use std::path::{Path, PathBuf};

use super::{HubError, io};

/// One repository's folder in the cache.
#[derive(Clone, Debug)]
pub(super) struct Repository {
    folder: PathBuf,
}

impl Repository {
    pub(super) fn new(cache: &Path, name: &str) -> Self {
        Self { folder: cache.join(name) }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file of a revision (a commit or a name under `refs`), if it is here.
    pub(super) fn find(&self, revision: &str, file: &str) -> Option<PathBuf> {
        let path = self.snapshot(revision)?.join(file);
        path.is_file().then_some(path)
    }

    /// The only model file of a revision.
    pub(super) fn find_only(&self, revision: &str) -> Option<PathBuf> {
        let entries = std::fs::read_dir(self.snapshot(revision)?).ok()?;
        let files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        let mut models = files
            .into_iter()
            .filter(|path| path.extension().is_some_and(|extension| extension == "gguf"));
        let first = models.next().filter(|path| path.is_file())?;
        models.next().is_none().then_some(first)
    }

    fn snapshot(&self, revision: &str) -> Option<PathBuf> {
        let direct = self.folder.join("snapshots").join(revision);
        if direct.is_dir() {
            return Some(direct);
        }
        let commit = std::fs::read_to_string(self.folder.join("refs").join(revision)).ok()?;
        let commit = commit.trim();
        super::reference::is_relative(commit).then(|| self.folder.join("snapshots").join(commit))
    }

    /// Where the finished bytes of `hash` belong.
    pub(super) fn blob(&self, hash: &str) -> Result<PathBuf, HubError> {
        let blobs = self.folder.join("blobs");
        std::fs::create_dir_all(&blobs).map_err(io(&blobs, "create"))?;
        Ok(blobs.join(hash))
    }

    /// Makes a finished blob visible as `file` of `commit`, and `revision` mean that commit.
    pub(super) fn publish(
        &self,
        hash: &str,
        commit: &str,
        file: &str,
        revision: &str,
    ) -> Result<PathBuf, HubError> {
        let path = self.folder.join("snapshots").join(commit).join(file);
        let parent = path.parent().unwrap_or(&self.folder);
        std::fs::create_dir_all(parent).map_err(io(parent, "create"))?;
        let blob = self.folder.join("blobs").join(hash);
        let up = "../".repeat(2 + file.matches('/').count());
        let temporary = parent.join(format!(".{hash}.{}.link", std::process::id()));
        let _ = std::fs::remove_file(&temporary);
        link(&blob, Path::new(&format!("{up}blobs/{hash}")), &temporary)
            .map_err(io(&temporary, "create"))?;
        std::fs::rename(&temporary, &path).map_err(io(&path, "create"))?;
        if revision != commit {
            self.write_ref(revision, commit)?;
        }
        Ok(path)
    }

    fn write_ref(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        let path = self.folder.join("refs").join(revision);
        let parent = path.parent().unwrap_or(&self.folder);
        std::fs::create_dir_all(parent).map_err(io(parent, "create"))?;
        let temporary = parent.join(format!(".{}.ref", std::process::id()));
        std::fs::write(&temporary, commit).map_err(io(&temporary, "write"))?;
        std::fs::rename(&temporary, &path).map_err(io(&path, "write"))
    }
}

#[cfg(unix)]
fn link(_blob: &Path, target: &Path, at: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, at)
}

/// Symbolic links need a privilege on Windows; a hard link does the same here.
#[cfg(not(unix))]
fn link(blob: &Path, _target: &Path, at: &Path) -> std::io::Result<()> {
    std::fs::hard_link(blob, at)
}
