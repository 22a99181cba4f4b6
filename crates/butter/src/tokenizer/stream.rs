//! Text that arrives token by token.

use super::Tokenizer;

/// Decodes tokens as they come and gives out only whole characters. The pieces together equal [`Tokenizer::decode`].
#[derive(Debug)]
pub struct DecodeStream {
    tokenizer: Tokenizer,
    skip_special: bool,
    /// The start of a character whose rest is still to come.
    pending: Vec<u8>,
    at_start: bool,
}

impl DecodeStream {
    pub(super) fn new(tokenizer: Tokenizer, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, pending: Vec::new(), at_start: true }
    }

    /// Takes the next token; returns the text that is complete now, often none.
    pub fn push(&mut self, id: u32) -> String {
        if self.skip_special && self.tokenizer.is_special(id) {
            return String::new();
        }
        let Some(mut bytes) = self.tokenizer.id_to_bytes(id) else { return String::new() };
        if self.at_start && !bytes.is_empty() {
            self.at_start = false;
            if self.tokenizer.strips_leading_space() {
                bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            }
        }
        self.pending.extend(bytes);
        let (text, used) = decode_complete(&self.pending);
        self.pending.drain(..used);
        text
    }

    /// What is left at the end: a cut character, as U+FFFD, or nothing.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// The text of all but an unfinished character at the end, and how many bytes that took.
fn decode_complete(bytes: &[u8]) -> (String, usize) {
    let mut text = String::new();
    let mut used = 0;
    loop {
        match std::str::from_utf8(&bytes[used..]) {
            Ok(valid) => {
                text.push_str(valid);
                return (text, bytes.len());
            }
            Err(error) => {
                let valid = used + error.valid_up_to();
                text.push_str(&String::from_utf8_lossy(&bytes[used..valid]));
                used = valid;
                match error.error_len() {
                    Some(length) => {
                        text.push(char::REPLACEMENT_CHARACTER);
                        used += length;
                    }
                    None => return (text, used),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::decode_complete;

    #[test]
    fn pieces_equal_the_whole_wherever_it_is_cut() {
        let samples: [&[u8]; 6] = [
            "héllo 👩‍👩‍👧 世界".as_bytes(),
            b"\xff\xfe ok \xe4\xb8",
            b"\xf0\x9f\x91 half \xf0\x9f",
            b"\xed\xa0\x80 surrogate",
            b"\xc0\xaf overlong",
            b"",
        ];
        for sample in samples {
            for step in 1..5 {
                let (mut pending, mut text) = (Vec::new(), String::new());
                for piece in sample.chunks(step) {
                    pending.extend(piece);
                    let (complete, used) = decode_complete(&pending);
                    pending.drain(..used);
                    text.push_str(&complete);
                }
                text.push_str(&String::from_utf8_lossy(&pending));
                assert_eq!(text, String::from_utf8_lossy(sample), "in steps of {step}");
            }
        }
    }

    #[test]
    fn unfinished_character_waits() {
        assert_eq!(decode_complete(b"a\xf0\x9f\x91"), ("a".to_owned(), 1));
    }
}
