//! Ragged batches: what one forward pass computes.
//!
//! A batch is a list of runs, each some consecutive positions of one sequence: a chunk of a prompt, one token that is
//! being decoded, drafted tokens. All their tokens lie behind one another; each says what it sees. A single chat is a
//! batch of one run.

mod device;
mod tiles;

use std::ops::Range;

use crate::cache::SequenceId;

pub(crate) use self::device::{BatchTensors, DeviceBatch};

/// Why a batch cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// A run, or the batch, has no tokens.
    #[error("a batch needs at least one token in each run, and one run")]
    Empty,
    /// More tokens than the buffers hold.
    #[error("a batch of {tokens} tokens is too large; split it into batches of at most {limit}")]
    TooLarge {
        /// Tokens of the batch.
        tokens: usize,
        /// The most that a batch may have.
        limit: usize,
    },
    /// Embeddings that are no whole number of rows.
    #[error(
        "embeddings have {found} values, which is no multiple of the model's width of {hidden_size}"
    )]
    EmbeddingSize {
        /// Values given.
        found: usize,
        /// Values of one row.
        hidden_size: usize,
    },
    /// Token runs and embedding runs in one batch.
    #[error("a batch holds either tokens or embeddings; put the run into a batch of its own")]
    MixedInputs,
    /// A run that starts elsewhere than its sequence's cache says.
    #[error(
        "a run covers positions {start}..{end} of a sequence of {held} positions; append to the cache before the batch"
    )]
    NotInCache {
        /// First position of the run.
        start: usize,
        /// One past its last position.
        end: usize,
        /// Positions that the cache holds.
        held: usize,
    },
    /// A token that would see positions which are not there.
    #[error("a token sees positions {begin}..{end}, but its sequence ends at {held} in this batch")]
    Visible {
        /// First visible position.
        begin: usize,
        /// One past the last.
        end: usize,
        /// Where the sequence ends after this batch.
        held: usize,
    },
    /// As many rotary positions as tokens were expected.
    #[error("a run of {tokens} tokens was given {found} rotary positions; give one for each token")]
    Positions {
        /// Tokens of the run.
        tokens: usize,
        /// Positions given.
        found: usize,
    },
    /// As many draws as rows of logits were expected.
    #[error(
        "the batch asks for logits of {rows} tokens, but {found} samplers were given; give one for each"
    )]
    Samplers {
        /// Rows of logits.
        rows: usize,
        /// Samplers given.
        found: usize,
    },
}

/// What a run consists of.
#[derive(Clone, Copy, Debug)]
pub enum RunInput<'a> {
    /// Ids for the model's embedding matrix.
    Tokens(&'a [u32]),
    /// Rows `[tokens, hidden_size]` from elsewhere, such as an image encoder.
    Embeddings(&'a [f32]),
}

/// Which positions the tokens of a run see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// All earlier ones and itself.
    Causal,
    /// All earlier ones and the whole run: image spans, encoders.
    Bidirectional,
    /// For each token a range of its own.
    Ranges(Vec<Range<usize>>),
}

/// For which tokens of a run logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedLogits {
    /// For none: all but the last chunk of a prompt.
    None,
    /// For the last.
    Last,
    /// For each.
    All,
}

/// Consecutive positions of one sequence.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// The sequence, whose cache already has room for the run.
    pub sequence: SequenceId,
    /// The run's first position in the cache.
    pub start: usize,
    /// Tokens or embeddings.
    pub input: RunInput<'a>,
    /// What they see.
    pub visible: Visibility,
    /// Rotary positions, where they differ from the positions in the cache.
    pub positions: Option<Vec<i32>>,
    /// Which logits are wanted.
    pub logits: WantedLogits,
}

impl<'a> Run<'a> {
    /// Causal tokens without logits.
    pub fn tokens(sequence: SequenceId, start: usize, tokens: &'a [u32]) -> Self {
        Self::new(sequence, start, RunInput::Tokens(tokens))
    }

    /// Causal embeddings without logits.
    pub fn embeddings(sequence: SequenceId, start: usize, rows: &'a [f32]) -> Self {
        Self::new(sequence, start, RunInput::Embeddings(rows))
    }

    fn new(sequence: SequenceId, start: usize, input: RunInput<'a>) -> Self {
        let (visible, logits) = (Visibility::Causal, WantedLogits::None);
        Self { sequence, start, input, visible, positions: None, logits }
    }

    /// The same run with other wanted logits.
    #[must_use]
    pub fn with_logits(self, logits: WantedLogits) -> Self {
        Self { logits, ..self }
    }

    /// The same run with another visibility.
    #[must_use]
    pub fn with_visible(self, visible: Visibility) -> Self {
        Self { visible, ..self }
    }
}

