//! Model weights: where they come from, and what they are called.
//!
//! [`Weights`] opens a GGUF file, a safetensors file or a folder, and hands out tensors by their Hugging Face names, so
//! that a model's code never knows which file it was loaded from. Tensors stay in the mapped file until their pages are
//! touched. All of this reads untrusted input: a damaged or hostile file is an error that names it, never a panic, and
//! never an allocation of what the file merely claims.

pub mod config;
pub mod error;
pub mod gguf;
mod mapped;
pub mod names;
pub mod safetensors;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use iron_core::Format;

use self::config::ModelConfig;
use self::error::printable;
use self::gguf::Gguf;
use self::safetensors::SafeTensors;

pub use self::error::WeightsError;
pub use self::mapped::MappedSlice;
pub(crate) use self::safetensors::read_small_file;

/// One tensor in a file. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct TensorData {
    /// The name it was asked for by.
    pub name: String,
    /// How the values are stored.
    pub format: Format,
    /// Row-major; the last dimension is contiguous (and is `k` of a quantised matrix).
    pub shape: Vec<usize>,
    /// The stored bytes: always exactly those that `format` and `shape` take.
    pub bytes: MappedSlice,
}

impl TensorData {
    /// How many values there are.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// All values as f32, in a new vector.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.elements()];
        iron_core::dequantize(self.format, &self.bytes, &mut values);
        values
    }

    /// Gives the memory pages of this tensor back, once it has been packed elsewhere; a later read comes from the file.
    pub fn release(&self) {
        self.bytes.release();
    }
}

/// The weights of one model.
#[derive(Debug)]
pub struct Weights {
    path: PathBuf,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Gguf {
        gguf: Box<Gguf>,
        /// Hugging Face name to name in the file.
        names: HashMap<String, String>,
    },
    SafeTensors(SafeTensors),
}

impl Weights {
    /// Opens a `.gguf` file, a `.safetensors` file, or a folder with `model.safetensors.index.json`,
    /// `model.safetensors` or exactly one `.gguf` file.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let source = match find_weights(path)? {
            Found::Gguf(file) => Source::gguf(Gguf::open(&file)?)?,
            Found::SafeTensors(file) => Source::SafeTensors(SafeTensors::open(&file)?),
            Found::Sharded(index) => Source::SafeTensors(SafeTensors::open_sharded(&index)?),
        };
        Ok(Self { path: path.to_owned(), source })
    }

    /// The file or folder that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The GGUF file behind these weights, if it is one: it also holds the tokenizer and the chat template.
    pub fn gguf(&self) -> Option<&Gguf> {
        match &self.source {
            Source::Gguf { gguf, .. } => Some(gguf),
            Source::SafeTensors(_) => None,
        }
    }

    /// The model's configuration: from GGUF metadata, or from `config.json` beside the weights.
    pub fn config(&self) -> Result<ModelConfig, WeightsError> {
        match &self.source {
            Source::Gguf { gguf, .. } => ModelConfig::from_gguf(gguf),
            Source::SafeTensors(tensors) => ModelConfig::from_folder(tensors.folder()),
        }
    }

    /// A tensor by its Hugging Face name, such as `model.layers.0.self_attn.q_proj.weight`.
    pub fn get(&self, name: &str) -> Result<TensorData, WeightsError> {
        let tensor = match &self.source {
            Source::Gguf { gguf, names } => names.get(name).map(|stored| gguf.tensor(stored)),
            Source::SafeTensors(tensors) => tensors.contains(name).then(|| tensors.tensor(name)),
        };
        match tensor {
            Some(tensor) => tensor.map(|tensor| TensorData { name: name.to_owned(), ..tensor }),
            None => Err(self.missing(name)),
        }
    }

    /// Like [`Weights::get`], but `None` when the model does not have the tensor.
    pub fn get_optional(&self, name: &str) -> Result<Option<TensorData>, WeightsError> {
        if self.contains(name) { self.get(name).map(Some) } else { Ok(None) }
    }

    /// Whether there is a tensor of this Hugging Face name.
    pub fn contains(&self, name: &str) -> bool {
        match &self.source {
            Source::Gguf { names, .. } => names.contains_key(name),
            Source::SafeTensors(tensors) => tensors.contains(name),
        }
    }

    /// The Hugging Face names of all tensors, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = match &self.source {
            Source::Gguf { names, .. } => names.keys().map(String::as_str).collect(),
            Source::SafeTensors(tensors) => tensors.names().collect(),
        };
        names.sort_unstable();
        names
    }

    fn missing(&self, name: &str) -> WeightsError {
        let last = |name: &str| name.rsplit('.').take(3).map(str::to_owned).collect::<Vec<_>>();
        let wanted = last(name);
        let near = self.names().into_iter().find(|candidate| last(candidate) == wanted);
        let near = near.map_or(String::new(), |near| format!(" (there is `{}`)", printable(near)));
        WeightsError::MissingTensor { path: self.path.clone(), tensor: printable(name), near }
    }
}

