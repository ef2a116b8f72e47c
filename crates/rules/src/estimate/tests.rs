//! Estimates by size, and by what finished nodes took.

use api::UpgradePlan;
use serde_json::json;

use super::*;

#[allow(clippy::needless_pass_by_value, reason = "json! makes values")]
fn plan(nodes: serde_json::Value) -> UpgradePlan {
    serde_json::from_value(json!({
        "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "metadata": {"name": "up"},
        "spec": {"version": "v1.8.0"}, "status": {"nodeUpgradeStatuses": nodes},
    }))
    .unwrap()
}

fn by_size(size: &Size) -> Expected {
    Expected::by_size(&plan(json!({})).spec, size)
}

fn learned(plan: &UpgradePlan, size: &Size) -> Expected {
    Expected::of(&plan.spec, &plan.status.as_ref().unwrap().node_upgrade_statuses, size)
}

fn size(nodes: usize) -> Size {
    Size {
        nodes,
        ..Size::default()
    }
}

fn node(began: &str, ended: &str) -> serde_json::Value {
    let at = |time: &str| format!("2026-03-13T{time}Z");
    json!({"state": "PostDrained", "startedAt": at(began), "finishedAt": at(ended)})
}

#[test]
fn three_nodes_take_as_long_as_the_recorded_upgrade() {
    let expected = by_size(&size(3));
    let nodes = expected.lead + expected.first.whole() + 2.0 * expected.next.whole();
    let minutes = |seconds: f64| (seconds / 60.0).round();
    assert_eq!(
        [
            expected.iso,
            expected.preload,
            expected.cluster,
            nodes,
            expected.cleanup
        ]
        .map(minutes),
        [5.0, 10.0, 15.0, 64.0, 2.0]
    );
}

#[test]
fn more_vms_memory_volumes_and_images_take_longer() {
    let small = by_size(&size(4));
    let of = |size: Size| by_size(&size);
    assert!(of(Size { vms: 40, ..size(4) }).next.empty > small.next.empty);
    assert!(
        of(Size {
            vm_memory_bytes: 1 << 38,
            ..size(4)
        })
        .next
        .empty
            > small.next.empty + 400.0
    );
    assert!(
        of(Size {
            volumes: 100,
            ..size(4)
        })
        .next
        .settle
            > small.next.settle + 200.0
    );
    assert!(
        of(Size {
            image_bytes: Some(1 << 35),
            ..size(4)
        })
        .preload
            > small.preload
    );
}

#[test]
fn preload_in_waves_takes_a_wave_each_and_none_where_it_is_skipped() {
    let mut plan = plan(json!({}));
    let mut of = |concurrency: i64| {
        plan.spec.image_preload_option = Some(api::ImagePreloadOption {
            concurrency: Some(concurrency),
        });
        Expected::by_size(&plan.spec, &size(5)).preload
    };
    assert_eq!([of(0), of(2), of(1)], [600.0, 1800.0, 3000.0]);
    assert!(of(-1) < 60.0);
}

#[test]
fn what_finished_nodes_took_is_what_the_next_ones_take() {
    let three =
        json!({"a": node("01:00:00", "01:24:00"), "b": node("01:25:00", "01:53:00"), "c": {"state": "PreDraining"}});
    let learned = learned(&plan(three), &size(3));
    assert_eq!((learned.next.work() / 60.0).round(), 28.0);
    assert_eq!(learned.next.settle, 60.0);
    assert_eq!(learned.finished_nodes, 2);
}

#[test]
fn after_the_first_node_its_beginning_is_not_expected_again() {
    let one = |ended: &str| {
        learned(&plan(json!({"a": node("01:00:00", ended)})), &size(3))
            .next
            .work()
            / 60.0
    };
    assert_eq!(one("01:23:44").round(), 13.0);
    assert!(one("01:48:00") > 25.0, "twice as slow: {}", one("01:48:00"));
    assert!((9.0..13.5).contains(&one("01:13:00")), "{}", one("01:13:00"));
}

#[test]
fn a_node_that_left_or_was_there_already_teaches_nothing() {
    let there = json!({"a": node("01:00:00", "01:00:00"), "b": {"state": "PostDrained", "reason": reasons::NODE_REMOVED,
        "startedAt": "2026-03-13T01:00:00Z", "finishedAt": "2026-03-13T09:00:00Z"}});
    assert_eq!(learned(&plan(there), &size(3)), by_size(&size(3)));
}

#[test]
fn a_pause_between_two_nodes_is_no_measure() {
    let paused = json!({"a": node("01:00:00", "01:24:00"), "b": node("04:00:00", "04:14:00")});
    assert_eq!(
        learned(&plan(paused), &size(3)).next.settle,
        by_size(&size(3)).next.settle
    );
}

#[test]
fn memory_is_read_in_every_unit() {
    let of = |domain: serde_json::Value| memory_bytes(&serde_json::from_value(json!({"domain": domain})).unwrap());
    assert_eq!(of(json!({"memory": {"guest": "2Gi"}})), Some(2 << 30));
    assert_eq!(of(json!({"memory": {"guest": "512Mi"}})), Some(512 << 20));
    assert_eq!(
        of(json!({"resources": {"requests": {"memory": "1.5G"}}})),
        Some(1_500_000_000)
    );
    assert_eq!(of(json!({"memory": {"guest": "lots"}})), None);
    assert_eq!(of(json!({})), None);
}
