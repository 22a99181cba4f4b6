//! Where the time of a forward pass goes, kernel by kernel.

use std::collections::HashMap;
use std::io::{self, Write};

use iron_runtime::DispatchTiming;
use serde_json::{Value, json};

use crate::output::{Style, paint};
use crate::table::{Align, Table};

/// Calls of one kernel with one schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    kernel: &'static str,
    schedule: &'static str,
    calls: u64,
    nanoseconds: u64,
}

/// The calls of some passes, the most expensive first.
#[derive(Debug)]
pub(crate) struct Profile {
    rows: Vec<Row>,
    passes: u64,
}

impl Profile {
    pub(crate) fn new(timings: &[DispatchTiming], passes: usize) -> Self {
        let mut sums: HashMap<(&str, &str), Row> = HashMap::new();
        for timing in timings {
            let (kernel, schedule) = (timing.kernel, timing.schedule);
            let row = sums.entry((kernel, schedule)).or_insert(Row {
                kernel,
                schedule,
                calls: 0,
                nanoseconds: 0,
            });
            row.calls += 1;
            row.nanoseconds += timing.nanoseconds;
        }
        let mut rows: Vec<Row> = sums.into_values().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.nanoseconds), row.kernel, row.schedule));
        Self { rows, passes: passes.max(1) as u64 }
    }

    fn total(&self) -> u64 {
        self.rows.iter().map(|row| row.nanoseconds).sum()
    }

    /// Writes a table; numbers are those of one pass.
    pub(crate) fn write(&self, out: &mut impl Write, title: &str) -> io::Result<()> {
        let total = self.total();
        let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6 / self.passes as f64;
        writeln!(
            out,
            "\n{}  {:.3} ms in kernels, one call at a time",
            paint(Style::Bold, title),
            milliseconds(total)
        )?;
        let mut table = Table::new([
            ("kernel", Align::Left),
            ("schedule", Align::Left),
            ("calls", Align::Right),
            ("ms", Align::Right),
            ("share", Align::Right),
        ]);
        for row in &self.rows {
            table.push([
                row.kernel.to_owned(),
                row.schedule.to_owned(),
                (row.calls / self.passes).to_string(),
                format!("{:.3}", milliseconds(row.nanoseconds)),
                format!("{:.1} %", row.nanoseconds as f64 * 100.0 / total.max(1) as f64),
            ]);
        }
        table.write(out)
    }

    /// The same numbers for programs.
    pub(crate) fn to_json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "kernel": row.kernel,
                "schedule": row.schedule,
                "calls": row.calls / self.passes,
                "ms": row.nanoseconds as f64 / 1e6 / self.passes as f64,
            })
        };
        self.rows.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use iron_runtime::DispatchTiming;

    use super::Profile;

    #[test]
    fn calls_are_summed_by_kernel_and_schedule() {
        let timing = |kernel, schedule, nanoseconds| DispatchTiming {
            kernel,
            schedule,
            grid: [1; 3],
            nanoseconds,
        };
        let timings = [
            timing("norm", "row", 10),
            timing("matmul", "vector", 50),
            timing("matmul", "vector", 40),
        ];
        let profile = Profile::new(&timings, 1);
        let rows: Vec<_> =
            profile.rows.iter().map(|row| (row.kernel, row.calls, row.nanoseconds)).collect();
        assert_eq!(rows, [("matmul", 2, 90), ("norm", 1, 10)]);
        let mut out = Vec::new();
        profile.write(&mut out, "Decode").expect("memory");
        assert!(String::from_utf8(out).expect("text").contains("90.0 %"));
    }
}
