//! Walks an upgrade to where a test begins.

use api::{JobType, NodeState, Phase, annotations, names};
use plan::{Decision, observed::JobOutcome};

use crate::model::Model;

/// Advances the upgrade, with the first possible change of the cluster each time, until `there`.
pub(crate) fn until(model: &mut Model, there: impl Fn(&Model) -> bool) {
    for _ in 0..2000 {
        if there(model) {
            return;
        }
        let decision = model.decide();
        model.apply(&decision);
        if there(model) {
            return;
        }
        if let Some(step) = model.possible().first().cloned() {
            model.happen(&step);
        }
    }
    panic!("never got there: {:#?}", model.observed.plan.status)
}

pub(crate) fn run_one_step(model: &mut Model) {
    let decision = model.decide();
    model.apply(&decision);
    if let Some(step) = model.possible().first().cloned() {
        model.happen(&step);
    }
}

pub(crate) fn at(phase: Phase) -> impl Fn(&Model) -> bool {
    move |model| model.phase() >= Some(phase)
}

pub(crate) fn ended(model: &Model) -> bool {
    model.phase().is_some_and(Phase::is_terminal) && model.observed.plan.metadata.finalizers.is_none()
}

pub(crate) fn state(model: &Model, node: &str) -> Option<NodeState> {
    let status = model.observed.plan.status.as_ref()?;
    NodeState::parse(status.node_upgrade_statuses.get(node)?.state()?)
}

pub(crate) fn reason<'a>(model: &'a Model, node: &str) -> Option<&'a str> {
    let status = model.observed.plan.status.as_ref()?;
    status.node_upgrade_statuses.get(node)?.reason.as_deref()
}

pub(crate) fn is_at(node: &'static str, wanted: NodeState) -> impl Fn(&Model) -> bool {
    move |model| state(model, node) == Some(wanted)
}

pub(crate) fn job(step: JobType, node: &str) -> String {
    names::node_job("up", step, node)
}

pub(crate) fn fail(model: &mut Model, name: &str) {
    let outcome = JobOutcome::Failed {
        reason: "BackoffLimitExceeded".into(),
        message: "it broke".into(),
    };
    model.observed.jobs.get_mut(name).unwrap().outcome = outcome;
}

pub(crate) fn retry(model: &mut Model, request: &str) {
    let known = model.observed.plan.metadata.annotations.get_or_insert_default();
    known.insert(annotations::RETRY.to_owned(), request.to_owned());
}

pub(crate) fn decide_and_apply(model: &mut Model) -> Decision {
    let decision = model.decide();
    model.apply(&decision);
    decision
}
