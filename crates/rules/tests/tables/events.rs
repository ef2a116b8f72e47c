//! An event as data, and as the object that the API server stores.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use rules::{
    PlanEvent, Severity,
    event_object::{EventReporter, build},
};

const MANAGER: EventReporter<'_> = EventReporter {
    component: "manager",
    host: None,
};

fn object(reporter: EventReporter<'_>, event: &PlanEvent) -> Event {
    let plan = ObjectMeta {
        name: Some("up".to_owned()),
        uid: Some("u-1".to_owned()),
        resource_version: Some("7".to_owned()),
        ..ObjectMeta::default()
    };
    build(&plan, reporter, Timestamp::UNIX_EPOCH, event)
}

#[test]
fn an_event_says_how_serious_it_is_why_and_in_which_try() {
    let normal = PlanEvent::normal("PhaseCompleted", "Completed phase RepoCreate");
    assert_eq!(normal.severity, Severity::Normal);
    assert_eq!(
        (normal.reason.as_str(), normal.message.as_str()),
        ("PhaseCompleted", "Completed phase RepoCreate")
    );
    assert_eq!(normal.attempt, 0);
    let warning = PlanEvent::warning("Stalled", "it takes long").in_attempt(2);
    assert_eq!(warning.severity, Severity::Warning);
    assert_eq!(
        (warning.reason.as_str(), warning.message.as_str()),
        ("Stalled", "it takes long")
    );
    assert_eq!(warning.attempt, 2);
}

#[test]
fn every_field_that_people_and_tools_read_is_filled_in() {
    let node = EventReporter {
        component: "restore-vm",
        host: Some("node-1"),
    };
    let event = object(node, &PlanEvent::warning("Stalled", "it takes long"));
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    let name = event.metadata.name.unwrap();
    assert!(name.starts_with("up.") && name.len() == "up.".len() + 16, "{name}");
    let about = event.involved_object;
    assert_eq!(about.api_version.as_deref(), Some("management.harvesterhci.io/v1beta1"));
    assert_eq!(about.kind.as_deref(), Some("UpgradePlan"));
    assert_eq!((about.name.as_deref(), about.uid.as_deref()), (Some("up"), Some("u-1")));
    assert_eq!(about.resource_version.as_deref(), Some("7"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.reason.as_deref(), Some("Stalled"));
    assert_eq!(event.message.as_deref(), Some("it takes long"));
    let source = event.source.unwrap();
    assert_eq!(
        (source.component.as_deref(), source.host.as_deref()),
        (Some("restore-vm"), Some("node-1"))
    );
    assert_eq!(event.reporting_component.as_deref(), Some("restore-vm"));
    assert_eq!(event.reporting_instance.as_deref(), Some("node-1"));
    assert_eq!(event.first_timestamp.map(|time| time.0), Some(Timestamp::UNIX_EPOCH));
    assert_eq!(event.last_timestamp.map(|time| time.0), Some(Timestamp::UNIX_EPOCH));
    assert_eq!(event.count, Some(1));
    let normal = object(MANAGER, &PlanEvent::normal("PhaseCompleted", "done"));
    assert_eq!(normal.type_.as_deref(), Some("Normal"));
}

#[test]
fn the_same_words_by_the_same_reporter_in_the_same_try_are_the_same_event() {
    let event = PlanEvent::normal("PhaseCompleted", "done");
    let name = |reporter: EventReporter<'_>, event: &PlanEvent| object(reporter, event).metadata.name;
    let on = |host: &'static str| EventReporter {
        component: "manager",
        host: Some(host),
    };
    let named = |words: &str| Some(format!("up.{}", &api::names::digest(words)[..16]));
    assert_eq!(name(MANAGER, &event), named("u-1/PhaseCompleted/done"));
    let second = event.clone().in_attempt(1);
    assert_eq!(
        name(MANAGER, &second),
        named("u-1/PhaseCompleted/done/after 1 failures")
    );
    assert_eq!(
        name(on("node-1"), &event),
        named("u-1/manager/node-1/PhaseCompleted/done")
    );
    assert_ne!(
        name(MANAGER, &event),
        name(MANAGER, &PlanEvent::normal("PhaseCompleted", "other"))
    );
    assert_ne!(
        name(MANAGER, &event),
        name(MANAGER, &PlanEvent::normal("Other", "done"))
    );
    assert_ne!(name(MANAGER, &event), name(on("node-1"), &event));
    assert_ne!(name(on("node-1"), &event), name(on("node-2"), &event));
}
