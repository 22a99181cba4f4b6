//! The texts of `scripts/reference/tokenizer_strings.py`, and the hashes of what the reference makes of them.

use serde::Deserialize;

use crate::testing::fixture;
use crate::tokenizer::Tokenizer;

#[derive(Deserialize)]
struct Given {
    whole: Vec<String>,
    pieces: Vec<String>,
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn draw(&mut self, count: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % count
    }

    fn text(&mut self, pieces: &[String]) -> String {
        let mut text = String::new();
        for _ in 0..=self.draw(16) {
            match self.draw(10) {
                0 => {
                    let limit = [0x80, 0x3000, 0x1_0000, 0x11_0000][self.draw(4)];
                    let character = char::from_u32(self.draw(limit) as u32);
                    text.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                1 => {
                    let piece = &pieces[self.draw(pieces.len())];
                    text.push_str(&piece.repeat(1 + self.draw(6)));
                }
                _ => text.push_str(&pieces[self.draw(pieces.len())]),
            }
        }
        text
    }
}

fn strings(count: usize) -> impl Iterator<Item = String> {
    let Given { whole, pieces } =
        serde_json::from_slice(&fixture("tokenizer/strings.json")).expect("valid JSON");
    let mut random = Random(20_261_130);
    whole.into_iter().chain(std::iter::repeat_with(move || random.text(&pieces))).take(count)
}

/// FNV-1a, folded into 16 bits.
fn hash(bytes: impl IntoIterator<Item = u8>) -> u16 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = bytes.into_iter().fold(0x811c_9dc5, step);
    (hash >> 16 ^ hash & 0xffff) as u16
}

/// Compares ids and decoded texts with those in `NAME.hashes`.
#[track_caller]
pub(super) fn assert_equals_reference(name: &str, tokenizer: &Tokenizer) {
    let hashes = fixture(&format!("tokenizer/{name}.hashes"));
    let expected = hashes.chunks_exact(2).map(|hash| u16::from_le_bytes([hash[0], hash[1]]));
    let expected: Vec<u16> = expected.collect();
    let mut wrong = Vec::new();
    for (at, text) in strings(expected.len() / 2).enumerate() {
        let ids = tokenizer.encode(&text, true).expect("encodable");
        let decoded = tokenizer.decode(&ids, true);
        let found = [hash(ids.iter().flat_map(|id| id.to_le_bytes())), hash(decoded.bytes())];
        if found != expected[2 * at..][..2] {
            let is_decoding = found[0] == expected[2 * at];
            wrong.push((at, is_decoding, text, ids, decoded));
        }
    }
    let (all, shown) = (expected.len() / 2, &wrong[..wrong.len().min(8)]);
    assert!(wrong.is_empty(), "{name}: {} of {all} texts differ, such as {shown:#?}", wrong.len());
    assert!(all >= 600, "only {all} texts");
}
