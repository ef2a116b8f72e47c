//! The percent and the estimated end that the manager writes, against the end that comes: over clusters of many shapes and speeds.

use std::time::Duration;

use api::{Phase, UpgradePlan};
use cli::rehearsal::{Scenario, beginning, manager_user};
use clock::Clock;
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;
use world::{Durations, Shape};

use crate::{
    run::{Case, definitions, in_paused_time, run},
    timeline,
    watched::Watched,
};

/// What a plan said at a time.
struct Said {
    at: Timestamp,
    percent: i32,
    end: Option<Timestamp>,
    spread: Option<(Timestamp, Timestamp)>,
    first_node_is_done: bool,
    phase: Option<Phase>,
}

/// An upgrade of a cluster, as its plan followed it.
fn follow(shape: Shape, durations: Durations) -> Vec<Said> {
    in_paused_time(async {
        let scenario = Scenario {
            shape,
            durations,
            definitions: definitions(),
            ..Scenario::default()
        };
        let rehearsal = Watched::start(scenario, Clock::simulated(beginning(), 1.0)).await;
        let _manager = rehearsal.start_only_manager();
        let name = rehearsal.create(&rehearsal.plan(true, &[])).await.unwrap().name_any();
        let mut said = Vec::new();
        let ended = |plan: &UpgradePlan| {
            let status = plan.status.clone().unwrap_or_default();
            if let Some(progress) = &status.progress {
                let time = |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
                    time.as_ref().map(|time| time.0)
                };
                said.push(Said {
                    at: rehearsal.clock.now(),
                    percent: progress.percent,
                    end: time(&progress.estimated_end),
                    spread: time(&progress.estimated_end_earliest).zip(time(&progress.estimated_end_latest)),
                    first_node_is_done: status
                        .node_upgrade_statuses
                        .values()
                        .any(|node| node.finished_at.is_some()),
                    phase: plan.phase(),
                });
            }
            plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty()
        };
        let plan = rehearsal
            .follow(&name, Some(Duration::from_hours(72)), ended)
            .await
            .unwrap();
        assert_eq!(plan.phase(), Some(Phase::Succeeded));
        said
    })
}

fn shape(nodes: usize, vms: usize, seed: u64) -> Shape {
    Shape {
        nodes,
        vms,
        seed,
        ..Shape::default()
    }
}

/// A cluster on which each thing takes between six tenths and nine fifths of what is usual, by the seed.
fn uneven(seed: u64) -> Durations {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut durations = Durations::default();
    for duration in [
        &mut durations.iso_import,
        &mut durations.preload,
        &mut durations.cluster_upgrade,
        &mut durations.rancher_wait,
        &mut durations.first_node,
        &mut durations.pre_drain,
        &mut durations.drain,
        &mut durations.rke2,
        &mut durations.post_drain,
        &mut durations.reboot,
        &mut durations.uncordon,
        &mut durations.single_node,
        &mut durations.cleanup,
        &mut durations.migration_per_gib,
        &mut durations.rebuild,
    ] {
        *duration = duration.mul_f64(0.6 + 1.2 * rng.f64());
    }
    durations
}

