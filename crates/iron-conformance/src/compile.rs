//! Compiles a text to a shared object and runs it.
#![expect(unsafe_code, reason = "loads and calls compiled kernels")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, fs};

use libloading::{Library, Symbol};

use crate::fiber::{self, Grid, Launch, Shared};
use crate::memory::{Kind, Memory, REDZONE};
use crate::signature::{self, Signature};
use crate::{Arg, Error, Order, Target};

const COMPILER: &str = "clang-19";
const STANDINS: [(&str, &str); 6] = [
    ("iron_emulator.h", include_str!("../standin/iron_emulator.h")),
    ("support.c", include_str!("../standin/support.c")),
    ("cuda/iron_cuda_standin.h", include_str!("../standin/cuda/iron_cuda_standin.h")),
    ("metal/metal_stdlib", include_str!("../standin/metal/metal_stdlib")),
    ("metal/metal_simdgroup_matrix", include_str!("../standin/metal/metal_simdgroup_matrix")),
    ("cuda/iron_tile.cuh", iron_codegen::target::cuda::TILE_LIBRARY),
];
const METAL_LIBRARY: (&str, &str) =
    ("metal/iron_tile.metal", iron_codegen::target::metal::TILE_LIBRARY);

/// A block of a test that makes more accesses than this does not end.
const BUDGET: u64 = 2_000_000_000;

/// A compiled kernel text.
pub struct Emulated {
    entry: String,
    target: Target,
    signature: Signature,
    library: Library,
    image: Vec<Range<usize>>,
    /// Memory accesses after which a block hangs.
    budget: u64,
    /// The text uses globals for its block, and loading an object twice gives the same globals: one grid runs at a time.
    running: Arc<Mutex<()>>,
}

/// The lock of everything compiled from one text.
fn lock_of(folder: &Path) -> Arc<Mutex<()>> {
    static LOCKS: Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    locks.entry(folder.to_owned()).or_default().clone()
}

/// The path of the compiler, or why there is none.
pub(crate) fn find_compiler() -> Result<PathBuf, Error> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(COMPILER))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| Error::MissingCompiler { tool: COMPILER.into() })
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

fn key(parts: &[&str]) -> String {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

impl Emulated {
    /// Compiles `text`, which defines the kernel `entry`. The result is kept in a cache folder under its hash.
    pub fn compile(target: Target, text: &str, entry: &str) -> Result<Self, Error> {
        if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) {
            return Err(Error::UnsupportedHost);
        }
        let compiler = find_compiler()?;
        let signature = signature::read(target, text, entry)?;
        let arguments = flags(target).join(" ");
        let mut parts: Vec<&str> =
            STANDINS.iter().chain([&METAL_LIBRARY]).map(|(_, text)| *text).collect();
        parts.extend([text, entry, &signature.trampoline, &arguments]);
        let folder = env::temp_dir().join("iron-conformance").join(key(&parts));
        let object = folder.join("kernel.so");
        if !object.is_file() {
            build(&compiler, target, text, entry, &signature, &folder)?;
        }
        // SAFETY: the object was built from our own text and has no initialisers.
        let library = unsafe { Library::new(&object)? };
        let image = mapped(&object).map_err(io("reading the memory map"))?;
        Ok(Self {
            entry: entry.into(),
            target,
            signature,
            library,
            image,
            budget: BUDGET,
            running: lock_of(&folder),
        })
    }

    /// From now on a block that makes more memory accesses than this is taken to hang.
    pub fn limit_accesses(&mut self, accesses: u64) {
        self.budget = accesses;
    }

    /// The language it was written in.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Runs `grid` blocks of `threads` threads in ascending order.
    pub fn run(
        &self,
        grid: [u32; 3],
        threads: u32,
        shared_bytes: u32,
        args: &mut [Arg<'_>],
    ) -> Result<(), Error> {
        self.run_ordered(grid, threads, shared_bytes, args, Order::Forward)
    }

    /// Runs `grid` blocks of `threads` threads, between barriers in the given order.
    pub fn run_ordered(
        &self,
        grid: [u32; 3],
        threads: u32,
        shared_bytes: u32,
        args: &mut [Arg<'_>],
        order: Order,
    ) -> Result<(), Error> {
        if args.len() != self.signature.arguments {
            return Err(Error::ArgumentCount {
                entry: self.entry.clone(),
                expected: self.signature.arguments,
                found: args.len(),
            });
        }
        let _one_at_a_time = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut memory = Memory::new(self.image.clone());
        // Buffers move to copies with untouchable surroundings; 16-byte alignment as on a GPU.
        let mut copies: Vec<Vec<u128>> = Vec::new();
        let mut addresses: Vec<usize> = Vec::new();
        for (i, arg) in args.iter().enumerate() {
            let (bytes, kind): (&[u8], Kind) = match arg {
                Arg::Input(bytes) => (bytes, Kind::Input),
                Arg::Output(bytes) => (bytes, Kind::Output),
                Arg::Value(bytes) => (bytes, Kind::Input),
            };
            let mut copy = vec![u128::MAX; bytes.len().div_ceil(16) + 2 * REDZONE / 16];
            let start = copy.as_mut_ptr() as usize + REDZONE;
            // SAFETY: the copy has room for the bytes behind its first redzone.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, bytes.len()) };
            memory.add(format!("argument {i}"), kind, start, bytes.len());
            addresses.push(start);
            copies.push(copy);
        }
        let mut shared = vec![u128::MAX; (shared_bytes as usize).div_ceil(16) + 2 * REDZONE / 16];
        let mut pointers: Vec<*const c_void> = Vec::new();
        match self.target {
            Target::Metal => {
                pointers.extend(addresses.iter().map(|address| *address as *const c_void));
                let start = shared.as_mut_ptr() as usize + REDZONE;
                memory.add("shared memory".into(), Kind::Shared, start, shared_bytes as usize);
                if self.signature.takes_shared {
                    pointers.push(start as *const c_void);
                }
            }
            Target::Cuda => {
                // By value: a pointer to the address of a buffer, or to the bytes of a value.
                for (arg, address) in args.iter().zip(&addresses) {
                    pointers.push(match arg {
                        Arg::Value(_) => *address as *const c_void,
                        _ => std::ptr::from_ref(address).cast(),
                    });
                }
                // SAFETY: the stand-in header defines `iron_shared`.
                let symbol: Symbol<'_, *mut u8> = unsafe { self.library.get(b"iron_shared")? };
                memory.add(
                    "shared memory".into(),
                    Kind::Shared,
                    *symbol as usize,
                    shared_bytes as usize,
                );
            }
        }
        // SAFETY: `iron_launch` and `iron_rt` are defined by the trampoline and by support.c.
        let (launch, table) = unsafe {
            let launch: Symbol<'_, Launch> = self.library.get(b"iron_launch")?;
            let table: Symbol<'_, *mut *mut Shared> = self.library.get(b"iron_rt")?;
            (*launch, *table)
        };
        let job = Grid {
            entry: &self.entry,
            launch,
            arguments: &pointers,
            memory,
            order,
            budget: self.budget,
        };
        fiber::run(job, table, grid, threads)?;
        for (arg, address) in args.iter_mut().zip(&addresses) {
            if let Arg::Output(bytes) = arg {
                // SAFETY: the inverse of the copy above; the kernel has ended.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        *address as *const u8,
                        bytes.as_mut_ptr(),
                        bytes.len(),
                    );
                };
            }
        }
        Ok(())
    }
}

