//! The repository of a plan as the caches show it.

use api::{UpgradePlan, names, owner};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::ResourceExt;
use plan::observed::ObservedRepo;

use crate::{
    objects::repo::{secret_of, serves_manifest},
    watched::Watched,
};

pub(super) fn look(watched: &Watched, plan: &UpgradePlan) -> ObservedRepo {
    let name = names::repo(&plan.name_any());
    let deployment = watched.deployments.get(names::HARVESTER_NAMESPACE, &name);
    let deployment = deployment.filter(|found| super::is_present_child(found.as_ref(), plan));
    let service = watched.services.get(names::HARVESTER_NAMESPACE, &name);
    let service = service.filter(|found| super::is_present_child(found.as_ref(), plan));
    ObservedRepo {
        serves_manifest: deployment.as_deref().is_some_and(serves_manifest),
        secret: deployment.as_deref().and_then(secret_of),
        deployment_ready: deployment.map(|found| deployment_is_ready(&found)),
        service_ready: service.map(|found| service_is_ready(watched, &found)),
    }
}

fn deployment_is_ready(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let available = deployment
        .status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .unwrap_or_default();
    wanted.is_some_and(|wanted| available >= wanted)
}

/// A Service is ready when it has an address and an endpoint that says of itself that it is ready.
fn service_is_ready(watched: &Watched, service: &Service) -> bool {
    let has_address = service
        .spec
        .as_ref()
        .and_then(|spec| spec.cluster_ip.as_deref())
        .is_some_and(|address| !address.is_empty());
    let Some(uid) = service.uid() else { return false };
    has_address
        && watched.endpoint_slices.list().iter().any(|slice| {
            owner::is_owned_by(slice.as_ref(), &uid)
                && slice
                    .endpoints
                    .iter()
                    .any(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true))
        })
}
