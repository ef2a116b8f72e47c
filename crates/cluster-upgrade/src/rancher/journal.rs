//! What an upgrade of Rancher must remember beyond the life of a pod: a ConfigMap that is written before Rancher is
//! changed.
//!
//! It says which server Fleet's agent will call, and that agent is an administrator. So it lies where Fleet's own
//! configuration is, where a client that can change one can change the other, and it counts for the plan that it names only.

use std::collections::BTreeMap;

use api::{Component, labels, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::context::Context;
use program::error::{Error, Result};

use super::FLEET_SYSTEM;

const NAME: &str = "upgrade-toolkit-rancher";
const PLAN_UID: &str = "planUID";
/// Where older releases kept it: more accounts than ours may write there.
const OLD_PLACE: &str = names::HARVESTER_NAMESPACE;

/// The journal of an upgrade of Rancher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// The UID of the plan whose upgrade it is. Journals of older releases have none.
    pub plan: String,
    /// The version that Rancher is upgraded to.
    pub target: String,
    /// The address that Fleet's agents call, before the upgrade.
    pub server_url: String,
    /// The certificate they trust, before the upgrade.
    pub server_ca: String,
    /// The deployment of Fleet's agent that was requested.
    pub agent: Option<Agent>,
    /// All that belongs to Rancher has settled.
    pub settled: bool,
}

/// A deployment of Fleet's agent that was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its `redeployAgentGeneration`.
    pub generation: i64,
    /// When the Deployment before it was created. A newer one is the requested one.
    pub created_before: String,
}

impl Journal {
    /// Reads a journal. Whatever is missing or odd counts as not written.
    #[must_use]
    pub fn from_data(data: &BTreeMap<String, String>) -> Self {
        let text = |key: &str| data.get(key).cloned().unwrap_or_default();
        let generation = text("agentGeneration").parse().ok();
        Self {
            plan: text(PLAN_UID),
            target: text("target"),
            server_url: text("apiServerURL"),
            server_ca: text("apiServerCA"),
            agent: generation.map(|generation| Agent {
                generation,
                created_before: text("agentCreatedBefore"),
            }),
            settled: text("settled") == "true",
        }
    }

    /// The journal as the data of a ConfigMap.
    #[must_use]
    pub fn to_data(&self) -> BTreeMap<String, String> {
        let agent = self.agent.as_ref();
        let generation = agent.map(|agent| agent.generation.to_string());
        let created_before = agent.map(|agent| agent.created_before.clone());
        // All of them, always: an apply keeps fields of other managers that it does not name.
        BTreeMap::from([
            (PLAN_UID.to_owned(), self.plan.clone()),
            ("target".to_owned(), self.target.clone()),
            ("apiServerURL".to_owned(), self.server_url.clone()),
            ("apiServerCA".to_owned(), self.server_ca.clone()),
            ("settled".to_owned(), self.settled.to_string()),
            ("agentGeneration".to_owned(), generation.unwrap_or_default()),
            ("agentCreatedBefore".to_owned(), created_before.unwrap_or_default()),
        ])
    }

    /// The ConfigMap that keeps it.
    #[must_use]
    pub fn config_map(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": NAME, "namespace": FLEET_SYSTEM,
                "labels": {labels::UPGRADE_COMPONENT: Component::ClusterUpgrade},
            },
            "data": self.to_data(),
        })
    }
}

/// The UID of the plan, by which its journal is known.
pub(super) fn plan_uid(context: &Context) -> Result<String> {
    let uid = context.upgrade_plan()?.metadata.uid.clone();
    uid.ok_or_else(|| Error::Permanent(format!("UpgradePlan {} has no metadata.uid", context.plan)))
}

async fn read(context: &Context, namespace: &str, target: &str) -> Result<Option<Journal>> {
    let maps = context.namespaced::<ConfigMap>(namespace);
    let found = maps.get(NAME).await?.and_then(|map| map.data);
    Ok(found
        .map(|data| Journal::from_data(&data))
        .filter(|journal| journal.target == target))
}

/// The journal of the plan's own upgrade to that version, if one was begun.
pub(super) async fn own(context: &Context, target: &str) -> Result<Option<Journal>> {
    let uid = plan_uid(context)?;
    let found = read(context, FLEET_SYSTEM, target).await?;
    Ok(found.filter(|journal| journal.plan == uid))
}

/// The journal of an upgrade that was begun and has not settled. Others have nothing left to do.
pub(super) async fn unsettled(context: &Context) -> Result<Option<Journal>> {
    let journal = own(context, &context.release()?.rancher).await?;
    Ok(journal.filter(|journal| !journal.settled))
}

/// Takes over the journal of an upgrade of Rancher that another plan began and did not settle: a plan that is gone or
/// failed, or this one under an older release, which kept it in another place.
///
/// Only where Rancher was upgraded to its version, or that was tried, and `tried` is when. What lies in the old place is
/// used only if that was during this plan: another Rancher has not changed since, and has nothing to settle.
pub(super) async fn take_over(context: &Context, target: &str, tried: Option<Timestamp>) -> Result<()> {
    if own(context, target).await?.is_some() {
        return Ok(());
    }
    let of_another = read(context, FLEET_SYSTEM, target).await?;
    let mut found = of_another.filter(|journal| !journal.plan.is_empty());
    let created = context.upgrade_plan()?.metadata.creation_timestamp.as_ref();
    let is_of_this_plan = created.zip(tried).is_some_and(|(plan, at)| at >= plan.0);
    if found.is_none() && is_of_this_plan {
        found = read(context, OLD_PLACE, target).await?;
    }
    let Some(journal) = found.filter(|journal| !journal.settled) else {
        return Ok(());
    };
    let plan = plan_uid(context)?;
    write(context, &Journal { plan, ..journal }).await
}

/// Writes the journal.
pub(super) async fn write(context: &Context, journal: &Journal) -> Result<()> {
    let maps = context.namespaced::<ConfigMap>(FLEET_SYSTEM);
    maps.apply(NAME, &journal.config_map()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_reads_back_as_it_was_written() {
        let journal = Journal {
            plan: "b5c7".into(),
            target: "v2.14.0".into(),
            server_url: "https://10.0.0.1".into(),
            server_ca: "Y2E=".into(),
            agent: Some(Agent {
                generation: 3,
                created_before: "2026-03-13T04:00:00Z".into(),
            }),
            settled: true,
        };
        assert_eq!(Journal::from_data(&journal.to_data()), journal);
        assert_eq!(Journal::from_data(&BTreeMap::new()), Journal::default());
    }
}
