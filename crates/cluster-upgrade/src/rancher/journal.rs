//! What an upgrade of Rancher must remember beyond the life of a pod: a ConfigMap that is written before Rancher is
//! changed.

use std::collections::BTreeMap;

use api::{Component, labels, names};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::context::Context;
use program::error::Result;

const NAME: &str = "upgrade-toolkit-rancher";

/// The journal of an upgrade of Rancher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// The version that Rancher is upgraded to.
    pub target: String,
    /// The address that Fleet's agents call, before the upgrade.
    pub server_url: String,
    /// The certificate they trust, before the upgrade.
    pub server_ca: String,
    /// The deployment of Fleet's agent that was asked for.
    pub agent: Option<Agent>,
    /// All that belongs to Rancher has settled.
    pub settled: bool,
}

/// A deployment of Fleet's agent that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its `redeployAgentGeneration`.
    pub generation: i64,
    /// When the Deployment before it was created. A newer one is the one that was asked for.
    pub created_before: String,
}

impl Journal {
    /// Reads a journal. Whatever is missing or odd counts as not written.
    #[must_use]
    pub fn from_data(data: &BTreeMap<String, String>) -> Self {
        let text = |key: &str| data.get(key).cloned().unwrap_or_default();
        let generation = text("agentGeneration").parse().ok();
        Self {
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
        let mut data = BTreeMap::from([
            ("target".to_owned(), self.target.clone()),
            ("apiServerURL".to_owned(), self.server_url.clone()),
            ("apiServerCA".to_owned(), self.server_ca.clone()),
            ("settled".to_owned(), self.settled.to_string()),
        ]);
        if let Some(agent) = &self.agent {
            data.insert("agentGeneration".to_owned(), agent.generation.to_string());
            data.insert("agentCreatedBefore".to_owned(), agent.created_before.clone());
        }
        data
    }

    /// The ConfigMap that keeps it.
    #[must_use]
    pub fn config_map(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": NAME, "namespace": names::HARVESTER_NAMESPACE,
                "labels": {labels::UPGRADE_COMPONENT: Component::ClusterUpgrade},
            },
            "data": self.to_data(),
        })
    }
}

/// The journal of the upgrade to that version, if one was begun.
pub(super) async fn read(context: &Context, target: &str) -> Result<Option<Journal>> {
    let maps = context.namespaced::<ConfigMap>(names::HARVESTER_NAMESPACE);
    let found = maps.get(NAME).await?.and_then(|map| map.data);
    Ok(found
        .map(|data| Journal::from_data(&data))
        .filter(|journal| journal.target == target))
}

/// The journal of an upgrade that was begun and has not settled. Others have nothing left to do.
pub(super) async fn unsettled(context: &Context) -> Result<Option<Journal>> {
    let journal = read(context, &context.release()?.rancher).await?;
    Ok(journal.filter(|journal| !journal.settled))
}

/// Writes the journal.
pub(super) async fn write(context: &Context, journal: &Journal) -> Result<()> {
    let maps = context.namespaced::<ConfigMap>(names::HARVESTER_NAMESPACE);
    maps.apply(NAME, &journal.config_map()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_reads_back_as_it_was_written() {
        let journal = Journal {
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
