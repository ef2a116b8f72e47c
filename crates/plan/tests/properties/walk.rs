//! Walks an upgrade to where a test begins.

use api::Phase;

use crate::model::Model;

/// Lets the upgrade go on, the outside doing always the first thing it could, until `there`.
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
    panic!("never got there: {:#?}", model.seen.plan.status)
}

pub(crate) fn go_on(model: &mut Model) {
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
    model.phase().is_some_and(Phase::is_terminal) && model.seen.plan.metadata.finalizers.is_none()
}
