//! Plays one case: an upgrade that stops, a user who repairs the cause and continues, and the end.

use std::{collections::BTreeSet, time::Duration};

use api::{
    Component, Phase, UpgradePlan, annotations,
    foreign::kubevirt::{VirtualMachine, VirtualMachineInstanceMigration},
    reasons,
};
use cli::rehearsal::{Rehearsal, Scenario, beginning};
use clock::Clock;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use world::{Release, Troubles, troubles::JobFailure};

use super::{
    end::{self, Cluster, Vms},
    failure::{Failure, Stop},
    two_plans,
    ways::Way,
};
use crate::{
    invariants,
    run::{TEMPLATES, in_paused_time},
    user::{is_at, until_gone},
};

/// How long people take.
pub(super) const A_WHILE: Duration = Duration::from_secs(600);
/// Longer than anything takes to stop or to end.
pub(super) const LIMIT: Duration = Duration::from_secs(14 * 3600);
/// What follows a plan's end (garbage collection, VMs that start again) takes its time too.
const AFTERWARDS: Duration = Duration::from_secs(900);

/// Plays a case; how long it took from its beginning to its end, or everything that is not as it should be.
pub(super) fn play(failure: &Failure, way: Way) -> Result<String, Vec<String>> {
    in_paused_time(simulate(failure, way))
}

/// What a plan says of itself.
pub(super) fn words(plan: &UpgradePlan) -> String {
    let condition = plan.condition(reasons::PROGRESSING);
    let message = condition
        .map(|condition| condition.message.as_str())
        .unwrap_or_default();
    let phase = plan.phase().map_or("no phase", Phase::as_str);
    format!("{} is {phase}: {message}", plan.name_any())
}

async fn simulate(failure: &Failure, way: Way) -> Result<String, Vec<String>> {
    let clock = Clock::simulated(beginning(), 1.0);
    let scenario = Scenario {
        shape: failure.cluster.shape(),
        troubles: failure.troubles(),
        definitions: crate::run::definitions(),
        ..Scenario::default()
    };
    let rehearsal = Rehearsal::start_again(scenario, clock, &TEMPLATES).await.unwrap();
    let before = Cluster::of(&rehearsal);
    let violations = invariants::watch_past(&rehearsal, way.tries_again(), past_the_limit(&failure.troubles()));
    let manager = rehearsal.start_only_manager();
    // What goes wrong later may be there already, and some of it admission would see.
    let name = insist(&rehearsal, failure, &failure.paused()).await;
    stop(&rehearsal, failure, &name).await?;
    let last = continue_after(&rehearsal, failure, way, name).await?;
    let ended = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty();
    let Some(plan) = rehearsal.follow(&last, Some(LIMIT), ended).await else {
        return Err(vec![not_ended(&rehearsal, &last).await]);
    };
    if way == Way::StartsVms {
        repair(&rehearsal, &failure.troubles()).await;
        start_vms(&rehearsal, &before).await;
    }
    let took = rehearsal.clock.now().duration_since(beginning());
    rehearsal.clock.sleep(AFTERWARDS).await;
    manager.abort();
    let mut wrong = violations.lock().unwrap().clone();
    if plan.phase() != Some(Phase::Succeeded) {
        wrong.push(words(&plan));
    }
    let release = match way {
        Way::UpgradesToAnother => Release::of(two_plans::ANOTHER),
        _ => failure.cluster.shape().release(),
    };
    let vms = if failure.cluster.leaves_vms_stopped() {
        Vms::Stopped
    } else {
        Vms::AsBefore
    };
    wrong.extend(end::shortcomings(&before, &Cluster::of(&rehearsal), &release, vms));
    if wrong.is_empty() {
        Ok(format!("{}:{:02} h", took.as_hours(), took.as_mins() % 60))
    } else {
        Err(wrong)
    }
}

/// The plan that a person creates.
pub(super) fn wanted(rehearsal: &Rehearsal, failure: &Failure, paused: &[String]) -> UpgradePlan {
    let mut plan = rehearsal.plan(failure.cluster.restores_vms(), paused);
    failure.ask(&mut plan.spec);
    plan
}

/// Creates a plan, as admission allows it; its name.
pub(super) async fn create(rehearsal: &Rehearsal, failure: &Failure) -> String {
    let created = rehearsal.create(&wanted(rehearsal, failure, &[])).await;
    created.unwrap().name_any()
}

/// Creates a plan that admission refuses as things are; its name.
async fn insist(rehearsal: &Rehearsal, failure: &Failure, paused: &[String]) -> String {
    let created = rehearsal.create_unchecked(wanted(rehearsal, failure, paused)).await;
    created.unwrap().name_any()
}

