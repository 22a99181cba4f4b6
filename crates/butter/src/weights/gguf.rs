//! GGUF files, the format of llama.cpp (versions 2 and 3, little endian).
//!
//! Layout: magic, version, counts; metadata (key, type, value); tensor descriptions; padding; tensor data. Nothing is
//! copied: strings and arrays stay in the mapping, and every count, length and offset is checked against the file's
//! size before it is used. Reference: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

#[cfg(test)]
pub(crate) mod builder;
mod metadata;
mod reader;
mod types;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use iron_core::Format;

use self::reader::Reader;
use super::error::printable;
use super::mapped::MappedFile;
use super::{TensorData, WeightsError};

pub use self::metadata::{Array, Metadata, Value};
pub use self::types::GgmlType;

const MAGIC: &[u8; 4] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
/// The largest published files have a few thousand tensors; the cap bounds what a description can make us store.
const MOST_TENSORS: u64 = 1 << 18;
const LONGEST_NAME: u64 = 512;
const MOST_DIMENSIONS: u32 = 4;

/// An opened GGUF file.
#[derive(Debug)]
pub struct Gguf {
    file: Arc<MappedFile>,
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
}

/// The description of one tensor.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// The name in the file, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Row-major, so the reverse of the order in the file: `[rows, columns]` with `columns` contiguous.
    pub shape: Vec<usize>,
    /// The storage type.
    pub kind: GgmlType,
    /// Where the data lies in the file. Empty when the type's size is unknown to us.
    range: Range<usize>,
}

impl Gguf {
    /// Opens and checks a file: everything but the values of the tensors.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let file = MappedFile::open(path)?;
        let mut reader = Reader::new(&file);
        let version = read_version(&mut reader)?;
        let tensor_count = reader.u64("the number of tensors")?;
        let metadata_count = reader.u64("the number of metadata entries")?;
        if tensor_count > MOST_TENSORS {
            let expected = format!("at most {MOST_TENSORS}");
            return Err(WeightsError::malformed(
                path,
                "the number of tensors",
                expected,
                tensor_count.to_string(),
            ));
        }
        let metadata = Metadata::read(&mut reader, &file, metadata_count)?;
        let alignment = read_alignment(&metadata, path)?;

        let mut descriptions = Vec::new();
        for _ in 0..tensor_count {
            descriptions.push(Description::read(&mut reader)?);
        }
        let data_start = (reader.position() as u64).next_multiple_of(alignment);
        let length = file.bytes().len() as u64;
        let mut tensors = Vec::with_capacity(descriptions.len());
        for description in descriptions {
            tensors.push(description.place(path, data_start, alignment, length)?);
        }
        check_overlaps(path, &tensors)?;
        let mut by_name = HashMap::with_capacity(tensors.len());
        for (index, tensor) in tensors.iter().enumerate() {
            if by_name.insert(tensor.name.clone(), index).is_some() {
                return Err(WeightsError::bad_tensor(path, &tensor.name, "one description", "two"));
            }
        }
        Ok(Self { file, version, metadata, tensors, by_name })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The key-value section.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors' descriptions in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The description of a tensor, by its name in the file.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|&index| &self.tensors[index])
    }

    /// A tensor by its name in the file. Fails for a storage type outside [`Format`].
    pub fn tensor(&self, name: &str) -> Result<TensorData, WeightsError> {
        let missing = || WeightsError::MissingTensor {
            path: self.path().to_owned(),
            tensor: printable(name),
            near: String::new(),
        };
        let info = self.info(name).ok_or_else(missing)?;
        let format = info.kind.format().ok_or_else(|| WeightsError::UnsupportedTensorType {
            path: self.path().to_owned(),
            tensor: printable(name),
            found: info.kind.to_string(),
            supported: Format::ALL.map(Format::name).join(", "),
        })?;
        let bytes = self.file.slice(info.range.clone()).ok_or_else(missing)?;
        Ok(TensorData { name: name.to_owned(), format, shape: info.shape.clone(), bytes })
    }
}

