//! Tables that fit: columns are as wide as their content, the widest gives way first, and texts below a row are wrapped.

use std::fmt::Write as _;

use api::quoted::{LONGEST_MESSAGE, LONGEST_NAME, plain};

use crate::style::Style;

/// Between two columns.
const GAP: usize = 2;
/// What a text below a row is indented by.
const INDENT: usize = 4;
/// A column gives way down to this.
const NARROWEST: usize = 8;
/// So many lines of a text below a row are shown.
const LINES: usize = 4;

/// A table with `N` columns.
pub(crate) struct Table<const N: usize> {
    rows: Vec<([String; N], Vec<String>)>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(head: [&str; N]) -> Self {
        Self {
            rows: vec![(head.map(str::to_owned), Vec::new())],
        }
    }

    /// Adds a row. Cells are bounded and on one line.
    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows
            .push((cells.map(|cell| plain(&cell, LONGEST_NAME)), Vec::new()));
    }

    /// Adds a text below the last row.
    pub(crate) fn below(&mut self, text: &str) {
        if let Some((_, below)) = self.rows.last_mut() {
            below.push(plain(text, LONGEST_MESSAGE));
        }
    }

    /// The table in so many columns of a terminal. Its head is bold.
    pub(crate) fn text(&self, width: usize, style: Style) -> String {
        let widths = self.widths(width);
        let mut out = String::new();
        for (index, (cells, below)) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (cell, width) in cells.iter().zip(widths) {
                let cell = cut(cell, width);
                let _ = write!(line, "{cell:<width$}{:GAP$}", "");
            }
            let line = line.trim_end();
            let _ = writeln!(out, "{}", if index == 0 { style.bold(line) } else { line.to_owned() });
            for text in below {
                let mut lines = wrapped(text, width.saturating_sub(INDENT));
                if lines.len() > LINES {
                    lines.truncate(LINES);
                    if let Some(last) = lines.last_mut() {
                        *last = cut(&format!("{last} …"), width.saturating_sub(INDENT));
                    }
                }
                for line in lines {
                    let _ = writeln!(out, "{:INDENT$}{line}", "");
                }
            }
        }
        out
    }

    fn widths(&self, width: usize) -> [usize; N] {
        let mut widths = [0; N];
        for (cells, _) in &self.rows {
            for (widest, cell) in widths.iter_mut().zip(cells) {
                *widest = (*widest).max(cell.chars().count());
            }
        }
        let room = width.saturating_sub(GAP * N.saturating_sub(1));
        while widths.iter().sum::<usize>() > room {
            let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > NARROWEST) else {
                break;
            };
            *widest -= 1;
        }
        widths
    }
}

/// A text of at most so many characters; what is cut ends with an ellipsis.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// A text in lines of at most so many characters, between words where that is possible.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        let space = usize::from(used > 0);
        if used + space + word.len() > width && used > 0 {
            lines.push(String::new());
            used = 0;
        }
        while !word.is_empty() {
            if used == width {
                lines.push(String::new());
                used = 0;
            }
            let Some(line) = lines.last_mut() else { break };
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            let fits = word.len().min(width - used);
            line.extend(word.drain(..fits));
            used += fits;
            if !word.is_empty() {
                used = width;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_and_its_widest_column_gives_way() {
        let mut table = Table::new(["NAME", "WHAT", "OBJECT"]);
        table.row(["a".repeat(70), "b".repeat(20), "c\nd".to_owned()]);
        table.below(&"words and more words ".repeat(30));
        for width in [60, 61, 80, 200] {
            let text = table.text(width, Style::default());
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{width}:\n{text}"
            );
            assert!(text.contains("c d"), "{text}");
        }
        assert_eq!(table.text(60, Style::default()).lines().count(), 2 + LINES);
    }

    #[test]
    fn words_are_wrapped_and_long_ones_are_broken() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
