//! `butter inspect`: what a model file holds.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use butter::template::ChatTemplate;
use butter::tokenizer::Tokenizer;
use butter::weights::config::{Activation, LayerAttention, ModelConfig, RopeScaling};
use butter::weights::{TensorData, Weights};
use clap::Args;
use iron_runtime::Format;
use iron_runtime::tile::packed_bytes;

use crate::output::{Failure, Style, Terminal, bytes, count, one_line, paint, plural};
use crate::table::{Align, Table};

/// Tokens of the largest forward pass, whose activations are what takes room.
const BATCH: usize = 512;

const EXAMPLES: &str = "\
Examples:
  butter inspect model.gguf
  butter inspect smollm2 --tensors
  butter inspect path/to/folder --template";

/// Arguments of `butter inspect`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InspectArgs {
    /// The model: a file, a folder, a short name such as smollm2, owner/name:FILE.gguf, or pypi:NAME
    #[arg(value_name = "MODEL")]
    model: String,

    /// List every tensor: name, format, shape, size
    #[arg(long)]
    tensors: bool,

    /// Print the chat template
    #[arg(long)]
    template: bool,
}

pub(crate) fn run(args: &InspectArgs, terminal: &Terminal) -> Result<(), Failure> {
    let path = crate::model::resolve(&args.model, terminal)?;
    let weights = Weights::open(&path)?;
    let config = weights.config()?;
    let tensors: Vec<TensorData> =
        weights.names().into_iter().map(|name| weights.get(name)).collect::<Result<_, _>>()?;
    let mut out = io::stdout().lock();
    write_model(&mut out, &weights, &config, &tensors)?;
    write_formats(&mut out, &tensors)?;
    write_memory(&mut out, &config, &tensors)?;
    write_text(&mut out, &weights, &config)?;
    if args.tensors {
        write_tensors(&mut out, tensors)?;
    }
    if args.template {
        write_template(&mut out, &weights)?;
    }
    Ok(())
}

fn title(out: &mut impl Write, text: &str) -> io::Result<()> {
    writeln!(out, "\n{}", paint(Style::Bold, text))
}

fn field(out: &mut impl Write, name: &str, value: impl std::fmt::Display) -> io::Result<()> {
    writeln!(out, "  {name:<16} {}", one_line(&value.to_string()))
}

fn write_model(
    out: &mut impl Write,
    weights: &Weights,
    config: &ModelConfig,
    tensors: &[TensorData],
) -> io::Result<()> {
    let elements = tensors.iter().map(|tensor| tensor.elements() as u64).sum();
    writeln!(out, "{}", paint(Style::Bold, weights.path().display()))?;
    field(out, "file", file_kind(weights))?;
    field(out, "architecture", &config.model_type)?;
    field(out, "parameters", count(elements))?;
    field(out, "layers", layers(config))?;
    field(out, "hidden size", config.hidden_size)?;
    field(
        out,
        "feed-forward",
        format!("{}, {}", config.intermediate_size, activation(config.hidden_act)),
    )?;
    let heads = format!(
        "{} of {}, {} for keys and values",
        config.num_heads, config.head_dim, config.num_kv_heads
    );
    field(out, "heads", heads)?;
    let tied = if config.tie_word_embeddings { ", output tied to the embedding" } else { "" };
    field(out, "vocabulary", format!("{}{tied}", config.vocab_size))?;
    field(out, "context", plural(config.max_position_embeddings, "token"))?;
    field(out, "rope", rope(config))
}

fn file_kind(weights: &Weights) -> String {
    match weights.gguf() {
        Some(gguf) => format!("GGUF version {}", gguf.version()),
        None => "safetensors".to_owned(),
    }
}

fn layers(config: &ModelConfig) -> String {
    let is_sliding = |attention: &&LayerAttention| **attention == LayerAttention::Sliding;
    let sliding = config.layer_attention.iter().filter(is_sliding).count();
    match config.sliding_window {
        Some(window) if sliding > 0 => {
            format!("{}, {sliding} of them see {window} tokens back", config.num_layers)
        }
        _ => config.num_layers.to_string(),
    }
}

fn activation(activation: Activation) -> &'static str {
    match activation {
        Activation::Silu => "silu",
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu (tanh)",
    }
}

fn rope(config: &ModelConfig) -> String {
    let rope = &config.rope;
    let scaling = match rope.scaling {
        RopeScaling::None => "",
        _ => ", scaled",
    };
    format!("theta {}, {} of {} dimensions{scaling}", rope.theta, rope.dimensions, config.head_dim)
}

fn write_formats(out: &mut impl Write, tensors: &[TensorData]) -> io::Result<()> {
    let mut formats: BTreeMap<Format, (usize, u64, u64)> = BTreeMap::new();
    for tensor in tensors {
        let (number, elements, size) = formats.entry(tensor.format).or_default();
        *number += 1;
        *elements += tensor.elements() as u64;
        *size += tensor.bytes.len() as u64;
    }
    title(out, "Formats")?;
    let mut table = Table::new([
        ("format", Align::Left),
        ("tensors", Align::Right),
        ("values", Align::Right),
        ("bytes", Align::Right),
        ("bits a value", Align::Right),
    ]);
    for (format, (number, elements, size)) in formats {
        let bits = size as f64 * 8.0 / elements.max(1) as f64;
        table.push([
            format.name().to_owned(),
            number.to_string(),
            count(elements),
            bytes(size),
            format!("{bits:.2}"),
        ]);
    }
    table.write(out)
}

