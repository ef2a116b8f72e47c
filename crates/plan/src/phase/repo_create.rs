//! RepoCreate: the ISO's content is served inside the cluster.

use api::names;

use crate::{
    decision::Child,
    draft::{Draft, Outcome},
};

/// Deploys the repository and waits until it serves.
pub fn run(draft: &mut Draft<'_>) -> Outcome {
    let seen = draft.seen;
    let limit = seen.settings.deadlines.repo;
    let name = names::repo(draft.plan_name());
    let hosts = seen.nodes.values().filter(|node| node.managed && !node.witness).count();
    let replicas = match hosts {
        0 => {
            draft.wait(
                "Nodes",
                None,
                "no non-witness managed nodes found in the cluster",
                limit,
            );
            return Outcome::Wait;
        }
        1 => 1,
        _ => 2,
    };
    if seen.repo.deployment_ready.is_none() {
        let claim = draft
            .status()
            .iso_image_id
            .clone()
            .unwrap_or_else(|| names::iso_image(draft.plan_name()));
        draft.create(Child::RepoDeployment { replicas, claim });
    }
    if seen.repo.service_ready.is_none() {
        draft.create(Child::RepoService);
    }
    if seen.repo.deployment_ready != Some(true) {
        let object = Some(format!("Deployment harvester-system/{name}"));
        draft.wait("Repository", object, "upgrade-repo deployment not ready", limit);
        return Outcome::Wait;
    }
    if seen.repo.service_ready != Some(true) {
        let object = Some(format!("Service harvester-system/{name}"));
        draft.wait("Repository", object, "upgrade-repo svc/ep not ready", limit);
        return Outcome::Wait;
    }
    Outcome::Done
}
