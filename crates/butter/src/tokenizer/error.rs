//! What can be wrong with a tokenizer.

use std::path::{Path, PathBuf};

use crate::weights::WeightsError;

/// Why a tokenizer could not be read or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The file itself could not be read, or a setting in GGUF metadata has the wrong type.
    #[error(transparent)]
    File(#[from] WeightsError),
    /// The file is no usable tokenizer.
    #[error("`{}` holds no usable tokenizer: expected {expected}, found {found}; download it again", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The tokenizer is of a kind that we do not run.
    #[error("`{}`: {what} `{found}` is not supported; supported: {supported}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The part of the tokenizer, as its file names it.
        what: &'static str,
        /// What is there.
        found: String,
        /// What we do support.
        supported: String,
    },
    /// A text could not be encoded.
    #[error("cannot encode a text: {0}")]
    Encode(String),
}

impl TokenizerError {
    pub(super) fn malformed(
        path: &Path,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        let found: String = found.into();
        // Libraries quote the file's content in their messages.
        let found = found.chars().take(200).flat_map(char::escape_debug).collect();
        Self::Malformed { path: path.to_owned(), expected: expected.into(), found }
    }
    /// A part of a kind that we do not run: `what` as its file names it.
    pub(super) fn unsupported(
        path: &Path,
        what: &'static str,
        found: &str,
        supported: impl Into<String>,
    ) -> Self {
        let found = found.chars().take(60).flat_map(char::escape_debug).collect();
        Self::Unsupported { path: path.to_owned(), what, found, supported: supported.into() }
    }
}
