//! Users who may not read everything: what is left out is named, and the rest is checked.

use serde_json::{Value, json};

use super::cluster::Cluster;

/// Everything but Secrets and Longhorn's objects.
fn some() -> Value {
    let read = ["get", "list"];
    let groups = [
        "apps",
        "management.harvesterhci.io",
        "harvesterhci.io",
        "kubevirt.io",
        "management.cattle.io",
        "provisioning.cattle.io",
        "cluster.x-k8s.io",
        "admissionregistration.k8s.io",
        "discovery.k8s.io",
    ];
    json!([
        {"apiGroups": groups, "resources": ["*"], "verbs": read},
        {"apiGroups": [""], "resources": ["nodes", "pods", "nodes/proxy"], "verbs": read},
    ])
}

#[test]
fn what_a_user_may_not_read_is_named_and_the_rest_is_checked() {
    let cluster = Cluster::start("rights", 0);
    let reader = cluster.reader("reader", &some());
    let ran = cluster.run_as(&reader, &["preflight", "--version", "v1.8.0"]);
    let lines: Vec<&str> = ran
        .out
        .lines()
        .filter(|line| line.starts_with("not checked ("))
        .collect();
    let names = |kind: &str| {
        lines
            .iter()
            .any(|line| line.contains(kind) && line.contains("forbidden"))
    };
    assert!(names("volumes") && names("secrets"), "{ran:#?}");
    assert!(
        lines.iter().all(|line| line.contains(": P") || line.contains(": KI")),
        "{lines:#?}"
    );
    // No error is known, and much could not be looked at: the exit code and the last line say so.
    let ran = ran.ended(3);
    let last = ran.out.lines().last().unwrap();
    assert!(last.starts_with("0 errors") && last.contains("not checked)"), "{last}");

    let found = cluster.run_as(&reader, &["doctor"]).ended(0);
    let named = found.out.lines().find(|line| line.starts_with("not checked: D25 "));
    assert!(
        named.is_some_and(|line| line.contains("secrets \"local-kubeconfig\" is forbidden")),
        "{found:#?}"
    );

    let file = cluster.file("some.snapshot");
    let saved = cluster.run_as(&reader, &["snapshot", "-o", &file]).ended(0);
    assert!(
        saved.err.lines().any(|line| line.starts_with("not read: volumes: ")),
        "{saved:#?}"
    );
    let again = cluster
        .run(&["preflight", "--version", "v1.8.0", "--snapshot", &file])
        .ended(3);
    assert_eq!(
        again.out.lines().last(),
        ran.out.lines().last(),
        "a saved snapshot knows what could not be read"
    );
}

#[test]
fn a_user_without_any_right_learns_that_nothing_was_checked() {
    let cluster = Cluster::start("no-rights", 0);
    let stranger = cluster.reader("stranger", &json!([]));
    cluster
        .run_as(&stranger, &["preflight"])
        .ended(3)
        .says("not checked (")
        .says("forbidden");
    cluster.run_as(&stranger, &["doctor"]).ended(3).says("forbidden");
    cluster
        .run_as(&stranger, &["status"])
        .ended(3)
        .complains("failed to list UpgradePlans: upgradeplans.management.harvesterhci.io is forbidden");
    cluster
        .run_as(&stranger, &["pause", "node-1"])
        .ended(1)
        .complains("User \"stranger\" cannot list resource \"upgradeplans\"");
}
