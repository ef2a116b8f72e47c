//! Colours: only on terminals, and not where a user does not want them.

use std::process::Command;

use serde_json::json;

use super::{
    Ran, binary,
    cluster::{Cluster, ended},
};

/// The commands that print for people.
const COMMANDS: [&str; 5] = [
    "preflight --version v9.9.9",
    "doctor",
    "status",
    "--help",
    "preflight --help",
];

/// Runs the binary on a terminal of its own; returns what it wrote there.
fn on_terminal(cluster: &Cluster, arguments: &str, no_color: bool) -> String {
    let command = format!("'{}' {arguments}", binary().display());
    let mut script = Command::new("script");
    script
        .args(["-qec", &command, "/dev/null"])
        .env("KUBECONFIG", &cluster.kubeconfig)
        .env("HOME", &cluster.folder)
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(std::process::Stdio::null());
    if no_color {
        script.env("NO_COLOR", "1");
    }
    let ran = Ran::of(script.output().expect("there is no script of util-linux"));
    assert!(ran.out.len() > 20, "{ran:#?}");
    ran.out
}

#[test]
fn colours_are_only_on_terminals_and_not_with_no_color() {
    let cluster = Cluster::start("colours", 0);
    cluster.put_plan("up", &ended("Succeeded", ""));
    // Doctor and preflight find it.
    cluster.put(
        &[json!({"apiVersion": "management.cattle.io/v3", "kind": "ManagedChart",
        "metadata": {"name": "paused", "namespace": "fleet-local"}, "spec": {"paused": true}})],
    );
    for arguments in COMMANDS {
        let words: Vec<&str> = arguments.split(' ').collect();
        let piped = cluster.run(&words);
        assert!(
            !piped.out.contains('\u{1b}') && !piped.err.contains('\u{1b}'),
            "{arguments}: {piped:#?}"
        );
        let shown = on_terminal(&cluster, arguments, false);
        // Without a finding there is nothing to colour.
        if shown.contains("0 errors, 0 warnings, 0 infos") {
            continue;
        }
        assert!(
            shown.contains('\u{1b}'),
            "{arguments}: no colours on a terminal: {shown}"
        );
        let without = on_terminal(&cluster, arguments, true);
        assert!(!without.contains('\u{1b}'), "{arguments}: {without:?}");
    }
}
