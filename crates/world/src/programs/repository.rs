//! What the repository of a plan prints: that it serves, and that it has read the ISO. The lines are those of
//! `upgrade-toolkit repo`, which is no program of a Job; nginx prints none of them.

use std::sync::Arc;

use api::{Component, labels, names};
use k8s_openapi::api::core::v1::Pod;
use release::{manifest, repo::PREFIX};

use super::log::logged_now;
use crate::{
    Facts,
    context::{Context, label},
};

/// The module of the real lines.
const REAL: &str = "cli::command::repo";

/// Our own server is in a pod.
fn is_ours(pod: &Pod) -> bool {
    let first = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let args = first.and_then(|container| container.args.as_deref());
    Component::of(&pod.metadata) == Some(Component::Repo)
        && args.is_some_and(|args| args.first().is_some_and(|command| command == "repo"))
}

/// The pod of a repository has started.
pub(crate) fn starts(world: &Arc<Context>, pod: &Arc<Pod>) {
    if !is_ours(pod) {
        return;
    }
    let release = Facts(world.clone()).release_of(&repository(pod));
    logged_now(world, pod, || {
        tracing::info!(
            target: REAL, address = "[::]:8080", tls = ":8443", path = PREFIX, harvester = release.harvester, "serving"
        );
    });
}

/// The pod of a repository has become ready.
pub(crate) fn is_ready(world: &Arc<Context>, pod: &Arc<Pod>) {
    if !is_ours(pod) {
        return;
    }
    let facts = Facts(world.clone());
    let Ok(manifest) = facts.manifest(&facts.release_of(&repository(pod))) else {
        return;
    };
    let root = manifest::sha256(manifest.text().as_bytes());
    logged_now(world, pod, || {
        tracing::info!(target: REAL, sha512 = %manifest.iso.sha512, manifest = root.as_str(), "the ISO was read");
    });
}

fn repository(pod: &Pod) -> String {
    names::repo(label(&pod.metadata, labels::UPGRADE_PLAN).unwrap_or_default())
}
