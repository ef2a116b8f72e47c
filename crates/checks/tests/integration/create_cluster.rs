//! Cases of creating a plan that concern nodes, machines, volumes, VMs, charts and addons.

use crate::support;
use checks::Cluster;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{annotated, create, healthy, named, plan, read, vmi, volume};

/// Texts about `spec` that forbid.
fn forbidden(cluster: &Cluster) -> Vec<String> {
    let errors = create(&plan(), cluster).into_iter();
    errors
        .map(|error| error.strip_prefix("spec: Forbidden: ").unwrap().to_owned())
        .collect()
}

fn with_first_node(mut cluster: Cluster, change: impl Fn(&mut Value)) -> Cluster {
    let mut node = support::node(1);
    change(&mut node);
    cluster.nodes.as_mut().unwrap()[0] = read(node);
    cluster
}

#[test]
fn create_with_a_node_that_has_no_ready_condition_is_not_ready() {
    let cluster = with_first_node(healthy(1), |node| node["status"]["conditions"] = json!([]));
    assert_eq!(forbidden(&cluster), ["node \"node-1\" is not Ready"]);
}

#[test]
fn create_with_a_node_neither_ready_nor_schedulable_gives_two_errors() {
    let cluster = with_first_node(healthy(1), |node| {
        node["status"] = json!({});
        node["spec"]["unschedulable"] = json!(true);
    });
    assert_eq!(
        forbidden(&cluster),
        ["node \"node-1\" is not Ready", "node \"node-1\" is unschedulable"]
    );
}

#[test]
fn create_without_the_rancher_cluster_or_before_it_is_ready_is_rejected() {
    let mut cluster = healthy(1);
    cluster.rancher_clusters = Ok(vec![named("default", "local", json!({"status": {"ready": true}}))]);
    assert_eq!(forbidden(&cluster), ["cluster not found"]);
    cluster.rancher_clusters = Ok(vec![named("fleet-local", "local", json!({"status": {"ready": false}}))]);
    assert_eq!(forbidden(&cluster), ["cluster is not ready"]);
    cluster.rancher_clusters = Ok(vec![named("fleet-local", "local", json!({}))]);
    assert_eq!(forbidden(&cluster), ["cluster is not ready"]);
}

#[test]
fn create_after_a_plan_that_was_broken_off_between_nodes_is_allowed_on_the_cluster_that_it_left() {
    let mut cluster = with_first_node(healthy(2), |node| node["spec"]["unschedulable"] = json!(true));
    let held = json!({"management.harvesterhci.io/saved-upgrade-strategy": "null"});
    let mut local = json!({"metadata": {"annotations": held}, "status": {"ready": false}});
    let local_cluster = |value: &Value| {
        let mut object = value.clone();
        object["metadata"]["name"] = json!("local");
        object["metadata"]["namespace"] = json!("fleet-local");
        Ok(vec![read(object)])
    };
    cluster.rancher_clusters = local_cluster(&local);
    assert_eq!(forbidden(&cluster), [""; 0]);
    // Rancher lets machines past its limit that were never well: then several are cordoned.
    let mut two = cluster.clone();
    two.nodes.as_mut().unwrap()[1]
        .spec
        .get_or_insert_default()
        .unschedulable = Some(true);
    assert_eq!(forbidden(&two), [""; 0]);
    local["metadata"]["annotations"] = json!({});
    cluster.rancher_clusters = local_cluster(&local);
    assert_eq!(
        forbidden(&cluster),
        ["node \"node-1\" is unschedulable", "cluster is not ready"]
    );
}

#[test]
fn create_with_machines_that_are_provisioning_names_each() {
    let mut cluster = healthy(2);
    for machine in cluster.machines.as_mut().unwrap() {
        machine.status.phase = Some("Provisioning".to_owned());
    }
    let errors = [
        "machine fleet-local/machine-1 is not running",
        "machine fleet-local/machine-2 is not running",
    ];
    assert_eq!(forbidden(&cluster), errors);
}

#[test]
fn create_ignores_a_machine_outside_fleet_local() {
    let mut cluster = healthy(1);
    let elsewhere = named("default", "m", json!({"status": {"phase": "Provisioning"}}));
    cluster.machines.as_mut().unwrap().push(elsewhere);
    assert!(forbidden(&cluster).is_empty());
}

