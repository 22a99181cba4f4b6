//! Executes emitted Metal Shading Language and CUDA C++ on a CPU.
//!
//! The text is compiled *unmodified* by a stock clang against stand-in headers (`standin/`): Metal as C++ for OpenCL, so
//! that address spaces are checked, CUDA as C++17. One block runs at a time, each of its threads a fiber with its own
//! stack; barriers and collectives switch fibers. Every access to memory passes through a hook that the compiler inserts
//! (the instrumentation pass of `-fsanitize=thread`, with our runtime), which finds accesses outside buffers, reads of
//! shared memory that nobody wrote, and accesses of two threads that no barrier orders.
//!
//! **Invariant**: a kernel that misbehaves is an [`Error`], never a crash of the test.

mod call;
mod compile;
mod fiber;
mod memory;
mod signature;

use std::path::PathBuf;

pub use call::{Argument, call};
pub use compile::Emulated;
pub use memory::Violation;

/// The language of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Metal Shading Language.
    Metal,
    /// CUDA C++.
    Cuda,
}

/// An argument of an emulated kernel, in the order of its signature.
#[derive(Debug)]
pub enum Arg<'a> {
    /// A buffer that the kernel may only read.
    Input(&'a [u8]),
    /// A buffer that the kernel may write.
    Output(&'a mut [u8]),
    /// A value (CUDA: passed by value; Metal: the bytes of the constant buffer).
    Value(Vec<u8>),
}

/// The order in which warps and their lanes run between two barriers; correct kernels cannot tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ascending.
    Forward,
    /// Descending.
    Reverse,
    /// A fixed shuffle.
    Shuffled,
}

impl Order {
    /// Every order.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Reverse, Self::Shuffled];
}

/// Why a kernel could not be compiled or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The compiler is missing.
    #[error(
        "{tool} was not found; install it with `apt-get install --no-install-recommends clang-19`"
    )]
    MissingCompiler {
        /// Its name.
        tool: String,
    },
    /// The text does not compile.
    #[error("{entry} does not compile ({}):\n{messages}", path.display())]
    Compile {
        /// Kernel.
        entry: String,
        /// The text that was compiled.
        path: PathBuf,
        /// What the compiler said.
        messages: String,
    },
    /// The kernel's signature is not what generated kernels have.
    #[error("the signature of {entry} cannot be called: {reason}")]
    Signature {
        /// Kernel.
        entry: String,
        /// What is wrong.
        reason: String,
    },
    /// The number of arguments differs from the signature.
    #[error("{entry} takes {expected} arguments, {found} were given")]
    ArgumentCount {
        /// Kernel.
        entry: String,
        /// In the signature.
        expected: usize,
        /// Given.
        found: usize,
    },
    /// Threads of one block wait at different barriers.
    #[error(
        "{entry}: block {block:?}: divergent barrier: thread {thread} {this}, thread {other} {that}"
    )]
    Divergent {
        /// Kernel.
        entry: String,
        /// Position in the grid.
        block: [u32; 3],
        /// A thread.
        thread: u32,
        /// What it does.
        this: &'static str,
        /// Another thread.
        other: u32,
        /// What that does.
        that: &'static str,
    },
    /// A memory access that no correct kernel makes.
    #[error("{entry}: block {block:?}, thread {thread}: {violation}")]
    Memory {
        /// Kernel.
        entry: String,
        /// Position in the grid.
        block: [u32; 3],
        /// The thread.
        thread: u32,
        /// What it did.
        violation: Violation,
    },
    /// A block that does not end.
    #[error("{entry}: block {block:?} made {accesses} memory accesses and did not end: it hangs")]
    Hang {
        /// Kernel.
        entry: String,
        /// Position in the grid.
        block: [u32; 3],
        /// How many.
        accesses: u64,
    },
    /// Files or libraries.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The compiled kernel does not load.
    #[error("the compiled kernel does not load: {0}")]
    Load(#[from] libloading::Error),
    /// This machine cannot emulate.
    #[error("the emulator runs on x86-64 Linux only")]
    UnsupportedHost,
}

/// Why tests that execute kernel text cannot run here, or `None` when they can.
///
/// A test that skips must print this.
pub fn unavailable() -> Option<String> {
    if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) {
        return Some(Error::UnsupportedHost.to_string());
    }
    compile::find_compiler().err().map(|error| error.to_string())
}
