//! Rancher, Fleet, Helm's Secrets and system-upgrade-controller, as far as a cluster upgrade meets them.

use serde_json::{Value, json};

use crate::helm_release::{self, HelmRelease};

use super::{
    harness::World,
    objects::{fleet_agent, pod},
};

/// A revision of a release, as the Secret that Helm keeps it in.
#[expect(clippy::too_many_arguments, reason = "a row of a table")]
pub(super) fn secret(
    namespace: &str,
    name: &str,
    revision: i64,
    chart: &Value,
    config: &Value,
    status: &str,
    description: &str,
    at: &str,
) -> Value {
    let release = json!({
        "name": name, "version": revision, "chart": {"metadata": chart, "values": {}},
        "config": config, "info": {"status": status, "description": description, "last_deployed": at},
    });
    helm_release::secret(namespace, &serde_json::from_value(release).unwrap()).unwrap()
}

pub(super) fn history(world: &World, namespace: &str, name: &str) -> Vec<HelmRelease> {
    let secrets = world.list("", "secrets");
    let of_release = secrets.into_iter().filter(|secret| {
        let metadata = &secret["metadata"];
        metadata["namespace"] == namespace && metadata["labels"]["name"] == name
    });
    let typed: Vec<_> = of_release
        .map(|secret| serde_json::from_value(secret).unwrap())
        .collect();
    helm_release::history(&typed)
}

/// Helm deploys a new revision; the one before is superseded.
pub(super) async fn release(
    world: &World,
    namespace: &str,
    name: &str,
    chart: &Value,
    config: &Value,
    status: &str,
    description: &str,
) {
    let history = history(world, namespace, name);
    let next = history.last().map_or(1, |release| release.revision + 1);
    if status == "deployed" {
        for old in history.iter().filter(|old| old.info.status == "deployed") {
            let metadata = json!({"name": old.chart.metadata.name, "version": old.chart.metadata.version, "appVersion": old.chart.metadata.app_version});
            let at = old.info.last_deployed.unwrap_or_default().to_string();
            let superseded = secret(
                namespace,
                name,
                old.revision,
                &metadata,
                &old.config,
                "superseded",
                &old.info.description,
                &at,
            );
            world
                .patch(
                    &superseded,
                    json!({"data": superseded["data"], "metadata": superseded["metadata"]}),
                )
                .await;
        }
    }
    let secret = secret(namespace, name, next, chart, config, status, description, &world.now());
    world.create(&secret).await;
}

pub(super) async fn roll_back(world: &World, namespace: &str, name: &str, revision: i64) {
    let history = history(world, namespace, name);
    let to = history.iter().find(|release| release.revision == revision).unwrap();
    let metadata = &to.chart.metadata;
    let chart = json!({"name": metadata.name, "version": metadata.version, "appVersion": metadata.app_version});
    release(
        world,
        namespace,
        name,
        &chart,
        &to.config,
        "deployed",
        &format!("Rollback to {revision}"),
    )
    .await;
}

pub(super) async fn tick(world: &World) {
    upgrade_controller(world).await;
    let rancher = history(world, "cattle-system", "rancher");
    let version = helm_release::deployed(&rancher).and_then(|release| release.config["image"]["tag"].as_str());
    if let Some(version) = version {
        new_rancher(world, version).await;
    }
    redeploy_agent(world).await;
    for repo in world.list("catalog.cattle.io", "clusterrepos") {
        let (asked, read) = (&repo["spec"]["forceUpdate"], &repo["status"]["downloadTime"]);
        if read.is_null() || asked.as_str() > read.as_str() {
            let status = json!({"downloadTime": world.now(), "observedGeneration": repo["metadata"]["generation"]});
            world.patch_status(&repo, status).await;
        }
    }
}

