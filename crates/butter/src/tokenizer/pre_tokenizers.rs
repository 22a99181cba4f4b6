//! How GGUF's `tokenizer.ggml.pre` splits text before byte-pair encoding.
//!
//! The name stands for what the model's own `tokenizer.json` says; these are those originals, not llama.cpp's rewritten
//! patterns (`src/llama-vocab.cpp`), which avoid features that its regex engine lacks.

use serde_json::{Value as Json, json};

/// The settings that hang on a name.
pub(super) struct PreTokenizer {
    pub(super) names: &'static [&'static str],
    split: Split,
    /// Whether the original normalises to NFC first.
    pub(super) nfc: bool,
    /// Whether a piece that is a token as a whole is taken without merging.
    pub(super) ignore_merges: bool,
    /// Whether a text starts with the BOS token when the file does not say.
    pub(super) add_bos: bool,
}

enum Split {
    /// GPT-2's pattern.
    Gpt2,
    /// Single digits, then GPT-2's pattern.
    DigitsGpt2,
    /// One pattern.
    Pattern(&'static str),
    /// One pattern after the other, each on the pieces of the one before.
    Patterns(&'static [&'static str]),
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &[&str] = &[
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

const fn new(names: &'static [&'static str], split: Split) -> PreTokenizer {
    PreTokenizer { names, split, nfc: false, ignore_merges: false, add_bos: false }
}

const KNOWN: [PreTokenizer; 8] = [
    new(&["smollm", "starcoder", "refact", "codeshell", "exaone"], Split::DigitsGpt2),
    PreTokenizer { nfc: true, ..new(&["command-r"], Split::DigitsGpt2) },
    new(&["gpt-2", "phi-2", "mpt", "olmo"], Split::Gpt2),
    PreTokenizer {
        ignore_merges: true,
        add_bos: true,
        ..new(&["llama-bpe", "llama3", "llama-v3", "falcon3"], Split::Pattern(LLAMA3))
    },
    PreTokenizer { nfc: true, ..new(&["qwen2", "deepseek-r1-qwen"], Split::Pattern(QWEN2)) },
    PreTokenizer { ignore_merges: true, add_bos: true, ..new(&["tekken"], Split::Pattern(TEKKEN)) },
    new(&["gpt-4o"], Split::Pattern(GPT4O)),
    new(&["deepseek-v3"], Split::Patterns(DEEPSEEK3)),
];

/// The settings of `name`.
pub(super) fn find(name: &str) -> Option<&'static PreTokenizer> {
    KNOWN.iter().find(|known| known.names.contains(&name))
}

/// All names that [`find`] knows.
pub(super) fn known_names() -> String {
    KNOWN.iter().flat_map(|known| known.names).copied().collect::<Vec<_>>().join(", ")
}

impl PreTokenizer {
    /// The splitting as `tokenizer.json` would say it.
    pub(super) fn to_json(&self) -> Json {
        let byte_level = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
        let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let steps = match &self.split {
            Split::Gpt2 => vec![byte_level(true)],
            Split::DigitsGpt2 => {
                vec![json!({"type": "Digits", "individual_digits": true}), byte_level(true)]
            }
            Split::Pattern(pattern) => vec![split(pattern), byte_level(false)],
            Split::Patterns(patterns) => {
                patterns.iter().map(|pattern| split(pattern)).chain([byte_level(false)]).collect()
            }
        };
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}

#[cfg(test)]
mod tests {
    use tokenizers::pre_tokenizers::PreTokenizerWrapper;

    use super::KNOWN;

    #[test]
    fn every_known_one_compiles() {
        for known in &KNOWN {
            let parsed = serde_json::from_value::<PreTokenizerWrapper>(known.to_json());
            assert!(parsed.is_ok(), "{:?}: {:?}", known.names, parsed.err());
        }
    }
}
