//! A rehearsal that is watched from its beginning: whatever a test is about, what must never be is looked for.

use std::{
    ops::Deref,
    sync::{Arc, Mutex},
};

use cli::rehearsal::{Rehearsal, Scenario};
use clock::Clock;

use crate::{invariants, run::TEMPLATES};

/// A cluster in which nothing happens that must never be; a test that ends otherwise fails.
pub(crate) struct Watched {
    rehearsal: Rehearsal,
    violations: Arc<Mutex<Vec<String>>>,
}

impl Watched {
    /// Sets a cluster up and watches it.
    pub(crate) async fn start(scenario: Scenario, clock: Clock) -> Self {
        Self::begin(scenario, clock, false).await
    }

    /// The same where plans are tried again, which does again what failed.
    pub(crate) async fn start_and_retry(scenario: Scenario, clock: Clock) -> Self {
        Self::begin(scenario, clock, true).await
    }

    async fn begin(scenario: Scenario, clock: Clock, retried: bool) -> Self {
        let troubles = &scenario.troubles;
        let past = troubles.unhealthy_machines.iter().chain(&troubles.failed_machine_plans);
        let past = past.cloned().collect();
        let rehearsal = Rehearsal::start_again(scenario, clock, &TEMPLATES).await.unwrap();
        let violations = invariants::watch_past(&rehearsal, retried, past);
        Self { rehearsal, violations }
    }

    /// What must never be, and was.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }

    /// The same, for a test that is about what must never be.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.violations.lock().unwrap())
    }
}

impl Deref for Watched {
    type Target = Rehearsal;

    fn deref(&self) -> &Rehearsal {
        &self.rehearsal
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A test that fails says why already.
        if !std::thread::panicking() {
            assert_eq!(self.violations(), [""; 0]);
        }
    }
}

#[test]
fn no_rehearsal_here_begins_unwatched() {
    // These watch by themselves, and compare what they find.
    const THEMSELVES: [&str; 3] = ["watched.rs", "run.rs", "play.rs"];
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulation");
    let (mut folders, mut unwatched, mut files) = (vec![folder], Vec::new(), 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let begins = ["start(", "start_again("].map(|begins| format!("Rehearsal::{begins}"));
            if begins.iter().any(|begins| text.contains(begins)) && !THEMSELVES.contains(&name.as_str()) {
                unwatched.push(name);
            }
        }
    }
    assert!(files > 30, "{files} files were looked at");
    assert_eq!(unwatched, [""; 0], "use Watched::start");
}
