//! The real `kubectl` against the HTTP door, without extra flags. `KUBECTL` names another binary than the one in PATH.

// Everything here is a test, also what is not marked as one.
mod cluster;

use std::{io::BufRead, process::Stdio};

use cluster::Cluster;
use serde_json::{Value, json};

fn columns(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn get_shows_our_columns() {
    let cluster = Cluster::start();
    cluster.apply("a", &json!({"size": 3}));
    let out = cluster.ok(&["get", "wd"]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(columns(lines[0]), ["NAME", "SIZE", "READY", "AGE"]);
    assert_eq!(columns(lines[1])[..2], ["a", "3"]);
    assert!(cluster.ok(&["get", "widgets", "-A"]).contains("default"));
    assert_eq!(cluster.ok(&["get", "widget/a", "-o", "jsonpath={.spec.size}"]), "3");
    assert!(cluster.ok(&["get", "all"]).contains("widget.example.io/a"));
    assert!(cluster.ok(&["get", "wd", "-o", "wide"]).contains("SIZE"));
    assert!(cluster.ok(&["get", "wd", "a", "-o", "yaml"]).contains("kind: Widget"));
    assert!(cluster.ok(&["get", "nodes,pods", "-A"]).is_empty());
}

#[test]
fn get_watch_shows_changes_as_they_happen() {
    let cluster = Cluster::start();
    cluster.apply("a", &json!({"size": 1}));
    let mut child = cluster
        .command(&["get", "wd", "-w"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert_eq!(columns(&lines.next().unwrap())[..2], ["NAME", "SIZE"]);
    assert_eq!(columns(&lines.next().unwrap())[..2], ["a", "1"]);
    cluster.ok(&["patch", "wd", "a", "--type=merge", "-p", r#"{"spec":{"size":2}}"#]);
    assert_eq!(columns(&lines.next().unwrap())[..2], ["a", "2"]);
    cluster.apply("b", &json!({"size": 9}));
    assert_eq!(columns(&lines.next().unwrap())[..2], ["b", "9"]);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn describe_shows_events() {
    let cluster = Cluster::start();
    cluster.apply("a", &json!({"size": 1}));
    let uid = cluster.widget("a").unwrap()["metadata"]["uid"].clone();
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}, "type": "Normal", "reason": "Polished",
        "message": "it shines", "involvedObject": {"apiVersion": "example.io/v1", "kind": "Widget", "name": "a", "namespace": "default", "uid": uid},
        "source": {"component": "test"}, "firstTimestamp": "2026-11-15T12:00:00Z", "lastTimestamp": "2026-11-15T12:00:00Z", "count": 1,
    });
    let path = cluster.file("event.json", &event.to_string());
    cluster.ok(&["create", "-f", path.to_str().unwrap()]);
    let out = cluster.ok(&["describe", "wd", "a"]);
    assert!(out.contains("Polished") && out.contains("it shines"), "{out}");
    let events = cluster.ok(&["get", "events"]);
    assert!(events.contains("widget/a") && events.contains("it shines"), "{events}");
}

#[test]
fn create_makes_names_and_refuses_duplicates() {
    let cluster = Cluster::start();
    let object = json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"generateName": "gen-"}, "spec": {"size": 1}});
    let path = cluster.file("gen.json", &object.to_string());
    let first = cluster.ok(&["create", "-f", path.to_str().unwrap()]);
    let second = cluster.ok(&["create", "-f", path.to_str().unwrap()]);
    assert!(first.starts_with("widget.example.io/gen-") && first.trim().ends_with("created"));
    assert_ne!(first, second);
    cluster.ok(&["create", "configmap", "m", "--from-literal=k=v"]);
    assert!(cluster.fails(&["create", "configmap", "m"]).contains("already exists"));
    cluster.ok(&["create", "namespace", "other"]);
    cluster.ok(&["create", "secret", "generic", "s", "--from-literal=k=v", "-n", "other"]);
    assert!(cluster.ok(&["get", "secrets", "-n", "other"]).contains("Opaque"));
}

#[test]
fn apply_creates_changes_and_leaves_alone() {
    let cluster = Cluster::start();
    assert_eq!(
        cluster.apply("a", &json!({"size": 1, "limit": 5})).trim(),
        "widget.example.io/a created"
    );
    assert_eq!(
        cluster.apply("a", &json!({"size": 1, "limit": 5})).trim(),
        "widget.example.io/a unchanged"
    );
    assert_eq!(
        cluster.apply("a", &json!({"size": 2})).trim(),
        "widget.example.io/a configured"
    );
    let widget = cluster.widget("a").unwrap();
    assert_eq!(
        (&widget["spec"]["size"], widget["spec"].get("limit")),
        (&json!(2), None)
    );
    let deployment = |image: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": image}]}}},
        })
    };
    let path = cluster.file("d.json", &deployment("i:1").to_string());
    cluster.ok(&["apply", "-f", path.to_str().unwrap()]);
    let path = cluster.file("d.json", &deployment("i:2").to_string());
    assert!(
        cluster
            .ok(&["apply", "-f", path.to_str().unwrap()])
            .contains("configured")
    );
    assert_eq!(
        cluster.ok(&[
            "get",
            "deploy",
            "d",
            "-o",
            "jsonpath={.spec.template.spec.containers[*].image}"
        ]),
        "i:2"
    );
    cluster.ok(&["scale", "deploy", "d", "--replicas=3"]);
    assert_eq!(
        cluster.ok(&["get", "deploy", "d", "-o", "jsonpath={.spec.replicas}"]),
        "3"
    );
}

