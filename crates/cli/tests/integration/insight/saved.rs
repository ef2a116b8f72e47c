//! A saved snapshot: no secret is in it, and every command takes it in place of the cluster.

use serde_json::{Value, json};

use super::cluster::{Cluster, at_work};

/// What must not leave the cluster.
const MARKER: &str = "hunter2-marker";

/// Everything in which people have passwords.
fn secrets() -> Vec<Value> {
    // base64 of the marker: how a Secret has it.
    let encoded = "aHVudGVyMi1tYXJrZXI=";
    let disk = json!({"name": "seed", "cloudInitNoCloud": {
        "userData": format!("#cloud-config\npassword: {MARKER}"), "userDataBase64": encoded,
        "networkData": format!("psk: {MARKER}"),
    }});
    let vm_spec = json!({"domain": {"devices": {}, "resources": {}}, "volumes": [disk]});
    vec![
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "password", "namespace": "default"}, "data": {"password": encoded}}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "rke.cattle.io/machine-plan",
            "metadata": {"name": "more-machine-plan", "namespace": "fleet-local", "labels": {"rke.cattle.io/machine-name": "more"}},
            "data": {"plan": encoded, "appliedPlan": encoded}}),
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "seeded", "namespace": "default"},
            "spec": {"runStrategy": "Halted", "template": {"spec": vm_spec}}}),
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "seeded", "namespace": "default"},
            "spec": vm_spec, "status": {"phase": "Succeeded"}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app", "namespace": "default"}, "spec": {"containers": [
            {"name": "c", "image": "i", "env": [{"name": "TOKEN", "value": MARKER}], "args": [format!("--password={MARKER}")]},
        ]}}),
        json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "Addon",
            "metadata": {"name": "marked", "namespace": "default"},
            "spec": {"enabled": false, "repo": "r", "chart": "c", "version": "1", "valuesContent": format!("key: {MARKER}")}}),
    ]
}

#[test]
fn no_secret_is_in_a_snapshot_and_every_command_takes_it() {
    let cluster = Cluster::start("saved", 6);
    cluster.put(&secrets());
    cluster.put_plan("up", &at_work("ISODownloading"));
    let file = cluster.file("cluster.snapshot");
    let saved = cluster.run(&["snapshot", "-o", &file]).ended(0);
    assert!(
        saved.out.starts_with(&file) && saved.out.contains("objects of"),
        "{saved:#?}"
    );
    assert_eq!(saved.err, "");

    let bytes = std::fs::read(&file).unwrap();
    let text = String::from_utf8(zstd::decode_all(bytes.as_slice()).unwrap()).unwrap();
    assert!(
        text.contains("seeded") && text.contains("more-machine-plan"),
        "the objects are in it"
    );
    for secret in [MARKER, "aHVudGVyMi1tYXJrZXI"] {
        let at = text.find(secret);
        assert!(
            at.is_none(),
            "{:?}",
            at.map(|at| &text[at.saturating_sub(300)..at + 20])
        );
    }

    let with = |arguments: &[&str]| {
        let mut all = arguments.to_vec();
        all.extend(["--snapshot", &file]);
        // Not even the address of a cluster is needed.
        cluster.run_as(std::path::Path::new("/nonexistent"), &all)
    };
    with(&["preflight", "--version", "v1.8.0"]).ended(1).says("error P10");
    with(&["doctor", "-o", "json"]).says("\"checked\": 48");
    with(&["status"]).says("UpgradePlan up").says("ISODownloading");
    with(&["postflight", "--before", &file]).ended(0).says("0 errors");
    with(&["status", "other"])
        .ended(3)
        .complains("there is no UpgradePlan other; there are: up");
    with(&["status", "-w"]).says_usage("cannot be used with");
    let smaller = cluster.file("again.snapshot");
    with(&["snapshot", "-o", &smaller]).ended(0);
    let again = zstd::decode_all(std::fs::read(&smaller).unwrap().as_slice()).unwrap();
    assert_eq!(
        String::from_utf8(again).unwrap(),
        text,
        "a snapshot of a snapshot is the same"
    );
}

#[test]
fn a_file_that_is_no_snapshot_is_refused_by_name() {
    let cluster = Cluster::start("no-snapshot", 0);
    let wrong = cluster.write("notes.txt", "hello");
    for command in ["preflight", "doctor", "status", "postflight"] {
        let ran = cluster.run(&[command, "--snapshot", &wrong]);
        ran.ended(3).complains("notes.txt");
        let ran = cluster.run(&[command, "--snapshot", "/nonexistent/file"]);
        ran.ended(3).complains("/nonexistent/file");
    }
    let target = cluster.file("missing/folder/file");
    cluster
        .run(&["snapshot", "-o", &target])
        .ended(1)
        .complains("missing/folder");
    cluster
        .run(&["preflight", "--snapshot", &wrong, "--context", "here"])
        .ended(2);
}
