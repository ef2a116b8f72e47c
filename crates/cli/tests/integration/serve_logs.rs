//! The logs of a served rehearsal, read with the real kubectl: they are those of the real programs.

use crate::support::Served;
use serde_json::Value;

const NAMESPACE: &str = "harvester-system";

/// A plan that stops before the first node: until then its Jobs are kept.
const PLAN: &str = "apiVersion: management.harvesterhci.io/v1beta1
kind: UpgradePlan
metadata:
  name: mine
spec:
  version: v1.8.0
  restoreVM: true
  nodeUpgradeOption:
    pauseNodes: [node-1, node-2, node-3]
";

/// A served rehearsal with that plan.
pub(crate) fn served() -> Served {
    let served = Served::start(&["--speed", "600", "--no-plan"]);
    let (succeeded, text) = served.kubectl_with(&["create", "-f", "-"], PLAN);
    assert!(succeeded, "{text}");
    served
}

fn logs(served: &Served, arguments: &[&str]) -> String {
    served.kubectl(&[&["logs", "-n", NAMESPACE], arguments].concat())
}

/// What each line of a program says: every line is JSON, as in a real cluster.
fn messages(text: &str) -> Vec<String> {
    let message = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let has = |field: &str| line[field].is_string();
        assert!(has("timestamp") && has("level") && has("target"), "{line}");
        line["fields"]["message"].as_str().unwrap().to_owned()
    };
    text.lines().map(message).collect()
}

/// The name of the first pod that a part of its name finds and that is in a phase.
pub(crate) fn pod(served: &Served, part: &str, phase: &str) -> String {
    let columns = "custom-columns=NAME:.metadata.name,PHASE:.status.phase";
    let watch = ["get", "pods", "-n", NAMESPACE, "-w", "--no-headers", "-o", columns];
    served.kubectl_lines(&watch, |lines| {
        lines.find(&format!("{part} is {phase}"), |line| {
            let mut cells = line.split_whitespace();
            let name = cells.next().filter(|name| name.contains(part))?;
            (cells.next() == Some(phase)).then(|| name.to_owned())
        })
    })
}

#[test]
fn u19_the_log_of_a_job_is_that_of_its_program_from_the_first_step_to_the_last() {
    let served = served();
    pod(&served, "cluster-upgrade", "Succeeded");
    let job = "job/mine-cluster-upgrade";
    let text = logs(&served, &[job]);
    let said = messages(&text);
    let steps = said.iter().filter(|message| message.starts_with("step ")).count();
    assert!(said[0].starts_with("step 1 of "), "{text}");
    assert!(said.contains(&format!("step {steps} of {steps}")), "{text}");
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["level"], "INFO");
    assert_eq!(first["target"], "program::report");
    assert!(first["fields"]["step"].is_string(), "{first}");

    // The last line with the time at which it was printed.
    let last = logs(&served, &[job, "--tail=1", "--timestamps"]);
    let (at, line) = last.split_once(' ').unwrap();
    assert_eq!(line.trim_end(), text.lines().last().unwrap());
    assert_eq!(at.len(), "2026-03-13T03:57:09.000000000Z".len(), "{at}");
    let line: Value = serde_json::from_str(line).unwrap();
    assert!(line["timestamp"].as_str().unwrap() <= at && at.ends_with('Z'), "{last}");

    // From a time on, and up to a size.
    let since = logs(&served, &[job, &format!("--since-time={}Z", &at[..19])]);
    assert!(
        !since.is_empty() && since.len() < text.len() && text.ends_with(&since),
        "{since}"
    );
    assert_eq!(logs(&served, &[job, "--since=1s"]), "");
    assert_eq!(logs(&served, &[job, "--since=24h"]), text);
    assert_eq!(logs(&served, &[job, "--limit-bytes=40"]), text[..40]);

    // A container that has ended is followed to its end.
    assert_eq!(logs(&served, &[job, "-f", "-c", "apply"]), text);

    let refused = |arguments: &[&str]| {
        let (succeeded, text) = served.kubectl_with(&[&["logs", "-n", NAMESPACE, job], arguments].concat(), "");
        assert!(!succeeded, "{text}");
        text
    };
    let previous = refused(&["--previous"]);
    assert!(
        previous.contains("(BadRequest): previous terminated container \"apply\" in pod \"mine-cluster-upgrade-"),
        "{previous}"
    );
    let other = refused(&["-c", "other"]);
    assert!(
        other.contains("container other is not valid for pod mine-cluster-upgrade-"),
        "{other}"
    );
}

#[test]
fn a_program_is_followed_while_it_runs_and_the_repository_says_that_it_serves() {
    let served = served();
    let pod = pod(&served, "cluster-upgrade", "Running");
    let mut followed = Vec::new();
    served.kubectl_lines(&["logs", "-n", NAMESPACE, "-f", &pod], |lines| {
        lines.find("the last step", |line| {
            followed.push(line.to_owned());
            let message = messages(line).remove(0);
            let (number, count) = message.strip_prefix("step ")?.split_once(" of ")?;
            (number == count).then_some(())
        });
    });
    assert!(messages(&followed[0])[0].starts_with("step 1 of "), "{followed:?}");

    let pods = served.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", "name"]);
    let repository = pods.lines().find(|pod| pod.contains("mine-repo")).unwrap();
    assert_eq!(messages(&logs(&served, &[repository])), ["serving", "the ISO was read"]);
}
