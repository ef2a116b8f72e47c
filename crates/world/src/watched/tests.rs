//! What the watch and the responses to writes deliver, in either order.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;
use crate::index;

fn object(name: &str, version: u64) -> ConfigMap {
    let metadata = json!({"namespace": "default", "name": name, "uid": name, "resourceVersion": version.to_string()});
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

fn names(state: &State<ConfigMap>) -> Vec<&str> {
    state.objects.keys().map(|key| key.1.as_str()).collect()
}

fn with(names: &[(&str, u64)]) -> State<ConfigMap> {
    let mut state = State::indexed_by(index::none);
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
    state.learn(&Arc::new(object("gone", 6)));
    state.apply(Event::Init);
    state.learn(&Arc::new(object("c", 8)));
    state.apply(Event::InitApply(object("a", 1)));
    state.apply(Event::InitDone);
    assert_eq!(
        names(&state),
        ["a", "c"],
        "b and gone were known before the list began, and c was written after it"
    );
}

#[test]
fn objects_are_found_by_what_they_are_now() {
    let mut state =
        State::indexed_by(|map: &ConfigMap| map.data.iter().flatten().map(|(_, value)| value.clone()).collect());
    let with = |name: &str, version: u64, value: &str| ConfigMap {
        data: Some([("k".to_owned(), value.to_owned())].into()),
        ..object(name, version)
    };
    state.apply(Event::Apply(with("a", 1, "x")));
    state.apply(Event::Apply(with("b", 2, "x")));
    state.apply(Event::Apply(with("a", 3, "y")));
    let names = |state: &State<ConfigMap>, by: &str| -> Vec<String> {
        state
            .found
            .get(by)
            .into_iter()
            .flatten()
            .map(|key| key.1.clone())
            .collect()
    };
    assert_eq!(
        (names(&state, "x"), names(&state, "y")),
        (vec!["b".to_owned()], vec!["a".to_owned()])
    );
    state.apply(Event::Delete(with("a", 4, "y")));
    assert_eq!(state.found.len(), 1, "nothing is left of what is gone");
    state.apply(Event::Init);
    state.apply(Event::InitApply(with("c", 5, "z")));
    state.apply(Event::InitDone);
    assert_eq!((names(&state, "x").len(), names(&state, "z").len()), (0, 1));
}