#[test]
fn apply_refuses_what_the_schema_refuses() {
    let cluster = Cluster::start();
    let object = |spec: Value| {
        json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec}).to_string()
    };
    let path = cluster.file("a.json", &object(json!({"size": 1, "colour": "red"})));
    let complaint = cluster.fails(&["apply", "-f", path.to_str().unwrap()]);
    assert!(
        complaint.contains("unknown field") && complaint.contains("colour"),
        "{complaint}"
    );
    let path = cluster.file("a.json", &object(json!({"size": 9, "limit": 3})));
    let complaint = cluster.fails(&["apply", "-f", path.to_str().unwrap()]);
    assert!(complaint.contains("size may not exceed limit"), "{complaint}");
    assert!(cluster.widget("a").is_none());
}

#[test]
fn server_side_apply_conflicts_and_forces() {
    let cluster = Cluster::start();
    let object = |size: u64| {
        json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": size}})
            .to_string()
    };
    let path = cluster.file("a.json", &object(1));
    let path = path.to_str().unwrap();
    assert!(
        cluster
            .ok(&["apply", "--server-side", "-f", path])
            .contains("serverside-applied")
    );
    cluster.file("a.json", &object(2));
    let complaint = cluster.fails(&["apply", "--server-side", "--field-manager=other", "-f", path]);
    assert!(
        complaint.contains("conflict with \"kubectl\": .spec.size"),
        "{complaint}"
    );
    cluster.ok(&[
        "apply",
        "--server-side",
        "--field-manager=other",
        "--force-conflicts",
        "-f",
        path,
    ]);
    assert_eq!(cluster.widget("a").unwrap()["spec"]["size"], 2);
}

