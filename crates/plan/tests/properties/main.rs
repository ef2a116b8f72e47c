//! What must hold for every cluster and every order of events.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it measured"
)]

mod adoption;
mod announcements;
mod arbitrary;
mod before_and_after;
mod chart_endings;
mod chart_values;
mod charts;
mod cluster_upgrade;
mod conditions;
mod drafts;
mod eligibility;
mod ending_programs;
mod environment;
mod gates;
mod hook_answers;
mod model;
mod node_times;
mod node_waits;
mod nodes;
mod notes;
mod observed_nodes;
mod old_notes;
mod overtaken;
mod parts;
mod preflight;
mod preload;
mod program_waits;
mod reboots;
mod recovery;
mod release;
mod release_digests;
mod repo_certificate;
mod restore_at_end;
mod retries;
mod retry;
mod small;
mod stopping;
mod take_over;
mod throttling;
mod tries;
mod turns_of_plans;
mod walk;
mod weaknesses;

use std::collections::BTreeMap;

use api::{NodeState, Phase, reasons};
use environment::Step;
use model::Model;
use plan::{node::Stage, observed::ObservedChart};
use proptest::prelude::*;

/// How many cases a property is tried with: `PROPTEST_CASES`, or as many as are usual for it.
fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let cases = asked.and_then(|text| text.parse().ok()).unwrap_or(usual);
    ProptestConfig {
        cases,
        ..ProptestConfig::default()
    }
}

/// Follows an upgrade to its end; `choose` picks what happens next, `look` sees every state.
fn follow(model: Model, choices: &[u8], look: impl FnMut(&Model, &Model)) -> Model {
    follow_with(model, choices, |_| (), look)
}

/// The same, with something that happens before each look of the manager.
fn follow_with(
    mut model: Model,
    choices: &[u8],
    mut before_each: impl FnMut(&mut Model),
    mut look: impl FnMut(&Model, &Model),
) -> Model {
    let mut choices = choices.iter().cycle();
    for _ in 0..2000 {
        before_each(&mut model);
        let before = model.clone();
        let decision = model.decide();
        model.apply(&decision);
        look(&before, &model);
        let ended = model.phase().is_some_and(Phase::is_terminal) && model.observed.plan.metadata.finalizers.is_none();
        if ended {
            return model;
        }
        let possible = model.possible();
        if let Some(at) = choices
            .next()
            .map(|choice| usize::from(*choice) % possible.len().max(1))
            && let Some(step) = possible.get(at)
        {
            model.happen(step);
        }
    }
    panic!("the upgrade did not end: {:#?}", model.observed.plan.status)
}

