//! Text in columns.

/// Rows of cells; numbers stand right in their columns.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// A table with this header; `right` says which columns hold numbers.
    pub fn new(header: impl IntoIterator<Item = impl Into<String>>, right: impl IntoIterator<Item = bool>) -> Self {
        Self { rows: vec![header.into_iter().map(Into::into).collect()], right: right.into_iter().collect() }
    }

    /// Appends a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The lines, two spaces between columns, nothing at their ends.
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                let (before, after) =
                    if self.right.get(column) == Some(&true) { (pad, String::new()) } else { (String::new(), pad) };
                line += &format!("{}{before}{cell}{after}", if column == 0 { "" } else { "  " });
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_right_and_lines_end_without_blanks() {
        let mut table = Table::new(["NAME", "ROWS", "WHERE"], [false, true, false]);
        table.row(["ä", "7", "files"]);
        table.row(["longer", "12,345", "-"]);
        assert_eq!(table.text(), "NAME      ROWS  WHERE\nä            7  files\nlonger  12,345  -\n");
    }
}
