//! What is seen of Rancher: its cluster, the plans of its machines, and Harvester's charts.

use std::collections::BTreeMap;

use api::{
    annotations,
    foreign::{ForeignCondition, condition_is},
    labels, names, quoted,
};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use plan::{
    chart,
    observed::{ObservedChart, ObservedCluster, ObservedMachinePlan},
};

use crate::watched::Watched;

pub(super) fn machine_plans(watched: &Watched) -> Vec<ObservedMachinePlan> {
    let secrets = watched.secrets.list();
    let ours = secrets
        .iter()
        .filter(|secret| secret.type_.as_deref() == Some(annotations::MACHINE_PLAN_SECRET_TYPE));
    ours.map(|secret| machine_plan(watched, secret)).collect()
}

fn machine_plan(watched: &Watched, secret: &Secret) -> ObservedMachinePlan {
    let annotation = |key: &str| secret.annotations().get(key).cloned();
    let machine = secret.labels().get(labels::MACHINE_NAME);
    let machine = machine.and_then(|name| watched.machines.get(names::FLEET_NAMESPACE, name));
    ObservedMachinePlan {
        secret: secret.name_any(),
        node: machine.and_then(|machine| machine.status.node_ref.as_ref()?.name.clone()),
        pre_drain: annotation(annotations::RKE_PRE_DRAIN),
        pre_hook: annotation(annotations::PRE_HOOK),
        post_drain: annotation(annotations::RKE_POST_DRAIN),
        post_hook: annotation(annotations::POST_HOOK),
    }
}

pub(super) fn cluster(watched: &Watched) -> Option<ObservedCluster> {
    let cluster = watched.clusters.get(names::FLEET_NAMESPACE, names::LOCAL_CLUSTER)?;
    let rke = cluster.spec.rke_config.clone().unwrap_or_default();
    Some(ObservedCluster {
        kubernetes_version: cluster.spec.kubernetes_version.clone(),
        provision_generation: rke.provision_generation.unwrap_or_default(),
        upgrade_strategy: rke.upgrade_strategy,
        saved_upgrade_strategy: cluster.annotations().get(annotations::SAVED_UPGRADE_STRATEGY).cloned(),
        gated_release: cluster.annotations().get(annotations::GATED_RELEASE).cloned(),
        // `status.ready` never goes back to false.
        ready: condition_is(cluster.status.conditions.as_deref().unwrap_or_default(), "Updated") == Some(true),
        message: rancher_says(cluster.status.conditions.as_deref().unwrap_or_default()),
    })
}

/// What Rancher says about what it is doing: the message of the first condition that does not hold yet.
fn rancher_says(conditions: &[ForeignCondition]) -> Option<String> {
    let open = conditions
        .iter()
        .filter(|condition| condition.status.as_deref() != Some("True"));
    open.filter_map(|condition| condition.message.as_deref())
        .map(|message| quoted::plain(message, quoted::LONGEST_MESSAGE))
        .find(|message| !message.is_empty())
}

/// Harvester's charts that there are.
pub(super) fn charts(watched: &Watched) -> BTreeMap<String, ObservedChart> {
    let found = names::MANAGED_CHARTS.into_iter().filter_map(|name| {
        let chart = watched.managed_charts.get(names::FLEET_NAMESPACE, name)?;
        Some((name.to_owned(), chart::observed(&chart)))
    });
    found.collect()
}
