//! The list of VMs to start again: a ConfigMap of the plan, a key per node, `namespace/name` separated by commas.
//!
//! The list of a node only grows. A program that runs again finds fewer VMs, because it has stopped some; those must
//! stay on the list.

use api::{UpgradePlan, labels, names, owner};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::PostParams};

use super::VmName;
use program::error::{Error, Result};

/// How often a write is tried when another client wrote at the same time. Each conflict means that one of them got
/// through, and there is one writer per node.
const TRIES: u32 = 20;

/// What became of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The ConfigMap was made, or one that was not the plan's became it.
    Created,
    /// VMs were added.
    Updated,
    /// All of them were on it.
    Unchanged,
}

/// The entries of a list as it is written down.
pub fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

/// What is written down for a node; `None` when the list has nothing about it.
#[must_use]
pub fn of_node<'a>(list: &'a ConfigMap, node: &str) -> Option<&'a str> {
    list.data.as_ref()?.get(node).map(String::as_str)
}

/// A list with more VMs: what was on it stays, in its order; what is new comes after it.
#[must_use]
pub fn merge(before: &str, vms: &[VmName]) -> String {
    let mut all: Vec<String> = Vec::new();
    for entry in entries(before)
        .map(str::to_owned)
        .chain(vms.iter().map(VmName::to_string))
    {
        if !all.contains(&entry) {
            all.push(entry);
        }
    }
    all.join(",")
}

/// The ConfigMap as it should be, or `None` if it is so already. `plan` is the metadata of the plan.
///
/// One that this plan does not own counts for nothing: of an earlier plan of the same name, which the garbage collector is
/// about to remove, or of a user who chose that name.
#[must_use]
pub fn with_vms(existing: Option<&ConfigMap>, plan: &ObjectMeta, node: &str, vms: &[VmName]) -> Option<ConfigMap> {
    let owner = owner::reference(plan);
    let mut list = existing.cloned().unwrap_or_default();
    let owners = list.metadata.owner_references.get_or_insert_default();
    let ours = owners.iter().any(|one| one.uid == owner.uid);
    if !ours {
        owners.retain(|one| one.kind != owner.kind || one.api_version != owner.api_version);
        list.data = None;
        owners.push(owner);
    }
    let plan_name = plan.name.clone().unwrap_or_default();
    list.metadata.name = Some(names::restore_config_map(&plan_name));
    list.metadata.namespace = Some(names::HARVESTER_NAMESPACE.to_owned());
    // The manager watches what carries this label.
    let labels = list.metadata.labels.get_or_insert_default();
    labels.insert(labels::UPGRADE_PLAN.to_owned(), plan_name);
    let data = list.data.get_or_insert_default();
    let before = data.get(node).cloned();
    data.insert(node.to_owned(), merge(before.as_deref().unwrap_or_default(), vms));
    (existing != Some(&list)).then_some(list)
}

/// The list of a plan, if there is one that the plan owns.
///
/// # Errors
/// The API server did not answer.
pub async fn of_plan(client: &Client, plan: &str) -> Result<Option<ConfigMap>> {
    let plans: Api<UpgradePlan> = Api::all(client.clone());
    let found = plans.get_metadata_opt(plan).await;
    let found = found.map_err(|error| Error::api(format!("read UpgradePlan {plan}"), error))?;
    let list = read(client, plan).await?;
    Ok(list.filter(|list| {
        found
            .as_ref()
            .is_some_and(|plan| owner::is_owned_by_plan(list, &plan.metadata))
    }))
}

async fn read(client: &Client, plan: &str) -> Result<Option<ConfigMap>> {
    let name = names::restore_config_map(plan);
    let found = config_maps(client).get_opt(&name).await;
    found.map_err(|error| Error::api(format!("read {}", shown(&name)), error))
}

