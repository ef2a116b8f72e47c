//! The certificate of the repository: with it the manager and the programs on the nodes distinguish the plan's own repository from
//! other servers that answer for its name, before they read anything.
//!
//! The manager makes certificate and key, records the certificate, stores both in a Secret that only the repository's pods
//! mount, and may not read that Secret again. So a Secret is known to exist when this manager has created it, which
//! the key in its hand shows, or when a Deployment that mounts it was seen, since that is only created after it.

use api::{Component, RepositoryAccess, Wait, names};

use crate::{
    decision::{Action, ChildKind, Need},
    draft::Draft,
};

/// Where the key of the recorded certificate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The manager has it: the Secret may have to be created.
    InHand(String),
    /// In the Secret.
    Stored(String),
}

impl Key {
    /// The name of the Secret.
    #[must_use]
    pub(super) fn into_name(self) -> String {
        match self {
            Self::InHand(name) | Self::Stored(name) => name,
        }
    }
}

/// Makes sure that a certificate is recorded whose key the repository has or can be given. Nothing while one is made, or
/// for a repository that an older manager deployed.
pub(super) fn ensure(draft: &mut Draft<'_>) -> Option<Key> {
    let observed = draft.observed;
    let recorded = draft.status().repository.clone();
    if observed.repo.deployment_ready.is_some() {
        return deployed(draft, recorded);
    }
    if let Some(recorded) = recorded.as_ref().filter(|recorded| recorded.in_use) {
        return Some(Key::Stored(recorded.secret.clone()));
    }
    let name = names::repo(draft.plan_name());
    let object = format!("Deployment {}/{name}", names::HARVESTER_NAMESPACE);
    let waiting = (
        Wait::RepositoryCertificate,
        object,
        "a certificate for the repository is being made",
    );
    let made = draft
        .ask(Need::RepoCertificate, &observed.facts.repo_certificate, waiting)
        .ok()?;
    // A recorded one whose key is not stored is lost: the manager that made it stopped before it stored it.
    *draft.record().repository = Some(made.clone());
    Some(Key::InHand(made.secret.clone()))
}

/// The Deployment is there: it must serve with the recorded certificate.
fn deployed(draft: &mut Draft<'_>, recorded: Option<RepositoryAccess>) -> Option<Key> {
    match (recorded, &draft.observed.repo.secret) {
        // An older manager deployed it. Its upgrade continues as it began.
        (None, None) => None,
        (Some(recorded), Some(mounted)) if recorded.secret == *mounted => {
            let secret = recorded.secret.clone();
            *draft.record().repository = Some(RepositoryAccess {
                in_use: true,
                ..recorded
            });
            Some(Key::Stored(secret))
        }
        // Deployed by a manager that stopped before it observed this, or by another one: no client would trust what it serves.
        _ => {
            draft.act(Action::Delete {
                kind: ChildKind::Deployment,
                component: Component::Repo,
                job_type: None,
            });
            None
        }
    }
}