fn flags(target: Target) -> Vec<&'static str> {
    let mut flags = match target {
        Target::Metal => vec![
            "-x",
            "cl",
            "-cl-std=CLC++2021",
            "-cl-no-stdinc",
            "-target",
            "x86_64-linux-gnu",
            "-Imetal",
            "-Wno-unknown-attributes",
            "-Wno-pass-failed",
        ],
        Target::Cuda => vec!["-x", "c++", "-std=c++17", "-Icuda", "-Wall", "-Wno-unused-function"],
    };
    flags.extend([
        "-O1",
        "-fPIC",
        "-ffp-contract=off",
        "-fno-exceptions",
        "-fsanitize=thread",
        "-Werror",
        "-c",
    ]);
    if std::arch::is_x86_feature_detected!("f16c") {
        flags.push("-mf16c");
    }
    flags
}

fn build(
    compiler: &Path,
    target: Target,
    text: &str,
    entry: &str,
    signature: &Signature,
    folder: &Path,
) -> Result<(), Error> {
    // Built beside its place and moved there, so that tests running side by side never see half a file.
    let work =
        folder.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
    for (name, text) in STANDINS.iter().chain([&METAL_LIBRARY]) {
        let path = work.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&work)).map_err(io("creating the cache"))?;
        fs::write(path, text).map_err(io("writing the cache"))?;
    }
    let write =
        |name: &str, text: &str| fs::write(work.join(name), text).map_err(io("writing the cache"));
    let run = |arguments: &[&str]| -> Result<(), Error> {
        let output = Command::new(compiler)
            .args(arguments)
            .current_dir(&work)
            .output()
            .map_err(io(format!("running {}", compiler.display())))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Compile {
            entry: entry.into(),
            path: work.join(match target {
                Target::Metal => "kernel.metal",
                Target::Cuda => "kernel.cu",
            }),
            messages: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    };
    let mut arguments = flags(target);
    match target {
        Target::Metal => {
            write("kernel.metal", text)?;
            write("launch.c", &signature.trampoline)?;
            arguments.extend(["kernel.metal", "-o", "kernel.o"]);
            run(&arguments)?;
            run(&["-O1", "-fPIC", "-c", "launch.c", "-o", "launch.o"])?;
        }
        Target::Cuda => {
            write("kernel.cu", text)?;
            write("launch.cpp", &format!("#include \"kernel.cu\"\n{}", signature.trampoline))?;
            arguments.extend(["launch.cpp", "-o", "kernel.o"]);
            run(&arguments)?;
            run(&["-x", "c", "/dev/null", "-c", "-o", "launch.o"])?;
        }
    }
    run(&["-O2", "-fPIC", "-c", "support.c", "-o", "support.o"])?;
    run(&[
        "-shared",
        "-o",
        "kernel.so",
        "kernel.o",
        "launch.o",
        "support.o",
        "-lm",
        "-Wl,-z,defs",
    ])?;
    if fs::rename(&work, folder).is_err() && !folder.join("kernel.so").is_file() {
        return Err(Error::Io {
            what: "moving a kernel into the cache".into(),
            source: std::io::Error::last_os_error(),
        });
    }
    Ok(())
}

/// Where the object lies in memory.
fn mapped(object: &Path) -> std::io::Result<Vec<Range<usize>>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let name = object.to_string_lossy();
    Ok(maps
        .lines()
        .filter(|line| line.ends_with(&*name))
        .filter_map(|line| {
            let (start, end) = line.split_whitespace().next()?.split_once('-')?;
            Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
        })
        .collect())
}
