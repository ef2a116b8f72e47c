//! What is shown of an upgrade, in small clusters and large ones.

use api::UpgradePlan;
use jiff::Timestamp;
use serde_json::{Value, json};
use snapshot::Snapshot;

use super::{
    Assessment, StatusView, choose,
    lines::changes,
    model::NodeAssessment,
    of_plan,
    text::{Layout, text},
};
use crate::style::Style;

fn now() -> Timestamp {
    "2026-03-13T05:00:00Z".parse().unwrap()
}

#[allow(clippy::needless_pass_by_value, reason = "json! makes values")]
fn plan(status: Value) -> UpgradePlan {
    serde_json::from_value(json!({
        "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
        "metadata": {"name": "up", "uid": "u1", "creationTimestamp": "2026-03-13T03:57:09Z"},
        "spec": {"version": "v1.8.0"}, "status": status,
    }))
    .unwrap()
}

fn change(phase: &str, time: &str) -> Value {
    json!({"phase": phase, "phaseTransitionTimestamp": format!("2026-03-13T{time}Z")})
}

/// Three nodes, of which the second is being emptied.
fn status() -> Value {
    json!({
        "currentPhase": "NodeUpgrading",
        "previousVersion": "v1.7.1",
        "phaseTransitionTimestamps": [
            change("Initializing", "03:57:09"), change("ISODownloading", "03:57:10"), change("ISODownloaded", "04:01:54"),
            change("ClusterUpgrading", "04:10:00"), change("ClusterUpgraded", "04:20:00"), change("NodeUpgrading", "04:20:01"),
        ],
        "nodeUpgradeStatuses": {
            "node-1": {"state": "PostDrained", "startedAt": "2026-03-13T04:32:00Z", "finishedAt": "2026-03-13T04:55:00Z"},
            "node-2": {"state": "PreDraining", "startedAt": "2026-03-13T04:56:00Z"},
            "node-3": {"state": "ImagePreloaded"},
        },
        "waitingFor": [
            {"what": "PreDrainJob", "object": "Job harvester-system/up-pre-drain-node-2", "message": "node node-2: two VMs\nare left",
             "since": "2026-03-13T04:56:10Z", "deadline": "2026-03-13T05:26:10Z"},
        ],
    })
}

