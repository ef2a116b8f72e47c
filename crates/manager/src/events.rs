//! The manager's events on a plan, each one once.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use api::{UpgradePlan, names, reasons};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, ResourceExt, api::PostParams};
use plan::{
    PlanEvent,
    event_object::{Teller, build},
};

/// Who tells these events.
const TELLER: Teller<'_> = Teller {
    component: reasons::SOURCE_MANAGER,
    host: None,
};

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
        let built = build(&plan.metadata, TELLER, at, event);
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