fn states(model: &Model) -> Vec<(String, Option<Stage>)> {
    let status = model.observed.plan.status.clone().unwrap_or_default();
    let nodes = status.node_upgrade_statuses.into_iter();
    nodes
        .map(|(name, node)| (name, node.state().and_then(NodeState::parse).map(Stage::of)))
        .collect()
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn a_perfect_world_always_ends_in_succeeded(nodes in 1usize..6, choices in proptest::collection::vec(any::<u8>(), 1..200)) {
        let model = follow(Model::new(nodes), &choices, |_, _| ());
        prop_assert_eq!(model.phase(), Some(Phase::Succeeded));
        let status = model.observed.plan.status.as_ref().unwrap();
        prop_assert_eq!(status.phase_transition_timestamps.len(), 17);
        prop_assert!(status.node_upgrade_statuses.values().all(|node| node.state() == Some("ImageCleaned")));
        prop_assert!(status.waiting_for.is_empty());
    }

    #[test]
    fn a_manager_that_dies_between_metadata_and_status_loses_nothing(
        nodes in 1usize..5, choices in proptest::collection::vec(any::<u8>(), 1..200), deaths in any::<u64>()
    ) {
        let mut looks = 0u32;
        let model = follow_with(Model::new(nodes), &choices, |model| {
            looks = looks.wrapping_add(1);
            if deaths.rotate_left(looks) & 1 == 1 {
                model.apply_metadata(&model.decide());
            }
        }, |_, _| ());
        prop_assert_eq!(model.phase(), Some(Phase::Succeeded));
    }

    #[test]
    fn everything_is_restored(nodes in 2usize..5, choices in proptest::collection::vec(any::<u8>(), 1..100)) {
        let before = Model::new(nodes).observed;
        let after = follow(Model::new(nodes), &choices, |_, _| ()).observed;
        prop_assert_eq!(after.replenishment_interval, before.replenishment_interval);
        prop_assert_eq!(after.descheduler_enabled, before.descheduler_enabled);
        prop_assert_eq!(after.workload_update_methods, before.workload_update_methods);
        let methods = |charts: &BTreeMap<String, ObservedChart>| charts.values().map(|chart| chart.methods.clone()).collect::<Vec<_>>();
        prop_assert_eq!(methods(&after.charts), methods(&before.charts));
        prop_assert!(after.charts.values().all(|chart| !chart.paused));
        prop_assert_eq!(after.cluster.clone().unwrap().upgrade_strategy, before.cluster.unwrap().upgrade_strategy);
        prop_assert_eq!(after.cluster.unwrap().provision_generation, 1);
        prop_assert!(after.nodes.values().all(|n| n.pending_os_image.is_none() && n.boot_id_before_upgrade.is_none()));
        prop_assert!(after.suc_plans.is_empty() && after.iso_image.is_none());
    }

    #[test]
    fn nothing_ever_goes_back(nodes in 1usize..5, choices in proptest::collection::vec(any::<u8>(), 1..200)) {
        follow(Model::new(nodes), &choices, |before, after| {
            assert!(before.phase() <= after.phase(), "{:?} → {:?}", before.phase(), after.phase());
            for ((name, old), (_, new)) in states(before).into_iter().zip(states(after)) {
                assert!(old <= new, "{name}: {old:?} → {new:?}");
            }
        });
    }

    #[test]
    fn at_most_one_node_is_disrupted(nodes in 1usize..6, choices in proptest::collection::vec(any::<u8>(), 1..200)) {
        follow(Model::new(nodes), &choices, |_, after| assert!(after.disrupted().len() <= 1, "{:?}", after.disrupted()));
    }

    #[test]
    fn deciding_is_a_function_and_a_decision_carried_out_is_not_taken_again(
        nodes in 1usize..4, choices in proptest::collection::vec(any::<u8>(), 1..100)
    ) {
        follow(Model::new(nodes), &choices, |before, _| {
            assert_eq!(before.decide(), before.decide());
            // Once every change of ours has shown, another look changes nothing: no write at rest.
            let mut settled = before.clone();
            for _ in 0..40 {
                let decision = settled.decide();
                settled.apply(&decision);
            }
            let again = settled.decide();
            assert_eq!(Some(&again.status), settled.observed.plan.status.as_ref());
            assert_eq!((again.annotations.len(), again.actions.as_slice()), (0, [].as_slice()));
        });
    }

    #[test]
    fn at_every_moment_of_an_unfinished_upgrade_something_is_waited_for_or_done(
        nodes in 1usize..4, choices in proptest::collection::vec(any::<u8>(), 1..100)
    ) {
        follow(Model::new(nodes), &choices, |before, after| {
            let moved = before.phase() != after.phase();
            let waits = after.observed.plan.status.as_ref().is_some_and(|status| !status.waiting_for.is_empty());
            let ended = after.phase().is_some_and(Phase::is_terminal);
            assert!(moved || waits || ended, "{:#?}", after.observed.plan.status);
        });
    }
}

#[test]
fn a_wait_past_its_deadline_is_shown_as_stalled_and_continues_when_it_ends() {
    let mut model = Model::new(3);
    while model.phase() != Some(Phase::ISODownloading) || model.observed.iso_image.is_none() {
        let decision = model.decide();
        model.apply(&decision);
        for step in model.possible() {
            if matches!(step, Step::Answer(_)) {
                model.happen(&step);
            }
        }
    }
    let decision = model.decide();
    model.apply(&decision);
    let deadline = decision.wake_at.expect("the deadline is a reason to look again");
    model.now = deadline;
    let late = model.decide();
    let degraded = late
        .status
        .conditions
        .iter()
        .find(|c| c.type_ == reasons::DEGRADED)
        .unwrap();
    assert_eq!(
        (degraded.status.as_str(), degraded.reason.as_str()),
        ("True", reasons::STALLED)
    );
    assert!(
        degraded.message.contains("image up-iso is being imported"),
        "{}",
        degraded.message
    );
    assert_eq!(late.events.len(), 1);
    model.apply(&late);
    assert_eq!(model.decide().events, [], "the warning is given once");
    model.happen(&Step::Import);
    let done = model.decide();
    assert!(
        done.status
            .conditions
            .iter()
            .any(|c| c.type_ == reasons::DEGRADED && c.status == "False")
    );
    assert_eq!(done.status.current_phase.as_deref(), Some("ISODownloaded"));
}

#[test]
fn who_is_warned_of_a_stall_is_not_warned_again_when_only_its_message_changes() {
    let mut model = Model::new(3);
    let rancher = |model: &Model| {
        let waits = model.observed.plan.status.iter().flat_map(|status| &status.waiting_for);
        waits.into_iter().any(|wait| wait.what == "RancherUpdate")
    };
    walk::until(&mut model, rancher);
    model.now += model.observed.settings.deadlines.rancher;
    let mut warnings = 0;
    for words in [
        "draining node node-1",
        "draining node node-1: 3 pods left",
        "2 pods left",
    ] {
        model.observed.cluster.as_mut().unwrap().message = Some(words.to_owned());
        let decision = model.decide();
        let degraded = decision.status.conditions.iter().find(|c| c.type_ == reasons::DEGRADED);
        assert!(degraded.unwrap().message.contains(words), "{degraded:?}");
        warnings += decision.events.len();
        model.apply(&decision);
    }
    assert_eq!(warnings, 1);
}
