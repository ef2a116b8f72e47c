//! What a page shows of a program is what the program prints.

use regex::Regex;

/// A line that stands for any number of lines.
const ANYTHING: &str = "…";

/// Each shown line is printed, in this order. Times, ports and generated names may differ.
pub(crate) fn shows(shown: &[&str], printed: &str) -> Result<(), String> {
    let mut lines = printed.lines().map(plain);
    for wanted in shown.iter().filter(|line| !is_gap(line)) {
        let wanted = plain(wanted);
        if !lines.any(|line| line == wanted) {
            return Err(format!(
                "the page shows a line that is not printed (there):\n{wanted}\nprinted was\n{printed}"
            ));
        }
    }
    Ok(())
}

fn is_gap(line: &str) -> bool {
    line.trim() == ANYTHING || line.trim().is_empty()
}

/// Without what differs from run to run.
fn plain(line: &str) -> String {
    let differs = [
        (r"\b\d{1,2}:\d\d(:\d\d)?\b", "TIME"),
        (r"\b(hvst-upgrade-)[a-z0-9]{5}\b", "${1}NAME"),
        (r"\bcustom-[0-9a-f]{12}\b", "MACHINE"),
        (r"\b127\.0\.0\.1:\d+", "ADDRESS"),
        (r"\b\d+ to the plan, \d+ in all", "WRITES"),
    ];
    let mut line = line.trim_end().to_owned();
    for (pattern, name) in differs {
        line = Regex::new(pattern).unwrap().replace_all(&line, name).into_owned();
    }
    // Durations are right-aligned: their width differs too.
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_line_that_is_not_printed_or_in_another_order_is_found() {
    let printed = "03:57:09  phase A\n04:00:00  phase B\nhvst-upgrade-abcde done\n";
    assert_eq!(
        shows(&["01:02:03  phase A", "  …", "hvst-upgrade-k8222 done"], printed),
        Ok(())
    );
    assert!(shows(&["03:57:09  phase C"], printed).is_err());
    assert!(shows(&["04:00:00  phase B", "03:57:09  phase A"], printed).is_err());
}