/// Puts VMs of a node on the list of a plan, before they are stopped. A node without any is on it too, with none.
///
/// # Errors
/// There is no such plan, or the API server did not take it.
pub async fn add(client: &Client, plan: &str, node: &str, vms: &[VmName]) -> Result<Added> {
    let plans: Api<UpgradePlan> = Api::all(client.clone());
    let found = plans.get_metadata(plan).await;
    let found = found.map_err(|error| Error::api(format!("read UpgradePlan {plan}"), error))?;
    let name = names::restore_config_map(plan);
    let mut refusal = Error::Transient(format!("failed to write {}", shown(&name)));
    for _ in 0..TRIES {
        let existing = read(client, plan).await?;
        if existing
            .as_ref()
            .is_some_and(|list| list.metadata.deletion_timestamp.is_some())
        {
            return Err(Error::Transient(format!("{} is being deleted", shown(&name))));
        }
        let Some(wanted) = with_vms(existing.as_ref(), &found.metadata, node, vms) else {
            return Ok(Added::Unchanged);
        };
        // With the version that was read: concurrent additions are never lost.
        let written = match &existing {
            None => config_maps(client).create(&PostParams::default(), &wanted).await,
            Some(_) => {
                config_maps(client)
                    .replace(&name, &PostParams::default(), &wanted)
                    .await
            }
        };
        match written {
            Ok(_)
                if !existing
                    .as_ref()
                    .is_some_and(|list| owner::is_owned_by_plan(list, &found.metadata)) =>
            {
                return Ok(Added::Created);
            }
            Ok(_) => return Ok(Added::Updated),
            Err(error) => {
                // 409: another client wrote or created it; 404: it was removed; the others: the server was busy.
                let again =
                    matches!(&error, kube::Error::Api(status) if matches!(status.code, 404 | 409 | 429 | 500 | 504));
                refusal = Error::api(format!("write {}", shown(&name)), error);
                if !again {
                    return Err(refusal);
                }
            }
        }
    }
    Err(refusal)
}

/// How it is reported.
#[must_use]
pub fn shown(name: &str) -> String {
    format!("ConfigMap {}/{name}", names::HARVESTER_NAMESPACE)
}

fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn vms(names: &[&str]) -> Vec<VmName> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn plan(uid: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some("up".to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        }
    }

    #[rstest]
    #[case("", &[], "")]
    #[case("", &["default/b", "default/a"], "default/b,default/a")]
    #[case("default/a,default/b", &["default/b"], "default/a,default/b")]
    #[case("default/a", &["default/b", "default/a"], "default/a,default/b")]
    #[case("default/a,default/b", &[], "default/a,default/b")]
    #[case(" default/a , ,default/b,", &["dev/c"], "default/a,default/b,dev/c")]
    fn a_list_only_grows(#[case] before: &str, #[case] more: &[&str], #[case] after: &str) {
        assert_eq!(merge(before, &vms(more)), after);
    }

    #[test]
    fn a_new_list_belongs_to_the_plan_and_can_be_found_by_it() {
        let list = with_vms(None, &plan("u1"), "node-1", &vms(&["default/a"])).unwrap();
        assert_eq!(
            serde_json::to_value(&list).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "name": "up-restore-vm", "namespace": "harvester-system",
                    "labels": {"management.harvesterhci.io/upgrade-plan": "up"},
                    "ownerReferences": [{
                        "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "name": "up", "uid": "u1",
                    }],
                },
                "data": {"node-1": "default/a"},
            })
        );
    }

    #[test]
    fn a_node_is_added_with_the_others_and_nothing_is_written_twice() {
        let first = with_vms(None, &plan("u1"), "node-1", &vms(&["default/a"])).unwrap();
        let second = with_vms(Some(&first), &plan("u1"), "node-2", &[]).unwrap();
        assert_eq!(of_node(&second, "node-1"), Some("default/a"));
        assert_eq!(of_node(&second, "node-2"), Some(""));
        assert_eq!(with_vms(Some(&second), &plan("u1"), "node-1", &[]), None);
        assert_eq!(with_vms(Some(&second), &plan("u1"), "node-2", &[]), None);
    }

    #[test]
    fn the_list_of_an_earlier_plan_of_the_same_name_starts_no_vm() {
        let old = with_vms(None, &plan("old"), "node-1", &vms(&["default/a"])).unwrap();
        let new = with_vms(Some(&old), &plan("new"), "node-1", &vms(&["default/b"])).unwrap();
        assert_eq!(of_node(&new, "node-1"), Some("default/b"));
        let owners = new.metadata.owner_references.unwrap();
        assert_eq!(
            owners.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(),
            ["new"]
        );
    }
}
