//! An upgrade on a terminal: draws the lines of [`super::screen`] again and again, and leaves them when it ends.

use std::io::Write as _;

use api::UpgradePlan;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;

use super::screen::{Extent, screen};

/// A terminal whose size is unknown.
const USUAL: (u16, u16) = (24, 80);

/// Bars on a terminal.
pub struct Bars {
    drawn: Option<Drawn>,
    plan: Option<Box<UpgradePlan>>,
}

/// What is on the terminal now.
struct Drawn {
    all: MultiProgress,
    lines: Vec<ProgressBar>,
}

impl Bars {
    /// Bars on standard error, so that standard output stays for results.
    #[must_use]
    pub fn new() -> Self {
        Self {
            drawn: None,
            plan: None,
        }
    }

    /// Shows the plan as it is now.
    pub(super) fn show(&mut self, now: Timestamp, plan: &UpgradePlan) {
        self.plan = Some(Box::new(plan.clone()));
        self.drawn.get_or_insert_with(Drawn::new);
        self.tick(now);
    }

    /// Moves the clock on when nothing else happens.
    pub(super) fn tick(&mut self, now: Timestamp) {
        if let (Some(plan), Some(drawn)) = (&self.plan, &mut self.drawn) {
            drawn.draw(screen(now, plan, extent()));
        }
    }

    /// Says something above the bars, or below what has ended.
    pub(super) fn say(&self, line: &str) {
        // A closed terminal needs no output.
        let _ = match &self.drawn {
            Some(drawn) => drawn.all.println(line),
            None => writeln!(std::io::stderr(), "{line}"),
        };
    }

    /// Leaves the bars as they are and the terminal to others: what is printed from now on is never drawn over.
    pub(super) fn end(&mut self) {
        if let Some(drawn) = self.drawn.take() {
            for line in &drawn.lines {
                line.abandon();
            }
        }
        self.plan = None;
    }
}

impl Default for Bars {
    fn default() -> Self {
        Self::new()
    }
}

impl Drawn {
    fn new() -> Self {
        Self {
            all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            lines: Vec::new(),
        }
    }

    fn draw(&mut self, lines: Vec<String>) {
        while self.lines.len() > lines.len() {
            if let Some(line) = self.lines.pop() {
                line.finish_and_clear();
                self.all.remove(&line);
            }
        }
        while self.lines.len() < lines.len() {
            let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
            self.lines.push(self.all.add(ProgressBar::new(1).with_style(style)));
        }
        for (bar, line) in self.lines.iter().zip(lines) {
            if bar.message() != line {
                bar.set_message(line);
            }
        }
    }
}

/// The size of the terminal now: people change it.
fn extent() -> Extent {
    let (lines, columns) = console::Term::stderr().size_checked().unwrap_or(USUAL);
    Extent {
        columns: usize::from(columns.max(20)),
        lines: usize::from(lines.max(14)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn u02_after_its_end_nothing_is_drawn_over_what_was_printed() {
        let plan: UpgradePlan = serde_json::from_value(json!({
            "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
            "metadata": {"name": "up"}, "spec": {"version": "v1.8.0"}, "status": {"currentPhase": "Initializing"},
        }))
        .unwrap();
        let now = "2026-03-13T04:00:00Z".parse().unwrap();
        let mut bars = Bars::new();
        bars.show(now, &plan);
        assert!(bars.drawn.as_ref().is_some_and(|drawn| drawn.lines.len() > 8));
        bars.end();
        bars.tick(now);
        bars.say("still serving");
        bars.end();
        assert!(bars.drawn.is_none() && bars.plan.is_none());
        // The next plan is drawn below.
        bars.show(now, &plan);
        assert!(bars.drawn.is_some());
    }
}
