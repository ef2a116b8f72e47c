//! Which VMs can move, and why others cannot.

use api::foreign::kubevirt::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Node;
use rstest::rstest;
use rules::migration::{
    Stuck, Unlisted, denial, has_ended, has_labels, hosts, is_stuck, unlisted, why_bound, why_stuck,
};
use serde_json::{Value, json};

use crate::read;

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"zone": "a"}}, "spec": {}})
}

/// A running VM on node-1.
fn vm(spec: Value) -> Value {
    json!({"metadata": {"name": "vm"}, "spec": spec, "status": {"nodeName": "node-1", "phase": "Running"}})
}

fn bound(vm: Value, nodes: &[Value]) -> Option<Stuck> {
    let nodes: Vec<Node> = nodes.iter().map(|node| read(node.clone())).collect();
    let vm: VirtualMachineInstance = read(vm);
    let found = why_bound(&vm, &hosts(&nodes));
    assert_eq!(is_stuck(&vm, &hosts(&nodes)), found.is_some());
    found
}

fn two() -> [Value; 2] {
    [node("node-1"), node("node-2")]
}

#[test]
fn a_vm_moves_where_another_schedulable_host_fits() {
    assert_eq!(bound(vm(json!({})), &two()), None);
    assert_eq!(bound(vm(json!({})), &[node("node-1")]), Some(Stuck::SingleHost));
    assert_eq!(bound(vm(json!({})), &[]), Some(Stuck::NoTarget));
    let mut cordoned = node("node-2");
    cordoned["spec"]["unschedulable"] = json!(true);
    assert_eq!(bound(vm(json!({})), &[node("node-1"), cordoned]), Some(Stuck::NoTarget));
    let mut witness = node("node-2");
    witness["metadata"]["labels"]["node-role.harvesterhci.io/witness"] = json!("true");
    assert_eq!(
        bound(vm(json!({})), &[node("node-1"), witness]),
        Some(Stuck::SingleHost)
    );
    assert_eq!(bound(vm(json!({"nodeSelector": {"zone": "a"}})), &two()), None);
    assert_eq!(
        bound(vm(json!({"nodeSelector": {"zone": "b"}})), &two()),
        Some(Stuck::NoTarget)
    );
    assert_eq!(
        bound(vm(json!({"nodeSelector": {"rack": "1"}})), &two()),
        Some(Stuck::NoTarget)
    );
}

#[rstest]
#[case(json!({"hostDevices": [{"name": "d"}]}), Some(Stuck::HoldsDevice))]
#[case(json!({"gpus": [{"name": "g"}]}), Some(Stuck::HoldsDevice))]
#[case(json!({"hostDevices": [], "gpus": []}), None)]
#[case(json!({}), None)]
fn a_device_of_its_node_holds_a_vm(#[case] devices: Value, #[case] expected: Option<Stuck>) {
    assert_eq!(bound(vm(json!({"domain": {"devices": devices}})), &two()), expected);
}

#[test]
fn a_vm_that_has_no_node_yet_can_go_to_any() {
    let mut unplaced = vm(json!({"nodeSelector": {"only": "here"}}));
    unplaced["status"] = json!({"phase": "Scheduling"});
    let mut here = node("node-1");
    here["metadata"]["labels"]["only"] = json!("here");
    assert_eq!(bound(unplaced.clone(), &[here.clone(), node("node-2")]), None);
    unplaced["status"]["nodeName"] = json!("node-1");
    assert_eq!(bound(unplaced, &[here, node("node-2")]), Some(Stuck::NoTarget));
}

#[test]
fn a_vm_that_has_ended_is_bound_to_nothing() {
    for (phase, expected) in [
        ("Running", false),
        ("Succeeded", true),
        ("Failed", true),
        ("Scheduled", false),
    ] {
        let mut ended = vm(json!({"domain": {"devices": {"gpus": [{"name": "g"}]}}}));
        ended["status"]["phase"] = json!(phase);
        ended["status"]["conditions"] = json!([{"type": "LiveMigratable", "status": "False", "reason": "R"}]);
        let vm: VirtualMachineInstance = read(ended.clone());
        assert_eq!(has_ended(&vm), expected, "{phase}");
        assert_eq!(denial(&vm), (!expected).then(|| "R".to_owned()), "{phase}");
        assert_eq!(bound(ended, &two()).is_none(), expected, "{phase}");
    }
}

