//! `iron`: the kernel compiler on the command line.

mod build;
mod catalog;
mod check;
mod inspect;
mod list;

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use iron_codegen::Target;
use iron_codegen::compile::Pass;

/// What went wrong, as the user reads it.
type Error = String;

/// Compiles, shows and checks Iron's kernels.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "\
Examples:
  iron list                                        every kernel, with the number of its instances
  iron check                                       all kernels for all targets, every pass verified
  iron inspect rms_norm --bindings int8            the text of one kernel
  iron inspect matmul_int8_q4_k__row --pass fusion its IR after a pass
  iron build --emit all --out artefacts            manifest, Metal, CUDA and CPU sources"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the sources of every kernel instance and the manifest.
    #[command(after_help = "\
Writes manifest.json, kernels/*.cu, kernels/*.metal (each beside its tile library), and cpu/kernels.rs, which holds
the CPU kernels and their typed Rust wrappers. Files that would not change are left alone.

Examples:
  iron build --out artefacts
  iron build --emit cuda --emit metal --out artefacts
  iron build --emit manifest --out artefacts       only manifest.json")]
    Build(BuildArgs),
    /// Show a kernel after a pass, or the text that a target gets.
    #[command(after_help = "\
KERNEL is a kernel (`rms_norm`) or one of its instances (`rms_norm_int8__row`); `iron list KERNEL` names them.

Examples:
  iron inspect rms_norm --bindings int8                      Rust for the CPU
  iron inspect rms_norm --bindings f16 --target cuda         CUDA C++
  iron inspect matmul --bindings int8,q4_1 --schedule row --pass tilelowering
  iron inspect softmax --without fusion                      what fusion is worth
  diff <(iron inspect add --pass fusion) <(iron inspect add --pass schedule)")]
    Inspect(InspectArgs),
    /// Type-check and compile every instance, verifying the IR after each pass.
    #[command(after_help = "\
Prints the number of instances for each target and fails when it exceeds the budget in iron-std's instance list.
Hand-written texts that replace generated ones are listed.

Examples:
  iron check
  iron check attention --target metal")]
    Check(CheckArgs),
    /// List the kernels, or the instances of one.
    #[command(after_help = "\
Examples:
  iron list
  iron list matmul --target cuda
  iron list matmul | grep q4_k")]
    List(CheckArgs),
}

#[derive(Args, Debug)]
struct BuildArgs {
    /// What to write; may be repeated.
    #[arg(long, value_enum, default_value = "all")]
    emit: Vec<Emit>,
    /// The folder to write to; it is created.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Emit {
    All,
    Cpu,
    Metal,
    Cuda,
    Manifest,
}

#[derive(Args, Debug)]
struct InspectArgs {
    /// A kernel or one of its instances.
    kernel: String,
    /// The target.
    #[arg(long, default_value = "cpu", value_parser = target)]
    target: Target,
    /// Show the IR after this pass instead of the text: typecheck, constfold, tilelowering, fusion, schedule, vectorize.
    #[arg(long, value_parser = pass)]
    pass: Option<Pass>,
    /// Leave a pass out; may be repeated: fusion, schedule (cpu), vectorize (cpu).
    #[arg(long, value_name = "PASS", value_parser = optional_pass)]
    without: Vec<Pass>,
    /// One name per generic, in declaration order: `int8,q4_1`.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    bindings: Vec<String>,
    /// The schedule, as named in the tuning file.
    #[arg(long)]
    schedule: Option<String>,
    /// Print the source position of every operation.
    #[arg(long)]
    spans: bool,
}

#[derive(Args, Debug)]
struct CheckArgs {
    /// Only this kernel.
    kernel: Option<String>,
    /// Only this target: cpu, cuda or metal.
    #[arg(long, value_parser = target)]
    target: Option<Target>,
}

impl CheckArgs {
    fn targets(&self) -> Vec<Target> {
        self.target.map_or_else(|| Target::ALL.to_vec(), |target| vec![target])
    }
}

fn target(name: &str) -> Result<Target, Error> {
    Target::parse(name).ok_or_else(|| "expected cpu, cuda or metal".to_owned())
}

fn pass(name: &str) -> Result<Pass, Error> {
    let names: Vec<&str> = Pass::ALL.iter().map(|pass| pass.name()).collect();
    Pass::parse(name).ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

fn optional_pass(name: &str) -> Result<Pass, Error> {
    match pass(name)? {
        Pass::TypeCheck | Pass::ConstFold | Pass::TileLowering => {
            Err("later passes need it; fusion, schedule and vectorize can be left out".to_owned())
        }
        optional => Ok(optional),
    }
}

/// Writes to standard output; a reader that has seen enough (`| head`) ends the program quietly.
fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(format!("error: cannot write to standard output: {error}")),
        Ok(()) => Ok(()),
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Build(args) => build::run(&args.emit, &args.out),
        Command::Inspect(args) => inspect::run(&args),
        Command::Check(args) => check::run(args.kernel.as_deref(), &args.targets()),
        Command::List(args) => list::run(args.kernel.as_deref(), &args.targets()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{}", message.trim_end());
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
