//! How much of the CPU this process may use.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::thread;

/// What this process may use of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvailableCpu {
    /// Logical processors in the affinity mask.
    pub logical: usize,
    /// Physical cores behind them, as far as the system shows.
    pub cores: usize,
    /// CPU quota of the cgroup in processors, rounded up; `None` without one.
    pub quota: Option<usize>,
}

impl AvailableCpu {
    /// Asks the system.
    pub fn detect() -> Self {
        let root = Path::new("/");
        let Some(cpus) = affinity() else {
            let logical = thread::available_parallelism().map_or(1, usize::from);
            return Self { logical, cores: logical, quota: None };
        };
        Self { logical: cpus.len(), cores: cores(root, &cpus), quota: quota(root) }
    }

    /// One thread per physical core, within the quota.
    pub fn default_threads(self) -> usize {
        self.quota.map_or(self.cores, |quota| quota.min(self.cores)).max(1)
    }
}

/// The logical processors in the affinity mask of this thread.
#[cfg(target_os = "linux")]
fn affinity() -> Option<Vec<usize>> {
    // The kernel refuses a mask shorter than its own; 8192 processors is its largest configuration.
    let mut mask = [0u64; 128];
    // SAFETY: the pointer and the size describe `mask`, which `cpu_set_t` is a prefix of.
    let status =
        unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    let cpus: Vec<usize> =
        (0..mask.len() * 64).filter(|&cpu| mask[cpu / 64] >> (cpu % 64) & 1 == 1).collect();
    (status == 0 && !cpus.is_empty()).then_some(cpus)
}

#[cfg(not(target_os = "linux"))]
fn affinity() -> Option<Vec<usize>> {
    None
}

/// Physical cores among `cpus`: siblings name the same list of siblings. A processor that names none is its own core.
fn cores(root: &Path, cpus: &[usize]) -> usize {
    let siblings = cpus.iter().map(|cpu| {
        let path =
            root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
        fs::read_to_string(path).map_or_else(|_| format!("cpu{cpu}"), |list| list.trim().to_owned())
    });
    siblings.collect::<HashSet<_>>().len()
}

/// The smallest CPU quota of the process's cgroups (version 1 and 2) and their parents, in whole processors.
fn quota(root: &Path) -> Option<usize> {
    let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    cgroups
        .lines()
        .filter_map(|line| line_quota(root, line))
        .reduce(f64::min)
        .map(|cpus| cpus.ceil().max(1.0) as usize)
}

/// The quota of one line of `/proc/self/cgroup`: `0::/path` or `4:cpu,cpuacct:/path`.
fn line_quota(root: &Path, line: &str) -> Option<f64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let mounts: &[&str] = if controllers.is_empty() {
        &["sys/fs/cgroup", "sys/fs/cgroup/unified"]
    } else if controllers.split(',').any(|controller| controller == "cpu") {
        &["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"]
    } else {
        return None;
    };
    // Inside a container the path may name a group above the mount, so every parent up to the mount is tried.
    let groups = Path::new(path.trim_start_matches('/')).ancestors();
    let folders =
        groups.flat_map(|group| mounts.iter().map(move |mount| root.join(mount).join(group)));
    folders.filter_map(|folder| folder_quota(&folder)).reduce(f64::min)
}

/// The quota that one cgroup folder sets.
fn folder_quota(folder: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(text) => {
            let mut fields = text.split_whitespace();
            (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?)
        }
        None => (
            read("cpu.cfs_quota_us")?.trim().parse::<f64>().ok()?,
            read("cpu.cfs_period_us")?.trim().parse::<f64>().ok()?,
        ),
    };
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::{AvailableCpu, cores, quota};

    /// A folder with the given files, removed when dropped.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root =
                std::env::temp_dir().join(format!("iron-topology-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn version_2_quota_is_the_least_of_group_and_parents() {
        let root = Root::new(
            "v2",
            &[
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
                ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ],
        );
        assert_eq!(quota(&root.0), Some(2));
    }

    #[test]
    fn version_1_quota_is_found_above_a_path_outside_the_mount() {
        let root = Root::new(
            "v1",
            &[
                ("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/x\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(quota(&root.0), Some(3));
    }

    #[test]
    fn an_unlimited_version_1_quota_is_none() {
        let root = Root::new(
            "v1max",
            &[
                ("proc/self/cgroup", "4:cpu:/\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(quota(&root.0), None);
    }

    #[test]
    fn siblings_count_as_one_core() {
        let files = [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")].map(|(cpu, list)| {
            (format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), list)
        });
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, list)| (path.as_str(), *list)).collect();
        let root = Root::new("smt", &files);
        assert_eq!(cores(&root.0, &[0, 1, 2, 3]), 2);
        assert_eq!(cores(&root.0, &[0, 2]), 1);
    }

    #[test]
    fn processors_without_topology_are_cores() {
        assert_eq!(cores(Path::new("/nonexistent"), &[0, 1, 2]), 3);
    }

    #[test]
    fn a_quota_limits_the_threads() {
        assert_eq!(AvailableCpu { logical: 8, cores: 4, quota: Some(3) }.default_threads(), 3);
        assert_eq!(AvailableCpu { logical: 8, cores: 4, quota: Some(6) }.default_threads(), 4);
    }
}
