//! Plans of system-upgrade-controller that run once on every node Harvester manages: what all of ours have in common.

use std::collections::BTreeMap;

use api::{Component, foreign::suc, labels, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

/// Enough to distinguish versions, in hexadecimal digits.
const VERSION_LENGTH: usize = 8;

/// What one Plan differs in from another.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The name of the UpgradePlan.
    pub upgrade_plan: &'a str,
    /// Who owns it. Not every client that creates one may name an owner that blocks deletion.
    pub owner: OwnerReference,
    /// What it serves.
    pub component: Component,
    /// How many nodes at once.
    pub concurrency: i64,
    /// How long a Job may run on a node.
    pub deadline_seconds: u64,
    /// The account of its pods.
    pub service_account: &'a str,
    /// What distinguishes it from others of its name ([`version`]).
    pub version: &'a str,
    /// What its pods run: image, command, environment, security context.
    pub container: Value,
}

/// The Plan, typed.
///
/// # Errors
/// The container is none.
pub fn build(wanted: Wanted<'_>) -> Result<suc::Plan, serde_json::Error> {
    serde_json::from_value(manifest(wanted))
}

/// The Plan, as it is applied.
#[must_use]
pub fn manifest(wanted: Wanted<'_>) -> Value {
    let labels = BTreeMap::from([
        (labels::UPGRADE_PLAN.to_owned(), wanted.upgrade_plan.to_owned()),
        (labels::UPGRADE_COMPONENT.to_owned(), wanted.component.to_string()),
    ]);
    let metadata = ObjectMeta {
        name: Some(names::suc_plan(wanted.upgrade_plan, wanted.component)),
        namespace: Some(names::CATTLE_NAMESPACE.to_owned()),
        labels: Some(labels),
        owner_references: Some(vec![wanted.owner]),
        ..ObjectMeta::default()
    };
    json!({
        "apiVersion": "upgrade.cattle.io/v1",
        "kind": "Plan",
        "metadata": metadata,
        "spec": {
            "concurrency": wanted.concurrency,
            // Never zero, which is "for ever" to the newest controllers and "a quarter of an hour" to older ones, which a
            // cluster still runs while it is upgraded.
            "jobActiveDeadlineSecs": wanted.deadline_seconds.max(1),
            "nodeSelector": {"matchLabels": {labels::MANAGED: "true"}},
            "serviceAccountName": wanted.service_account,
            // A node that is cordoned or drained needs it as well.
            "tolerations": [{"operator": "Exists"}],
            "upgrade": wanted.container,
            "version": wanted.version,
        },
    })
}

/// What system-upgrade-controller identifies a Plan by: a node that carries the label of a version is not served again by it.
#[must_use]
pub fn version(parts: &str) -> String {
    names::digest(parts)[..VERSION_LENGTH].to_owned()
}

#[cfg(test)]
mod tests {
    use api::owner;

    use super::*;

    fn wanted() -> Wanted<'static> {
        let plan = ObjectMeta {
            name: Some("up".to_owned()),
            uid: Some("u-1".to_owned()),
            ..ObjectMeta::default()
        };
        Wanted {
            upgrade_plan: "up",
            owner: owner::reference(&plan),
            component: Component::ImageCheck,
            concurrency: 2,
            deadline_seconds: 0,
            service_account: "ours",
            version: "0a1b2c3d",
            container: json!({"image": "a/b:c", "command": ["true"]}),
        }
    }

    #[test]
    fn every_plan_serves_managed_nodes_whatever_their_taints_and_never_without_a_deadline() {
        let plan = serde_json::to_value(build(wanted()).unwrap()).unwrap();
        assert_eq!(plan["metadata"]["name"], "up-image-check");
        assert_eq!(plan["metadata"]["ownerReferences"][0]["uid"], "u-1");
        assert_eq!(plan["metadata"]["labels"][labels::UPGRADE_COMPONENT], "image-check");
        assert_eq!(plan["spec"]["nodeSelector"]["matchLabels"][labels::MANAGED], "true");
        assert_eq!(plan["spec"]["tolerations"], json!([{"operator": "Exists"}]));
        assert_eq!(plan["spec"]["jobActiveDeadlineSecs"], 1);
        assert_eq!(plan["spec"]["upgrade"]["image"], "a/b:c");
    }

    #[test]
    fn versions_differ_where_what_they_are_of_differs() {
        assert_eq!(version("u/0").len(), VERSION_LENGTH);
        assert_ne!(version("u/0"), version("u/1"));
    }
}
