//! Events on a plan, reported by a program of a Job. Reporting is best effort: the program waits for it, but it never fails.

use std::time::Duration;

use api::{UpgradePlan, names};
use clock::Clock;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, api::PostParams};
use rules::{
    PlanEvent,
    event_object::{EventReporter, build},
    tries,
};

use crate::error::{Error, Result};

/// How often an event is tried, while the API server restarts for instance.
const TRIES: u32 = 4;
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(2);
/// How long the API server may take over one.
const ANSWER: Duration = Duration::from_secs(5);

/// Reports events on a plan.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    clock: Clock,
    plan: String,
    component: &'static str,
    node: String,
}

impl Recorder {
    /// Reports events on `plan` in the name of `component`, which works for `node`.
    #[must_use]
    pub fn new(client: Client, clock: Clock, plan: &str, component: &'static str, node: &str) -> Self {
        Self {
            client,
            clock,
            plan: plan.to_owned(),
            component,
            node: node.to_owned(),
        }
    }

    /// Reports an event and waits until it is stored. An identical event is not changed.
    pub async fn record(&self, event: PlanEvent) {
        tracing::info!(reason = event.reason, "{}", event.message);
        for number in 1..=TRIES {
            let error = match tokio::time::timeout(ANSWER, self.try_to_report(&event)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                Err(_) => Error::Transient(format!("no answer within {} s", ANSWER.as_secs())),
            };
            if !error.is_transient() || number == TRIES {
                tracing::warn!(%error, reason = event.reason, "failed to record an event");
                return;
            }
            self.clock.sleep(PAUSE).await;
        }
    }

    async fn try_to_report(&self, event: &PlanEvent) -> Result<()> {
        let plans: Api<UpgradePlan> = Api::all(self.client.clone());
        let plan = plans.get(&self.plan).await;
        let plan = plan.map_err(|error| Error::api(format!("read UpgradePlan {}", self.plan), error))?;
        let reporter = EventReporter {
            component: self.component,
            host: Some(&self.node),
        };
        // The same message in another attempt of the plan is another event.
        let event = event.clone().in_attempt(tries::failed_before(plan.status.as_ref()));
        let event = build(&plan.metadata, reporter, self.clock.now_in_seconds(), &event);
        let events: Api<Event> = Api::namespaced(self.client.clone(), names::DEFAULT_NAMESPACE);
        match events.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(Error::api("create an event", error)),
            Ok(_) => Ok(()),
        }
    }
}