fn write_memory(
    out: &mut impl Write,
    config: &ModelConfig,
    tensors: &[TensorData],
) -> io::Result<()> {
    let (mut mapped, mut packed) = (0, 0);
    for tensor in tensors {
        match packed_size(tensor) {
            Some(size) => packed += size,
            None => mapped += tensor.bytes.len() as u64,
        }
    }
    let per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim;
    let per_token = |element: usize| (per_token * element) as u64;
    let context = config.max_position_embeddings as u64;
    title(out, "Memory")?;
    field(out, "weights, packed", bytes(packed))?;
    field(out, "weights, mapped", format!("{} (as they lie in the file)", bytes(mapped)))?;
    let cache = format!(
        "{} for 1,000 tokens, {} for the whole context (with --f32 twice that)",
        bytes(per_token(2) * 1000),
        bytes(per_token(2) * context)
    );
    field(out, "keys and values", cache)?;
    let activations = format!("about {} while {BATCH} tokens are read", bytes(activations(config)));
    field(out, "activations", activations)
}

/// Bytes of a quantised matrix in the layout of the CPU's kernels; `None` for what is used as it is.
fn packed_size(tensor: &TensorData) -> Option<u64> {
    let &[rows, cols] = tensor.shape.as_slice() else { return None };
    if tensor.format.is_dense() {
        return None;
    }
    packed_bytes(tensor.format, rows, cols).ok().map(|size| size as u64)
}

/// What one forward pass of [`BATCH`] tokens holds at its widest: the residual stream and its normed copy, queries, keys,
/// values, the attention's result, both halves of the feed-forward network and their product; and one row of logits.
fn activations(config: &ModelConfig) -> u64 {
    let attention = config.head_dim * 2 * (config.num_heads + config.num_kv_heads);
    let per_token = 2 * config.hidden_size + attention + 3 * config.intermediate_size;
    ((BATCH * per_token + config.vocab_size) * size_of::<f32>()) as u64
}

fn write_text(
    out: &mut impl Write,
    weights: &Weights,
    config: &ModelConfig,
) -> Result<(), Failure> {
    title(out, "Text")?;
    match Tokenizer::from_weights(weights) {
        Ok(tokenizer) => {
            let name = |id: u32| match tokenizer.id_to_bytes(id) {
                Some(text) => format!("{} ({id})", String::from_utf8_lossy(text).escape_debug()),
                None => id.to_string(),
            };
            field(
                out,
                "tokenizer",
                format!("byte-pair encoding, {} tokens", tokenizer.vocab_size()),
            )?;
            field(out, "starts a text", tokenizer.bos_id().map_or("nothing".to_owned(), name))?;
            let mut ends = tokenizer.turn_end_ids().to_vec();
            ends.extend(
                config.eos_token_ids.iter().filter(|id| !tokenizer.turn_end_ids().contains(id)),
            );
            let ends: Vec<String> = ends.into_iter().map(name).collect();
            field(out, "ends an answer", ends.join(", "))?;
        }
        Err(error) => field(out, "tokenizer", format!("none: {error}"))?,
    }
    let template = match ChatTemplate::from_weights(weights) {
        Ok(Some(template)) => {
            format!("{} lines (--template prints it)", template.source().lines().count())
        }
        Ok(None) => "none: the model continues texts".to_owned(),
        Err(error) => format!("unusable: {error}"),
    };
    Ok(field(out, "chat template", template)?)
}

fn write_tensors(out: &mut impl Write, mut tensors: Vec<TensorData>) -> io::Result<()> {
    tensors.sort_by_cached_key(|tensor| by_layer(&tensor.name));
    title(out, "Tensors")?;
    let mut table = Table::new([
        ("name", Align::Left),
        ("format", Align::Left),
        ("shape", Align::Right),
        ("bytes", Align::Right),
    ]);
    for tensor in tensors {
        let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
        let name = tensor.name.escape_debug().to_string();
        table.push([
            name,
            tensor.format.name().to_owned(),
            shape.join(" x "),
            bytes(tensor.bytes.len() as u64),
        ]);
    }
    table.write(out)
}

/// Sorts `layers.2` before `layers.10`.
fn by_layer(name: &str) -> Vec<(u64, String)> {
    name.split('.').map(|part| (part.parse().unwrap_or(u64::MAX), part.to_owned())).collect()
}

fn write_template(out: &mut impl Write, weights: &Weights) -> Result<(), Failure> {
    let Some(template) = ChatTemplate::from_weights(weights)? else {
        return Err(Failure::error(format!("{} has no chat template", shown(weights.path()))));
    };
    title(out, "Chat template")?;
    Ok(writeln!(out, "{}", template.source())?)
}

fn shown(path: &Path) -> String {
    format!("`{}`", path.display())
}

#[cfg(test)]
mod tests {
    use super::by_layer;

    #[test]
    fn layers_are_in_the_order_of_their_numbers() {
        let mut names = ["model.layers.10.a", "model.norm", "model.layers.2.b", "model.layers.2.a"];
        names.sort_by_cached_key(|name| by_layer(name));
        assert_eq!(
            names,
            ["model.layers.2.a", "model.layers.2.b", "model.layers.10.a", "model.norm"]
        );
    }
}
