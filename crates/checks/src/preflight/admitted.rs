//! The checks of admission as lines of this table: their messages as they are, with the objects that they name.

use std::collections::BTreeSet;

use api::names;
use kube::{Resource, ResourceExt};
use snapshot::{ListedOnce, Snapshot};

use super::{Found, Question, missing};
use crate::{
    FieldError,
    admission::{self, CREATE},
    field_error::ErrorType,
    finding::{Missing, ObjectRef, Severity},
};

/// Runs the check of that place in [`CREATE`].
pub(super) fn run(index: usize, question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let Some((_, guards, check)) = CREATE.get(index) else {
        return Err(missing("admission", "there is no such check"));
    };
    let errors = match check(&question.plan, &question.cluster) {
        Ok(errors) => errors,
        Err(error) if error.type_ == ErrorType::Internal => return Err(no_list(&error)),
        // Without a version there is no plan yet, and nothing is wrong with that.
        Err(error) if error.type_ == ErrorType::Required => {
            question.target()?;
            vec![error]
        }
        Err(error) => vec![error],
    };
    let overridden = !admission::is_checked(&question.plan, *guards);
    Ok(errors
        .iter()
        .map(|error| found(index, question, error, overridden))
        .collect())
}

fn no_list(error: &FieldError) -> Missing {
    let detail = error.detail.strip_prefix("failed to list ").unwrap_or(&error.detail);
    let (kind, why) = detail.split_once(": ").unwrap_or(("the API", detail));
    missing(kind, why)
}

fn found(index: usize, question: &Question<'_>, error: &FieldError, overridden: bool) -> Found {
    let text = error.to_string();
    let found = Found::new(text.as_str()).about(mentioned(&text, candidates(index, question.snapshot)));
    if overridden {
        let found = found.severity(Severity::Warning);
        let message = format!("{text} (the plan skips this check)");
        return Found { message, ..found };
    }
    found
}

/// An object and the word by which messages name it.
type Candidate = (String, ObjectRef);

/// Those objects whose names stand in the text.
fn mentioned(text: &str, candidates: Vec<Candidate>) -> Vec<ObjectRef> {
    let edge = |c: char| c.is_whitespace() || matches!(c, '"' | ',' | ';' | ':' | '(' | ')');
    let words: BTreeSet<&str> = text.split(edge).filter(|word| !word.is_empty()).collect();
    let named = candidates.into_iter().filter(|(word, _)| words.contains(word.as_str()));
    named.map(|(_, object)| object).collect()
}

/// The objects that the check of that place may name.
fn candidates(index: usize, snapshot: &Snapshot) -> Vec<Candidate> {
    match CREATE.get(index).map(|(title, ..)| *title).unwrap_or_default() {
        "the Version exists" => by_name(&snapshot.versions),
        "no other upgrade runs" | "no other upgrade cleans up" => by_name(&snapshot.plans),
        "nodes are ready" | "nodes to pause exist" => by_name(&snapshot.nodes),
        "the Rancher cluster is ready" => {
            let cluster = ObjectRef::new("Cluster", Some(names::FLEET_NAMESPACE), names::LOCAL_CLUSTER);
            vec![("cluster".to_owned(), cluster)]
        }
        "machines are running" => by_full_name(&snapshot.machines),
        "nodes and machines are paired" => [
            by_name(&snapshot.nodes),
            by_name(&snapshot.machines),
            by_full_name(&snapshot.machines),
        ]
        .concat(),
        "volumes are healthy" => claims(snapshot),
        "no VM backup is under way" => by_full_name(&snapshot.vm_backups),
        "backup schedules are suspended" => by_full_name(&snapshot.backup_schedules),
        "VMs can migrate" => by_full_name(&snapshot.vmis),
        "nothing is left of old hotplugs" => by_full_name(&snapshot.vms),
        "managed charts are ready" => by_name(&snapshot.managed_charts),
        "addons are settled" => by_full_name(&snapshot.addons),
        "the image exists" => by_name(&snapshot.images),
        "no V1 upgrade runs" => by_name(&snapshot.v1_upgrades),
        // The others are about the plan itself.
        _ => Vec::new(),
    }
}

fn by_name<K: Resource<DynamicType = ()>>(list: &ListedOnce<K>) -> Vec<Candidate> {
    let objects = list.iter().flat_map(|objects| objects.iter()).map(ObjectRef::of);
    objects.map(|object| (object.name.clone(), object)).collect()
}

fn by_full_name<K: Resource<DynamicType = ()>>(list: &ListedOnce<K>) -> Vec<Candidate> {
    let objects = list.iter().flat_map(|objects| objects.iter());
    objects
        .map(|object| (super::full_name(object), ObjectRef::of(object)))
        .collect()
}

/// Volumes by the claims that users know them by; those without a claim by their own names.
fn claims(snapshot: &Snapshot) -> Vec<Candidate> {
    let volumes = snapshot.volumes.iter().flat_map(|volumes| volumes.iter());
    let named = volumes.map(|volume| {
        let status = volume.status.kubernetes_status.as_ref();
        let namespace = status.and_then(|status| status.namespace.as_deref());
        match status
            .and_then(|status| status.pvc_name.as_deref())
            .filter(|name| !name.is_empty())
        {
            Some(claim) => {
                let object = ObjectRef::new("PersistentVolumeClaim", namespace, claim);
                (format!("{}/{claim}", namespace.unwrap_or_default()), object)
            }
            None => (volume.name_any(), ObjectRef::of(volume)),
        }
    });
    named.collect()
}
