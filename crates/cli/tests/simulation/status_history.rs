//! The history of a plan's status: every status it had, and what it waited for.

use std::{sync::Arc, time::Duration};

use api::{Phase, UpgradePlan, WaitingFor};
use cli::rehearsal::beginning;
use clock::Clock;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    run::{Case, in_paused_time},
    timeline::versions,
    user::{self, User},
    watched::Watched,
};

/// Long enough for anything that is waited for.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Every status that a plan had, with its moment.
pub(crate) struct StatusHistory {
    /// The name of the plan.
    pub plan: String,
    /// Each status that differs from the one before it.
    pub statuses: Vec<(Timestamp, Arc<Value>)>,
}

impl StatusHistory {
    /// The waits of a status.
    pub(crate) fn waits(version: &Value) -> Vec<WaitingFor> {
        Option::<Vec<WaitingFor>>::deserialize(&version["status"]["waitingFor"])
            .unwrap()
            .unwrap_or_default()
    }

    /// The first wait of that name whose message begins so, and when it was recorded.
    pub(crate) fn first(&self, what: &str, message: &str) -> (Timestamp, WaitingFor) {
        let mut all = self
            .statuses
            .iter()
            .flat_map(|(at, version)| Self::waits(version).into_iter().map(|wait| (*at, wait)));
        let wanted = |wait: &WaitingFor| {
            let said = wait.message.as_deref().unwrap_or_default();
            wait.what == what && said.starts_with(message)
        };
        all.find(|(_, wait)| wanted(wait))
            .unwrap_or_else(|| panic!("no {what}: {message:?} among {:#?}", self.words()))
    }

    /// All that was said, each once.
    fn words(&self) -> Vec<String> {
        let waits = self.statuses.iter().flat_map(|(_, version)| Self::waits(version));
        let mut words: Vec<String> = waits
            .map(|wait| format!("{}: {}", wait.what, wait.message.unwrap_or_default()))
            .collect();
        words.dedup();
        words
    }
}

/// Follows an upgrade to its end, or as long as `limit`.
pub(crate) fn follow(case: &Case, limit: Duration) -> StatusHistory {
    in_paused_time(async {
        let clock = Clock::simulated(beginning(), 1.0);
        let retried = case.user.contains(&User::FixesAndRetries);
        let rehearsal = if retried {
            Watched::start_and_retry(case.scenario.clone(), clock).await
        } else {
            Watched::start(case.scenario.clone(), clock).await
        };
        if let Some(arrange) = case.arranged {
            arrange(&rehearsal);
        }
        let _manager = rehearsal.start_manager("manager-1");
        let plan = rehearsal
            .create_unchecked(rehearsal.plan(false, &case.pause))
            .await
            .unwrap();
        let name = plan.name_any();
        let users = futures::future::join_all(case.user.iter().map(|user| user::act(&rehearsal, &name, user)));
        let over = |plan: &UpgradePlan| {
            let phase = plan.phase();
            let wanted = phase == Some(Phase::Succeeded) || (phase == Some(Phase::Failed) && !retried);
            wanted && plan.finalizers().is_empty()
        };
        let end = rehearsal.follow(&name, Some(limit), over);
        tokio::pin!(users, end);
        tokio::select! {
            biased;
            _ = &mut end => {}
            _ = async { (&mut users).await; std::future::pending::<()>().await } => {}
        }
        let mut statuses = versions(rehearsal.server.store(), "upgradeplans");
        statuses.retain(|(_, version)| version["status"].is_object());
        statuses.dedup_by(|later, earlier| later.1["status"] == earlier.1["status"]);
        StatusHistory {
            plan: name.clone(),
            statuses,
        }
    })
}
