//! Charts as Fleet and Helm see them.

use std::collections::BTreeMap;

use api::{names, quoted::quoted};
use rules::fleet::bundle_lacks;

use super::{Found, Question, full_name};
use crate::finding::{Missing, ObjectRef, needed};

/// Namespaces whose releases an upgrade waits for or replaces.
const WATCHED: [&str; 9] = [
    names::HARVESTER_NAMESPACE,
    names::CATTLE_NAMESPACE,
    names::LONGHORN_NAMESPACE,
    names::KUBE_SYSTEM_NAMESPACE,
    "cattle-fleet-system",
    "cattle-fleet-local-system",
    "cattle-capi-system",
    "cattle-provisioning-capi-system",
    "cattle-turtles-system",
];

pub(super) fn bundles_are_ready(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let bundles = needed(&question.snapshot.bundles, "bundles")?;
    let unready = bundles.iter().filter_map(|bundle| {
        let why = bundle_lacks(bundle)?;
        Some(Found::of(
            bundle,
            format!("bundle {} is not ready: {why}", full_name(bundle)),
        ))
    });
    Ok(unready.collect())
}

pub(super) fn fleet_is_ready(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let clusters = needed(&question.snapshot.fleet_clusters, "clusters.fleet.cattle.io")?;
    let mut found = Vec::new();
    for cluster in clusters {
        let conditions = cluster.status.conditions.iter().flatten();
        let unmet = conditions.filter(|condition| {
            matches!(condition.type_.as_str(), "Ready" | "Imported" | "Processed")
                && condition.status.as_deref() == Some("False")
        });
        for condition in unmet {
            let message = condition.message.as_deref().filter(|message| !message.is_empty());
            let message = message
                .map(|message| format!(": {}", quoted(message)))
                .unwrap_or_default();
            let text = format!(
                "Fleet says that its cluster {} is not {}{message}",
                full_name(cluster),
                condition.type_
            );
            found.push(Found::of(cluster, text));
        }
    }
    Ok(found)
}

/// A revision of a release: its number, its status, and the Secret that has it.
type Revision = (u64, String, ObjectRef);

/// The newest revision of each release, by namespace and name.
fn newest(question: &Question<'_>) -> Result<BTreeMap<(String, String), Revision>, Missing> {
    let secrets = needed(&question.snapshot.helm_releases, "secrets (Helm releases)")?;
    let mut newest: BTreeMap<(String, String), Revision> = BTreeMap::new();
    for secret in secrets {
        let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
        let (Some(name), Some(status)) = (secret.label("name"), secret.label("status")) else {
            continue;
        };
        let revision: u64 = secret.label("version").and_then(|text| text.parse().ok()).unwrap_or(0);
        let key = (namespace.to_owned(), name.to_owned());
        if newest.get(&key).is_none_or(|(known, ..)| *known <= revision) {
            let secret_name = secret.metadata.name.as_deref().unwrap_or_default();
            let object = ObjectRef::new("Secret", Some(namespace), secret_name);
            newest.insert(key, (revision, status.to_owned(), object));
        }
    }
    Ok(newest)
}

/// Helm refuses to upgrade a release while another operation on it is recorded as under way.
pub(super) fn no_release_is_pending(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let pending = newest(question)?
        .into_iter()
        .filter(|(_, (_, status, _))| status.starts_with("pending-"));
    let found = pending.map(|((namespace, name), (revision, status, object))| {
        let text = format!("Helm release {namespace}/{name} is {status} at revision {revision}");
        let command = if status == "pending-install" {
            format!("helm uninstall {name} -n {namespace}")
        } else {
            format!("helm rollback {name} -n {namespace}")
        };
        Found::new(text).about([object]).command(command)
    });
    Ok(found.collect())
}

pub(super) fn no_release_has_failed(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let failed = newest(question)?
        .into_iter()
        .filter(|((namespace, _), (_, status, _))| status == "failed" && WATCHED.contains(&namespace.as_str()));
    let found = failed.map(|((namespace, name), (revision, _, object))| {
        let text = format!("Helm release {namespace}/{name} failed at revision {revision}");
        Found::new(text)
            .about([object])
            .command(format!("helm history {name} -n {namespace}"))
    });
    Ok(found.collect())
}
