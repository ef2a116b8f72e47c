//! Longhorn after the Harvester chart: its managers run the new image, and every node has one new instance manager.

use std::{collections::BTreeSet, time::Duration};

use api::{
    ProgramWait,
    foreign::longhorn,
    names,
    node::{is_managed, is_witness},
};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, Secret},
};
use kube::{ResourceExt, runtime::watcher};
use serde_json::Value;
use sha2::{Digest, Sha512};

use program::{
    error::{Error, Result},
    report::{Look, Waiting},
    step::StepContext,
};

use super::{context::Context, helm_release};

const MANAGER: &str = "longhorn-manager";
const INSTANCE_MANAGER_IMAGE: &str = "default-instance-manager-image";
const V2_ENGINE: &str = "longhorn-v2-data-engine-enabled";
/// In the settings of Longhorn itself the second engine goes by another name than in those of Harvester.
const V2_ENGINE_IN_LONGHORN: &str = "v2-data-engine";

const ASK_AGAIN: Duration = Duration::from_secs(30);

/// Waits until Longhorn has settled on all nodes.
pub(super) async fn settle(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let secrets = context.namespaced::<Secret>(names::HARVESTER_NAMESPACE);
    let secrets = secrets.list("owner=helm,name=harvester").await?;
    let history = helm_release::history(&secrets);
    let values = helm_release::deployed(&history).map(helm_release::values);
    let values = values.ok_or_else(|| Error::Transient("there is no deployed Helm release harvester".to_owned()))?;
    let image = manager_image(&values)
        .ok_or_else(|| Error::Permanent("the values of Helm release harvester name no longhorn-manager".to_owned()))?;
    let nodes = context.nodes().await?;
    let nodes = storage_nodes(&nodes);
    let sets = context.namespaced::<DaemonSet>(names::LONGHORN_NAMESPACE);
    let called = sets.called(MANAGER);
    sets.until(ctx, MANAGER, |set| {
        Look::of(manager_lacks(set, &image, nodes.len()).map_or_else(Vec::new, |lacks| {
            vec![Waiting {
                what: ProgramWait::LonghornManager,
                object: called.clone(),
                message: format!("{called} is not at {image}: {lacks}"),
            }]
        }))
    })
    .await?;
    if nodes.len() < 2 {
        return Ok(());
    }
    wait_instance_managers(context, ctx, "v1").await?;
    if has_second_engine(context).await? {
        wait_instance_managers(context, ctx, "v2").await?;
    }
    Ok(())
}

async fn has_second_engine(context: &Context) -> Result<bool> {
    let harvester = context.global::<api::foreign::harvester::Setting>();
    if let Some(setting) = harvester.get(V2_ENGINE).await? {
        let value = if setting.value.is_empty() {
            &setting.default
        } else {
            &setting.value
        };
        return Ok(value == "true");
    }
    let settings = context.namespaced::<longhorn::Setting>(names::LONGHORN_NAMESPACE);
    let setting = settings.get(V2_ENGINE_IN_LONGHORN).await?;
    Ok(setting.is_some_and(|setting| setting.value == "true"))
}

/// The image of Longhorn's managers by the values of the Harvester chart.
#[must_use]
pub fn manager_image(values: &Value) -> Option<String> {
    let longhorn = &values["longhorn"];
    let manager = &longhorn["image"]["longhorn"]["manager"];
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let (repository, tag) = (text(&manager["repository"])?, text(&manager["tag"])?);
    let registries = [
        &values["global"]["imageRegistry"],
        &longhorn["global"]["imageRegistry"],
        &manager["registry"],
    ];
    let registry = registries.into_iter().find_map(text);
    let prefix = registry.map_or_else(String::new, |registry| format!("{registry}/"));
    Some(format!("{prefix}{repository}:{tag}"))
}

/// Nodes that hold storage.
#[must_use]
pub fn storage_nodes(nodes: &[Node]) -> Vec<&Node> {
    nodes
        .iter()
        .filter(|node| is_managed(node) && !is_witness(node))
        .collect()
}

/// What Longhorn's managers still lack.
#[must_use]
pub fn manager_lacks(set: Option<&DaemonSet>, image: &str, nodes: usize) -> Option<String> {
    let Some(set) = set else {
        return Some("it does not exist".to_owned());
    };
    let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let found = pod
        .and_then(|pod| pod.containers.first())
        .and_then(|container| container.image.as_deref());
    if found != Some(image) {
        return Some(format!("it is at {}", found.unwrap_or("no image")));
    }
    let status = set.status.as_ref();
    if status.and_then(|status| status.observed_generation) < set.metadata.generation {
        return Some("its last change has not been observed yet".to_owned());
    }
    let updated = status.and_then(|status| status.updated_number_scheduled).unwrap_or(0);
    let ready = status.map_or(0, |status| status.number_ready).min(updated);
    (usize::try_from(ready).ok() != Some(nodes)).then(|| format!("{ready} of {nodes} nodes have it ready"))
}

/// Waits for the instance managers of the default image on all nodes. Managers that have only just started may still
/// change that image, so that it is read again from time to time.
async fn wait_instance_managers(context: &Context, ctx: StepContext<'_>, engine: &str) -> Result<()> {
    loop {
        let waited = wait_instance_managers_of_now(context, ctx, engine);
        if context.at_most(ASK_AGAIN, waited).await? {
            return Ok(());
        }
    }
}

