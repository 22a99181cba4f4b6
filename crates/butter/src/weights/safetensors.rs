//! Safetensors: one file, or shards under an index.
//!
//! Layout of a file: the header's length (u64), the header (JSON: name to type, shape and byte range), the data. Our
//! own reader instead of the `safetensors` crate, because that one refuses a whole file over one type it does not know,
//! and cannot name the tensor that is wrong. Reference: <https://github.com/huggingface/safetensors#format>.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iron_core::Format;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

use super::error::printable;
use super::mapped::MappedFile;
use super::{TensorData, WeightsError};

/// The cap of the reference implementation.
const LONGEST_HEADER: u64 = 100_000_000;
const MOST_DIMENSIONS: usize = 8;
const MOST_TENSORS: usize = 1 << 18;

/// The tensors of one model in safetensors files.
#[derive(Debug)]
pub struct SafeTensors {
    folder: PathBuf,
    files: Vec<Arc<MappedFile>>,
    tensors: HashMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    file: usize,
    dtype: String,
    shape: Vec<usize>,
    range: Range<usize>,
}

impl SafeTensors {
    /// Opens one file.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let file = MappedFile::open(path)?;
        let tensors = read_header(&file, 0)?;
        Ok(Self { folder: folder_of(path), files: vec![file], tensors })
    }

    /// Opens the shards that an index, `model.safetensors.index.json`, names. They must lie beside it.
    pub fn open_sharded(index: &Path) -> Result<Self, WeightsError> {
        let folder = folder_of(index);
        let weight_map = read_index(index)?;
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut files = Vec::new();
        let mut in_shards = Vec::new();
        for shard in weight_map.values() {
            if !numbers.contains_key(shard.as_str()) {
                check_shard_name(index, shard)?;
                let file = MappedFile::open(&folder.join(shard))?;
                in_shards.push(read_header(&file, files.len())?);
                numbers.insert(shard, files.len());
                files.push(file);
            }
        }
        let mut tensors = HashMap::with_capacity(weight_map.len());
        for (name, shard) in &weight_map {
            let number = numbers[shard.as_str()];
            let entry =
                in_shards[number].remove(name).ok_or_else(|| WeightsError::MissingTensor {
                    path: files[number].path().to_owned(),
                    tensor: printable(name),
                    near: " though the index says so".to_owned(),
                })?;
            tensors.insert(name.clone(), entry);
        }
        Ok(Self { folder, files, tensors })
    }

    /// The folder of the files, where `config.json` and `tokenizer.json` lie too.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The tensors' names in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is such a tensor.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// A tensor by name. Fails for an element type other than F32, F16 and BF16.
    pub fn tensor(&self, name: &str) -> Result<TensorData, WeightsError> {
        let missing = || WeightsError::MissingTensor {
            path: self.folder.clone(),
            tensor: printable(name),
            near: String::new(),
        };
        let entry = self.tensors.get(name).ok_or_else(missing)?;
        let file = &self.files[entry.file];
        let format = match entry.dtype.as_str() {
            "F32" => Format::F32,
            "F16" => Format::F16,
            "BF16" => Format::BF16,
            other => {
                return Err(WeightsError::UnsupportedTensorType {
                    path: file.path().to_owned(),
                    tensor: printable(name),
                    found: printable(other),
                    supported: "F32, F16, BF16".to_owned(),
                });
            }
        };
        let bytes = file.slice(entry.range.clone()).ok_or_else(missing)?;
        Ok(TensorData { name: name.to_owned(), format, shape: entry.shape.clone(), bytes })
    }
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Bits of one element by type name; `None` for a type that the format did not have when this was written.
fn element_bits(dtype: &str) -> Option<usize> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ"
        | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

fn read_header(
    file: &Arc<MappedFile>,
    number: usize,
) -> Result<HashMap<String, Entry>, WeightsError> {
    let path = file.path();
    let bytes = file.bytes();
    let truncated = |what: &str, offset: u64, needed: u64| WeightsError::Truncated {
        path: path.to_owned(),
        what: what.to_owned(),
        offset,
        needed,
        length: bytes.len() as u64,
    };
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(truncated("the header's length", 0, 8));
    };
    let length = u64::from_le_bytes(*length);
    if length > LONGEST_HEADER {
        let expected = format!("at most {LONGEST_HEADER} bytes");
        return Err(WeightsError::malformed(
            path,
            "the header's length",
            expected,
            length.to_string(),
        ));
    }
    let Some((header, data)) = rest.split_at_checked(length as usize) else {
        return Err(truncated("the header", 8, length));
    };
    let header: Header = serde_json::from_slice(header).map_err(|error| {
        WeightsError::malformed(path, "the header", "a JSON object of tensors", error.to_string())
    })?;

    let data_start = bytes.len() - data.len();
    let mut tensors = HashMap::with_capacity(header.0.len());
    for (name, description) in header.0 {
        let entry = description.place(path, &name, number, data_start, bytes.len())?;
        if tensors.contains_key(&name) {
            return Err(WeightsError::bad_tensor(path, &name, "one description", "two"));
        }
        tensors.insert(name, entry);
    }
    check_cover(path, &tensors, data_start, bytes.len())?;
    Ok(tensors)
}

