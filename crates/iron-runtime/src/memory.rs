//! Memory use of the process.

use crate::{Result, RuntimeError};

/// The most resident memory that this process has had, in bytes.
///
/// # Errors
///
/// [`RuntimeError::System`] where the system does not say.
pub fn peak_rss() -> Result<u64> {
    #[cfg(target_os = "linux")]
    {
        // Not `getrusage`: its maximum includes the program that started this one.
        let fail = |reason: String| RuntimeError::System { what: "peak memory", reason };
        let status = std::fs::read_to_string("/proc/self/status")
            .map_err(|error| fail(error.to_string()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.map(|kib| kib * 1024).ok_or_else(|| fail("no VmHWM in /proc/self/status".to_owned()))
    }
    #[cfg(all(unix, not(target_os = "linux")))]
    {
        // SAFETY: all zeros is a valid `rusage`, and the call only writes it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
            usage
        };
        // Bytes on Apple systems, KiB elsewhere.
        let unit = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
        Ok(usage.ru_maxrss as u64 * unit)
    }
    #[cfg(not(unix))]
    Err(RuntimeError::System {
        what: "peak memory",
        reason: "not implemented for this system".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(unix)]
    fn peak_covers_touched_memory() {
        let bytes = vec![1u8; 8 << 20];
        assert!(super::peak_rss().unwrap() >= std::hint::black_box(bytes).len() as u64);
    }
}
