//! What to do next: the table of contents of an upgrade.

use api::{Phase, UpgradePlan, UpgradePlanStatus, Wait, annotations, quoted::plain, reasons};
use jiff::Timestamp;

use crate::{
    decision::Decision,
    draft::{Draft, Outcome},
    observed::Observed,
    phase::{finalize, node_upgrade, release_digests, repo_create},
    pipeline::{self, Entry},
    retry,
    undo::{self, Ending},
};
use rules::PlanEvent;

const EXECUTABLE: (bool, &str, &str) = (true, reasons::EXECUTABLE, "");
const EXECUTED: (bool, &str, &str) = (false, reasons::EXECUTED, reasons::EXECUTED_MESSAGE);

/// Decides. The same time and the same observation always give the same decision.
#[must_use]
pub fn decide(now: Timestamp, observed: &Observed) -> Decision {
    let mut draft = Draft::new(now, observed);
    if observed.plan.metadata.deletion_timestamp.is_some() {
        return delete(draft);
    }
    let current = observed
        .plan
        .status
        .as_ref()
        .and_then(|status| status.current_phase.as_deref());
    let phase = match current.filter(|text| !text.is_empty()).map(str::parse::<Phase>) {
        None => None,
        Some(Ok(phase)) => Some(phase),
        Some(Err(unknown)) => {
            draft.degrade(format!("unknown phase: {}", unknown.0));
            return draft.finish(EXECUTABLE, true, None);
        }
    };
    if has_ended(observed.plan.status.as_ref(), phase) {
        if phase == Some(Phase::Failed) && retry::is_asked_for(&observed.plan) {
            return match another_active_plan(observed) {
                None => retry::resume(draft),
                Some(other) => postponed(draft, other),
            };
        }
        draft.set_finalizer(false);
        return draft.still_ended();
    }
    if waits_for_request(&observed.plan) {
        return left_by_another(draft);
    }
    if let Some(older) = older_active_plan(observed) {
        return blocked(draft, phase, older);
    }
    match phase {
        None => {
            draft.set_finalizer(true);
            draft.enter(Phase::Initializing);
            draft.finish(EXECUTABLE, true, None)
        }
        Some(Phase::Failed) => finalize::fail(draft),
        Some(phase) => match unknown_state(&draft) {
            Some(why) => {
                draft.degrade(why);
                draft.finish(EXECUTABLE, true, None)
            }
            None => advance(draft, phase),
        },
    }
}

/// How much of a state that is not ours is shown.
const LONGEST_STATE: usize = 100;

/// Why the plan does not continue: a node is in a state that this manager does not know, as after a downgrade. It may be in
/// the middle of its upgrade. So no Job is started and no hook is answered, for this node or another: two nodes would be in
/// flight. A node that left the cluster delays no other.
fn unknown_state(draft: &Draft<'_>) -> Option<String> {
    let mut nodes = draft.status().node_upgrade_statuses.iter();
    let is_unknown = |name: &String| draft.observed.nodes.contains_key(name) && draft.progress(name).is_unknown();
    let (name, entry) = nodes.find(|(name, _)| is_unknown(name))?;
    Some(format!(
        "unknown state of node {name}: {}; a newer manager may have written it: install that manager again to continue, \
         or delete this UpgradePlan and create another one",
        plain(entry.state().unwrap_or_default(), LONGEST_STATE)
    ))
}

/// Takes the plan one step further, if what the step is about holds.
fn advance(mut draft: Draft<'_>, phase: Phase) -> Decision {
    draft.set_finalizer(true);
    retry::note(&mut draft);
    // Every phase but the two terminal ones is in the table, and those are handled before.
    let Some((entry, next)) = pipeline::find(phase) else {
        return draft.unchanged();
    };
    let outcome = if phase == entry.active {
        run(&mut draft, entry)
    } else {
        continue_phase(&mut draft, entry, next)
    };
    match outcome {
        Outcome::Done if draft.status().current_phase.as_deref() == Some(Phase::Succeeded.as_str()) => {
            draft.finish(EXECUTED, false, Some(reasons::COMPLETED_MESSAGE.to_owned()))
        }
        Outcome::Done | Outcome::Wait(_) => draft.finish(EXECUTABLE, true, None),
        Outcome::Fail(message) => {
            draft.fail(&message);
            draft.finish(EXECUTABLE, true, Some(message))
        }
    }
}

fn run(draft: &mut Draft<'_>, entry: &Entry) -> Outcome {
    if entry.active > Phase::RepoCreating {
        repo_create::keep(draft);
    }
    if (Phase::ImagePreloading..=Phase::NodeUpgrading).contains(&entry.active) {
        release_digests::warn_of_old_repository(draft);
    }
    let outcome = (entry.run)(draft);
    if outcome == Outcome::Done {
        draft.enter(entry.completed);
    }
    outcome
}

fn continue_phase(draft: &mut Draft<'_>, entry: &Entry, next: Option<&Entry>) -> Outcome {
    let outcome = (entry.leave)(draft);
    if outcome != Outcome::Done {
        return outcome;
    }
    let Some(next) = next else {
        draft.enter(Phase::Succeeded);
        return Outcome::Done;
    };
    let outcome = (next.enter)(draft);
    if outcome == Outcome::Done {
        draft.enter(next.active);
    }
    outcome
}

