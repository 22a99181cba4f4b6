//! Per-call timing.

/// How long one kernel call took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchTiming {
    /// Name of the kernel.
    pub kernel: &'static str,
    /// Name of the schedule.
    pub schedule: &'static str,
    /// Programs along each axis.
    pub grid: [u32; 3],
    /// Wall time, with the cost of starting and ending the call.
    pub nanoseconds: u64,
}