fn node(name: &str, ready: bool) -> Value {
    json!({"metadata": {"name": name, "labels": {"node-role.kubernetes.io/control-plane": "true", "harvesterhci.io/managed": "true"}},
        "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        "nodeInfo": {"osImage": "Harvester v1.7.1", "kubeletVersion": "v1.33.3+rke2r1", "architecture": "", "bootID": "",
            "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "systemUUID": ""}}})
}

fn snapshot(plan: &UpgradePlan, nodes: &[Value]) -> Snapshot {
    let mut snapshot = Snapshot::empty(now());
    snapshot.add("plans", serde_json::to_value(plan).unwrap()).unwrap();
    for node in nodes {
        snapshot.add("nodes", node.clone()).unwrap();
    }
    snapshot
}

#[allow(clippy::needless_pass_by_value, reason = "json! makes values")]
fn view(status: Value) -> StatusView {
    let plan = plan(status);
    let nodes = ["node-1", "node-2", "node-3"].map(|name| node(name, true));
    of_plan(&snapshot(&plan, &nodes), &plan)
}

fn shown(view: &StatusView, width: usize) -> String {
    text(
        view,
        Layout {
            width,
            style: Style::default(),
        },
    )
}

#[test]
fn a_view_has_the_phase_the_times_the_nodes_and_what_they_wait_for() {
    let view = view(status());
    assert_eq!(view.assessment, Assessment::Progressing);
    assert_eq!(
        (view.from.as_deref(), view.to.as_deref()),
        (Some("v1.7.1"), Some("v1.8.0"))
    );
    assert!((50..90).contains(&view.percent), "{}", view.percent);
    assert!(view.estimated_end_earliest < view.estimated_end && view.estimated_end < view.estimated_end_latest);
    assert_eq!(view.elapsed_seconds, Some(3771));
    let first = &view.nodes[0];
    assert_eq!(
        (first.name.as_str(), first.assessment),
        ("node-2", NodeAssessment::Progressing)
    );
    assert_eq!(first.role.as_deref(), Some("control-plane"));
    assert_eq!(first.message.as_deref(), Some("node node-2: two VMs are left"));
    assert_eq!(first.since, "2026-03-13T04:56:10Z".parse().ok());
    assert!(first.estimated_seconds.is_some_and(|left| left > 300));
    assert_eq!(view.nodes[2].estimated_seconds, None);
    let cluster = view.phases.iter().find(|phase| phase.name == "ClusterUpgrade").unwrap();
    assert_eq!((cluster.elapsed_seconds, cluster.ended.is_some()), (Some(600), true));
}

#[test]
fn text_fits_every_width_and_messages_break_no_table() {
    let view = view(status());
    for width in [60, 80, 120, 200] {
        let text = shown(&view, width);
        assert!(
            text.lines().all(|line| line.chars().count() <= width),
            "{width}:\n{text}"
        );
        assert!(text.contains("two VMs are left"), "{text}");
    }
    let text = shown(&view, 100);
    assert!(
        text.starts_with("UpgradePlan up  v1.7.1 → v1.8.0\nAssessment:    Progressing\n"),
        "{text}"
    );
    assert!(text.contains("Nodes: 1 in progress, 1 pending, 1 done"), "{text}");
    // Text of other programs does not steer the terminal.
    let mut hostile = view;
    hostile.nodes[0].name = "n\u{1b}[2J\r\nx".to_owned();
    assert!(!shown(&hostile, 80).contains('\u{1b}'));
}

#[test]
fn nodes_that_need_attention_come_first_and_quiet_ones_are_counted() {
    let mut status = status();
    status["nodeUpgradeStatuses"] = (0..40)
        .map(|i| {
            (
                format!("node-{i:02}"),
                json!({"state": if i == 33 { "PreDrainFailed" } else { "ImagePreloaded" }}),
            )
        })
        .collect();
    let text = shown(&view(status), 100);
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("node-")).collect();
    assert_eq!(rows.len(), 11, "{text}");
    assert!(rows[0].starts_with("node-33"), "{text}");
    assert!(text.contains("and 29 more"), "{text}");
}

#[test]
fn an_overdue_wait_is_a_stall_and_so_is_a_node_that_is_not_ready_for_no_reason() {
    let mut late = status();
    late["waitingFor"][0]["deadline"] = json!("2026-03-13T04:59:00Z");
    let late = view(late);
    assert_eq!(
        (late.assessment, late.nodes[0].assessment),
        (Assessment::Stalled, NodeAssessment::Stalled)
    );
    assert!(shown(&late, 100).contains("for 1m"), "{}", shown(&late, 100));
    let plan = plan(status());
    let nodes = [node("node-1", false), node("node-2", false), node("node-3", true)];
    let view = of_plan(&snapshot(&plan, &nodes), &plan);
    assert_eq!(
        (view.nodes[0].name.as_str(), view.nodes[0].assessment),
        ("node-1", NodeAssessment::Stalled)
    );
    assert_eq!(
        view.nodes[1].assessment,
        NodeAssessment::Progressing,
        "a node that is being upgraded may be down"
    );
}

#[test]
fn a_paused_node_and_another_upgrade_are_said() {
    let mut paused = status();
    paused["nodeUpgradeStatuses"]["node-2"] = json!({"state": "UpgradePaused", "message": "paused"});
    paused["waitingFor"] =
        json!([{"what": "Paused", "message": "node upgrade paused: node-2", "since": "2026-03-13T04:56:10Z"}]);
    let paused = view(paused);
    assert_eq!(paused.assessment, Assessment::Paused);
    assert!(shown(&paused, 100).contains("if paused nodes are resumed now"));
    let mut behind = status();
    behind["waitingFor"] =
        json!([{"what": "OlderUpgrade", "message": "another upgrade runs", "since": "2026-03-13T04:56:10Z"}]);
    let behind = view(behind);
    assert_eq!((behind.assessment, behind.estimated_end), (Assessment::Waiting, None));
}

#[test]
fn an_upgrade_that_ended_says_how_long_it_took_and_why_it_failed() {
    let mut failed = status();
    failed["currentPhase"] = json!("Failed");
    failed["phaseTransitionTimestamps"]
        .as_array_mut()
        .unwrap()
        .push(change("Failed", "04:58:00"));
    failed["conditions"] = json!([{"type": "Progressing", "status": "True", "reason": "Failed", "message": "the disk is full",
        "lastTransitionTime": "2026-03-13T04:58:00Z"}]);
    let failed = view(failed);
    assert_eq!(
        (failed.assessment, failed.message.as_deref()),
        (Assessment::Failed, Some("the disk is full"))
    );
    let text = shown(&failed, 80);
    assert!(
        text.contains("Took:          1:00:51") && text.contains("not ended"),
        "{text}"
    );
    assert!(!text.contains("Estimated end"), "{text}");
}

#[test]
fn vms_are_moved_moving_stopped_and_to_be_restored() {
    let plan = plan(status());
    let mut snapshot = snapshot(&plan, &[]);
    let migration = |name: &str, phase: &str, created: &str| {
        json!({"metadata": {"name": name, "namespace": "default", "creationTimestamp": format!("2026-03-13T{created}Z")},
            "spec": {"vmiName": "a"}, "status": {"phase": phase}})
    };
    for (name, phase, created) in [
        ("before", "Succeeded", "01:00:00"),
        ("one", "Succeeded", "04:40:00"),
        ("two", "Running", "04:59:00"),
        ("three", "Failed", "04:50:00"),
    ] {
        snapshot.add("migrations", migration(name, phase, created)).unwrap();
    }
    let list = |uid: &str, vms: &str| {
        json!({"metadata": {"name": api::names::restore_config_map("up"), "namespace": "harvester-system",
            "ownerReferences": [{"apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "name": "up", "uid": uid}]},
            "data": {"node-1": vms}})
    };
    snapshot.add("config_maps", list("u1", "default/a, default/b")).unwrap();
    snapshot.add("config_maps", list("another", "default/c")).unwrap();
    let running =
        json!({"metadata": {"name": "a", "namespace": "default"}, "spec": {}, "status": {"phase": "Running"}});
    snapshot.add("vmis", running).unwrap();
    let view = of_plan(&snapshot, &plan);
    let vms = view.vms.clone().unwrap();
    assert_eq!((vms.moved, vms.moving, vms.failed_to_move, vms.stopped), (1, 1, 1, 2));
    assert_eq!(vms.to_be_restored, ["default/b"]);
    assert!(shown(&view, 80).contains("to be restored: default/b"));
}

#[test]
fn the_plan_that_runs_is_chosen_before_the_newest() {
    let named = |name: &str, created: &str, phase: &str| {
        let mut plan = plan(json!({"currentPhase": phase}));
        plan.metadata.name = Some(name.to_owned());
        plan.metadata.creation_timestamp =
            serde_json::from_value(json!(format!("2026-03-{created}T00:00:00Z"))).unwrap();
        plan
    };
    let plans = [
        named("old", "01", "Succeeded"),
        named("runs", "02", "NodeUpgrading"),
        named("new", "03", "Failed"),
    ];
    let name = |plan: Option<&UpgradePlan>| plan.and_then(|plan| plan.metadata.name.clone());
    assert_eq!(name(choose(&plans, None)).as_deref(), Some("runs"));
    assert_eq!(name(choose(&plans, Some("old"))).as_deref(), Some("old"));
    assert_eq!(name(choose(&plans, Some("none"))), None);
    assert_eq!(
        name(choose(&[plans[0].clone(), plans[2].clone()], None)).as_deref(),
        Some("new")
    );
}

#[test]
fn each_change_is_a_line_with_the_percent_and_no_change_is_none() {
    let before = view(status());
    let percent = before.percent;
    assert_eq!(changes(Some(&before), &before), [""; 0]);
    let first = changes(None, &before);
    assert!(
        first[0].starts_with(&format!(
            "05:00:00   {percent} %  Progressing, phase NodeUpgrading; estimated end "
        )),
        "{first:?}"
    );
    assert!(
        first
            .iter()
            .any(|line| line.ends_with("waits: node node-2: two VMs are left")),
        "{first:?}"
    );
    let mut after = status();
    after["nodeUpgradeStatuses"]["node-2"]["state"] = json!("PreDrained");
    let after = changes(Some(&before), &view(after));
    assert_eq!(after.len(), 1, "{after:?}");
    assert!(after[0].ends_with("%  node node-2: PreDrained"), "{after:?}");
}

#[test]
fn a_cluster_of_which_nothing_is_known_is_shown_without_what_is_missing() {
    let plan = plan(status());
    let view = of_plan(&Snapshot::unknown(now(), "forbidden"), &plan);
    assert_eq!((view.vms.clone(), view.nodes.len()), (None, 3));
    assert_eq!(view.nodes[0].version, None);
    assert!(shown(&view, 60).contains("node-2"));
}
