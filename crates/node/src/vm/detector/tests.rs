#![allow(
    clippy::needless_pass_by_value,
    reason = "values are written out where they are passed"
)]

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
}

fn labelled(name: &str, key: &str) -> Value {
    let mut node = node(name);
    node["metadata"]["labels"][key] = json!("true");
    node
}

fn witness(name: &str) -> Value {
    labelled(name, labels::WITNESS)
}

fn cordoned(name: &str) -> Value {
    let mut node = node(name);
    node["spec"] = json!({"unschedulable": true});
    node
}

fn vm(name: &str, on: &str, spec: Value) -> Value {
    json!({"metadata": {"namespace": "default", "name": name}, "spec": spec, "status": {"nodeName": on, "phase": "Running"}})
}

fn free(name: &str, on: &str) -> Value {
    vm(name, on, json!({}))
}

fn affinity(rule: Value) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [rule]}]}}}})
}

fn selects(node: &str) -> Value {
    json!({"nodeSelector": {"kubernetes.io/hostname": node}})
}

fn devices(kind: &str) -> Value {
    json!({"domain": {"devices": {kind: [{"name": "d", "deviceName": "vendor/device"}]}}})
}

fn decided(nodes: &[Value], vms: &[Value]) -> Vec<Found> {
    let nodes: Vec<Node> = serde_json::from_value(json!(nodes)).unwrap();
    let vms: Vec<VirtualMachineInstance> = serde_json::from_value(json!(vms)).unwrap();
    decide(&nodes, &vms)
}

fn names(found: &[Found]) -> Vec<&str> {
    found.iter().map(|one| one.vm.name.as_str()).collect()
}

#[rstest]
#[case::a_single_node_lists_all_in_order(
    vec![node("node-1")], vec![free("b", "node-1"), free("a", "node-1")], &["b", "a"])]
#[case::a_witness_is_no_second_node(
    vec![node("node-1"), witness("node-2")], vec![free("a", "node-1"), free("b", "node-1")], &["a", "b"])]
#[case::a_node_selector_that_only_its_node_fits(
    vec![node("node-1"), node("node-2")], vec![vm("a", "node-1", selects("node-1"))], &["a"])]
#[case::a_node_selector_that_another_node_fits(
    vec![labelled("node-1", "ssd"), labelled("node-2", "ssd")],
    vec![vm("a", "node-1", json!({"nodeSelector": {"ssd": "true"}}))], &[])]
#[case::host_devices(
    vec![node("node-1"), node("node-2")], vec![vm("a", "node-1", devices("hostDevices"))], &["a"])]
#[case::gpus(vec![node("node-1"), node("node-2")], vec![vm("a", "node-1", devices("gpus"))], &["a"])]
#[case::an_empty_list_of_devices(
    vec![node("node-1"), node("node-2")],
    vec![vm("a", "node-1", json!({"domain": {"devices": {"hostDevices": [], "gpus": []}}}))], &[])]
#[case::unrestricted(vec![node("node-1"), node("node-2")], vec![free("a", "node-1")], &[])]
#[case::unrestricted_beside_a_witness(
    vec![node("node-1"), node("node-2"), witness("node-3")], vec![free("a", "node-1")], &[])]
#[case::unrestricted_on_three_nodes(
    vec![node("node-1"), node("node-2"), node("node-3")], vec![free("a", "node-1"), free("b", "node-2")], &[])]
#[case::affinity_to_its_own_node_alone(
    vec![labelled("node-1", labels::CONTROL_PLANE), node("node-2")],
    vec![vm("a", "node-1", affinity(json!({"key": labels::CONTROL_PLANE, "operator": "Exists"}))), free("b", "node-1")],
    &["a"])]
#[case::affinity_that_another_node_satisfies(
    vec![labelled("node-1", "zone"), node("node-2"), labelled("node-3", "zone")],
    vec![vm("a", "node-1", affinity(json!({"key": "zone", "operator": "In", "values": ["true"]})))], &[])]
