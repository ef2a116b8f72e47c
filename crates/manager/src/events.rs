//! Events on a plan, each one once.
//!
//! An event's name is made from what it says, so telling it again, also after a restart, is telling it once.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use api::{UpgradePlan, names, reasons};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Api, Client, Resource, ResourceExt, api::PostParams};
use plan::{PlanEvent, Severity};

/// Tells events.
pub struct Recorder {
    events: Api<Event>,
    /// Names of events that are known to be there.
    told: Mutex<BTreeSet<String>>,
}

impl Recorder {
    /// Events of cluster-scoped objects live in namespace `default`, where `kubectl describe` looks for them.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            events: Api::namespaced(client, names::DEFAULT_NAMESPACE),
            told: Mutex::default(),
        }
    }

    /// Tells an event unless it has been told.
    ///
    /// # Errors
    /// The API server did not take it.
    pub async fn tell(&self, plan: &UpgradePlan, at: Timestamp, event: &PlanEvent) -> Result<(), kube::Error> {
        let built = build(plan, at, event);
        let name = built.name_any();
        if self.told.lock().unwrap_or_else(PoisonError::into_inner).contains(&name) {
            return Ok(());
        }
        match self.events.create(&PostParams::default(), &built).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error),
        }
        self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        Ok(())
    }
}

fn build(plan: &UpgradePlan, at: Timestamp, event: &PlanEvent) -> Event {
    let name = plan.name_any();
    let uid = plan.uid().unwrap_or_default();
    let digest = names::digest(&format!("{uid}/{}/{}", event.reason, event.message));
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
            resource_version: plan.resource_version(),
            ..ObjectReference::default()
        },
        type_: Some(severity.to_owned()),
        reason: Some(event.reason.clone()),
        message: Some(event.message.clone()),
        source: Some(EventSource {
            component: Some(reasons::SOURCE_MANAGER.to_owned()),
            host: None,
        }),
        reporting_component: Some(reasons::SOURCE_MANAGER.to_owned()),
        first_timestamp: Some(Time(at)),
        last_timestamp: Some(Time(at)),
        count: Some(1),
        ..Event::default()
    }
}