#[test]
fn create_with_zero_nodes_says_just_that_about_pairing() {
    let mut cluster = healthy(1);
    cluster.nodes = Ok(Vec::new());
    assert_eq!(forbidden(&cluster), ["no nodes found in the cluster"]);
}

#[test]
fn create_with_two_nodes_and_one_machine_reports_the_counts_and_continues() {
    let mut cluster = healthy(2);
    cluster.machines.as_mut().unwrap().pop();
    let errors = [
        "node count (2) does not match machine count (1)",
        "node \"node-2\" references machine \"machine-2\" which does not exist",
    ];
    assert_eq!(forbidden(&cluster), errors);
}

#[test]
fn create_with_a_machine_without_node_reference_is_rejected() {
    let mut cluster = healthy(1);
    cluster.machines.as_mut().unwrap()[0].status.node_ref = None;
    assert_eq!(
        forbidden(&cluster),
        ["machine fleet-local/machine-1 has no node reference"]
    );
}

#[rstest]
#[case("/metadata/labels", json!({}), "node \"node-1\" is missing harvesterhci.io/managed label")]
#[case("/metadata/labels", json!({"harvesterhci.io/managed": "false"}), "node \"node-1\" is missing harvesterhci.io/managed label")]
#[case("/metadata/annotations", json!({}), "node \"node-1\" is missing cluster.x-k8s.io/machine annotation")]
#[case(
    "/metadata/annotations", json!({"cluster.x-k8s.io/machine": "lost"}),
    "node \"node-1\" references machine \"lost\" which does not exist"
)]
#[case("/metadata/name", json!("renamed"), "machine \"machine-1\" NodeRef.Name \"node-1\" does not match node \"renamed\"")]
fn create_with_a_node_that_has_no_machine_of_its_own_is_rejected(
    #[case] field: &str,
    #[case] value: Value,
    #[case] why: &str,
) {
    let cluster = with_first_node(healthy(1), |node| *node.pointer_mut(field).unwrap() = value.clone());
    assert_eq!(forbidden(&cluster), [why]);
}

#[test]
fn create_with_degraded_volumes_is_allowed_on_two_nodes_and_rejected_on_three_with_one_error() {
    let degraded = |nodes| {
        let mut cluster = healthy(nodes);
        let one = volume("a", 3, "attached", "degraded");
        cluster.volumes = Ok(vec![
            one,
            volume("b", 3, "attached", "degraded"),
            volume("c", 3, "attached", "healthy"),
        ]
        .into());
        cluster
    };
    assert!(forbidden(&degraded(2)).is_empty());
    let why = "there are degraded volumes, please check all volumes are healthy: default/a-data, default/b-data";
    assert_eq!(forbidden(&degraded(3)), [why]);
}

#[test]
fn create_with_a_faulted_volume_is_rejected_on_any_number_of_nodes_and_names_it() {
    for nodes in 1..=3 {
        let mut cluster = healthy(nodes);
        cluster.volumes = Ok(vec![
            volume("a", 3, "detached", "faulted"),
            volume("b", 3, "detached", "unknown"),
        ]
        .into());
        let why = "there are faulted volumes, please check all volumes are healthy: default/a-data";
        assert_eq!(forbidden(&cluster), [why]);
    }
}

#[test]
fn create_ignores_volumes_outside_longhorn_system() {
    let mut cluster = healthy(3);
    cluster.volumes = Ok(vec![named("default", "v", json!({"status": {"robustness": "degraded"}}))].into());
    assert!(forbidden(&cluster).is_empty());
}

#[rstest]
fn create_with_an_active_single_replica_volume_is_rejected_also_with_the_annotation(
    #[values("attached", "attaching", "creating")] state: &str,
) {
    let mut cluster = healthy(1);
    cluster.volumes = Ok(vec![volume("a", 1, state, "healthy"), volume("b", 1, state, "healthy")].into());
    let refused = "spec: Forbidden: active single-replica volumes found: default/a-data, default/b-data";
    assert_eq!(create(&plan(), &cluster), [refused]);
    let plan = annotated(plan(), "skip-single-replica-detached-vol", "true");
    assert_eq!(create(&plan, &cluster), [refused]);
}

