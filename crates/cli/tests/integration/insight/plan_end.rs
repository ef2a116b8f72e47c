//! How plans end, and what the verbs say then. No manager runs: the test writes the status that one would write.

use std::{
    io::{BufRead, BufReader, Read},
    process::Stdio,
    sync::mpsc::channel,
    time::Duration,
};

use api::annotations;
use serde_json::json;

use super::Ran;
use super::cluster::{Cluster, at_work, condition, ended};

/// Changes a node of the plan again and again until the command that follows it has printed a line, and returns that line: nothing shows
/// when a process has begun to watch.
fn changed(cluster: &Cluster, plan: &str, printed: impl Read + Send + 'static) -> String {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(printed).lines().map_while(Result::ok) {
            // The test reads one line only, and the process must not block on a full pipe.
            let _ = send.send(line);
        }
    });
    for state in ["ImagePreloading", "ImagePreloaded"].iter().cycle().take(600) {
        cluster.set_status(plan, &json!({"nodeUpgradeStatuses": {"node-1": {"state": state}}}));
        if let Ok(line) = receive.recv_timeout(Duration::from_millis(200)) {
            return line;
        }
    }
    panic!("nothing was printed");
}

#[test]
fn wait_distinguishes_success_from_failure_and_from_time_that_is_over() {
    let cluster = Cluster::start("ends", 0);
    cluster
        .run(&["wait"])
        .ended(1)
        .complains("there is no UpgradePlan; create one with `upgrade-toolkit upgrade`");
    cluster.put_plan("up", &at_work("NodeUpgrading"));
    cluster
        .run(&["wait", "--timeout", "1s"])
        .ended(3)
        .says("upgradeplan up has not ended");
    cluster
        .run(&["wait", "--timeout", "soon"])
        .ended(2)
        .complains("\"soon\" is not a duration");
    cluster
        .run(&["wait", "other"])
        .ended(1)
        .complains("\"other\" not found");

    // Nodes change, then the upgrade fails, while a command waits.
    let mut waiting = cluster
        .command(&["wait"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let line = changed(&cluster, "up", waiting.stderr.take().unwrap());
    assert!(line.contains("  node node-1: "), "{line}");
    cluster.set_status("up", &ended("Failed", "node node-1 upgrade failed: out of luck"));
    let ran = Ran::of(waiting.wait_with_output().unwrap()).ended(1);
    assert_eq!(
        ran.out,
        "upgradeplan up failed: node node-1 upgrade failed: out of luck\n"
    );

    cluster.run(&["status"]).ended(1).says("Failed").says("out of luck");
    cluster
        .run(&["pause", "node-2"])
        .ended(1)
        .complains("upgradeplan up has ended (Failed)");
    cluster.run(&["retry"]).ended(0).says("upgradeplan up: retry requested");
    assert!(cluster.plan("up").annotation(annotations::RETRY).is_some());

    cluster.set_status("up", &ended("Succeeded", ""));
    cluster
        .run(&["wait", "--quiet"])
        .ended(0)
        .says("upgradeplan up succeeded\n");
    cluster
        .run(&["retry"])
        .ended(1)
        .complains("upgradeplan up has not failed (Succeeded): only a failed plan is retried");
    cluster.run(&["status"]).ended(0).says("100 %");
}

#[test]
fn nodes_are_paused_and_resumed_and_a_plan_at_work_is_deleted_only_when_that_is_meant() {
    let cluster = Cluster::start("pauses", 0);
    cluster.put_plan("up", &at_work("ISODownloading"));
    cluster
        .run(&["pause", "node-2", "node-3"])
        .ended(0)
        .says("upgradeplan up: node-2, node-3 paused before the upgrade");
    cluster.run(&["pause", "node-3"]).ended(0).says("node-3 paused already");
    cluster
        .run(&["pause", "node-9"])
        .ended(1)
        .complains("pauseNodes[2]: Not found: \"node-9\"");
    cluster.run(&["pause"]).ended(2);
    cluster
        .run(&["resume", "node-1"])
        .ended(1)
        .complains("\"node-1\" is not paused by upgradeplan up; paused nodes: node-2, node-3");
    cluster.run(&["resume", "node-2"]).ended(0).says("node-2 resumed");
    cluster.run(&["resume", "--all"]).ended(0).says("node-3 resumed");
    cluster.run(&["resume", "--all"]).ended(0).says("no node is paused");
    cluster.set_status(
        "up",
        &json!({"nodeUpgradeStatuses": {"node-1": {"state": "PostDraining"}}}),
    );
    cluster
        .run(&["pause", "node-1"])
        .ended(1)
        .complains("the upgrade of node-1 has started and cannot be paused");

    let asked = cluster.run(&["delete", "up"]).ended(1);
    asked.complains("upgradeplan up is in progress (ISODownloading). Delete it? Standard input is not a terminal");
    assert!(cluster.plan("up").annotation(annotations::ALLOW_DELETION).is_none());
    cluster.set_status("up", &at_work("NodeUpgrading"));
    cluster
        .run(&["delete", "up", "--yes"])
        .ended(1)
        .complains("cannot delete UpgradePlan while nodes are being upgraded");
    assert!(
        cluster.plan("up").annotation(annotations::ALLOW_DELETION).is_none(),
        "what is refused leaves nothing behind"
    );
    cluster.run(&["delete"]).ended(2);
    cluster.set_status("up", &ended("Failed", "x"));
    cluster.run(&["delete", "up"]).ended(0).says("upgradeplan up deleted");
    cluster.run(&["delete", "up"]).ended(1).complains("\"up\" not found");
}

#[test]
fn status_shows_a_stalled_upgrade_by_its_exit_code_and_follows_one_line_per_change() {
    let cluster = Cluster::start("follow", 0);
    cluster
        .run(&["status"])
        .ended(3)
        .complains("there is no UpgradePlan: create one to start an upgrade");
    cluster.put_plan("up", &at_work("ISODownloading"));
    let mut following = cluster
        .command(&["status", "-w"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let first = lines.next().unwrap();
    assert!(first.contains("%  Progressing, phase ISODownloading"), "{first}");
    let degraded = condition("Degraded", "True", "Stalled", "the image is not imported");
    cluster.set_status(
        "up",
        &json!({"conditions": [condition("Progressing", "True", "Executing", ""), degraded]}),
    );
    let second = lines.next().unwrap();
    assert!(
        second.contains("Stalled") && second.contains("the image is not imported"),
        "{second}"
    );
    cluster.run(&["status"]).ended(1).says("Stalled");
    cluster.set_status("up", &ended("Succeeded", ""));
    let rest: Vec<String> = lines.collect();
    assert!(rest[0].contains("100 %  Completed"), "{rest:#?}");
    assert!(
        rest.iter().any(|line| line.starts_with("UpgradePlan up")),
        "it ends with the plan: {rest:#?}"
    );
    assert_eq!(following.wait().unwrap().code(), Some(0));

    // Scripts get a document per change, and the deletion of the plan ends it.
    cluster.put_plan("next", &at_work("ISODownloading"));
    let mut following = cluster
        .command(&["status", "next", "-w", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let document: serde_json::Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert_eq!(
        (&document["plan"], &document["phase"]),
        (&json!("next"), &json!("ISODownloading"))
    );
    cluster.set_status("next", &ended("Failed", "x"));
    let document: serde_json::Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert_eq!(document["phase"], "Failed");
    assert_eq!(following.wait().unwrap().code(), Some(1));
}

#[test]
fn commands_that_follow_a_plan_end_when_it_is_deleted() {
    let cluster = Cluster::start("deleted", 0);
    cluster.put_plan("up", &json!({}));
    let spawn = |command: &[&str]| {
        let mut command = cluster.command(command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (mut status, mut wait) = (spawn(&["status", "-w"]), spawn(&["wait"]));
    changed(&cluster, "up", status.stdout.take().unwrap());
    changed(&cluster, "up", wait.stderr.take().unwrap());
    cluster.remove_plan("up");
    Ran::of(status.wait_with_output().unwrap())
        .ended(3)
        .complains("UpgradePlan up was deleted");
    Ran::of(wait.wait_with_output().unwrap())
        .ended(1)
        .says("upgradeplan up was deleted");
}
