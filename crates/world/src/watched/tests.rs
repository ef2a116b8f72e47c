//! What the watch and the responses to writes deliver, in either order.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;

fn object(name: &str, version: u64) -> ConfigMap {
    let metadata = json!({"namespace": "default", "name": name, "uid": name, "resourceVersion": version.to_string()});
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

fn names(state: &State<ConfigMap>) -> Vec<&str> {
    state.objects.keys().map(|key| key.1.as_str()).collect()
}

fn with(names: &[(&str, u64)]) -> State<ConfigMap> {
    let mut state = State::default();
    state.apply(Event::Init);
    for (name, version) in names {
        state.apply(Event::InitApply(object(name, *version)));
    }
    state.apply(Event::InitDone);
    state
}

#[test]
fn an_answer_is_known_before_the_watch_reports_it() {
    let mut state = with(&[("a", 1)]);
    let changed = state.learn(&Arc::new(object("b", 2)));
    assert_eq!(changed.unwrap().1, "b");
    assert_eq!(names(&state), ["a", "b"]);
    assert!(state.apply(Event::Apply(object("b", 2))).is_empty());
}

#[test]
fn what_was_deleted_does_not_come_back_with_an_answer_that_is_late() {
    let mut state = with(&[("a", 1)]);
    let answer = Arc::new(object("a", 2));
    state.apply(Event::Apply(object("a", 2)));
    state.apply(Event::Delete(object("a", 3)));
    assert_eq!(state.learn(&answer), None);
    assert!(names(&state).is_empty());
}

#[test]
fn what_was_deleted_without_a_watch_is_gone_with_the_next_list() {
    let mut state = with(&[("a", 1)]);
    state.apply(Event::Apply(object("b", 5)));
    state.learn(&Arc::new(object("c", 6)));
    state.apply(Event::Init);
    state.apply(Event::InitApply(object("a", 1)));
    state.apply(Event::InitDone);
    assert_eq!(
        names(&state),
        ["a", "c"],
        "the watch reported b, and only an answer reported c"
    );
}
