//! S-07: the repository is identified by a certificate that is recorded before its key is stored.

use api::{Phase, RepositoryAccess, annotations};
use plan::{
    Action, Child, Need,
    decision::ChildKind,
    observed::{Fetched, ObservedRepo},
};

use crate::{
    model::Model,
    walk::{ended, until},
};

fn recorded(model: &Model) -> Option<RepositoryAccess> {
    model
        .observed
        .plan
        .status
        .as_ref()
        .and_then(|status| status.repository.clone())
}

/// The repository is about to be deployed: the manager holds a key.
fn with_key() -> Model {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        matches!(model.observed.facts.repo_certificate, Fetched::Got(_))
    });
    assert_eq!(model.phase(), Some(Phase::RepoCreating));
    model
}

fn created(model: &Model) -> Vec<Child> {
    let actions = model.decide().actions.into_iter();
    let children = actions.filter_map(|action| match action {
        Action::Create(child) => Some(child),
        _ => None,
    });
    children.collect()
}

/// A manager that has just started: nothing is in its hand.
fn restart(model: &mut Model) {
    model.observed.facts = plan::observed::Facts::default();
}

#[test]
fn s07_the_certificate_is_recorded_and_its_secret_is_created_before_the_repository() {
    let model = with_key();
    let decision = model.decide();
    let access = decision.status.repository.clone().unwrap();
    assert!(!access.in_use);
    let children = created(&model);
    let place = |is_it: &dyn Fn(&Child) -> bool| children.iter().position(is_it).unwrap();
    let secret = place(&|child| matches!(child, Child::RepoSecret { name } if *name == access.secret));
    let deployment = place(&|child| matches!(child, Child::RepoDeployment { secret, .. } if *secret == access.secret));
    assert!(secret < deployment);
    assert!(
        decision.actions.iter().all(Action::needs_those_before),
        "a Secret that cannot be created keeps the Deployment from being created"
    );
}

#[test]
fn s07_a_key_that_was_lost_before_it_was_stored_is_replaced_under_another_name() {
    let mut model = with_key();
    let decision = model.decide();
    let first = decision.status.repository.clone().unwrap();
    // The manager died behind its write of the status.
    model.observed.plan.status = Some(decision.status);
    restart(&mut model);
    assert!(model.decide().needs.contains(&Need::RepoCertificate));
    assert!(
        !created(&model)
            .iter()
            .any(|child| matches!(child, Child::RepoDeployment { .. }))
    );
    model.now = model.now.saturating_add(std::time::Duration::from_secs(1)).unwrap();
    until(&mut model, |model| model.phase() == Some(Phase::RepoCreated));
    let second = recorded(&model).unwrap();
    assert!(second.in_use && second.secret != first.secret);
}

#[test]
fn s07_a_repository_that_is_deleted_gets_the_same_certificate_again_by_any_manager() {
    let mut model = with_key();
    until(&mut model, |model| model.phase() == Some(Phase::NodeUpgrading));
    let before = recorded(&model).unwrap();
    restart(&mut model);
    model.observed.repo = ObservedRepo::default();
    let children = created(&model);
    let mounts = |child: &Child| matches!(child, Child::RepoDeployment { secret, .. } if *secret == before.secret);
    assert!(children.iter().any(mounts), "{children:?}");
    assert!(!children.iter().any(|child| matches!(child, Child::RepoSecret { .. })));
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
    assert_eq!(recorded(&model), Some(before), "Jobs that run believe no other");
}

#[test]
fn s07_a_deployment_that_does_not_mount_the_recorded_secret_is_replaced_and_never_read() {
    for mounted in [None, Some("up-repo-another".to_owned())] {
        let mut model = with_key();
        until(&mut model, |model| model.phase() == Some(Phase::RepoCreated));
        let before = recorded(&model).unwrap();
        model.observed.repo.secret = mounted;
        until(&mut model, |model| model.phase() == Some(Phase::MetadataPopulating));
        let decision = model.decide();
        let deletes = |action: &Action| {
            matches!(
                action,
                Action::Delete {
                    kind: ChildKind::Deployment,
                    ..
                }
            )
        };
        assert!(decision.actions.iter().any(deletes), "{:?}", decision.actions);
        assert_eq!(decision.status.repository, Some(before.clone()));
        until(&mut model, |model| model.phase() == Some(Phase::MetadataPopulated));
        assert_eq!(model.observed.repo.secret, Some(before.secret));
    }
}

#[test]
fn s07_a_retry_before_any_node_has_read_makes_another_certificate() {
    let mut model = with_key();
    until(&mut model, |model| {
        matches!(model.observed.facts.digests, Fetched::Got(_))
    });
    let before = recorded(&model).unwrap();
    assert!(before.in_use);
    // The ISO is another one: the plan fails, and is tried again.
    let Fetched::Got(digests) = &mut model.observed.facts.digests else {
        unreachable!()
    };
    digests.iso_sha512 = "0".repeat(128);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    restart(&mut model);
    model.now = model.now.saturating_add(std::time::Duration::from_secs(1)).unwrap();
    let known = model.observed.plan.metadata.annotations.get_or_insert_default();
    known.insert(annotations::RETRY.to_owned(), "1".to_owned());
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
    assert_ne!(recorded(&model).unwrap().secret, before.secret);
}
