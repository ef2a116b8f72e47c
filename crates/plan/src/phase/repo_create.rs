//! RepoCreate: the ISO's content is served inside the cluster.

use api::{Component, Wait, annotations, names};

use crate::{
    decision::Child,
    draft::{Draft, Outcome},
    preflight,
};

use super::{
    release_digests,
    repo_certificate::{self, Key},
};

/// Makes sure that the repository exists while later phases use it: after a failure it is gone, and any user may delete
/// it. Whether it serves is checked when it is read.
pub fn keep(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    if observed.iso_image.is_none() && observed.plan.spec.image.is_none() {
        let version = draft.status().version.clone().unwrap_or_default();
        let checksum = version.iso_checksum.unwrap_or_default();
        draft.create(Child::IsoImage {
            url: version.iso_url,
            checksum,
        });
    }
    let hosts = hosts(draft);
    if hosts > 0 {
        deploy(draft, hosts);
    }
}

/// How many nodes can run the repository.
fn hosts(draft: &Draft<'_>) -> usize {
    draft
        .observed
        .nodes
        .values()
        .filter(|node| node.managed && !node.witness)
        .count()
}

/// Creates what is missing.
fn deploy(draft: &mut Draft<'_>, hosts: usize) {
    let observed = draft.observed;
    let key = repo_certificate::ensure(draft);
    let is_deployed = observed.repo.deployment_ready.is_some() || key.is_some();
    if let (None, Some(key)) = (observed.repo.deployment_ready, key) {
        if let Key::InHand(name) = &key {
            // First: its failure prevents the creation of the Deployment, so an existing Deployment implies the Secret.
            draft.create(Child::RepoSecret { name: name.clone() });
        }
        let claim = draft
            .status()
            .iso_image_id
            .clone()
            .unwrap_or_else(|| names::iso_image(draft.plan_name()));
        // Recorded before it exists: from then on a Deployment without it is not ours.
        draft.note(annotations::SERVES_MANIFEST, Some("true".to_owned()));
        draft.create(Child::RepoDeployment {
            replicas: if hosts == 1 { 1 } else { 2 },
            claim,
            checksum: release_digests::given(draft)
                .map(|(sum, _)| sum)
                .filter(|sum| release_digests::is_sha512(sum)),
            secret: key.into_name(),
        });
    }
    if observed.repo.service_ready.is_none() && is_deployed {
        draft.create(Child::RepoService);
    }
}

/// Deploys the repository and waits until it serves.
pub fn run(draft: &mut Draft<'_>) -> Outcome {
    let observed = draft.observed;
    let name = names::repo(draft.plan_name());
    // It may have been changed since the pre-flight checks, and can be changed again.
    if let Err(error) = preflight::repo_server(&observed.plan) {
        let why = error.to_string();
        let object = Some(format!("UpgradePlan {}", draft.plan_name()));
        let noted = draft.wait(Wait::Annotation, object, &why);
        draft.degrade(why);
        return noted.into();
    }
    let hosts = hosts(draft);
    if hosts == 0 {
        let message = "no non-witness managed nodes found in the cluster";
        let limit = observed.settings.deadlines.repo;
        return draft.wait_within(Wait::Nodes, None, message, limit).into();
    }
    deploy(draft, hosts);
    if observed.repo.deployment_ready != Some(true) {
        let object = Some(format!("Deployment harvester-system/{name}"));
        let noted = draft.wait(Wait::Repository, object, "upgrade-repo deployment not ready");
        draft.wait_for_pods(Component::Repo, None, None);
        return noted.into();
    }
    if observed.repo.service_ready != Some(true) {
        let object = Some(format!("Service harvester-system/{name}"));
        return draft
            .wait(Wait::Repository, object, "upgrade-repo svc/ep not ready")
            .into();
    }
    Outcome::Done
}