/// Servers that take long to boot.
fn bare_metal() -> Durations {
    Durations {
        reboot: Duration::from_mins(12),
        ..Durations::default()
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[test]
fn the_end_is_known_within_15_percent_once_the_first_node_is_done_and_within_35_before() {
    let cases = [
        ("1 node, 2 VMs", shape(1, 2, 1), Durations::default()),
        ("3 nodes, 6 VMs", shape(3, 6, 1), Durations::default()),
        ("3 nodes, 60 VMs", shape(3, 60, 2), Durations::default()),
        (
            "4 nodes, witness",
            Shape {
                witness: true,
                ..shape(4, 8, 3)
            },
            Durations::default(),
        ),
        ("5 nodes, 20 VMs", shape(5, 20, 4), Durations::default()),
        ("8 nodes, 40 VMs", shape(8, 40, 5), Durations::default()),
        ("12 nodes, 24 VMs", shape(12, 24, 6), Durations::default()),
        ("3 nodes, slow boots", shape(3, 6, 7), bare_metal()),
        ("6 nodes, slow boots", shape(6, 12, 8), bare_metal()),
        ("1 node, uneven", shape(1, 4, 9), uneven(9)),
        ("3 nodes, uneven", shape(3, 6, 10), uneven(10)),
        ("3 nodes, uneven", shape(3, 12, 11), uneven(11)),
        ("5 nodes, uneven", shape(5, 10, 12), uneven(12)),
        ("8 nodes, uneven", shape(8, 16, 13), uneven(13)),
    ];
    let (mut all_before, mut all_after, mut within, mut samples) = (Vec::new(), Vec::new(), 0, 0);
    println!(
        "cluster              | took     | error before the first node is done | after it | percent, most wrong | in spread"
    );
    for (name, shape, durations) in cases {
        let said = follow(shape, durations);
        let end = said
            .iter()
            .find(|said| said.phase == Some(Phase::Succeeded))
            .map(|said| said.at)
            .unwrap();
        let total = end.duration_since(beginning()).as_secs_f64();
        let (mut before, mut after, mut wrong, mut inside, mut looks) = (Vec::new(), Vec::new(), 0.0_f64, 0, 0);
        let mut last = 0;
        for said in &said {
            assert!(said.percent >= last, "{name}: {last} % and then {} %", said.percent);
            assert_eq!(
                said.percent == 100,
                said.phase == Some(Phase::Succeeded),
                "{name}: {} %",
                said.percent
            );
            last = said.percent;
            let elapsed = said.at.duration_since(beginning()).as_secs_f64();
            wrong = wrong.max((f64::from(said.percent) - 100.0 * elapsed / total).abs());
            // A minute before the end, no estimate is of use.
            let left = end.duration_since(said.at).as_secs_f64();
            let Some(estimate) = said.end.filter(|_| left >= 60.0) else {
                continue;
            };
            let error = estimate.duration_since(end).as_secs_f64().abs() / left;
            if said.first_node_is_done {
                after.push(error)
            } else {
                before.push(error)
            };
            let (earliest, latest) = said.spread.unwrap();
            assert!(earliest <= estimate && estimate <= latest, "{name}");
            looks += 1;
            inside += u32::from(earliest <= end && end <= latest);
        }
        println!(
            "{name:<20} | {:>5.0} min | {:>33.1} % | {:>6.1} % | {wrong:>17.1} % | {:>5.0} %",
            total / 60.0,
            100.0 * median(&mut before),
            100.0 * median(&mut after),
            100.0 * f64::from(inside) / f64::from(looks)
        );
        all_before.extend(before);
        all_after.extend(after);
        within += inside;
        samples += looks;
    }
    let (before, after) = (100.0 * median(&mut all_before), 100.0 * median(&mut all_after));
    println!(
        "median error of what is left: {before:.1} % before, {after:.1} % after; {within} of {samples} ends in the spread"
    );
    assert!(
        before < 35.0 && after < 15.0,
        "{before:.1} % before, {after:.1} % after"
    );
}

#[test]
fn the_progress_is_never_all_that_a_write_changes() {
    let ended = run(&Case {
        restore_vm: true,
        ..Case::three_nodes()
    });
    let writes = ended.store.history().into_iter();
    let writes = writes
        .filter(|write| write.resource.plural == "upgradeplans" && write.code < 300 && write.user == manager_user());
    let without = |plan: &Value| {
        let mut plan = plan.clone();
        plan["status"]["progress"] = Value::Null;
        for field in ["resourceVersion", "managedFields"] {
            plan["metadata"][field] = Value::Null;
        }
        plan
    };
    let plans: Vec<Value> = writes
        .filter_map(|write| write.object)
        .map(|plan| without(&plan))
        .collect();
    assert!(plans.len() > 30, "{}", plans.len());
    for pair in plans.windows(2) {
        assert_ne!(pair[0], pair[1], "a write changed the progress alone");
    }
    let last = timeline::versions(&ended.store, "upgradeplans").pop().unwrap().1;
    assert_eq!(
        last["status"]["progress"],
        serde_json::json!({"percent": 100, "step": "done"})
    );
}