#[test]
fn what_binds_a_vm_is_said_before_what_kubevirt_says() {
    let mut both = vm(json!({"domain": {"devices": {"gpus": [{"name": "g"}]}}}));
    both["status"]["conditions"] = json!([{"type": "LiveMigratable", "status": "False"}]);
    let nodes: Vec<Node> = two().into_iter().map(read).collect();
    assert_eq!(why_stuck(&read(both), &hosts(&nodes)), Some(Stuck::HoldsDevice));
    let words = |stuck: Stuck| stuck.to_string();
    assert_eq!(words(Stuck::SingleHost), "there is no other node for VMs");
    assert_eq!(words(Stuck::HoldsDevice), "it uses a device of its node");
    assert_eq!(
        words(Stuck::NoTarget),
        "no other schedulable node fits its nodeSelector and node affinity"
    );
}

#[test]
fn a_node_has_labels_when_it_has_all_of_them() {
    let node: Node = read(json!({"metadata": {"name": "n", "labels": {"a": "1", "b": "2"}}}));
    let has = |wanted: &[(&str, &str)]| {
        let wanted: Vec<(String, String)> = wanted.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        has_labels(&node, wanted.iter().map(|(key, value)| (key, value)))
    };
    assert!(has(&[]) && has(&[("a", "1")]) && has(&[("a", "1"), ("b", "2")]));
    assert!(!has(&[("a", "1"), ("b", "3")]) && !has(&[("c", "1")]));
}

/// Whether a VM with this required affinity can leave node-1 for node-2 of zone b with 8 cores.
fn moves(terms: Value) -> bool {
    let mut other = node("node-2");
    other["metadata"]["labels"] = json!({"zone": "b", "cores": "8"});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    bound(
        vm(json!({"affinity": {"nodeAffinity": required}})),
        &[node("node-1"), other],
    )
    .is_none()
}

#[rstest]
#[case("Gt", "7", true)]
#[case("Gt", "8", false)]
#[case("Gt", "9", false)]
#[case("Lt", "9", true)]
#[case("Lt", "8", false)]
#[case("Lt", "7", false)]
#[case("Gt", "many", false)]
fn numbers_are_compared_as_numbers_and_strictly(#[case] operator: &str, #[case] value: &str, #[case] expected: bool) {
    let rule = json!({"key": "cores", "operator": operator, "values": [value]});
    assert_eq!(moves(json!([{"matchExpressions": [rule]}])), expected);
}

#[test]
fn terms_are_alternatives_and_within_a_term_all_must_hold() {
    let zone = |value: &str| json!({"key": "zone", "operator": "In", "values": [value]});
    let named = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    assert!(moves(
        json!([{"matchExpressions": [zone("c")]}, {"matchExpressions": [zone("b")]}])
    ));
    assert!(!moves(json!([{"matchExpressions": [zone("c"), zone("b")]}])));
    assert!(moves(
        json!([{"matchExpressions": [zone("b")], "matchFields": [named("metadata.name", "node-2")]}])
    ));
    assert!(!moves(
        json!([{"matchExpressions": [zone("b")], "matchFields": [named("metadata.name", "node-3")]}])
    ));
    assert!(!moves(
        json!([{"matchExpressions": [zone("c")], "matchFields": [named("metadata.name", "node-2")]}])
    ));
    assert!(!moves(json!([{"matchFields": [named("metadata.uid", "node-2")]}])));
    assert!(!moves(json!([{"matchExpressions": [], "matchFields": []}])));
}

#[rstest]
#[case("DoesNotExist", "zone", false)]
#[case("DoesNotExist", "rack", true)]
#[case("Exists", "zone", true)]
#[case("Exists", "rack", false)]
fn a_label_is_there_or_not(#[case] operator: &str, #[case] key: &str, #[case] expected: bool) {
    assert_eq!(
        moves(json!([{"matchExpressions": [{"key": key, "operator": operator}]}])),
        expected
    );
}

#[rstest]
#[case(json!({}), json!([]), None)]
#[case(json!({}), json!([{"type": "Paused", "status": "True"}]), Some(Unlisted::Paused))]
#[case(json!({}), json!([{"type": "Paused", "status": "False"}]), None)]
#[case(json!({"harvesterhci.io/upgrade": "hvst-upgrade"}), json!([]), Some(Unlisted::ServesAnUpgrade))]
#[case(json!({"harvesterhci.io/upgrade": ""}), json!([]), None)]
fn a_vm_that_was_paused_or_serves_an_upgrade_is_not_started_again(
    #[case] labels: Value,
    #[case] conditions: Value,
    #[case] expected: Option<Unlisted>,
) {
    let mut stopped = vm(json!({}));
    stopped["metadata"]["labels"] = labels;
    stopped["status"]["conditions"] = conditions;
    assert_eq!(unlisted(&read(stopped)), expected);
    assert_eq!(Unlisted::Paused.to_string(), "it is paused");
    assert_eq!(Unlisted::ServesAnUpgrade.to_string(), "it serves an upgrade itself");
}
