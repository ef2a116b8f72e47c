//! Right before the first change: what is there is recorded, and what the checks say about it that block nothing.
//!
//! None of it keeps an upgrade from starting: what cannot be read is left out, and a record that cannot be stored is done without.

use api::{Wait, names, reasons};

use crate::{
    decision::{Action, Need},
    draft::{Draft, Outcome},
    observed::Fetched,
};
use rules::PlanEvent;

/// Records the cluster once, and what the checks found once in each try that comes here.
pub fn look(draft: &mut Draft<'_>) -> Outcome {
    let observed = draft.observed;
    if observed.recorded && draft.status().preflight.is_some() {
        return Outcome::Done;
    }
    if let Fetched::Failed { error, .. } = &observed.facts.before {
        return without(draft, &error.clone());
    }
    let name = names::record_config_map(draft.plan_name());
    let object = format!("ConfigMap {}/{name}", names::HARVESTER_NAMESPACE);
    let message = "what is there before the upgrade is being recorded";
    let waiting = (Wait::Preflight, object.clone(), message);
    let found = match draft.ask(Need::Before, &observed.facts.before, waiting) {
        Ok(found) => found,
        Err(noted) => return noted.into(),
    };
    draft.record().preflight.get_or_insert_with(|| found.preflight.clone());
    match &found.not_stored {
        _ if observed.recorded => Outcome::Done,
        Some(why) => without(draft, why),
        None => {
            draft.act(Action::StoreRecord);
            draft.wait(Wait::Preflight, Some(object), message).into()
        }
    }
}

/// The upgrade begins without a record.
fn without(draft: &mut Draft<'_>, why: &str) -> Outcome {
    if !draft.observed.recorded {
        let text = format!(
            "What is there before the upgrade could not be recorded ({why}): status.postflight stays empty; to compare afterwards, \
             save a snapshot now with `upgrade-toolkit snapshot -o FILE`, and pass it to `upgrade-toolkit postflight --before`"
        );
        draft.event(PlanEvent::warning(reasons::NOT_RECORDED, text));
    }
    Outcome::Done
}
