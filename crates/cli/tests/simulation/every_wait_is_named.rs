//! At every moment an unfinished upgrade says what it waits for.

use api::{Component, JobType, WaitingFor};
use rstest::rstest;
use serde_json::Value;
use world::{Troubles, troubles::RepositoryTrouble};

use crate::{
    failure::failing_job,
    run::Case,
    status_history::{HOUR, StatusHistory, follow},
    timeline::holds,
    user::User,
};

/// Progressing's message is the waits in one line, and there is always one: else the plan has just entered a phase.
fn assert_every_moment_has_a_name(history: &StatusHistory) {
    let (mut before, mut known) = (Value::Null, None);
    for (at, version) in &history.statuses {
        let status = &version["status"];
        let entered = std::mem::replace(&mut before, status["currentPhase"].clone()) != status["currentPhase"];
        if ["Succeeded", "Failed"].iter().any(|end| status["currentPhase"] == *end) {
            continue;
        }
        let waits = StatusHistory::waits(version);
        assert!(entered || !waits.is_empty(), "at {at} no wait is shown: {status:#}");
        // The first is the manager's own; programs go from step to step and begin again with each.
        let same = |one: &WaitingFor, other: &WaitingFor| (&one.what, &one.object) == (&other.what, &other.object);
        if let (Some(wait), Some(earlier)) = (waits.first(), known.as_ref())
            && same(wait, earlier)
        {
            assert_eq!(
                wait.since, earlier.since,
                "at {at}: what is still waited for began when it began"
            );
        }
        known = waits.first().cloned();
        let line: Vec<String> = waits
            .iter()
            .map(|wait| wait.message.clone().unwrap_or_default())
            .collect();
        assert_eq!(holds(version, "Progressing"), Some(line.join("; ").as_str()), "at {at}");
        for wait in &waits {
            assert!(wait.since.0 <= *at, "at {at}: {wait:?}");
            let unlimited = ["Paused", "BehindPaused", "OlderUpgrade", "More"].contains(&wait.what.as_str());
            assert!(wait.deadline.is_some() || unlimited, "at {at}: {wait:?}");
            assert!(wait.object.is_some() || wait.what == "PutBack", "at {at}: {wait:?}");
        }
    }
}

fn three_nodes_with_vms() -> Case {
    let mut case = Case::three_nodes();
    case.scenario.shape.vms = 6;
    case
}

fn tried_again() -> Case {
    let mut case = Case {
        user: vec![User::FixesAndRetries],
        ..Case::three_nodes()
    };
    case.scenario.troubles = failing_job(Component::NodeUpgrade, Some(JobType::PostDrain));
    case
}

fn never_ready() -> Case {
    let mut case = Case::three_nodes();
    case.scenario.troubles = Troubles {
        repository: Some(RepositoryTrouble::NeverReady),
        ..Troubles::default()
    };
    case
}

#[rstest]
#[case::three_nodes(three_nodes_with_vms())]
#[case::single_node(Case::single_node())]
#[case::paused(Case::paused())]
#[case::tried_again(tried_again())]
#[case::never_ready(never_ready())]
fn at_every_write_of_an_unfinished_upgrade_something_is_waited_for_or_a_phase_was_entered(#[case] case: Case) {
    let history = follow(&case, 6 * HOUR);
    assert!(history.statuses.len() > 5, "{} statuses", history.statuses.len());
    assert_every_moment_has_a_name(&history);
}