#[case::the_only_other_node_is_cordoned(
    vec![node("node-1"), cordoned("node-2")], vec![free("a", "node-1")], &["a"])]
#[case::from_the_cordoned_node_to_the_other(
    vec![node("node-1"), cordoned("node-2")], vec![free("a", "node-1"), free("b", "node-2")], &["a"])]
#[case::several_reasons_at_once(
    vec![labelled("node-1", "zone"), cordoned("node-2"), labelled("node-3", "zone")],
    vec![
        vm("a", "node-1", affinity(json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-2"]}))),
        vm("b", "node-1", devices("hostDevices")),
        vm("c", "node-1", affinity(json!({"key": "zone", "operator": "DoesNotExist"}))),
    ],
    &["a", "b", "c"])]
#[case::no_node_at_all(vec![], vec![free("a", "node-1")], &["a"])]
#[case::no_vm(vec![node("node-1")], vec![], &[])]
fn vms_that_cannot_move_are_found_in_their_order(
    #[case] nodes: Vec<Value>,
    #[case] vms: Vec<Value>,
    #[case] expected: &[&str],
) {
    assert_eq!(names(&decided(&nodes, &vms)), expected);
}

#[test]
fn each_vm_has_its_reason() {
    let vms = [vm("a", "node-1", devices("gpus")), vm("b", "node-1", selects("node-1"))];
    let found = decided(&[node("node-1"), node("node-2")], &vms);
    let why: Vec<String> = found.iter().map(|one| one.why.to_string()).collect();
    assert_eq!(
        why,
        [
            "it uses a device of its node",
            "no other schedulable node fits its nodeSelector and node affinity",
        ]
    );
}

#[test]
fn r18_a_vm_that_only_kubevirt_will_not_migrate_is_not_stopped_by_the_detector() {
    let denied = |mut vm: Value| {
        vm["status"]["conditions"] =
            json!([{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}]);
        vm
    };
    let vms = [
        denied(free("a", "node-1")),
        denied(vm("b", "node-1", devices("hostDevices"))),
        denied(vm("c", "node-1", selects("node-1"))),
    ];
    assert_eq!(names(&decided(&[node("node-1"), node("node-2")], &vms)), ["b", "c"]);
    assert_eq!(
        names(&decided(&[node("node-1")], &vms)),
        ["a", "b", "c"],
        "there is no other host"
    );
}

#[test]
fn what_has_ended_or_is_on_its_way_down_is_left_alone() {
    let mut ended = free("ended", "node-1");
    ended["status"]["phase"] = json!("Succeeded");
    let mut deleting = free("deleting", "node-1");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-03-13T03:57:09Z");
    let mut starting = free("starting", "node-1");
    starting["status"]["phase"] = json!("Scheduled");
    assert_eq!(
        names(&decided(&[node("node-1")], &[ended, deleting, starting])),
        ["starting"]
    );
}

fn paused(name: &str) -> Value {
    let mut vm = free(name, "node-1");
    vm["status"]["conditions"] = json!([{"type": "Paused", "status": "True"}]);
    vm
}

fn serving(name: &str, upgrade: &str) -> Value {
    let mut vm = free(name, "node-1");
    vm["metadata"]["labels"] = json!({labels::UPGRADE_VM: upgrade});
    vm
}

#[rstest]
#[case::paused(vec![paused("a")], &[])]
#[case::serving(vec![serving("a", "up")], &[])]
#[case::with_an_empty_label(vec![serving("a", "")], &["default/a"])]
#[case::mixed(vec![paused("a"), free("b", "node-1"), serving("c", "up")], &["default/b"])]
#[case::none(vec![], &[])]
fn all_are_stopped_but_only_those_that_ran_for_their_users_are_listed(
    #[case] vms: Vec<Value>,
    #[case] expected: &[&str],
) {
    let found = decided(&[node("node-1")], &vms);
    assert_eq!(found.len(), vms.len());
    let listed: Vec<String> = listed(&found).iter().map(VmName::to_string).collect();
    assert_eq!(listed, expected);
}
