//! `butter logits`: the logits of given tokens as a file.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::forward::each_logits;
use crate::model::ModelArgs;
use crate::output::{Failure, Terminal, bytes, plural};

/// The longest file of tokens that is read.
const LONGEST_FILE: u64 = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  echo '[1, 4093, 314]' > tokens.json
  butter logits model.gguf --tokens tokens.json --out logits.safetensors --f32
  echo '[1, 4093, 314]' | butter logits model.gguf --tokens - --out logits.safetensors

The file holds one tensor, `logits`, 32-bit floats, [positions, vocabulary]: row i is what the model expects
after tokens 0..=i. No tokens are added.";

/// Arguments of `butter logits`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LogitsArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// A JSON array of token ids; - reads standard input
    #[arg(long, value_name = "FILE")]
    tokens: PathBuf,

    /// The safetensors file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(crate) fn run(args: &LogitsArgs, terminal: &Terminal) -> Result<(), Failure> {
    let tokens = read_tokens(&args.tokens)?;
    let model = args.model.load(terminal, None)?;
    let shape = [tokens.len(), model.config().vocab_size];
    let mut file = NewFile::create(&args.out)?;
    file.write(&header(shape))?;
    let mut row_bytes = Vec::with_capacity(shape[1] * 4);
    each_logits(&model, &tokens, 0, |row| {
        row_bytes.clear();
        row_bytes.extend(row.iter().flat_map(|value| value.to_le_bytes()));
        file.write(&row_bytes)
    })?;
    file.finish()?;
    let size = bytes(shape.iter().product::<usize>() as u64 * 4);
    terminal.note(format!("{} written to {}, {size}", plural(shape[0], "row"), args.out.display()));
    Ok(())
}

fn read_tokens(path: &Path) -> Result<Vec<u32>, Failure> {
    let unreadable = |error: io::Error| Failure::io("read", path, &error);
    let mut text = Vec::new();
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(unreadable)?)
    };
    input.take(LONGEST_FILE).read_to_end(&mut text).map_err(unreadable)?;
    let tokens: Vec<u32> = serde_json::from_slice(&text).map_err(|error| {
        Failure::error(format!("`{}` is no JSON array of token ids: {error}", path.display()))
            .with_help("write one like [1, 4093, 314]")
    })?;
    if tokens.is_empty() {
        return Err(Failure::error(format!("`{}` has no tokens", path.display())));
    }
    Ok(tokens)
}

/// The start of a safetensors file: the length of a JSON header, and the header, padded to 8 bytes.
fn header([positions, vocab_size]: [usize; 2]) -> Vec<u8> {
    let end = positions as u64 * vocab_size as u64 * 4;
    let mut text = json!({"logits": {
        "dtype": "F32", "shape": [positions, vocab_size], "data_offsets": [0, end],
    }})
    .to_string();
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// A file that is there only when it is whole.
struct NewFile<'a> {
    path: &'a Path,
    partial: PathBuf,
    file: BufWriter<File>,
    is_finished: bool,
}

impl<'a> NewFile<'a> {
    fn create(path: &'a Path) -> Result<Self, Failure> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).map_err(|error| Failure::io("create", path, &error))?;
        Ok(Self { path, partial, file: BufWriter::new(file), is_finished: false })
    }

    fn write(&mut self, data: &[u8]) -> Result<(), Failure> {
        self.file.write_all(data).map_err(|error| Failure::io("write", self.path, &error))
    }

    fn finish(mut self) -> Result<(), Failure> {
        let written = self.file.flush().and_then(|()| fs::rename(&self.partial, self.path));
        self.is_finished = written.is_ok();
        written.map_err(|error| Failure::io("write", self.path, &error))
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            // It is of no use to anybody; the error that brought us here is what the user is told.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::header;

    #[test]
    fn header_says_how_long_it_is() {
        let bytes = header([3, 49_152]);
        let (length, text) = bytes.split_at(8);
        assert_eq!(u64::from_le_bytes(length.try_into().expect("8 bytes")), text.len() as u64);
        assert!(text.len().is_multiple_of(8));
        let json: serde_json::Value = serde_json::from_slice(text).expect("JSON");
        assert_eq!(json["logits"]["data_offsets"][1], 3 * 49_152 * 4);
    }
}