#[rstest]
fn create_with_a_detached_single_replica_volume_needs_the_annotation(#[values(1, 3)] nodes: usize) {
    let mut cluster = healthy(nodes);
    cluster.volumes = Ok(vec![volume("a", 1, "detached", "unknown")].into());
    let refused = "spec: Forbidden: single-replica volumes found: default/a-data";
    assert_eq!(create(&plan(), &cluster), [refused]);
    let skip = |value| annotated(plan(), "skip-single-replica-detached-vol", value);
    assert!(create(&skip("true"), &cluster).is_empty());
    assert_eq!(create(&skip("yes"), &cluster), [refused]);
}

#[test]
fn create_names_a_volume_itself_that_serves_no_claim() {
    let mut cluster = healthy(1);
    let bare = json!({"spec": {"numberOfReplicas": 1}, "status": {"state": "detached"}});
    cluster.volumes = Ok(vec![named("longhorn-system", "pvc-1", bare)].into());
    assert_eq!(forbidden(&cluster), ["single-replica volumes found: / (volume pvc-1)"]);
}

#[rstest]
#[case(json!({}), false)]
#[case(json!({"readyToUse": false}), false)]
#[case(json!({"readyToUse": false, "error": {"message": "disk full"}}), true)]
#[case(json!({"error": {}}), true)]
#[case(json!({"readyToUse": true}), true)]
fn create_waits_for_backups_that_are_neither_ready_nor_failed(#[case] status: Value, #[case] allowed: bool) {
    let mut cluster = healthy(1);
    cluster.vm_backups = Ok(vec![named("dev", "nightly", json!({"status": status}))].into());
    let why = "please wait until all vmbackups are stopped, for example dev/nightly is under processing";
    assert_eq!(forbidden(&cluster), if allowed { vec![] } else { vec![why] });
}

#[rstest]
#[case(json!({"suspended": false}), false)]
#[case(json!({}), false)]
#[case(json!({"suspended": true}), true)]
fn create_needs_backup_schedules_suspended(#[case] status: Value, #[case] allowed: bool) {
    let mut cluster = healthy(1);
    cluster.backup_schedules = Ok(vec![named("dev", "nightly", json!({"status": status}))].into());
    let why = "please suspend all backup/snapshot schedule, for example dev/nightly is running";
    assert_eq!(forbidden(&cluster), if allowed { vec![] } else { vec![why] });
}

#[test]
fn create_names_every_backup_and_schedule_behind_the_example() {
    let mut cluster = healthy(1);
    let of = |name: &str| named("dev", name, json!({}));
    cluster.vm_backups = Ok(vec![of("a"), of("b"), of("c")].into());
    let why = "please wait until all vmbackups are stopped, for example dev/a is under processing; also dev/b, dev/c";
    assert_eq!(forbidden(&cluster), [why]);
}

fn bound_to(node: &str) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}}}})
}

fn device(list: &str) -> Value {
    json!({"domain": {"devices": {list: [{"name": "card"}]}}})
}

const STUCK: &str = "there are non-live migratable VMs that need to be shut off before initiating the upgrade: default/stuck; or set spec.restoreVM to true: then VMs that cannot move are shut down for the upgrade of their node and started again";

#[test]
fn create_with_one_host_and_a_witness_does_not_look_at_vms() {
    let mut cluster = with_first_node(healthy(2), |node| {
        node["metadata"]["labels"]["node-role.harvesterhci.io/witness"] = json!("");
    });
    cluster.vmis = Ok(vec![vmi("stuck", device("hostDevices"))].into());
    assert!(forbidden(&cluster).is_empty());
}

#[rstest]
#[case::host_device(device("hostDevices"))]
#[case::gpu_which_is_ours(device("gpus"))]
#[case::node_selector(json!({"nodeSelector": {"kubernetes.io/hostname": "node-1"}}))]
#[case::affinity_to_its_own_node_only(bound_to("node-1"))]
fn create_with_two_nodes_and_a_vm_that_cannot_move_names_it(#[case] spec: Value) {
    let mut cluster = with_first_node(healthy(2), |node| {
        node["metadata"]["labels"]["kubernetes.io/hostname"] = json!("node-1");
    });
    cluster.vmis = Ok(vec![vmi("free", json!({})), vmi("stuck", spec)].into());
    assert_eq!(forbidden(&cluster), [STUCK]);
}

