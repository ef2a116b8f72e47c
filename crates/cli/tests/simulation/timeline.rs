//! What was written when: the history of a run, as tests ask it.

use std::sync::{Arc, LazyLock};

use api::UpgradePlanStatus;
use apiserver::Store;
use jiff::Timestamp;
use regex::Regex;
use serde_json::{Value, json};

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

/// A text in which pods of Jobs are named without what their names have of the uid of their Job: each is another one.
pub(crate) fn without_pod_ids(text: &str) -> String {
    static POD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"-[0-9a-f]{5}(-[0-9]+)\b").unwrap());
    POD.replace_all(text, "-UID$1").into_owned()
}

/// A status without its times.
pub(crate) fn without_times(status: &Option<UpgradePlanStatus>) -> Value {
    let mut status = serde_json::to_value(status).unwrap();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
        condition["observedGeneration"] = Value::Null;
        condition["message"] = without_pod_ids(condition["message"].as_str().unwrap_or_default()).into();
    }
    for change in status["phaseTransitionTimestamps"].as_array_mut().into_iter().flatten() {
        change["phaseTransitionTimestamp"] = Value::Null;
        if let Some(message) = change["message"].as_str().map(without_pod_ids) {
            change["message"] = message.into();
        }
    }
    for (_, node) in status["nodeUpgradeStatuses"].as_object_mut().into_iter().flatten() {
        node["startedAt"] = json!(node["startedAt"].is_string());
        node["finishedAt"] = json!(node["finishedAt"].is_string());
        if let Some(message) = node["message"].as_str().map(without_pod_ids) {
            node["message"] = message.into();
        }
    }
    // How far a failed upgrade was, and when it would have ended, depends on when it failed.
    if status["progress"]["percent"] != 100 {
        status["progress"] = Value::Null;
    }
    for checks in ["preflight", "postflight"] {
        if status[checks].is_object() {
            status[checks]["at"] = Value::Null;
        }
    }
    // Each is another one; that there is one, and that it was used, is the same.
    for field in ["certificate", "secret"] {
        if status["repository"][field].is_string() {
            status["repository"][field] = json!("there");
        }
    }
    status
}