/// Tokens of many sequences that one forward pass computes.
#[derive(Clone, Debug)]
pub struct Batch {
    hidden_size: usize,
    inputs: Inputs,
    /// Rotary position of each token.
    positions: Vec<i32>,
    /// Positions `[begin, end)` that each token sees; full attention, windows are cut from it.
    visible: Vec<[usize; 2]>,
    spans: Vec<Span>,
    /// Tokens whose logits are wanted, ascending.
    wanted: Vec<u32>,
}

#[derive(Clone, Debug)]
enum Inputs {
    Tokens(Vec<u32>),
    Embeddings(Vec<f32>),
}

/// Where a run lies in its batch and in its sequence.
#[derive(Clone, Copy, Debug)]
struct Span {
    sequence: SequenceId,
    first_row: usize,
    tokens: usize,
    start: usize,
}

impl Batch {
    /// An empty batch for a model of width `hidden_size`.
    pub fn new(hidden_size: usize) -> Self {
        Self {
            hidden_size,
            inputs: Inputs::Tokens(Vec::new()),
            positions: Vec::new(),
            visible: Vec::new(),
            spans: Vec::new(),
            wanted: Vec::new(),
        }
    }

    /// Adds a run. The batch is unchanged on an error.
    pub fn push(&mut self, run: &Run<'_>) -> Result<(), BatchError> {
        let tokens = self.run_length(run.input)?;
        let end = run.start + tokens;
        let positions = run.positions.as_ref();
        if let Some(found) = positions.map(Vec::len).filter(|&found| found != tokens) {
            return Err(BatchError::Positions { tokens, found });
        }
        let visible = visible_ranges(run, tokens)?;
        match (run.input, &mut self.inputs) {
            (RunInput::Tokens(new), Inputs::Tokens(all)) => all.extend(new),
            (RunInput::Embeddings(new), Inputs::Embeddings(all)) => all.extend(new),
            (RunInput::Embeddings(new), inputs) if self.spans.is_empty() => {
                *inputs = Inputs::Embeddings(new.to_vec());
            }
            _ => return Err(BatchError::MixedInputs),
        }
        let first_row = self.positions.len();
        match positions {
            Some(positions) => self.positions.extend(positions),
            None => self.positions.extend((run.start..end).map(|position| position as i32)),
        }
        self.visible.extend(visible);
        self.spans.push(Span { sequence: run.sequence, first_row, tokens, start: run.start });
        let past = (first_row + tokens) as u32;
        match run.logits {
            WantedLogits::None => {}
            WantedLogits::Last => self.wanted.push(past - 1),
            WantedLogits::All => self.wanted.extend(first_row as u32..past),
        }
        Ok(())
    }

    /// The number of tokens.
    pub fn tokens(&self) -> usize {
        self.positions.len()
    }

    /// The number of tokens whose logits are wanted.
    pub fn wanted_rows(&self) -> usize {
        self.wanted.len()
    }

    /// Whether each run is one token whose logits are wanted: the step that is recorded and replayed.
    pub fn is_decode(&self) -> bool {
        matches!(self.inputs, Inputs::Tokens(_))
            && self.spans.len() == self.tokens()
            && self.wanted.len() == self.tokens()
    }

    fn run_length(&self, input: RunInput<'_>) -> Result<usize, BatchError> {
        let tokens = match input {
            RunInput::Tokens(tokens) => tokens.len(),
            RunInput::Embeddings(rows) if rows.len().is_multiple_of(self.hidden_size.max(1)) => {
                rows.len() / self.hidden_size.max(1)
            }
            RunInput::Embeddings(rows) => {
                let hidden_size = self.hidden_size;
                return Err(BatchError::EmbeddingSize { found: rows.len(), hidden_size });
            }
        };
        if tokens == 0 { Err(BatchError::Empty) } else { Ok(tokens) }
    }
}

fn visible_ranges(run: &Run<'_>, tokens: usize) -> Result<Vec<[usize; 2]>, BatchError> {
    let held = run.start + tokens;
    match &run.visible {
        Visibility::Causal => Ok((run.start..held).map(|position| [0, position + 1]).collect()),
        Visibility::Bidirectional => Ok(vec![[0, held]; tokens]),
        Visibility::Ranges(ranges) if ranges.len() == tokens => ranges
            .iter()
            .map(|range| {
                let [begin, end] = [range.start, range.end];
                let is_inside = begin <= end && end <= held;
                if is_inside {
                    Ok([begin, end])
                } else {
                    Err(BatchError::Visible { begin, end, held })
                }
            })
            .collect(),
        Visibility::Ranges(ranges) => Err(BatchError::Positions { tokens, found: ranges.len() }),
    }
}

#[cfg(test)]
mod tests;