#[rstest]
#[case::free(json!({}))]
#[case::no_devices_in_the_list(json!({"domain": {"devices": {"hostDevices": [], "gpus": []}}}))]
#[case::affinity_to_another_node(bound_to("node-2"))]
#[case::node_selector_that_another_node_fits_which_is_ours(json!({"nodeSelector": {"harvesterhci.io/managed": "true"}}))]
fn create_with_two_nodes_and_a_vm_that_can_move_is_allowed(#[case] spec: Value) {
    let mut cluster = healthy(2);
    cluster.vmis = Ok(vec![vmi("free", spec)].into());
    assert!(forbidden(&cluster).is_empty());
}

#[test]
fn create_with_the_only_other_host_cordoned_leaves_vms_no_target() {
    let mut cluster = healthy(2);
    cluster.nodes.as_mut().unwrap()[1].spec.as_mut().unwrap().unschedulable = Some(true);
    cluster.vmis = Ok(vec![vmi("stuck", json!({}))].into());
    assert_eq!(forbidden(&cluster), ["node \"node-2\" is unschedulable", STUCK]);
}

#[rstest]
#[case(json!([{"type": "Ready", "status": "False"}]), false)]
#[case(json!([{"type": "Ready", "status": "Unknown"}]), false)]
#[case(json!([{"type": "Ready", "status": "True"}]), true)]
#[case(json!(null), true)]
#[case(json!([{"type": "Processed", "status": "False"}]), true)]
fn create_with_a_managed_chart_that_says_it_is_not_ready_is_rejected(#[case] conditions: Value, #[case] allowed: bool) {
    let mut cluster = healthy(1);
    let status = json!({"status": {"conditions": conditions}});
    cluster.managed_charts = Ok(vec![named("fleet-local", "rancher-monitoring-crd", status)].into());
    let why = "managed chart rancher-monitoring-crd is not ready, please wait for it to be ready or fix it";
    assert_eq!(forbidden(&cluster), if allowed { vec![] } else { vec![why] });
}

#[test]
fn create_ignores_a_managed_chart_outside_fleet_local() {
    let mut cluster = healthy(1);
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    cluster.managed_charts = Ok(vec![named("fleet-default", "c", unready)].into());
    assert!(forbidden(&cluster).is_empty());
}

#[rstest]
#[case(true, "AddonDeploySuccessful", true)]
#[case(true, "", false)]
#[case(true, "AddonEnabling", false)]
#[case(true, "AddonUpdating", false)]
#[case(false, "", true)]
#[case(false, "AddonDisabled", true)]
#[case(false, "AddonDisabling", false)]
fn create_needs_addons_settled(#[case] enabled: bool, #[case] status: &str, #[case] allowed: bool) {
    let mut cluster = healthy(1);
    let fields = json!({"spec": {"enabled": enabled}, "status": {"status": status}});
    cluster.addons = Ok(vec![named("dev", "a", fields)].into());
    let wanted = if enabled { "enabled" } else { "disabled" };
    let why = format!("addon dev/a is {wanted} but still on status {status}, please wait for it to be ready or fix it");
    assert_eq!(forbidden(&cluster), if allowed { vec![] } else { vec![why] });
}

#[test]
fn create_with_two_unsettled_addons_gives_one_error_that_names_both() {
    let mut cluster = healthy(1);
    let on = |name: &str| {
        named(
            "dev",
            name,
            json!({"spec": {"enabled": true}, "status": {"status": "AddonEnabling"}}),
        )
    };
    cluster.addons = Ok(vec![on("a"), on("b")].into());
    let why = "addon dev/a is enabled but still on status AddonEnabling, please wait for it to be ready or fix it; \
               also addon dev/b is enabled but still on status AddonEnabling";
    assert_eq!(forbidden(&cluster), [why]);
}