#[test]
fn patch_in_all_types() {
    let cluster = Cluster::start();
    cluster.apply("a", &json!({"size": 1}));
    cluster.ok(&["patch", "wd", "a", "--type=merge", "-p", r#"{"spec":{"size":2}}"#]);
    cluster.ok(&[
        "patch",
        "wd",
        "a",
        "--type=json",
        "-p",
        r#"[{"op":"replace","path":"/spec/size","value":3}]"#,
    ]);
    assert_eq!(cluster.widget("a").unwrap()["spec"]["size"], 3);
    cluster.fails(&["patch", "wd", "a", "--type=strategic", "-p", r#"{"spec":{"size":4}}"#]);
    assert_eq!(cluster.widget("a").unwrap()["spec"]["size"], 3);
    if cluster.ok(&["patch", "--help"]).contains("--subresource") {
        cluster.ok(&[
            "patch",
            "wd",
            "a",
            "--subresource=status",
            "--type=merge",
            "-p",
            r#"{"status":{"phase":"Done"}}"#,
        ]);
        assert_eq!(cluster.widget("a").unwrap()["status"]["phase"], "Done");
    }
    cluster.ok(&["create", "configmap", "m"]);
    cluster.ok(&[
        "patch",
        "configmap",
        "m",
        "-p",
        r#"{"metadata":{"finalizers":["x.io/a"]}}"#,
    ]);
    let finalizers = cluster.ok(&["get", "configmap", "m", "-o", "jsonpath={.metadata.finalizers}"]);
    assert!(finalizers.contains("x.io/a"));
}

#[test]
fn a_stale_replace_is_a_conflict() {
    let cluster = Cluster::start();
    cluster.apply("a", &json!({"size": 1}));
    let old = cluster.ok(&["get", "wd", "a", "-o", "json"]);
    let path = cluster.file("old.json", &old);
    cluster.ok(&["patch", "wd", "a", "--type=merge", "-p", r#"{"spec":{"size":2}}"#]);
    let complaint = cluster.fails(&["replace", "-f", path.to_str().unwrap()]);
    assert!(
        complaint
            .contains("the object has been modified; please apply your changes to the latest version and try again"),
        "{complaint}"
    );
    assert_eq!(cluster.widget("a").unwrap()["spec"]["size"], 2);
}

#[test]
fn delete_waits_for_finalizers() {
    let cluster = Cluster::start();
    cluster.apply("a", &json!({"size": 1}));
    cluster.ok(&[
        "patch",
        "wd",
        "a",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":["x.io/a"]}}"#,
    ]);
    let mut deleting = cluster
        .command(&["delete", "wd", "a"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(deleting.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert!(lines.next().unwrap().contains("deleted"));
    assert!(
        cluster.widget("a").unwrap()["metadata"]
            .get("deletionTimestamp")
            .is_some()
    );
    assert!(deleting.try_wait().unwrap().is_none(), "still waiting");
    cluster.ok(&[
        "patch",
        "wd",
        "a",
        "--type=json",
        "-p",
        r#"[{"op":"remove","path":"/metadata/finalizers"}]"#,
    ]);
    assert!(deleting.wait().unwrap().success());
    assert!(cluster.widget("a").is_none());
    cluster.apply("b", &json!({"size": 1}));
    cluster.ok(&["delete", "wd", "--all"]);
    assert!(cluster.widget("b").is_none());
}

#[test]
fn wait_for_conditions_and_fields() {
    let cluster = Cluster::start();
    cluster.apply("a", &json!({"size": 1}));
    let mut waiting = cluster
        .command(&["wait", "wd/a", "--for=condition=Ready", "--timeout=30s"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    cluster.set_status(
        "a",
        &json!({"phase": "Done", "conditions": [{"type": "Ready", "status": "True"}]}),
    );
    assert!(waiting.wait().unwrap().success());
    if cluster.ok(&["wait", "--help"]).contains("--for=jsonpath") {
        cluster.ok(&["wait", "wd/a", "--for=jsonpath={.status.phase}=Done", "--timeout=30s"]);
    }
    let complaint = cluster.fails(&["wait", "wd/a", "--for=condition=Other", "--timeout=1s"]);
    assert!(complaint.contains("timed out waiting"), "{complaint}");
}

#[test]
fn explain_teaches_and_api_resources_lists() {
    let cluster = Cluster::start();
    let out = cluster.ok(&["explain", "widgets.spec"]);
    assert!(
        out.contains("What is wanted.") && out.contains("How big the widget is.") && out.contains("size"),
        "{out}"
    );
    assert!(
        cluster
            .ok(&["explain", "widgets.spec.size"])
            .contains("How big the widget is.")
    );
    let out = cluster.ok(&["api-resources"]);
    let line = out.lines().find(|line| line.starts_with("widgets ")).unwrap();
    assert_eq!(columns(line), ["widgets", "wd", "example.io/v1", "true", "Widget"]);
    assert!(cluster.ok(&["api-versions"]).contains("example.io/v1"));
    assert!(cluster.ok(&["version"]).contains("v1.35.2+embedded"));
}

#[test]
fn select_label_annotate_and_cordon() {
    let cluster = Cluster::start();
    cluster.apply("a", &json!({"size": 1}));
    cluster.apply("b", &json!({"size": 1}));
    cluster.ok(&["label", "wd", "a", "tier=gold"]);
    cluster.ok(&["annotate", "wd", "a", "note=hello"]);
    assert_eq!(
        cluster.ok(&["get", "wd", "-l", "tier=gold", "-o", "name"]).trim(),
        "widget.example.io/a"
    );
    assert_eq!(
        cluster
            .ok(&["get", "wd", "-l", "tier notin (gold)", "-o", "name"])
            .trim(),
        "widget.example.io/b"
    );
    assert_eq!(
        cluster
            .ok(&["get", "wd", "--field-selector", "metadata.name=b", "-o", "name"])
            .trim(),
        "widget.example.io/b"
    );
    assert_eq!(cluster.widget("a").unwrap()["metadata"]["annotations"]["note"], "hello");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let path = cluster.file("node.json", &node.to_string());
    cluster.ok(&["create", "-f", path.to_str().unwrap()]);
    cluster.ok(&["cordon", "n1"]);
    assert!(cluster.ok(&["get", "nodes"]).contains("Ready,SchedulingDisabled"));
    cluster.ok(&["uncordon", "n1"]);
    assert!(!cluster.ok(&["get", "nodes"]).contains("SchedulingDisabled"));
    cluster.ok(&["taint", "nodes", "n1", "k=v:NoSchedule"]);
    assert_eq!(
        cluster.ok(&["get", "node", "n1", "-o", "jsonpath={.spec.taints[0].key}"]),
        "k"
    );
    cluster.ok(&["taint", "nodes", "n1", "k-"]);
}

#[test]
fn edit_changes_an_object() {
    let cluster = Cluster::start();
    cluster.apply("a", &json!({"size": 1}));
    let output = cluster
        .command(&["edit", "wd", "a"])
        .env("KUBE_EDITOR", "sed -i 's/size: 1/size: 7/'")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(cluster.widget("a").unwrap()["spec"]["size"], 7);
}

#[test]
fn drain_evicts_and_auth_answers() {
    let cluster = Cluster::start();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
    for (name, object) in [("node.json", node), ("pod.json", pod)] {
        let path = cluster.file(name, &object.to_string());
        cluster.ok(&["create", "-f", path.to_str().unwrap()]);
    }
    let complaint = cluster.fails(&["logs", "p"]);
    assert!(
        complaint.contains("container \"c\" in pod \"p\" is waiting to start: ContainerCreating"),
        "{complaint}"
    );
    // No kubelet is simulated, which would end the pod and remove it.
    cluster.ok(&["drain", "n1", "--force", "--grace-period=0"]);
    assert!(cluster.server.store().get("", "pods", "default", "p").is_none());
    assert_eq!(cluster.ok(&["auth", "can-i", "create", "pods"]).trim(), "yes");
}
