//! The percent and the estimated end, over the recorded upgrade of three nodes and over what can go another way.

use api::{UpgradePlan, UpgradeProgress};
use jiff::{SignedDuration, Timestamp};
use rules::{
    estimate::Size,
    progress::{Forecast, NodeForecast, forecast},
};
use serde_json::{Value, json};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_773_374_229 + seconds).unwrap()
}

/// The recorded upgrade: when each phase was entered, in seconds.
const PHASES: [(&str, i64); 17] = [
    ("Initializing", 0),
    ("Initialized", 1),
    ("ISODownloading", 1),
    ("ISODownloaded", 285),
    ("RepoCreating", 285),
    ("RepoCreated", 290),
    ("MetadataPopulating", 290),
    ("MetadataPopulated", 291),
    ("ImagePreloading", 292),
    ("ImagePreloaded", 893),
    ("ClusterUpgrading", 894),
    ("ClusterUpgraded", 1809),
    ("NodeUpgrading", 1810),
    ("NodeUpgraded", 5617),
    ("CleaningUp", 5617),
    ("CleanedUp", 5750),
    ("Succeeded", 5751),
];
/// Its nodes: when each was in which state.
const NODES: [(&str, [(&str, i64); 5]); 3] = [
    (
        "node-1",
        [
            ("PreDraining", 2530),
            ("PreDrained", 2600),
            ("PostDraining", 3500),
            ("WaitingReboot", 3740),
            ("PostDrained", 3960),
        ],
    ),
    (
        "node-2",
        [
            ("PreDraining", 3970),
            ("PreDrained", 4040),
            ("PostDraining", 4310),
            ("WaitingReboot", 4560),
            ("PostDrained", 4800),
        ],
    ),
    (
        "node-3",
        [
            ("PreDraining", 4810),
            ("PreDrained", 4880),
            ("PostDraining", 5150),
            ("WaitingReboot", 5400),
            ("PostDrained", 5590),
        ],
    ),
];
const END: i64 = 5751;

/// The plan as it was at a time of the recorded upgrade.
fn recorded(seconds: i64) -> UpgradePlan {
    let entered: Vec<_> = PHASES.iter().filter(|(_, entered)| *entered <= seconds).collect();
    let history: Vec<Value> = entered
        .iter()
        .map(|(phase, entered)| json!({"phase": phase, "phaseTransitionTimestamp": at(*entered).to_string()}))
        .collect();
    let nodes: serde_json::Map<String, Value> = NODES
        .iter()
        .filter(|_| seconds >= 292)
        .map(|(name, states)| {
            let state = states.iter().rev().find(|(_, since)| *since <= seconds);
            let before = if seconds >= 893 {
                "ImagePreloaded"
            } else {
                "ImagePreloading"
            };
            let state = if seconds >= 5750 {
                "ImageCleaned"
            } else {
                state.map_or(before, |(state, _)| *state)
            };
            let mut node = json!({"state": state});
            for (field, index) in [("startedAt", 0), ("finishedAt", 4)] {
                if states[index].1 <= seconds {
                    node[field] = json!(at(states[index].1).to_string());
                }
            }
            ((*name).to_owned(), node)
        })
        .collect();
    plan(json!({
        "currentPhase": entered.last().map(|(phase, _)| *phase),
        "phaseTransitionTimestamps": history,
        "nodeUpgradeStatuses": nodes,
    }))
}

#[allow(clippy::needless_pass_by_value, reason = "json! makes values")]
fn plan(status: Value) -> UpgradePlan {
    serde_json::from_value(json!({
        "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "metadata": {"name": "up"},
        "spec": {"version": "v1.8.0"}, "status": status,
    }))
    .unwrap()
}

fn size() -> Size {
    Size {
        nodes: 3,
        ..Size::default()
    }
}

fn of(plan: &UpgradePlan, seconds: i64) -> Forecast {
    forecast(at(seconds), plan, &size())
}

#[test]
fn the_percent_of_the_recorded_upgrade_is_the_share_of_its_time_and_100_only_at_its_end() {
    let mut last = 0;
    for seconds in (0..=END).step_by(7).chain([END - 1, END]) {
        let percent = of(&recorded(seconds), seconds).percent;
        let truth = 100.0 * seconds as f64 / END as f64;
        assert!(
            (f64::from(percent) - truth).abs() < 6.0,
            "{percent} at {truth:.0} % of the time"
        );
        assert_eq!(percent == 100, seconds == END, "{percent} at {seconds} s");
        assert!(
            percent >= last || percent + 2 >= last,
            "from {last} to {percent} at {seconds} s"
        );
        last = percent;
    }
}

#[test]
fn the_end_of_the_recorded_upgrade_is_known_from_the_beginning_and_within_its_spread() {
    for seconds in (0..END).step_by(30) {
        let end = of(&recorded(seconds), seconds).end.unwrap();
        let left = (END - seconds) as f64;
        let error = (end.likely.duration_since(at(END)).as_secs_f64() / left).abs();
        assert!(
            error < 0.15 || left < 600.0,
            "{error:.2} wrong, {left} s before the end"
        );
        assert!(end.earliest <= end.likely && end.likely <= end.latest);
        assert!(end.earliest <= at(END) || left < 600.0, "{left} s before the end");
    }
}

