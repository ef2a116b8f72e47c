//! Rancher and Fleet themselves: a new Rancher says its version, then brings its catalogs, its Fleet and its webhook;
//! Fleet redeploys its agent on request; catalogs are refreshed on request.

use std::{collections::BTreeMap, sync::Arc};

use api::{foreign::management::Setting, names};
use cluster_upgrade::{
    rancher::{FLEET_AGENT_SYSTEM, FLEET_SYSTEM},
    rollout,
};
use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use program::report::Look;
use serde_json::{Value, json};

use crate::{
    cluster::management::{self, FLEET_AGENT, FLEET_CONTROLLER, RANCHER, RANCHER_REPOS},
    context::{Context, after},
    error::{Error, Result},
    helm,
    inbox::{Inbox, Key, Kind},
    release,
};

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.deployments.subscribe(&inbox);
    world.fleet_clusters.subscribe(&inbox);
    world.repos.subscribe(&inbox);
    // When a Rancher came up, by its version. A controller that restarts gives it the full time again.
    let mut since = BTreeMap::new();
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = match kind {
            Kind::Deployment if key.0 == names::CATTLE_NAMESPACE && key.1 == RANCHER => {
                come_up(&world, &inbox, &mut since, &key).await
            }
            Kind::FleetCluster => deploy_agent(&world, &key).await,
            Kind::ClusterRepo => read_repo(&world, &key).await,
            _ => Ok(()),
        };
        inbox.settle("rancher", (kind, key), outcome);
    }
}

/// The tag of the image that a Deployment runs.
fn tag(deployment: &Deployment) -> Option<&str> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers
        .first()?
        .image
        .as_deref()?
        .rsplit_once(':')
        .map(|parts| parts.1)
}

/// A Rancher of another version says so, and after a while brings what belongs to it.
async fn come_up(world: &Context, inbox: &Inbox, since: &mut BTreeMap<String, Timestamp>, key: &Key) -> Result<()> {
    let Some(deployment) = world.deployments.at(key) else {
        return Ok(());
    };
    let runs = rollout::look(RANCHER, Some(deployment.as_ref())) == Look::Done;
    let Some(version) = tag(&deployment).filter(|tag| runs && *tag != world.shape.installed().rancher) else {
        return Ok(());
    };
    let settings: Api<Setting> = Api::all(world.client.clone());
    let said = settings.get_opt(names::SERVER_VERSION_SETTING).await;
    let said = said.map_err(|error| Error::api("read Rancher's version", error))?;
    if said.is_some_and(|said| said.value != version) {
        patch(&settings, names::SERVER_VERSION_SETTING, &json!({ "value": version })).await?;
    }
    let now = world.clock.now();
    let begun = *since.entry(version.to_owned()).or_insert(now);
    let due = after(begun, world.durations.chart);
    if now < due {
        inbox.later(Kind::Deployment, key.clone(), due);
        return Ok(());
    }
    bring(world).await
}

/// What a Rancher installs when it has come up. What is there already is left.
async fn bring(world: &Context) -> Result<()> {
    for name in RANCHER_REPOS {
        world.repos.create(&management::repo(name, None)).await?;
    }
    configure_fleet(world).await?;
    for (namespace, name, repository, version) in [
        (FLEET_SYSTEM, FLEET_CONTROLLER, "fleet", release::FLEET.1),
        (
            names::CATTLE_NAMESPACE,
            management::RANCHER_WEBHOOK,
            management::RANCHER_WEBHOOK,
            release::RANCHER_WEBHOOK.1,
        ),
    ] {
        let image = format!("rancher/{repository}:v{version}");
        set_image(world, namespace, name, &image).await?;
    }
    // Helm reports success when all of that is done: clients that wait for a release may continue then.
    let none = json!({});
    for (namespace, name, (chart, app)) in [
        (FLEET_SYSTEM, "fleet-crd", release::FLEET),
        (FLEET_SYSTEM, "fleet", release::FLEET),
        (
            names::CATTLE_NAMESPACE,
            management::RANCHER_WEBHOOK,
            release::RANCHER_WEBHOOK,
        ),
    ] {
        helm::deploy(world, (namespace, name), (name, chart, app), &none).await?;
    }
    Ok(())
}

/// Gives the first container of a Deployment another image.
pub(crate) async fn set_image(world: &Context, namespace: &str, name: &str, image: &str) -> Result<()> {
    let key = (namespace.to_owned(), name.to_owned());
    let Some(deployment) = world.deployments.at(&key) else {
        return Ok(());
    };
    let mut spec = serde_json::to_value(&deployment.spec)?;
    let containers = &mut spec["template"]["spec"]["containers"];
    if containers[0]["image"] == image {
        return Ok(());
    }
    containers[0]["image"] = json!(image);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    world.deployments.patch(&key, &patch).await.map(drop)
}

/// A new Fleet forgets the address that its agents are to call.
async fn configure_fleet(world: &Context) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), FLEET_SYSTEM);
    let found = maps.get_opt(FLEET_CONTROLLER).await;
    let found = found.map_err(|error| Error::api("read Fleet's configuration", error))?;
    let text = found
        .and_then(|map| map.data?.get("config").cloned())
        .unwrap_or_default();
    let mut config: Value = serde_json::from_str(&text).unwrap_or_default();
    let agent = management::fleet_agent_image(release::FLEET.1);
    if config["agentImage"] == agent {
        return Ok(());
    }
    config["agentImage"] = json!(agent);
    config["apiServerURL"] = json!("");
    let data = json!({"data": {"config": config.to_string()}});
    patch(&maps, FLEET_CONTROLLER, &data).await
}

async fn patch<K>(api: &Api<K>, name: &str, change: &Value) -> Result<()>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
    patched
        .map(drop)
        .map_err(|error| Error::api(format!("patch {name}"), error))
}

/// Fleet redeploys the agent of a cluster, and imports the cluster again.
async fn deploy_agent(world: &Context, key: &Key) -> Result<()> {
    let Some(cluster) = world.fleet_clusters.at(key) else {
        return Ok(());
    };
    let asked = cluster.spec.redeploy_agent_generation.unwrap_or(0);
    if asked <= cluster.status.agent_deployed_generation.unwrap_or(0) {
        return Ok(());
    }
    let agent = (FLEET_AGENT_SYSTEM.to_owned(), FLEET_AGENT.to_owned());
    world.deployments.delete(&agent, false).await?;
    world
        .deployments
        .create(&management::fleet_agent(release::FLEET.1))
        .await?;
    let status = json!({"agentDeployedGeneration": asked, "conditions": management::imported(&world.stamp())});
    world.fleet_clusters.patch_status(key, &status).await.map(drop)
}

/// A catalog that was never read, or is to be read again, is.
async fn read_repo(world: &Context, key: &Key) -> Result<()> {
    let Some(repo) = world.repos.at(key) else {
        return Ok(());
    };
    let at = |text: Option<&String>| text.and_then(|text| text.parse::<Timestamp>().ok());
    let read = at(repo.status.download_time.as_ref());
    if read.is_some() && read >= at(repo.spec.force_update.as_ref()) {
        return Ok(());
    }
    let status = json!({"downloadTime": world.stamp(), "observedGeneration": repo.metadata.generation});
    world.repos.patch_status(key, &status).await.map(drop)
}
