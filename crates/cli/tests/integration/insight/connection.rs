//! Which cluster is meant, and what is said when it cannot be reached.

use super::{Ran, cluster::Cluster, folder, toolkit};

/// Commands that look at a cluster, and their exit codes when they cannot.
const COMMANDS: [(&[&str], i32); 11] = [
    (&["preflight"], 3),
    (&["doctor"], 3),
    (&["status"], 3),
    (&["status", "-w"], 3),
    (&["postflight"], 3),
    (&["wait"], 3),
    (&["pause", "node-1"], 1),
    (&["retry"], 1),
    (&["delete", "up", "--yes"], 1),
    (&["upgrade", "--version", "v1.8.0", "--yes"], 1),
    (&["snapshot", "-o", "/dev/null"], 1),
];

#[test]
fn a_cluster_that_cannot_be_reached_is_named_with_what_to_check() {
    let cluster = Cluster::start("unreachable", 0);
    for (command, code) in COMMANDS {
        let ran = cluster.run(&[command, &["--context", "there"]].concat());
        let ran = ran
            .ended(code)
            .complains("the API server http://127.0.0.1:1 cannot be reached: ");
        assert!(
            ran.err.contains("check the address") && ran.err.contains("--kubeconfig"),
            "{}",
            ran.err
        );
        assert_eq!(ran.out, "");
    }
}

#[test]
fn a_kubeconfig_that_does_not_fit_is_named_with_what_would() {
    let cluster = Cluster::start("kubeconfig", 0);
    for (command, code) in COMMANDS {
        let ran = cluster.run(&[command, &["--context", "moon"]].concat()).ended(code);
        ran.complains("the kubeconfig has no context \"moon\"; choose one with --context: \"here\", \"there\"");
        let ran = cluster
            .run(&[command, &["--kubeconfig", "/nonexistent/config"]].concat())
            .ended(code);
        ran.complains("failed to read the kubeconfig /nonexistent/config: No such file or directory");
    }
    let garbage = cluster.write("garbage", "clusters: [\n");
    cluster
        .run(&["status", "--kubeconfig", &garbage])
        .ended(3)
        .complains("garbage: failed to parse kubeconfig YAML: ")
        .complains("line 1");
    let home = folder("no-home");
    let ran = Ran::of(toolkit().arg("doctor").env("HOME", &home).output().unwrap()).ended(3);
    ran.complains(
        "there is no kubeconfig at ~/.kube/config: name one with --kubeconfig FILE or the variable KUBECONFIG",
    );
}

#[test]
fn the_flags_of_kubectl_choose_the_cluster_and_win_over_the_environment() {
    let cluster = Cluster::start("flags", 0);
    let here = cluster.kubeconfig.to_str().unwrap().to_owned();
    let nowhere = std::path::Path::new("/nonexistent");
    for flags in [
        vec!["--kubeconfig", here.as_str()],
        vec!["--kubeconfig", &here, "--context", "here"],
        vec!["--kubeconfig", &here, "-n", "default"],
        vec!["--kubeconfig", &here, "--namespace=harvester-system"],
    ] {
        let ran = cluster.run_as(nowhere, &[&["doctor"], flags.as_slice()].concat());
        ran.ended(0).says("0 errors");
    }
}

#[test]
fn credentials_that_are_refused_are_no_unreachable_cluster() {
    let cluster = Cluster::start("credentials", 0);
    let text = std::fs::read_to_string(&cluster.kubeconfig).unwrap();
    let wrong = cluster.write("wrong", &text.replace("\"user\":{}", "\"user\":{\"token\":\"old\"}"));
    let ran = cluster.run(&["doctor", "--kubeconfig", &wrong]).ended(3);
    ran.complains("does not accept the credentials of the kubeconfig (401 Unauthorized)");
}
