//! Which service accounts the programs of an upgrade run as.

use api::{accounts, names};
use serde::{Deserialize, Serialize};

/// The service accounts of Jobs and Plans: those that ship, unless others are chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Accounts {
    /// What the names of those that ship begin with.
    pub prefix: String,
    /// Another account for all our Jobs.
    pub jobs: Option<String>,
    /// Another account for all Plans of system-upgrade-controller.
    pub plans: Option<String>,
}

impl Default for Accounts {
    fn default() -> Self {
        Self {
            prefix: "upgrade-toolkit-".to_owned(),
            jobs: None,
            plans: None,
        }
    }
}

impl Accounts {
    fn job(&self, shipped: &str) -> String {
        self.jobs.clone().unwrap_or_else(|| self.shipped(shipped))
    }

    fn shipped(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Of the Job that upgrades the cluster.
    #[must_use]
    pub fn cluster_upgrade(&self) -> String {
        self.job(accounts::CLUSTER_UPGRADE)
    }

    /// What Helm upgrades Rancher as; nothing when the Job has an account of the user's choice, which it uses for that, too.
    #[must_use]
    pub fn rancher_installer(&self) -> Option<String> {
        self.jobs.is_none().then(|| self.shipped(accounts::RANCHER_INSTALLER))
    }

    /// Of the Jobs that drain and upgrade a node.
    #[must_use]
    pub fn node_upgrade(&self) -> String {
        self.job(accounts::NODE_UPGRADE)
    }

    /// Of the Jobs that start VMs again.
    #[must_use]
    pub fn vm_restore(&self) -> String {
        self.job(accounts::VM_RESTORE)
    }

    /// Of the Plans of system-upgrade-controller.
    #[must_use]
    pub fn node_plans(&self) -> String {
        self.plans.clone().unwrap_or_else(|| self.shipped(accounts::NODE_PLANS))
    }

    /// Whether an account is one that ships. One of the user's choice is theirs to look after.
    #[must_use]
    pub fn ships(&self, namespace: &str, name: &str) -> bool {
        let of_jobs = self.jobs.is_none() && namespace == names::HARVESTER_NAMESPACE;
        let of_plans = self.plans.is_none() && namespace == names::CATTLE_NAMESPACE;
        let is_one = |known: &str| name.strip_prefix(&self.prefix) == Some(known);
        (of_jobs && accounts::OF_JOBS.iter().any(|known| is_one(known))) || (of_plans && is_one(accounts::NODE_PLANS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_those_that_ship_unless_others_are_chosen() {
        let shipped = Accounts::default();
        assert_eq!(shipped.cluster_upgrade(), "upgrade-toolkit-cluster-upgrade");
        assert_eq!(shipped.node_plans(), "upgrade-toolkit-node-plans");
        assert!(shipped.ships(names::HARVESTER_NAMESPACE, &shipped.vm_restore()));
        assert!(shipped.ships(names::CATTLE_NAMESPACE, &shipped.node_plans()));
        assert!(!shipped.ships(names::CATTLE_NAMESPACE, &shipped.vm_restore()));
        let chosen = Accounts {
            jobs: Some("harvester".to_owned()),
            plans: Some("system-upgrade-controller".to_owned()),
            ..Accounts::default()
        };
        for job in [chosen.cluster_upgrade(), chosen.node_upgrade(), chosen.vm_restore()] {
            assert_eq!(job, "harvester");
        }
        assert_eq!(chosen.rancher_installer(), None);
        assert_eq!(chosen.node_plans(), "system-upgrade-controller");
        assert!(!chosen.ships(names::HARVESTER_NAMESPACE, "upgrade-toolkit-vm-restore"));
    }
}