#[test]
fn what_is_recorded_never_decreases() {
    let mut plan = recorded(3000);
    let status = plan.status.as_mut().unwrap();
    status.progress = Some(UpgradeProgress {
        percent: 77,
        ..UpgradeProgress::default()
    });
    assert_eq!(of(&plan, 3000).percent, 77);
    // A number that no version of ours writes must not make an upgrade look done.
    plan.status.as_mut().unwrap().progress = Some(UpgradeProgress {
        percent: 400,
        ..UpgradeProgress::default()
    });
    assert_eq!(of(&plan, 3000).percent, 99);
}

#[test]
fn a_plan_without_a_phase_is_at_nothing_and_has_no_end() {
    let none = of(&plan(json!({})), 0);
    assert_eq!((none.percent, none.end, none.step.as_str()), (0, None, "not started"));
}

#[test]
fn a_failed_upgrade_keeps_its_percent_and_has_no_end_however_late_it_is_asked() {
    let mut failed = recorded(3800);
    let status = failed.status.as_mut().unwrap();
    let before = forecast(at(3800), &recorded(3800), &size()).percent;
    status.current_phase = Some("Failed".to_owned());
    status.phase_transition_timestamps.push(
        serde_json::from_value(json!({"phase": "Failed", "phaseTransitionTimestamp": at(3800).to_string()})).unwrap(),
    );
    let late = of(&failed, 90_000);
    assert_eq!((late.percent, late.end, late.step.as_str()), (before, None, "failed"));
}

#[test]
fn a_step_that_takes_too_long_is_never_taken_for_the_next_one_and_the_end_moves_on() {
    // The first node is being emptied, and that does not end.
    let stuck = recorded(2540);
    let (early, late) = (of(&stuck, 2540), of(&stuck, 2540 + 7200));
    assert!(
        late.percent <= early.percent + 2,
        "{} and {}",
        early.percent,
        late.percent
    );
    let (early, late) = (early.end.unwrap(), late.end.unwrap());
    assert!(late.likely.duration_since(early.likely) > SignedDuration::from_secs(6900));
    assert!(late.latest.duration_since(late.likely) > early.latest.duration_since(early.likely));
}

#[test]
fn a_step_that_is_quicker_than_expected_brings_the_end_nearer() {
    let mut quick = recorded(2540);
    quick
        .status
        .as_mut()
        .unwrap()
        .node_upgrade_statuses
        .reach("node-1", api::NodeState::WaitingReboot);
    let (usual, quick) = (of(&recorded(2540), 2540), of(&quick, 2540));
    assert!(quick.end.unwrap().likely < usual.end.unwrap().likely);
    assert!(quick.percent > usual.percent);
}

#[test]
fn each_node_has_an_estimate_of_its_own() {
    let nodes = of(&recorded(4100), 4100).nodes;
    assert_eq!(nodes["node-1"], NodeForecast::Over);
    let NodeForecast::Running(left) = nodes["node-2"] else {
        panic!("{:?}", nodes["node-2"])
    };
    let NodeForecast::Pending(whole) = nodes["node-3"] else {
        panic!("{:?}", nodes["node-3"])
    };
    assert!(left < whole, "{left:?} {whole:?}");
    assert!((whole.as_secs() - 800).abs() < 100, "{whole:?}");
}

#[test]
fn a_node_that_left_the_cluster_is_not_waited_for() {
    let mut without = recorded(4100);
    let nodes = &mut without.status.as_mut().unwrap().node_upgrade_statuses;
    nodes.set_reason("node-3", Some(api::reasons::NODE_REMOVED), None);
    let (with, without) = (of(&recorded(4100), 4100), of(&without, 4100));
    assert_eq!(without.nodes["node-3"], NodeForecast::Over);
    assert!(with.end.unwrap().likely.duration_since(without.end.unwrap().likely) > SignedDuration::from_secs(600));
}

#[test]
fn an_upgrade_behind_another_one_has_no_end() {
    let mut blocked = recorded(0);
    blocked.status.as_mut().unwrap().waiting_for = serde_json::from_value(
        json!([{"what": "OlderUpgrade", "object": "UpgradePlan other", "since": at(0).to_string()}]),
    )
    .unwrap();
    assert_eq!(of(&blocked, 100).end, None);
}

#[test]
fn the_step_says_which_node_does_what() {
    let step = |seconds: i64| of(&recorded(seconds), seconds).step;
    assert_eq!(step(100), "importing the ISO");
    assert_eq!(step(300), "loading images onto nodes: 0 of 3 done");
    assert_eq!(
        step(4100),
        "upgrading nodes: 1 of 3 done, node-2 is drained and updates RKE2"
    );
    assert_eq!(step(5700), "removing stale images from nodes: 0 of 3 done");
    assert_eq!(step(END), "done");
}
