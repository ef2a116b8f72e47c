//! What Fleet's agent does with the chart `harvester`: it applies the KubeVirt object under its own name and fails where
//! another manager owns a field of it; and what starts with a new Harvester.

use api::{
    foreign::{harvester::Setting, kubevirt::KubeVirt},
    names,
};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams, Request},
};
use serde_json::{Value, json};

use crate::{
    cluster::{management, platform},
    context::Context,
    error::{Error, Result},
    helm,
    release::{LONGHORN, Release},
};

use super::longhorn;

/// The name under which Fleet's agent applies: Helm takes that of the program it runs in.
pub(crate) const FIELD_MANAGER: &str = "fleetagent";

/// Upgrades the release. A field of another manager is reported and nothing else is done.
pub(super) async fn upgrade(world: &Context, release: &Value) -> Result<Option<String>> {
    if let Some(conflict) = apply_kubevirt(world, &release["values"]).await? {
        return Ok(Some(conflict));
    }
    let version = release["version"].as_str().unwrap_or_default();
    let shape = &world.shape;
    let is_before = version == shape.from.trim_start_matches('v') && shape.from != shape.to;
    if version.is_empty() || is_before {
        return Ok(None);
    }
    let to = Release::of(&format!("v{version}"));
    helm::deploy(
        world,
        (names::HARVESTER_NAMESPACE, names::HARVESTER_CHART),
        (names::HARVESTER_CHART, &to.harvester_chart, &to.harvester),
        &management::harvester_values(LONGHORN),
    )
    .await?;
    longhorn::renew(world).await?;
    set_server_version(world, &to.harvester).await?;
    let key = (names::HARVESTER_NAMESPACE.to_owned(), names::KUBEVIRT.to_owned());
    let status = json!({"observedKubeVirtVersion": to.kubevirt});
    world.kubevirts.patch_status(&key, &status).await?;
    Ok(None)
}

/// Applies the KubeVirt object. A release that was first installed before v1.8 is merged by the client as ever, which
/// ignores owners; later ones use server-side apply.
async fn apply_kubevirt(world: &Context, values: &Value) -> Result<Option<String>> {
    let methods = &values["kubevirt"]["spec"]["workloadUpdateStrategy"]["workloadUpdateMethods"];
    let object = platform::kubevirt_manifest((!methods.is_null()).then_some(methods));
    let mut params = PatchParams::apply(FIELD_MANAGER);
    params.force = !world.shape.is_applied_by_server();
    let kubevirts: Api<KubeVirt> = Api::namespaced(world.client.clone(), names::HARVESTER_NAMESPACE);
    match kubevirts.patch(names::KUBEVIRT, &params, &Patch::Apply(&object)).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Some(format!(
            "conflict occurred while applying object {}/{} kubevirt.io/v1, Kind=KubeVirt: {}",
            names::HARVESTER_NAMESPACE,
            names::KUBEVIRT,
            status.message
        ))),
        Err(error) => Err(Error::api("apply the KubeVirt object", error)),
    }
}

/// Settings are not watched: nothing else here reads them.
async fn set_server_version(world: &Context, version: &str) -> Result<()> {
    let what = "set the server version";
    let patch = json!({ "value": version });
    let request = Request::new(Setting::url_path(&(), None))
        .patch(
            names::SERVER_VERSION_SETTING,
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .map_err(|error| Error::api(what, kube::Error::BuildRequest(error)))?;
    match world.client.request::<Value>(request).await {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::api(what, error)),
    }
}