/// Removes the cause, and what it left behind that nothing else would remove: budgets that keep pods from being evicted,
/// pods that hang.
async fn repair(rehearsal: &Rehearsal, troubles: &Troubles) {
    rehearsal.set_troubles(Troubles::default());
    for trouble in troubles.jobs.iter().filter(|job| job.failure == JobFailure::Hangs) {
        for pod in rehearsal.objects("", "pods") {
            let of_job = Component::of(&pod.metadata) == Some(trouble.component);
            if of_job && pod.data["status"]["phase"] == "Running" {
                let namespace = pod.namespace().unwrap_or_default();
                let pods: Api<Pod> = Api::namespaced(rehearsal.server.client(), &namespace);
                pods.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
            }
        }
    }
    // A migration that does not end is cancelled by deleting it.
    for vm in troubles.migrations.keys() {
        let (namespace, name) = vm.split_once('/').unwrap();
        let migrations: Api<VirtualMachineInstanceMigration> = Api::namespaced(rehearsal.server.client(), namespace);
        for migration in migrations.list(&ListParams::default()).await.unwrap() {
            if migration.spec.vmi_name.as_deref() == Some(name) {
                let how = DeleteParams::default();
                migrations.delete(&migration.name_any(), &how).await.unwrap();
            }
        }
    }
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(rehearsal.server.client(), "default");
    for node in &troubles.blocked_drains {
        let how = DeleteParams::default();
        budgets.delete(&format!("stubborn-{node}"), &how).await.unwrap();
    }
}

/// Starts the VMs that ran before.
async fn start_vms(rehearsal: &Rehearsal, before: &Cluster) {
    for (namespace, name) in before.running() {
        let vms: Api<VirtualMachine> = Api::namespaced(rehearsal.server.client(), namespace);
        let patch = json!({"spec": {"runStrategy": "Always"}});
        let patched = vms.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.unwrap();
    }
}

pub(super) async fn not_ended(rehearsal: &Rehearsal, name: &str) -> String {
    match rehearsal.read(name).await {
        Ok(plan) => format!("it does not end; {}", words(&plan)),
        Err(_) => format!("{name} is gone"),
    }
}

/// Follows the plan until it stops as it should.
async fn stop(rehearsal: &Rehearsal, failure: &Failure, name: &str) -> Result<(), Vec<String>> {
    if !matches!(failure.stop, Stop::Troubles(..)) {
        // The webhook refuses to delete a plan that runs: who insists takes it away, and that before the moment comes.
        rehearsal.take_admission_away().await.unwrap();
    }
    let stopped = match &failure.stop {
        Stop::Troubles(_, [Way::Waits] | [Way::StartsVms]) => return Ok(()),
        // On its way to its end a plan that fails may wait beyond a deadline.
        Stop::Troubles(_, ways) if *ways != Way::STALLED => rehearsal.follow(name, Some(LIMIT), has_ended).await,
        Stop::Troubles(..) => rehearsal.follow(name, Some(LIMIT), has_stopped).await,
        Stop::DeletedAt(phase) => {
            let entered = |plan: &UpgradePlan| plan.phase() == Some(*phase) || has_ended(plan);
            rehearsal.follow(name, Some(LIMIT), entered).await
        }
        Stop::DeletedAtNode(node, state) => {
            let is_there = |plan: &UpgradePlan| is_at(plan, node, *state) || has_ended(plan);
            rehearsal.follow(name, Some(LIMIT), is_there).await
        }
    };
    match stopped {
        Some(plan) if plan.phase() == Some(Phase::Succeeded) => Err(vec!["it was not stopped".to_owned()]),
        Some(plan) => stopped_where_it_should(failure, &plan),
        None => Err(vec![format!("it never stopped: {}", not_ended(rehearsal, name).await)]),
    }
}

/// A case plays what its name says: the plan has stopped in the phase that it is about. What must hold before a phase begins
/// fails when the one before it is complete.
fn stopped_where_it_should(failure: &Failure, plan: &UpgradePlan) -> Result<(), Vec<String>> {
    let Stop::Troubles(..) = &failure.stop else {
        return Ok(());
    };
    let status = plan.status.as_ref();
    let history = status
        .into_iter()
        .flat_map(|status| &status.phase_transition_timestamps);
    let mut phases = history.filter_map(|change| change.phase.parse::<Phase>().ok());
    let last = phases.rfind(|phase| !phase.is_terminal());
    let found = last.and_then(plan::pipeline::find);
    let Some((entry, next)) = found else {
        return Err(vec![format!("it stopped in no phase: {}", words(plan))]);
    };
    let is_between = last == Some(entry.completed);
    let in_next = next.filter(|_| is_between).map(|next| next.active);
    if [Some(entry.active), in_next].contains(&failure.phase()) {
        return Ok(());
    }
    Err(vec![format!("it stopped after {}: {}", entry.name, words(plan))])
}