/// What a new Rancher does when it starts.
async fn new_rancher(world: &World, version: &str) {
    let setting = world.get("management.cattle.io", "settings", "", "server-version");
    let is_new = setting["value"] != version;
    if is_new {
        world.patch(&setting, json!({ "value": version })).await;
    }
    for name in ["rancher-charts", "rancher-rke2-charts", "rancher-partner-charts"] {
        if world.get("catalog.cattle.io", "clusterrepos", "", name).is_null() {
            let repo = json!({"apiVersion": "catalog.cattle.io/v1", "kind": "ClusterRepo", "metadata": {"name": name}, "spec": {}});
            world.create(&repo).await;
        }
    }
    for (namespace, name, chart, app) in [
        ("cattle-fleet-system", "fleet", "108.0.0+up0.14.0", "0.14.0"),
        ("cattle-fleet-system", "fleet-crd", "108.0.0+up0.14.0", "0.14.0"),
        ("cattle-system", "rancher-webhook", "108.0.0+up0.9.0", "0.9.0"),
    ] {
        let history = history(world, namespace, name);
        let newest = history.last();
        let is_pending = newest.is_some_and(|release| release.info.status.starts_with("pending-"));
        if !is_pending && newest.is_none_or(|release| release.chart.metadata.version != chart) {
            let metadata = json!({"name": name, "version": chart, "appVersion": app});
            release(world, namespace, name, &metadata, &json!({}), "deployed", "").await;
        }
    }
    // New Fleet: another configuration, another pod, and the cluster imported again.
    let map = world.get("", "configmaps", "cattle-fleet-system", "fleet-controller");
    let agent = "rancher/fleet-agent:v0.14.0";
    if !map["data"]["config"]
        .as_str()
        .is_some_and(|config| config.contains(agent))
    {
        let config = json!({
            "apiServerURL": "", "apiServerCA": "bmV3", "agentImage": agent, "agentTLSMode": "system-store",
        });
        world.patch(&map, json!({"data": {"config": config.to_string()}})).await;
        let controller = pod("cattle-fleet-system", "fleet-controller");
        world.delete(&controller).await;
        world.create(&controller).await;
    }
}

async fn redeploy_agent(world: &World) {
    let cluster = world.get("fleet.cattle.io", "clusters", "fleet-local", "local");
    let asked = cluster["spec"]["redeployAgentGeneration"].as_i64().unwrap_or(0);
    if asked <= cluster["status"]["agentDeployedGeneration"].as_i64().unwrap_or(0) {
        return;
    }
    for object in [fleet_agent(), pod("cattle-fleet-local-system", "fleet-agent")] {
        world.delete(&object).await;
        world.create(&object).await;
    }
    let imported = json!({"type": "Imported", "status": "True", "lastUpdateTime": world.now()});
    let conditions = json!([imported, {"type": "Ready", "status": "True"}]);
    world
        .patch_status(
            &cluster,
            json!({"agentDeployedGeneration": asked, "conditions": conditions}),
        )
        .await;
}

/// Labels every ready node that a Plan selects.
async fn upgrade_controller(world: &World) {
    for plan in world.list("upgrade.cattle.io", "plans") {
        // A Plan with neither a version nor a channel is not taken up.
        let Some(version) = plan["spec"]["version"].as_str() else {
            continue;
        };
        let hash = format!("hash-of-{version}");
        world
            .patch_status(&plan, json!({"latestVersion": version, "latestHash": hash}))
            .await;
        if plan["status"]["latestHash"] != hash.as_str() {
            continue;
        }
        let label = format!("plan.upgrade.cattle.io/{}", plan["metadata"]["name"].as_str().unwrap());
        for node in world.list("", "nodes") {
            let labels = &node["metadata"]["labels"];
            let is_ready = node["status"]["conditions"][0]["status"] == "True";
            if is_ready && labels["harvesterhci.io/managed"] == "true" && labels[&label] != hash.as_str() {
                world
                    .patch(&node, json!({"metadata": {"labels": {&label: hash}}}))
                    .await;
            }
        }
    }
}
