//! Events are stored once, as core v1, and seen through two APIs. Renames fields; decides nothing.

use serde_json::{Map, Value};

/// core v1 name, events.k8s.io/v1 name.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn renamed(event: &Value, api_version: &str, name_of: impl Fn(&str) -> Option<&'static str>) -> Value {
    let mut out = Map::new();
    for (key, value) in event.as_object().into_iter().flatten() {
        let key = name_of(key).map_or_else(|| key.clone(), str::to_owned);
        out.insert(key, value.clone());
    }
    out.insert("apiVersion".into(), Value::String(api_version.into()));
    Value::Object(out)
}

/// A stored event as `events.k8s.io/v1` shows it.
pub(crate) fn to_events_v1(core: &Value) -> Value {
    renamed(core, "events.k8s.io/v1", |key| {
        RENAMED.iter().find(|(from, _)| *from == key).map(|(_, to)| *to)
    })
}

/// An `events.k8s.io/v1` event as it is stored.
pub(crate) fn to_core(event: &Value) -> Value {
    renamed(event, "v1", |key| {
        RENAMED.iter().find(|(_, to)| *to == key).map(|(from, _)| *from)
    })
}