/// The plan that was deleted was where the case says, not further.
fn deleted_where_it_should(failure: &Failure, plan: &UpgradePlan) -> Result<(), Vec<String>> {
    let was_there = match &failure.stop {
        Stop::Troubles(..) => true,
        Stop::DeletedAt(phase) => plan.phase() == Some(*phase),
        Stop::DeletedAtNode(node, state) => is_at(plan, node, *state),
    };
    if was_there {
        return Ok(());
    }
    Err(vec![format!("it was deleted elsewhere: {}", words(plan))])
}

/// The plan has failed and everything is restored, or it waits beyond a deadline. A plan that succeeded has ended too.
fn has_stopped(plan: &UpgradePlan) -> bool {
    let ended = has_ended(plan);
    let degraded = plan.condition(reasons::DEGRADED);
    ended || degraded.is_some_and(|condition| condition.status == "True" && condition.reason == reasons::STALLED)
}

/// The plan has ended, and everything is restored.
pub(super) fn has_ended(plan: &UpgradePlan) -> bool {
    plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty()
}

/// Machines that Rancher lets past its limit: it cordons them though another one is being upgraded, and no client can keep it
/// from doing so.
fn past_the_limit(troubles: &Troubles) -> BTreeSet<String> {
    let nodes = troubles.unhealthy_machines.iter().chain(&troubles.failed_machine_plans);
    nodes.cloned().collect()
}

/// Asks for another try of a plan, and waits until it begins.
pub(super) async fn try_again(rehearsal: &Rehearsal, name: &str) {
    ask(rehearsal, name).await;
    let resumed = |plan: &UpgradePlan| plan.phase() != Some(Phase::Failed);
    rehearsal.follow(name, Some(LIMIT), resumed).await;
}

/// Asks for another try of a plan.
pub(super) async fn ask(rehearsal: &Rehearsal, name: &str) {
    let plans: Api<UpgradePlan> = Api::all(rehearsal.server.client());
    let patch = json!({"metadata": {"annotations": {annotations::RETRY: "1"}}});
    let patched = plans.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.unwrap();
}

/// A user repairs the cause and continues; returns the plan that must succeed.
async fn continue_after(
    rehearsal: &Rehearsal,
    failure: &Failure,
    way: Way,
    name: String,
) -> Result<String, Vec<String>> {
    let plans: Api<UpgradePlan> = Api::all(rehearsal.server.client());
    let deleted = !matches!(failure.stop, Stop::Troubles(..));
    if matches!(failure.ways(), [_]) {
        return Ok(name);
    }
    if !deleted {
        rehearsal.clock.sleep(A_WHILE).await;
        repair(rehearsal, &failure.troubles()).await;
        rehearsal.clock.sleep(A_WHILE).await;
    }
    match way {
        Way::Waits | Way::StartsVms => Ok(name),
        Way::Retries => {
            try_again(rehearsal, &name).await;
            Ok(name)
        }
        Way::Recreates | Way::CreatesSecond if deleted || way == Way::Recreates => {
            let is_over = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal);
            if !deleted && !rehearsal.read(&name).await.is_ok_and(|plan| is_over(&plan)) {
                // It refuses to delete a plan that waits, and an additional one.
                rehearsal.take_admission_away().await.unwrap();
            }
            let deleted = plans.delete(&name, &DeleteParams::default()).await.unwrap();
            if let Some(plan) = deleted.left() {
                deleted_where_it_should(failure, &plan)?;
            }
            let second = if way == Way::CreatesSecond {
                Some(create(rehearsal, failure).await)
            } else {
                None
            };
            let gone = until_gone(rehearsal, &name);
            let too_long = rehearsal.clock.sleep(LIMIT);
            tokio::select! {
                biased;
                () = gone => {}
                () = too_long => return Err(vec![format!("the deletion does not end: {}", not_ended(rehearsal, &name).await)]),
            }
            match second {
                Some(second) => Ok(second),
                None => {
                    rehearsal.clock.sleep(A_WHILE).await;
                    Ok(create(rehearsal, failure).await)
                }
            }
        }
        // Beside a plan that waits admission refuses another one.
        Way::Recreates | Way::CreatesSecond if failure.ways() == Way::STALLED => {
            Ok(insist(rehearsal, failure, &[]).await)
        }
        Way::Recreates | Way::CreatesSecond => Ok(create(rehearsal, failure).await),
        Way::RetriesAfterAnother | Way::RetriesAfterAFailure | Way::IsRefusedThenRetries | Way::UpgradesToAnother => {
            two_plans::continue_after(rehearsal, failure, way, name).await
        }
        Way::IsRefusedThenRecreates => {
            ask(rehearsal, &name).await;
            let is_refused = |plan: &UpgradePlan| has_ended(plan) && words(plan).contains("is not the recorded one");
            if rehearsal.follow(&name, Some(LIMIT), is_refused).await.is_none() {
                return Err(vec![not_ended(rehearsal, &name).await]);
            }
            Box::pin(continue_after(rehearsal, failure, Way::Recreates, name)).await
        }
    }
}
