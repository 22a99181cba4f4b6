//! A file that grows until it is complete, verified, and renamed into place.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{Event, HubError, Progress, io};

const BUFFER: usize = 256 << 10;

/// `HASH.incomplete`, locked against other processes that fetch the same bytes.
pub(super) struct Incomplete {
    file: File,
    path: PathBuf,
    done: u64,
    hash: Sha256,
}

/// Either the file to fill, or the news that another process has filled it meanwhile.
pub(super) enum Opened {
    Incomplete(Incomplete),
    Finished,
}

impl Incomplete {
    /// Opens the incomplete file of `blob`, with what an earlier attempt left in it.
    pub(super) fn open(blob: &Path, progress: &Progress<'_>) -> Result<Opened, HubError> {
        let mut path = blob.as_os_str().to_owned();
        path.push(".incomplete");
        let path = PathBuf::from(path);
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(io(&path, "create"))?;
            wait_for_lock(&file, &path, progress)?;
            if blob.is_file() {
                let _ = std::fs::remove_file(&path);
                return Ok(Opened::Finished);
            }
            if !path.is_file() {
                // The one who held the lock has given up and removed it; ours is a file without a name.
                continue;
            }
            let mut hash = Sha256::new();
            let mut done = 0;
            let mut buffer = vec![0; BUFFER];
            loop {
                progress.check()?;
                match file.read(&mut buffer).map_err(io(&path, "read"))? {
                    0 => break,
                    count => {
                        hash.update(&buffer[..count]);
                        done += count as u64;
                    }
                }
            }
            return Ok(Opened::Incomplete(Self { file, path, done, hash }));
        }
    }

    /// How many bytes are there.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// Forgets what is there.
    pub(super) fn restart(&mut self) -> Result<(), HubError> {
        self.file.set_len(0).map_err(io(&self.path, "write"))?;
        self.file.seek(SeekFrom::Start(0)).map_err(io(&self.path, "write"))?;
        self.done = 0;
        self.hash = Sha256::new();
        Ok(())
    }

    /// Appends all of `source`, up to `total` bytes in all. The inner error is the source's.
    pub(super) fn append(
        &mut self,
        source: &mut dyn Read,
        total: Option<u64>,
        progress: &mut Progress<'_>,
    ) -> Result<std::io::Result<()>, HubError> {
        let mut buffer = vec![0; BUFFER];
        let mut told = 0;
        loop {
            progress.check()?;
            let count = match source.read(&mut buffer) {
                Ok(0) => {
                    progress.tell(Event::Downloading { done: self.done, total });
                    return Ok(Ok(()));
                }
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(Err(error)),
            };
            if total.is_some_and(|total| self.done + count as u64 > total) {
                return Ok(Err(std::io::Error::other("more bytes than were announced")));
            }
            self.file.write_all(&buffer[..count]).map_err(io(&self.path, "write"))?;
            self.hash.update(&buffer[..count]);
            self.done += count as u64;
            // Network reads are small; nobody needs to hear of each.
            if self.done - told >= BUFFER as u64 {
                told = self.done;
                progress.tell(Event::Downloading { done: self.done, total });
            }
        }
    }

    /// The hash of what is there.
    pub(super) fn sha256(&self) -> String {
        hex(&self.hash.clone().finalize())
    }

    /// Checks the hash and renames the file to `blob`; on a wrong hash, removes it.
    pub(super) fn finish(
        self,
        blob: &Path,
        expected: Option<&str>,
        source_name: &str,
        progress: &mut Progress<'_>,
    ) -> Result<(), HubError> {
        progress.tell(Event::Verifying);
        let found = self.sha256();
        if let Some(expected) = expected.filter(|expected| !expected.eq_ignore_ascii_case(&found)) {
            std::fs::remove_file(&self.path).map_err(io(&self.path, "remove"))?;
            let expected = expected.to_owned();
            return Err(HubError::WrongHash {
                source_name: source_name.to_owned(),
                expected,
                found,
            });
        }
        self.file.sync_all().map_err(io(&self.path, "write"))?;
        std::fs::rename(&self.path, blob).map_err(io(blob, "create"))
    }
}

fn wait_for_lock(file: &File, path: &Path, progress: &Progress<'_>) -> Result<(), HubError> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {
                progress.check()?;
                std::thread::sleep(Duration::from_millis(100));
            }
            // Some network file systems have no locks; a wrong hash will tell, should two fetch at once.
            Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => {
                return Ok(());
            }
            Err(TryLockError::Error(error)) => return Err(io(path, "lock")(error)),
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[digit as usize]))
        .collect()
}
