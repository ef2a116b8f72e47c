//! The log of the manager: a line per decision that people and machines can read, and no secrets.

use std::{
    io::Write,
    process::Command,
    sync::{Arc, Mutex},
};

use api::annotations;
use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

use crate::run::{Case, run};

/// What was logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Set in the process that this test runs itself in.
const ALONE: &str = "LOG_TEST_ALONE";

/// Other tests must not log while a log is collected, so this runs in a process of its own.
#[test]
fn every_decision_is_a_line_with_plan_phase_and_node_and_no_line_has_a_secret() {
    if std::env::var_os(ALONE).is_some() {
        return collect_and_check();
    }
    let name = "log::every_decision_is_a_line_with_plan_phase_and_node_and_no_line_has_a_secret";
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "it did not run"
    );
}

fn collect_and_check() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(lines.clone())
        .finish();
    let ended = tracing::subscriber::with_default(subscriber, || run(&Case::three_nodes()));
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let logged: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let decided: Vec<&Value> = logged
        .iter()
        .map(|line| &line["fields"])
        .filter(|fields| fields["message"] == "decided")
        .collect();
    assert!(decided.len() > 50, "{} decisions", decided.len());
    for fields in &decided {
        assert!(
            fields["plan"]
                .as_str()
                .is_some_and(|plan| plan.starts_with("hvst-upgrade-")),
            "{fields}"
        );
        assert!(
            fields["phase"].as_str().is_some_and(|phase| !phase.is_empty()),
            "{fields}"
        );
    }
    let said = |field: &str, word: &str| {
        let found = decided
            .iter()
            .any(|fields| fields[field].as_str().is_some_and(|text| text.contains(word)));
        assert!(found, "no decision has {word} in {field}");
    };
    said("node", "node-2: PreDraining");
    said("actions", "create Job pre-drain of node-2");
    said("actions", "answer management.harvesterhci.io/pre-hook");
    // What must not be read by who may read logs: the content of Secrets, and the tokens that open Rancher's gate.
    let mut forbidden = Vec::new();
    for secret in ended.store.list("", "secrets", None) {
        let values = secret["data"].as_object().into_iter().flatten().map(|(_, value)| value);
        let tokens = [annotations::PRE_HOOK, annotations::POST_HOOK];
        let tokens = tokens.iter().map(|token| &secret["metadata"]["annotations"][*token]);
        forbidden.extend(
            values
                .chain(tokens)
                .filter_map(|value| value.as_str().map(str::to_owned)),
        );
    }
    assert!(
        forbidden.len() >= 9,
        "a test without secrets proves nothing: {forbidden:?}"
    );
    for value in forbidden {
        assert!(!text.contains(&value), "the log has {value}");
    }
}
