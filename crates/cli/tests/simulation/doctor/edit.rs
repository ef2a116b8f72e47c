//! Changes of a snapshot: what the simulated cluster cannot play is written into a picture of it.

use jiff::SignedDuration;
use serde_json::{Value, json};
use snapshot::Snapshot;

use super::play;

/// A snapshot that is being changed.
pub(crate) struct Edit(pub(crate) Snapshot);

impl Edit {
    /// Some time passes in which nothing changes.
    pub(crate) fn later(mut self, minutes: i64) -> Self {
        self.0.taken_at += SignedDuration::from_mins(minutes);
        self
    }

    /// When the snapshot was taken, and so many minutes before that.
    pub(crate) fn ago(&self, minutes: i64) -> String {
        (self.0.taken_at - SignedDuration::from_mins(minutes)).to_string()
    }

    /// The node in flight, else the first.
    pub(crate) fn node(&self) -> String {
        let plan = play::plan(&self.0).unwrap();
        let statuses = plan.status.iter().flat_map(|status| &status.node_upgrade_statuses);
        let mut statuses = statuses.into_iter();
        let found = statuses.find(|(_, entry)| entry.progress().stage().is_in_flight());
        found.map_or_else(|| "node-1".to_owned(), |(name, _)| name.clone())
    }

    /// The name of the plan.
    pub(crate) fn plan(&self) -> String {
        play::plan(&self.0).and_then(|plan| plan.metadata.name.clone()).unwrap()
    }

    /// With one more object.
    pub(crate) fn with(mut self, field: &str, object: Value) -> Self {
        self.0
            .add(field, object)
            .unwrap_or_else(|error| panic!("{field}: {error}"));
        self
    }

    /// With objects of a list changed.
    pub(crate) fn change(mut self, field: &str, change: impl Fn(&mut Value)) -> Self {
        let mut whole = serde_json::to_value(&self.0).unwrap();
        let mut parts = field.split('_');
        let first = parts.next().unwrap_or_default().to_owned();
        let key = parts.fold(first, |text, part| text + &part[..1].to_uppercase() + &part[1..]);
        let list = whole[&key]["Ok"].as_array_mut().unwrap_or_else(|| panic!("no {key}"));
        assert!(!list.is_empty(), "{field} is empty");
        list.iter_mut().for_each(change);
        self.0 = serde_json::from_value(whole).unwrap();
        self
    }

    /// The name of an object of which this holds, as `namespace/name`.
    pub(crate) fn name(&self, field: &str, holds: impl Fn(&Value) -> bool) -> (String, String) {
        let whole = serde_json::to_value(&self.0).unwrap();
        let list = whole[field]["Ok"].as_array().cloned().unwrap_or_default();
        let found = list
            .iter()
            .find(|object| holds(object))
            .unwrap_or_else(|| panic!("no such object of {field}"));
        let text = |key: &str| found["metadata"][key].as_str().unwrap_or_default().to_owned();
        (text("namespace"), text("name"))
    }
}

/// The object of this name is changed, others are not.
pub(crate) fn only(name: &str, change: impl Fn(&mut Value)) -> impl Fn(&mut Value) {
    move |object| {
        if object["metadata"]["name"] == name {
            change(object);
        }
    }
}

/// A condition.
pub(crate) fn condition(type_: &str, status: &str, since: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "lastTransitionTime": since, "message": message, "reason": "Injected"})
}
