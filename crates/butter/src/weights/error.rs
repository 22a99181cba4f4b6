//! What can be wrong with a model's files.

use std::io;
use std::path::{Path, PathBuf};

/// Why weights or a configuration could not be read. Every message says where, what was expected, what was found, and
/// what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The operating system refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The verb that failed.
        action: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file ends before something that it announces.
    #[error(
        "`{}` is cut short: {what} needs {needed} bytes at offset {offset}, but the file has {length}; \
         download it again", path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What was being read.
        what: String,
        /// Where it starts.
        offset: u64,
        /// How many bytes it takes.
        needed: u64,
        /// The file's length.
        length: u64,
    },
    /// The file breaks the rules of its own format.
    #[error(
        "`{}` is not a valid model file: {what} should be {expected}, but is {found}; \
         download it again or convert it anew", path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The part of the file.
        what: String,
        /// What the format demands.
        expected: String,
        /// What is there.
        found: String,
    },
    /// One tensor's description is impossible.
    #[error(
        "`{}`: tensor `{tensor}` should have {expected}, but has {found}; the file is damaged: download it again",
        path.display()
    )]
    BadTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What the format demands.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A tensor is stored in a way that we do not read.
    #[error(
        "`{}`: tensor `{tensor}` is stored as {found}, which is not supported; \
         choose a file with one of {supported}", path.display()
    )]
    UnsupportedTensorType {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its storage type.
        found: String,
        /// The types that we read.
        supported: String,
    },
    /// The model lacks a tensor that its architecture needs.
    #[error(
        "`{}` has no tensor `{tensor}`{near}; the file is incomplete or of another architecture", path.display()
    )]
    MissingTensor {
        /// The file or folder.
        path: PathBuf,
        /// The tensor, by its Hugging Face name.
        tensor: String,
        /// The closest name there is, as a clause of the message, or nothing.
        near: String,
    },
    /// A setting that the model needs is absent.
    #[error("`{}` does not say `{key}` ({expected}); the model cannot be run without it", path.display())]
    MissingSetting {
        /// The file.
        path: PathBuf,
        /// The setting, spelled as in that file.
        key: String,
        /// What it would be.
        expected: String,
    },
    /// A setting has an impossible value.
    #[error("`{}`: `{key}` should be {expected}, but is {found}; the file is damaged or for another program", path.display())]
    BadSetting {
        /// The file.
        path: PathBuf,
        /// The setting, spelled as in that file.
        key: String,
        /// The values that make sense.
        expected: String,
        /// The value there.
        found: String,
    },
    /// A setting asks for something that we do not do, and that would change results if ignored.
    #[error("`{}`: `{key}` is {found}, which is not supported yet; supported: {supported}", path.display())]
    UnsupportedSetting {
        /// The file.
        path: PathBuf,
        /// The setting, spelled as in that file.
        key: String,
        /// The value there.
        found: String,
        /// The values that we do support.
        supported: String,
    },
    /// A path holds no model.
    #[error("`{}` holds no model: expected {expected}, found {found}", path.display())]
    NoModel {
        /// The file or folder.
        path: PathBuf,
        /// The files that would do.
        expected: &'static str,
        /// What is there.
        found: String,
    },
}

impl WeightsError {
    pub(super) fn malformed(
        path: &Path,
        what: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Malformed {
            path: path.to_owned(),
            what: what.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    pub(super) fn bad_tensor(
        path: &Path,
        tensor: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::BadTensor {
            path: path.to_owned(),
            tensor: printable(tensor),
            expected: expected.into(),
            found: found.into(),
        }
    }
}

/// `text` as it may appear in a message: control characters escaped, and no longer than a line. Names come from the
/// file, which nobody has vouched for.
pub(super) fn printable(text: &str) -> String {
    const LONGEST: usize = 120;
    let mut shown: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}
