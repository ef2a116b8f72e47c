//! Text of others: names and messages with escape sequences, line breaks and no end do not reach a terminal as they are.

use serde_json::{Value, json};

use super::{
    Ran,
    cluster::{Cluster, at_work, condition, ended},
};

/// Clears the screen, sets the title, feigns a line of ours, turns text around.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}broken\r\nerror FAKE  everything is fine\n\u{202e}txet\u{9b}31m";
/// The longest line that a person can be expected to read.
const LONGEST_LINE: usize = 5_000;

fn hostile() -> String {
    format!("{HOSTILE} {}", "very long ".repeat(2_000))
}

/// Nothing of it steers a terminal or looks like a line of ours.
#[track_caller]
fn is_plain(what: &str, ran: &Ran) {
    for text in [&ran.out, &ran.err] {
        let steering = text
            .chars()
            .find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
        assert_eq!(steering, None, "{what}: {:?}", &text[..text.len().min(3_000)]);
        assert!(!text.contains("\nerror FAKE"), "{what}: {text}");
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
        assert!(longest < LONGEST_LINE, "{what}: a line has {longest} characters");
    }
}

fn objects() -> Vec<Value> {
    let not_ready = condition("Ready", "False", "Error", &hostile());
    vec![
        json!({"apiVersion": "management.cattle.io/v3", "kind": "ManagedChart",
            "metadata": {"name": "sly", "namespace": "fleet-local"}, "spec": {"paused": true},
            "status": {"conditions": [not_ready]}}),
        json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "Addon", "metadata": {"name": "sly", "namespace": "default"},
            "spec": {"enabled": true, "repo": "r", "chart": "c", "version": "1", "valuesContent": ""},
            "status": {"status": "AddonDeploying", "conditions": [not_ready]}}),
    ]
}

#[test]
fn hostile_messages_of_a_cluster_are_shown_on_one_line_without_what_steers() {
    let cluster = Cluster::start("steering", 0);
    let mut status = at_work("NodeUpgrading");
    status["waitingFor"] =
        json!([{"what": "RancherUpdate", "object": HOSTILE, "message": hostile(), "since": "2026-03-13T03:57:09Z"}]);
    status["nodeUpgradeStatuses"] = json!({"node-1": {"state": "PreDraining", "message": hostile()}});
    status["conditions"] = json!([condition("Degraded", "True", "Stalled", &hostile())]);
    cluster.put_plan("next", &json!({}));
    cluster.put_plan("up", &status);
    cluster.put(&objects());
    for arguments in [
        vec!["preflight", "--version", HOSTILE],
        vec!["preflight", "-o", "yaml"],
        vec!["preflight", "-o", "junit"],
        vec!["doctor"],
        vec!["status"],
        vec!["status", "-o", "yaml"],
        vec!["status", HOSTILE],
        vec!["wait", HOSTILE],
        vec!["pause", HOSTILE],
        vec!["resume", HOSTILE],
        vec!["delete", HOSTILE, "--yes"],
        vec!["upgrade", "--version", HOSTILE, "--yes"],
        vec!["preflight", "--context", HOSTILE],
        vec!["preflight", "--kubeconfig", HOSTILE],
        vec!["preflight", "--snapshot", HOSTILE],
        vec!["preflight", "--known-issues", HOSTILE],
    ] {
        let ran = cluster.run(&arguments);
        assert_ne!(ran.code, None, "{arguments:?}");
        is_plain(&arguments.join(" "), &ran);
    }
    let shown = cluster.run(&["status", "up"]).says("broken");
    assert!(shown.out.contains("node-1"), "{}", shown.out);

    // And as they change.
    let mut followers: Vec<_> = [vec!["wait", "next"], vec!["status", "next", "-w"]]
        .into_iter()
        .map(|arguments| {
            let mut command = cluster.command(&arguments);
            command
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped());
            (arguments.join(" "), command.spawn().unwrap())
        })
        .collect();
    cluster.set_status("next", &status);
    cluster.set_status("next", &ended("Failed", &hostile()));
    for (what, follower) in followers.drain(..) {
        is_plain(&what, &Ran::of(follower.wait_with_output().unwrap()).ended(1));
    }
}

#[test]
fn hostile_names_in_a_folder_from_elsewhere_are_harmless() {
    let cluster = Cluster::start("sent", 0);
    let folder = cluster.folder.join("sent");
    std::fs::create_dir(&folder).unwrap();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": hostile()}, "spec": {"unschedulable": true},
        "status": {"conditions": [condition("Ready", "False", "x", &hostile())]}});
    let chart = json!({"apiVersion": "management.cattle.io/v3", "kind": "ManagedChart",
        "metadata": {"name": HOSTILE, "namespace": "fleet-local"}, "spec": {"paused": true}});
    let mut status = at_work("NodeUpgrading");
    status["currentPhase"] = json!(HOSTILE);
    status["nodeUpgradeStatuses"] = json!({HOSTILE: {"state": HOSTILE, "message": HOSTILE}});
    let plan = json!({"apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
        "metadata": {"name": HOSTILE, "creationTimestamp": "2026-03-13T03:57:09Z"}, "spec": {"version": HOSTILE}, "status": status});
    for (name, object) in [("node", node), ("chart", chart), ("plan", plan)] {
        std::fs::write(folder.join(format!("{name}.yaml")), object.to_string()).unwrap();
    }
    let folder = folder.to_str().unwrap();
    for arguments in [
        vec!["preflight"],
        vec!["preflight", "-o", "junit"],
        vec!["doctor"],
        vec!["status"],
        vec!["status", "nothing"],
        vec!["postflight"],
        vec!["postflight", "--before", folder],
    ] {
        let ran = cluster.run(&[arguments.as_slice(), &["--snapshot", folder]].concat());
        assert_ne!(ran.code, None, "{arguments:?}");
        assert!(ran.out.len() + ran.err.len() > 20, "{ran:#?}");
        is_plain(&arguments.join(" "), &ran);
    }
}
