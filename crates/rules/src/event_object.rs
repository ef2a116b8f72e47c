//! An event on a plan as the object that the API server stores.
//!
//! Its name is a digest of its content, its reporter and the attempt, so reporting it again, also after a restart, creates it
//! once.

use api::{UpgradePlan, names, quoted::printable};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;

use crate::{PlanEvent, Severity};

/// The reporter of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventReporter<'a> {
    /// The program.
    pub component: &'a str,
    /// The node it works for, if it works for one.
    pub host: Option<&'a str>,
}

/// The most characters of an event: programs repeat the output of tools and of the API server.
const LONGEST_TEXT: usize = 2_000;

/// The event, in namespace `default`: there `kubectl describe` looks for events of cluster-scoped objects. `plan` is
/// the metadata of the plan that it is about.
#[must_use]
pub fn build(plan: &ObjectMeta, reporter: EventReporter<'_>, at: Timestamp, event: &PlanEvent) -> Event {
    let name = plan.name.clone().unwrap_or_default();
    let uid = plan.uid.clone().unwrap_or_default();
    let EventReporter { component, host } = reporter;
    let mut said = format!("{}/{}", event.reason, event.message);
    if event.attempt > 0 {
        said = format!("{said}/after {} failures", event.attempt);
    }
    let digest = names::digest(&match host {
        None => format!("{uid}/{said}"),
        Some(host) => format!("{uid}/{component}/{host}/{said}"),
    });
    let severity = match event.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{}", &digest[..16])),
            namespace: Some(names::DEFAULT_NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(UpgradePlan::api_version(&()).into_owned()),
            kind: Some(UpgradePlan::kind(&()).into_owned()),
            name: Some(name),
            uid: Some(uid),
            resource_version: plan.resource_version.clone(),
            ..ObjectReference::default()
        },
        type_: Some(severity.to_owned()),
        reason: Some(event.reason.clone()),
        message: Some(printable(&event.message, LONGEST_TEXT)),
        source: Some(EventSource {
            component: Some(component.to_owned()),
            host: host.map(str::to_owned),
        }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: host.map(str::to_owned),
        first_timestamp: Some(Time(at)),
        last_timestamp: Some(Time(at)),
        count: Some(1),
        ..Event::default()
    }
}