/// The format asks that tensors fill the data section exactly, so that no byte is shared or unaccounted for.
fn check_cover(
    path: &Path,
    tensors: &HashMap<String, Entry>,
    data_start: usize,
    length: usize,
) -> Result<(), WeightsError> {
    let mut order: Vec<(&String, &Entry)> = tensors.iter().collect();
    order.sort_unstable_by_key(|(_, entry)| (entry.range.start, entry.range.end));
    let mut position = data_start;
    for (name, entry) in order {
        if entry.range.start != position {
            let expected = format!("data from byte {}", position - data_start);
            let found = format!("data from byte {}", entry.range.start - data_start);
            return Err(WeightsError::bad_tensor(path, name, expected, found));
        }
        position = entry.range.end;
    }
    if position != length {
        let expected = format!("{position} bytes, where the last tensor ends");
        return Err(WeightsError::malformed(
            path,
            "the file's length",
            expected,
            length.to_string(),
        ));
    }
    Ok(())
}

/// The header in the order of the file, so that a name given twice is seen.
struct Header(Vec<(String, Description)>);

#[derive(Deserialize)]
struct Description {
    dtype: String,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// At most [`MOST_DIMENSIONS`] sizes: a longer list stops the parser instead of filling memory.
struct Shape(Vec<u64>);

impl Description {
    fn place(
        self,
        path: &Path,
        name: &str,
        file: usize,
        data_start: usize,
        length: usize,
    ) -> Result<Entry, WeightsError> {
        let bad =
            |expected: String, found: String| WeightsError::bad_tensor(path, name, expected, found);
        let (start, end) = self.data_offsets;
        if start > end {
            return Err(bad("an end after its start".into(), format!("bytes {start} to {end}")));
        }
        let data_length = (length - data_start) as u64;
        if end > data_length {
            return Err(WeightsError::Truncated {
                path: path.to_owned(),
                what: format!("tensor `{}`", printable(name)),
                offset: (data_start as u64).saturating_add(start),
                needed: end - start,
                length: length as u64,
            });
        }
        let mut elements = Some(1_usize);
        let mut shape = Vec::with_capacity(self.shape.0.len());
        for size in self.shape.0 {
            let size = usize::try_from(size)
                .map_err(|_| bad("sizes within this machine's range".into(), size.to_string()))?;
            elements = elements.and_then(|product| product.checked_mul(size));
            shape.push(size);
        }
        let elements = elements
            .ok_or_else(|| bad("a size within this machine's range".into(), "more".into()))?;
        if let Some(bits) = element_bits(&self.dtype) {
            let bytes = elements.checked_mul(bits).map(|bits| bits.div_ceil(8) as u64);
            if bytes != Some(end - start) {
                let expected = match bytes {
                    Some(bytes) => {
                        format!("{bytes} bytes, as type {} and shape {shape:?} ask", self.dtype)
                    }
                    None => "a size within this machine's range".to_owned(),
                };
                return Err(bad(expected, format!("{} bytes", end - start)));
            }
        }
        // Both are at most the file's length, which is mapped and so fits.
        let range = data_start + start as usize..data_start + end as usize;
        Ok(Entry { file, dtype: self.dtype, shape, range })
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensor descriptions")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut tensors = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<de::IgnoredAny>()?;
                    } else if tensors.len() == MOST_TENSORS {
                        return Err(de::Error::custom(format!("more than {MOST_TENSORS} tensors")));
                    } else {
                        tensors.push((name, map.next_value()?));
                    }
                }
                Ok(Header(tensors))
            }
        }
        deserializer.deserialize_map(HeaderVisitor)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShapeVisitor;
        impl<'de> Visitor<'de> for ShapeVisitor {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MOST_DIMENSIONS} sizes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Shape, A::Error> {
                let mut sizes = Vec::new();
                while let Some(size) = sequence.next_element()? {
                    if sizes.len() == MOST_DIMENSIONS {
                        return Err(de::Error::custom(format!(
                            "a shape of more than {MOST_DIMENSIONS} dimensions"
                        )));
                    }
                    sizes.push(size);
                }
                Ok(Shape(sizes))
            }
        }
        deserializer.deserialize_seq(ShapeVisitor)
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn read_index(path: &Path) -> Result<BTreeMap<String, String>, WeightsError> {
    let text = read_small_file(path, LONGEST_HEADER)?;
    let index: Index = serde_json::from_slice(&text).map_err(|error| {
        WeightsError::malformed(
            path,
            "the index",
            "a JSON object with a `weight_map`",
            error.to_string(),
        )
    })?;
    Ok(index.weight_map)
}

/// An index may name files beside it and nothing else: it comes from a stranger.
fn check_shard_name(index: &Path, shard: &str) -> Result<(), WeightsError> {
    let plain = !shard.is_empty()
        && !shard.contains(['/', '\\', '\0', ':'])
        && shard != "."
        && shard != "..";
    if plain {
        return Ok(());
    }
    Err(WeightsError::malformed(
        index,
        "a shard's name",
        "a plain file name",
        format!("`{}`", printable(shard)),
    ))
}

/// Reads a whole file of at most `longest` bytes.
pub(crate) fn read_small_file(path: &Path, longest: u64) -> Result<Vec<u8>, WeightsError> {
    let io = |action| move |source| WeightsError::Io { path: path.to_owned(), action, source };
    if !std::fs::metadata(path).map_err(io("open"))?.is_file() {
        return Err(WeightsError::malformed(path, "it", "a regular file", "something else"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io("open"))?;
    file.take(longest + 1).read_to_end(&mut bytes).map_err(io("read"))?;
    if bytes.len() as u64 > longest {
        return Err(WeightsError::malformed(
            path,
            "the file's length",
            format!("at most {longest} bytes"),
            "more",
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
