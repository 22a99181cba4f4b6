//! Columns of text.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::output::{Style, paint};

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under a header, each column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    header: [&'static str; N],
    align: [Align; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(columns: [(&'static str, Align); N]) -> Self {
        Self {
            header: columns.map(|(name, _)| name),
            align: columns.map(|(_, align)| align),
            rows: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    /// Writes the table, indented by two spaces.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut widths = self.header.map(|name| name.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let header = self.header.map(str::to_owned);
        writeln!(out, "{}", paint(Style::Dim, self.line(&header, &widths)))?;
        for row in &self.rows {
            writeln!(out, "{}", self.line(row, &widths))?;
        }
        Ok(())
    }

    fn line(&self, cells: &[String; N], widths: &[usize; N]) -> String {
        let mut line = String::new();
        for ((cell, &width), align) in cells.iter().zip(widths).zip(self.align) {
            line.push_str("  ");
            // Writing to a string does not fail.
            let _ = match align {
                Align::Left => write!(line, "{cell:<width$}"),
                Align::Right => write!(line, "{cell:>width$}"),
            };
        }
        line.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{Align, Table};

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new([("name", Align::Left), ("n", Align::Right)]);
        table.push(["a".to_owned(), "10".to_owned()]);
        table.push(["longer".to_owned(), "7".to_owned()]);
        let mut out = Vec::new();
        table.write(&mut out).expect("memory");
        let lines = String::from_utf8(out).expect("text");
        assert_eq!(lines, "  name     n\n  a       10\n  longer   7\n");
    }
}