async fn wait_instance_managers_of_now(context: &Context, ctx: StepContext<'_>, engine: &str) -> Result<()> {
    let settings = context.namespaced::<longhorn::Setting>(names::LONGHORN_NAMESPACE);
    let image = settings.need(INSTANCE_MANAGER_IMAGE).await?.value;
    let nodes = context
        .namespaced::<longhorn::Node>(names::LONGHORN_NAMESPACE)
        .list("")
        .await?;
    let nodes: BTreeSet<String> = nodes.iter().map(ResourceExt::name_any).collect();
    let selection = format!(
        "longhorn.io/instance-manager-type=aio,longhorn.io/data-engine={engine},longhorn.io/instance-manager-image={}",
        image_label(&image)
    );
    let managers = context.namespaced::<longhorn::InstanceManager>(names::LONGHORN_NAMESPACE);
    let selected = watcher::Config::default().labels(&selection);
    managers
        .watch(ctx, selected, None, |managers| {
            let left = nodes.iter().filter_map(|node| {
                let lacks = node_lacks(managers.iter().map(AsRef::as_ref), node)?;
                Some(Waiting {
                    what: ProgramWait::InstanceManager,
                    object: format!("Node {node}"),
                    message: format!("Longhorn's {engine} engine is not ready on node {node}: {lacks}"),
                })
            });
            Look::of(left.collect())
        })
        .await
}

/// The label value that Longhorn gives to an instance manager's image.
#[must_use]
pub fn image_label(image: &str) -> String {
    let canonical = image.replace([':', '/'], "-");
    let digest = Sha512::digest(canonical.as_bytes());
    let hex: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("imi-{hex}")
}

/// What a node lacks of the new instance manager: exactly one, running.
#[must_use]
pub fn node_lacks<'a>(managers: impl Iterator<Item = &'a longhorn::InstanceManager>, node: &str) -> Option<String> {
    let of_node = |manager: &&longhorn::InstanceManager| {
        manager
            .labels()
            .get("longhorn.io/node")
            .is_some_and(|found| found == node)
    };
    let states: Vec<&str> = managers
        .filter(of_node)
        .map(|manager| manager.status.current_state.as_deref().unwrap_or("unknown"))
        .collect();
    match states.as_slice() {
        ["running"] => None,
        [] => Some("it has no new instance manager".to_owned()),
        [state] => Some(format!("its new instance manager is {state}")),
        many => Some(format!("it has {} new instance managers", many.len())),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({}), None)]
    #[case(json!({"longhorn": {"image": {"longhorn": {"manager": {"repository": "longhornio/longhorn-manager", "tag": "v1.10"}}}}}),
        Some("longhornio/longhorn-manager:v1.10"))]
    #[case(json!({"longhorn": {"image": {"longhorn": {"manager": {"registry": "r", "repository": "m", "tag": "t"}}}}}), Some("r/m:t"))]
    #[case(json!({"global": {"imageRegistry": "g"},
        "longhorn": {"image": {"longhorn": {"manager": {"registry": "r", "repository": "m", "tag": "t"}}}}}), Some("g/m:t"))]
    fn the_image_comes_from_the_values(#[case] values: Value, #[case] image: Option<&str>) {
        assert_eq!(manager_image(&values).as_deref(), image);
    }

    #[test]
    fn the_label_is_a_digest_of_the_canonical_name() {
        // printf 'longhornio-longhorn-instance-manager-v1.10.0' | sha512sum
        let label = image_label("longhornio/longhorn-instance-manager:v1.10.0");
        assert_eq!(label.len(), 12);
        let digest = Sha512::digest("longhornio-longhorn-instance-manager-v1.10.0");
        assert_eq!(
            label,
            format!(
                "imi-{:02x}{:02x}{:02x}{:02x}",
                digest[0], digest[1], digest[2], digest[3]
            )
        );
    }

    #[test]
    fn r24_a_registry_with_a_port_has_the_label_that_longhorn_gives_it() {
        // printf 'r-5000-a-b-t' | sha512sum
        assert_eq!(image_label("r:5000/a/b:t"), "imi-fe479a0d");
    }

    #[test]
    fn managers_are_ready_when_all_nodes_have_the_new_one() {
        let set = |image: &str, updated: i32, ready: i32| -> DaemonSet {
            serde_json::from_value(json!({
                "metadata": {"name": MANAGER, "generation": 2},
                "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "m", "image": image}]}}},
                "status": {"observedGeneration": 2, "numberReady": ready, "updatedNumberScheduled": updated,
                    "currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberMisscheduled": 0},
            }))
            .unwrap()
        };
        assert_eq!(manager_lacks(Some(&set("m:2", 3, 3)), "m:2", 3), None);
        assert_eq!(
            manager_lacks(Some(&set("m:1", 3, 3)), "m:2", 3).unwrap(),
            "it is at m:1"
        );
        assert_eq!(
            manager_lacks(Some(&set("m:2", 1, 3)), "m:2", 3).unwrap(),
            "1 of 3 nodes have it ready"
        );
    }

    #[test]
    fn a_node_has_exactly_one_new_instance_manager() {
        let manager = |node: &str, state: &str| -> longhorn::InstanceManager {
            serde_json::from_value(json!({
                "metadata": {"name": "x", "labels": {"longhorn.io/node": node}}, "status": {"currentState": state},
            }))
            .unwrap()
        };
        let managers = [
            manager("a", "running"),
            manager("b", "starting"),
            manager("c", "running"),
            manager("c", "running"),
        ];
        assert_eq!(node_lacks(managers.iter(), "a"), None);
        assert_eq!(
            node_lacks(managers.iter(), "b").unwrap(),
            "its new instance manager is starting"
        );
        assert_eq!(
            node_lacks(managers.iter(), "c").unwrap(),
            "it has 2 new instance managers"
        );
        assert_eq!(
            node_lacks(managers.iter(), "d").unwrap(),
            "it has no new instance manager"
        );
    }
}