/// Nothing is left to decide about the plan, whatever the cluster looks like.
#[must_use]
pub fn is_settled(plan: &UpgradePlan) -> bool {
    let tried_again = retry::is_asked_for(plan) && plan.phase() == Some(Phase::Failed);
    // A withdrawn retry request leaves its wait behind.
    let waits = plan
        .status
        .as_ref()
        .is_some_and(|status| !status.waiting_for.is_empty());
    has_ended(plan.status.as_ref(), plan.phase()) && !has_finalizer(plan) && !tried_again && !waits
}

/// The plan may still change the cluster: it has not ended, or its changes are not restored.
#[must_use]
pub fn is_active(plan: &UpgradePlan) -> bool {
    let over = plan.phase().is_some_and(Phase::is_terminal) || waits_for_request(plan);
    !over || has_finalizer(plan)
}

/// The plan carries our finalizer.
fn has_finalizer(plan: &UpgradePlan) -> bool {
    let mut finalizers = plan.metadata.finalizers.iter().flatten();
    finalizers.any(|finalizer| finalizer == annotations::FINALIZER)
}

/// Another manager has processed the plan without starting it, and no user has requested it since. We never leave a plan without
/// a phase, so it was another one; it may be years ago, and installing an operator must not start an upgrade.
#[must_use]
pub fn waits_for_request(plan: &UpgradePlan) -> bool {
    let Some(status) = &plan.status else { return false };
    let begun = status.current_phase.as_deref().is_some_and(|phase| !phase.is_empty());
    !begun && !status.conditions.is_empty() && !retry::is_asked_for(plan)
}

/// The plan has ended and all our changes are restored.
fn has_ended(status: Option<&UpgradePlanStatus>, phase: Option<Phase>) -> bool {
    let executed = status.is_some_and(|status| {
        status
            .conditions
            .iter()
            .any(|c| c.type_ == reasons::AVAILABLE && c.reason == reasons::EXECUTED)
    });
    executed && phase.is_some_and(Phase::is_terminal)
}

/// The plan that goes first, if it is not this one: the older one, by creation and then by uid, so that of any two
/// exactly one waits.
fn older_active_plan(observed: &Observed) -> Option<&str> {
    let metadata = &observed.plan.metadata;
    let mine = (
        metadata.creation_timestamp.as_ref().map(|time| time.0),
        metadata.uid.as_deref().unwrap_or_default(),
    );
    let active = observed.other_plans.iter().filter(|other| other.active);
    active
        .filter(|other| (other.created, other.uid.as_str()) < mine)
        .map(|other| other.name.as_str())
        .next()
}

/// Any other plan that runs or waits for its turn. A plan that has ended has given its turn away, however old it is.
fn another_active_plan(observed: &Observed) -> Option<&str> {
    let active = observed.other_plans.iter().find(|other| other.active);
    active.map(|other| other.name.as_str())
}

/// A retry waits for the plan that is running.
fn postponed(mut draft: Draft<'_>, other: &str) -> Decision {
    draft.set_finalizer(false);
    let message = format!("the retry of this plan begins when the upgrade {other:?} has ended");
    draft.wait(Wait::OtherUpgrade, Some(format!("UpgradePlan {other}")), message);
    draft.still_ended()
}

/// Says that the plan is not started, and how it can be.
fn left_by_another(mut draft: Draft<'_>) -> Decision {
    draft.set_finalizer(false);
    let name = draft.plan_name();
    let message = format!(
        "another manager left this plan without starting it: to start it, set annotation {} to a new value; else delete it",
        annotations::RETRY
    );
    draft.wait(Wait::StartRequest, Some(format!("UpgradePlan {name}")), &message);
    draft.finish((false, reasons::NOT_STARTED, &message), false, None)
}

/// Waits for an older plan to end.
fn blocked(mut draft: Draft<'_>, phase: Option<Phase>, older: &str) -> Decision {
    let message = format!("another upgrade {older:?} is in progress");
    draft.set_finalizer(true);
    if phase.is_none() {
        // Never an empty phase: others read it as an upgrade of unknown state.
        draft.enter(Phase::Initializing);
    }
    let was_blocked = draft
        .observed
        .plan
        .condition(reasons::AVAILABLE)
        .is_some_and(|c| c.reason == reasons::CONCURRENT_UPGRADE_BLOCKED && c.message == message);
    if !was_blocked {
        let text = format!("Blocked by in-progress upgrade {older:?}");
        draft.event(PlanEvent::warning(reasons::CONCURRENT_UPGRADE_BLOCKED, text));
    }
    // An upgrade has no fixed length, so waiting for one is never stalled by itself.
    let object = Some(format!("UpgradePlan {older}"));
    draft.wait(Wait::OlderUpgrade, object, &message);
    draft.finish((false, reasons::CONCURRENT_UPGRADE_BLOCKED, &message), true, None)
}

/// Restores what was changed, then removes the finalizer.
fn delete(mut draft: Draft<'_>) -> Decision {
    let ended = has_ended(draft.observed.plan.status.as_ref(), draft.observed.plan.phase());
    // A Job that was created just before has begun with its node, and that is not recorded yet.
    if draft.observed.plan.phase() == Some(Phase::NodeUpgrading) {
        node_upgrade::look_at_jobs(&mut draft);
    }
    if ended || draft.observed.plan.status.is_none() || undo::restore(&mut draft, Ending::Deletion) == Outcome::Done {
        draft.set_finalizer(false);
        return draft.unchanged();
    }
    draft.finish(EXECUTABLE, true, None)
}
