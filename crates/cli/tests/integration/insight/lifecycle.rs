//! A whole upgrade by the commands of administrators alone, on a served rehearsal with a manager.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use super::{Ran, toolkit};
use crate::support::Served;

fn run(served: &Served, arguments: &[&str]) -> Ran {
    Ran::of(
        toolkit()
            .args(arguments)
            .env("KUBECONFIG", &served.kubeconfig)
            .output()
            .unwrap(),
    )
}

#[test]
fn u21_an_administrator_upgrades_a_cluster_without_writing_a_patch() {
    // Slower than other tests: at 600 times real time, a busy machine exceeds deadlines of programs, and the plan fails.
    let served = Served::start(&["--speed", "240", "--no-plan"]);
    let run = |arguments: &[&str]| run(&served, arguments);
    let folder = super::folder("lifecycle");
    let before = folder.join("before.snapshot");
    let before = before.to_str().unwrap();
    // A new cluster has settled when its workloads run.
    served.kubectl(&[
        "wait",
        "--for=condition=Available",
        "--timeout=120s",
        "-A",
        "--all",
        "deployments",
    ]);
    run(&["snapshot", "-o", before]).ended(0);

    let printed = run(&["upgrade", "--version", "v1.8.0", "--restore-vm", "--dry-run"]).ended(0);
    assert_eq!(
        printed.out,
        "apiVersion: management.harvesterhci.io/v1beta1\nkind: UpgradePlan\nmetadata:\n  generateName: hvst-upgrade-\n\
         spec:\n  version: v1.8.0\n  restoreVM: true\n"
    );
    // What it prints is what it would create.
    let (accepted, text) = served.kubectl_with(&["create", "--dry-run=server", "-f", "-"], &printed.out);
    assert!(accepted, "{text}");
    run(&["upgrade"]).ended(2);
    let refused = run(&["upgrade", "--version", "v1.8.0", "--yes"])
        .ended(1)
        .says("error P10");
    assert!(
        refused.out.contains("nothing was changed: resolve the errors first"),
        "{}",
        refused.out
    );
    let refused = run(&["upgrade", "--version", "v1.8.0", "--yes", "--skip-preflight"]).ended(1);
    refused.complains("failed to create the UpgradePlan: ");
    let asked = run(&["upgrade", "--version", "v1.8.0", "--restore-vm"]).ended(1);
    asked
        .complains("Upgrade this cluster to v1.8.0? Standard input is not a terminal, so nothing was asked: add --yes");
    assert_eq!(served.kubectl(&["get", "up", "-o", "name"]), "");

    let arguments = [
        "upgrade",
        "--version",
        "v1.8.0",
        "--restore-vm",
        "--pause-node",
        "node-3",
        "--name",
        "mine",
        "--yes",
    ];
    run(&arguments).ended(0).says("upgradeplan mine created, to v1.8.0");
    let mut following = toolkit()
        .args(["status", "-w"])
        .env("KUBECONFIG", &served.kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut seen = Vec::new();
    let mut until = |text: &str| {
        for line in lines.by_ref() {
            seen.push(line);
            if seen.last().is_some_and(|line| line.contains(text)) {
                return;
            }
        }
        panic!("{text:?} was not printed:\n{}", seen.join("\n"));
    };
    until("node node-3: UpgradePaused");
    run(&["retry"]).ended(1).complains("upgradeplan mine has not failed");
    run(&["delete", "mine", "--yes"])
        .ended(1)
        .complains("cannot delete UpgradePlan while nodes are being upgraded");
    run(&["wait", "--timeout", "1s"]).ended(3);
    run(&["resume", "node-3"])
        .ended(0)
        .says("upgradeplan mine: node-3 resumed");
    run(&["wait", "mine", "--quiet"])
        .ended(0)
        .says("upgradeplan mine succeeded\n");
    until("100 %  Completed");
    until("UpgradePlan mine");
    assert_eq!(following.wait().unwrap().code(), Some(0));
    // The time of day never goes back, and the percent neither.
    let percents: Vec<u8> = seen
        .iter()
        .filter_map(|line| line.get(10..13)?.trim().parse().ok())
        .collect();
    assert!(percents.len() > 10 && percents.is_sorted(), "{percents:?} of {seen:#?}");

    let shown = run(&["status", "mine"])
        .ended(0)
        .says("Completed")
        .says("100 %")
        .says("Took:");
    assert!(shown.out.contains("v1.7.1 → v1.8.0"), "{}", shown.out);
    run(&["postflight", "--before", before]).ended(0).says("0 errors");
    run(&["doctor"]).ended(0).says("0 errors, 0 warnings");
    run(&["delete", "mine"]).ended(0).says("upgradeplan mine deleted");
    run(&["status"]).ended(3);
}
