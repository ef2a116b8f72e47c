//! What was written when: the history of a run, as tests ask it.

use std::sync::Arc;

use apiserver::Store;
use jiff::Timestamp;
use serde_json::Value;

/// Every version that writes left of the objects of a kind, oldest first, each with its moment.
pub(crate) fn versions(store: &Store, plural: &str) -> Vec<(Timestamp, Arc<Value>)> {
    let writes = store.history().into_iter();
    writes
        .filter(|write| write.resource.plural == plural && write.code < 300)
        .filter_map(|write| Some((write.at, write.object?)))
        .collect()
}

/// When a plan entered a phase.
pub(crate) fn entered(plan: &Value, phase: &str) -> Option<Timestamp> {
    let history = plan["status"]["phaseTransitionTimestamps"].as_array()?;
    let change = history.iter().find(|change| change["phase"] == phase)?;
    change["phaseTransitionTimestamp"].as_str()?.parse().ok()
}

/// Whether a condition of an object is True, and its message.
pub(crate) fn holds<'a>(object: &'a Value, type_: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == type_)?;
    (condition["status"] == "True")
        .then(|| condition["message"].as_str())
        .flatten()
}