fn read_version(reader: &mut Reader<'_>) -> Result<u32, WeightsError> {
    let magic = reader.take(4, "the file's signature")?;
    if magic != MAGIC {
        let found = format!("{:?}", magic.escape_ascii().to_string());
        return Err(reader.malformed("the start of the file", "\"GGUF\"", found));
    }
    let version = reader.u32("the format version")?;
    if matches!(version, 2 | 3) {
        return Ok(version);
    }
    let found = match version.swap_bytes() {
        2 | 3 => "a big-endian file, which this program does not read".to_owned(),
        _ => version.to_string(),
    };
    Err(reader.malformed("the format version", "2 or 3", found))
}

fn read_alignment(metadata: &Metadata, path: &Path) -> Result<u64, WeightsError> {
    let alignment = metadata.unsigned("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
    if alignment.is_power_of_two() && alignment <= 1 << 20 {
        return Ok(alignment);
    }
    Err(WeightsError::BadSetting {
        path: path.to_owned(),
        key: "general.alignment".to_owned(),
        expected: "a power of two up to 1048576".to_owned(),
        found: alignment.to_string(),
    })
}

/// A tensor's description as it stands in the file.
struct Description {
    name: String,
    shape: Vec<usize>,
    kind: GgmlType,
    offset: u64,
}

impl Description {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WeightsError> {
        let name = reader.string("a tensor's name", LONGEST_NAME)?;
        let dimensions = reader.u32("a tensor's number of dimensions")?;
        if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
            let expected = format!("1 to {MOST_DIMENSIONS} dimensions");
            return Err(WeightsError::bad_tensor(
                reader.path(),
                &name,
                expected,
                dimensions.to_string(),
            ));
        }
        let mut shape = Vec::with_capacity(dimensions as usize);
        for _ in 0..dimensions {
            let size = reader.u64("a tensor's dimension")?;
            match usize::try_from(size) {
                Ok(size) if size > 0 => shape.push(size),
                _ => {
                    return Err(WeightsError::bad_tensor(
                        reader.path(),
                        &name,
                        "positive sizes",
                        size.to_string(),
                    ));
                }
            }
        }
        shape.reverse();
        let kind = GgmlType(reader.u32("a tensor's type")?);
        let offset = reader.u64("a tensor's offset")?;
        Ok(Self { name, shape, kind, offset })
    }

    /// Finds the data in the file.
    fn place(
        self,
        path: &Path,
        data_start: u64,
        alignment: u64,
        length: u64,
    ) -> Result<TensorInfo, WeightsError> {
        let bad = |expected: String, found: String| {
            WeightsError::bad_tensor(path, &self.name, expected, found)
        };
        if !self.offset.is_multiple_of(alignment) {
            return Err(bad(
                format!("an offset that is a multiple of {alignment}"),
                self.offset.to_string(),
            ));
        }
        let elements =
            self.shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
        let elements = elements
            .ok_or_else(|| bad("a size within this machine's range".into(), "more".into()))?;
        let bytes = match self.kind.layout() {
            None => 0,
            Some((block, block_bytes)) => {
                let columns = self.shape.last().copied().unwrap_or(0);
                if !columns.is_multiple_of(block) {
                    let expected =
                        format!("rows of a multiple of {block} values, as type {} asks", self.kind);
                    return Err(bad(expected, columns.to_string()));
                }
                let bytes = (elements / block).checked_mul(block_bytes);
                bytes.ok_or_else(|| {
                    bad("a size within this machine's range".into(), "more".into())
                })?
            }
        };
        let start = data_start.checked_add(self.offset);
        let end =
            start.and_then(|start| start.checked_add(bytes as u64)).filter(|&end| end <= length);
        let (Some(start), Some(end)) = (start, end) else {
            return Err(WeightsError::Truncated {
                path: path.to_owned(),
                what: format!("tensor `{}`", printable(&self.name)),
                offset: data_start.saturating_add(self.offset),
                needed: bytes as u64,
                length,
            });
        };
        // Both are at most the file's length, which is mapped and so fits.
        let range = start as usize..end as usize;
        Ok(TensorInfo { name: self.name, shape: self.shape, kind: self.kind, range })
    }
}

fn check_overlaps(path: &Path, tensors: &[TensorInfo]) -> Result<(), WeightsError> {
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_unstable_by_key(|tensor| (tensor.range.start, tensor.range.end));
    for pair in order.windows(2) {
        if pair[0].range.end > pair[1].range.start {
            let found = format!("bytes that it shares with `{}`", printable(&pair[0].name));
            return Err(WeightsError::bad_tensor(path, &pair[1].name, "bytes of its own", found));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