impl Source {
    fn gguf(gguf: Gguf) -> Result<Self, WeightsError> {
        if let Some(files) = gguf.metadata().unsigned("split.count")?.filter(|&files| files > 1) {
            return Err(WeightsError::UnsupportedSetting {
                path: gguf.path().to_owned(),
                key: "split.count".to_owned(),
                found: format!("a model split into {files} files"),
                supported: "one file (join the parts with `llama-gguf-split --merge`)".to_owned(),
            });
        }
        let architecture = gguf.metadata().string("general.architecture")?.unwrap_or_default();
        let mut names = HashMap::with_capacity(gguf.tensors().len());
        for tensor in gguf.tensors() {
            let name = names::huggingface_name(architecture, &tensor.name);
            if let Some(other) = names.insert(name, tensor.name.clone()) {
                let found = format!("the same one as `{}`", printable(&other));
                return Err(WeightsError::bad_tensor(
                    gguf.path(),
                    &tensor.name,
                    "a role of its own",
                    found,
                ));
            }
        }
        Ok(Self::Gguf { gguf: Box::new(gguf), names })
    }
}

enum Found {
    Gguf(PathBuf),
    SafeTensors(PathBuf),
    Sharded(PathBuf),
}

fn find_weights(path: &Path) -> Result<Found, WeightsError> {
    const EXPECTED: &str =
        "a .gguf file, a .safetensors file, or a folder with model.safetensors or one .gguf file";
    let metadata = std::fs::metadata(path).map_err(|source| WeightsError::Io {
        path: path.to_owned(),
        action: "open",
        source,
    })?;
    let no_model =
        |found| Err(WeightsError::NoModel { path: path.to_owned(), expected: EXPECTED, found });
    let has_extension = |file: &Path, wanted: &str| {
        file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted))
    };
    if metadata.is_file() {
        return if has_extension(path, "safetensors") {
            Ok(Found::SafeTensors(path.to_owned()))
        } else if path.to_string_lossy().ends_with(".safetensors.index.json") {
            Ok(Found::Sharded(path.to_owned()))
        } else {
            // Any other name is taken for GGUF, which its first bytes prove or disprove: cache blobs have no extension.
            Ok(Found::Gguf(path.to_owned()))
        };
    }
    let index = path.join("model.safetensors.index.json");
    if index.is_file() {
        return Ok(Found::Sharded(index));
    }
    let single = path.join("model.safetensors");
    if single.is_file() {
        return Ok(Found::SafeTensors(single));
    }
    let listing = |source| WeightsError::Io { path: path.to_owned(), action: "list", source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(listing)? {
        let file = entry.map_err(listing)?.path();
        if has_extension(&file, "gguf") {
            files.push(file);
        }
    }
    match files.len() {
        0 => no_model("none of these".to_owned()),
        1 => Ok(Found::Gguf(files.remove(0))),
        count => no_model(format!("{count} .gguf files: name the one you want")),
    }
}
