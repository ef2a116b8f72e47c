//! A snapshot from a Harvester support bundle: `yamls/cluster/<group>/<version>/<plural>.yaml` and
//! `yamls/namespaced/<namespace>/<group>/<version>/<plural>.yaml`. Only files of kinds of the table are read, never logs or what
//! nodes sent.
//!
//! A bundle leaves out most Secrets, and every object of namespaces that it did not collect. What is left out is not known; it is
//! never an empty list.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Kind, NoAnswer, Place, Snapshot, Source,
    archive::{Archive, ArchiveError, Limits},
    mangled::{self, Empty},
    manifest,
};

/// What is said of a list that a bundle does not have.
const NOT_IN_IT: &str = "not in the support bundle";
/// Kinds of which every cluster has objects: a bundle without them is not one of a cluster without them.
const IN_EVERY_CLUSTER: [&str; 8] = [
    "nodes",
    "rancher_clusters",
    "machines",
    "managed_charts",
    "kubevirts",
    "longhorn_nodes",
    "addons",
    "deployments",
];
/// Namespaces that are named one by one.
const NAMED: usize = 6;

/// A file of a bundle that holds objects.
#[derive(Debug)]
struct YamlFile {
    name: String,
    namespace: Option<String>,
    group: String,
    plural: String,
}

/// Loads a bundle that is a zip.
///
/// # Errors
/// It is no bundle, or made to harm.
pub fn load_zip(path: &Path, limits: Limits) -> Result<Snapshot, ArchiveError> {
    load(Archive::zip(path, limits)?, path)
}

/// Loads a bundle that is unpacked: the folder that has `yamls`.
///
/// # Errors
/// It cannot be read, or is larger than any bundle.
pub fn load_folder(path: &Path, limits: Limits) -> Result<Snapshot, ArchiveError> {
    load(Archive::folder(path, limits)?, path)
}

fn load(mut archive: Archive, path: &Path) -> Result<Snapshot, ArchiveError> {
    let names = archive.names();
    let files: Vec<YamlFile> = names.iter().filter_map(|name| yaml_file(name)).collect();
    let kinds = Snapshot::kinds();
    let metadata = archive.read("metadata.yaml")?.unwrap_or_default();
    let taken_at = taken_at(&metadata, archive.root(), path);
    let mut snapshot = Snapshot::unknown(taken_at, NOT_IN_IT);
    snapshot.source = Source::SupportBundle;
    let missing = missing_namespaces(&mut archive, &files)?;
    for kind in &kinds {
        match absence(kind, &files, &missing) {
            None => snapshot.set_listed(kind.field),
            Some(why) => snapshot.set_unknown(kind.field, &why),
        }
    }
    let mut failed: BTreeMap<&str, String> = BTreeMap::new();
    for file in &files {
        let of_file: Vec<&Kind> = kinds.iter().filter(|kind| is_in(kind, file)).collect();
        if of_file.is_empty() {
            continue;
        }
        let problem = match archive.read(&file.name)? {
            Ok(text) => add_all(&mut snapshot, &of_file, &text),
            Err(why) => Some(why.to_string()),
        };
        if let Some(why) = problem {
            for kind in of_file {
                failed.insert(
                    kind.field,
                    format!("{} in the support bundle could not be read: {why}", file.name),
                );
            }
        }
    }
    for (field, why) in failed {
        snapshot.set_unknown(field, &why);
    }
    snapshot.sort();
    if missing.as_ref().is_none_or(|missing| !missing.is_empty()) {
        snapshot.only_namespaces = Some(files.iter().filter_map(|file| file.namespace.clone()).collect());
    }
    mark_partial(&mut snapshot, &kinds, &missing);
    let nodes = snapshot.nodes.as_ref().map_or(&[][..], |nodes| nodes);
    let nodes: Vec<String> = nodes.iter().filter_map(|node| node.metadata.name.clone()).collect();
    snapshot.kubelet_disks = nodes
        .into_iter()
        .map(|name| (name, Err(NoAnswer::from(NOT_IN_IT))))
        .collect();
    Ok(snapshot)
}

/// `yamls/cluster/v1/nodes.yaml`, `yamls/namespaced/default/kubevirt.io/v1/virtualmachines.yaml`.
fn yaml_file(name: &str) -> Option<YamlFile> {
    let below = name.strip_prefix("yamls/")?.strip_suffix(".yaml")?;
    let parts: Vec<&str> = below.split('/').collect();
    let (namespace, rest) = match parts.as_slice() {
        ["cluster", rest @ ..] => (None, rest),
        ["namespaced", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
        _ => return None,
    };
    let (group, plural) = match rest {
        [_, plural] => ("", plural),
        [group, _, plural] => (*group, plural),
        _ => return None,
    };
    Some(YamlFile {
        name: name.to_owned(),
        namespace,
        group: group.to_owned(),
        plural: (*plural).to_owned(),
    })
}

fn is_in(kind: &Kind, file: &YamlFile) -> bool {
    let is_here = match (kind.place, &file.namespace) {
        (Place::In(wanted), Some(namespace)) => wanted == namespace,
        (Place::In(_), None) => false,
        (Place::Everywhere, namespace) => kind.is_cluster_scoped() == namespace.is_none(),
    };
    is_here && kind.group == file.group && kind.plural == file.plural
}

/// Namespaces of the cluster that were not collected; nothing when it cannot be said which exist.
fn missing_namespaces(archive: &mut Archive, files: &[YamlFile]) -> Result<Option<BTreeSet<String>>, ArchiveError> {
    let Ok(text) = archive.read("yamls/cluster/v1/namespaces.yaml")? else {
        return Ok(None);
    };
    let mut all = BTreeSet::new();
    let read = manifest::objects(&text, |object| {
        all.extend(object["metadata"]["name"].as_str().map(str::to_owned));
    });
    let collected: BTreeSet<&String> = files.iter().filter_map(|file| file.namespace.as_ref()).collect();
    all.retain(|name| !collected.contains(name));
    Ok(read.ok().map(|()| all))
}

/// Why objects of this kind are not in the bundle; nothing when they are, or when there are none. A bundle has no file for a kind
/// of which there are no objects.
fn absence(kind: &Kind, files: &[YamlFile], missing: &Option<BTreeSet<String>>) -> Option<String> {
    let is_there = files.iter().any(|file| is_in(kind, file));
    if !is_there && IN_EVERY_CLUSTER.contains(&kind.field) {
        return Some(format!(
            "{NOT_IN_IT}: every cluster has some, so they could not be collected"
        ));
    }
    if files.iter().any(|file| is_in(kind, file)) {
        // Of Secrets, only those that control nodes' agents are there.
        return (kind.kind == "Secret" && kind.field != "machine_plans").then(|| NOT_IN_IT.to_owned());
    }
    if kind.kind == "Secret" || kind.plural == "settings" && kind.group == "harvesterhci.io" {
        return Some(NOT_IN_IT.to_owned());
    }
    let is_collected = |wanted: Option<&str>| files.iter().any(|file| file.namespace.as_deref() == wanted);
    match kind.place {
        Place::In(namespace) if !is_collected(Some(namespace)) => {
            Some(format!("{NOT_IN_IT}: it did not collect namespace {namespace}"))
        }
        Place::Everywhere if kind.is_cluster_scoped() && !is_collected(None) => Some(NOT_IN_IT.to_owned()),
        Place::Everywhere if !kind.is_cluster_scoped() && missing.as_ref().is_none_or(|names| !names.is_empty()) => {
            Some(format!("{NOT_IN_IT}: {}", not_collected(missing)))
        }
        _ => None,
    }
}

/// Lists of objects of all namespaces lack those that were not collected.
fn mark_partial(snapshot: &mut Snapshot, kinds: &[Kind], missing: &Option<BTreeSet<String>>) {
    if missing.as_ref().is_some_and(BTreeSet::is_empty) {
        return;
    }
    let unknown: BTreeSet<&str> = snapshot.unknown_kinds().into_iter().map(|(field, _)| field).collect();
    for kind in kinds {
        if kind.place == Place::Everywhere && !kind.is_cluster_scoped() && !unknown.contains(kind.field) {
            snapshot.partial.insert(kind.field.to_owned(), not_collected(missing));
        }
    }
}

fn not_collected(missing: &Option<BTreeSet<String>>) -> String {
    let Some(missing) = missing else {
        return "it has only some namespaces".to_owned();
    };
    let names: Vec<&str> = missing.iter().take(NAMED).map(String::as_str).collect();
    let names = names.join(", ");
    match missing.len().saturating_sub(NAMED) {
        0 => format!("it did not collect namespaces {names}"),
        more => format!("it did not collect namespaces {names} and {more} more"),
    }
}

/// Adds the objects of a file. Returns why some could not be added.
fn add_all(snapshot: &mut Snapshot, kinds: &[&Kind], text: &str) -> Option<String> {
    let mut problem = None;
    let read = manifest::objects(text, |object| {
        for kind in kinds {
            if let Err(error) = add(snapshot, kind, &object) {
                let name = api::quoted::quoted(object["metadata"]["name"].as_str().unwrap_or_default());
                problem.get_or_insert_with(|| format!("{} {name}: {error}", kind.kind));
            }
        }
    });
    read.err().map(|error| error.to_string()).or(problem)
}

/// Adds an object if it belongs to the kind. Nothing says whether an empty field was absent, so both are tried.
fn add(snapshot: &mut Snapshot, kind: &Kind, object: &Value) -> Result<(), serde_json::Error> {
    let mut as_absent = object.clone();
    mangled::undo(&mut as_absent, Empty::Absent);
    if !kind.lists(&as_absent) {
        return Ok(());
    }
    snapshot.add(kind.field, as_absent).or_else(|_| {
        let mut as_text = object.clone();
        mangled::undo(&mut as_text, Empty::Text);
        snapshot.add(kind.field, as_text)
    })
}

/// When the bundle was made: by its metadata, else by its name, else by its file.
fn taken_at(metadata: &str, root: &str, path: &Path) -> Timestamp {
    let metadata: Value = serde_saphyr::from_str(metadata).unwrap_or_default();
    let by_metadata = metadata["bundlecreatedat"].as_str().and_then(|text| text.parse().ok());
    by_metadata
        .or_else(|| by_name(root))
        .or_else(|| {
            let modified = std::fs::metadata(path).and_then(|about| about.modified()).ok()?;
            Timestamp::try_from(modified).ok()
        })
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

/// `supportbundle_<uid>_2026-09-01T10-00-00Z`: a time with dashes for colons.
fn by_name(root: &str) -> Option<Timestamp> {
    let (day, time) = root.rsplit('_').next()?.split_once('T')?;
    format!("{day}T{}", time.replace('-', ":")).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_metadata_or_of_the_name() {
        let expected: Timestamp = "2026-09-01T10:20:30Z".parse().unwrap();
        let path = Path::new("/nonexistent");
        assert_eq!(
            taken_at("bundlecreatedat: \"2026-09-01T10:20:30Z\"\n", "x", path),
            expected
        );
        assert_eq!(taken_at("", "supportbundle_2a9b_2026-09-01T10-20-30Z", path), expected);
        assert_eq!(taken_at("", "x", path), Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn names_of_files_say_what_is_in_them() {
        let file = yaml_file("yamls/namespaced/default/kubevirt.io/v1/virtualmachines.yaml").unwrap();
        assert_eq!(
            (file.namespace.as_deref(), file.group.as_str(), file.plural.as_str()),
            (Some("default"), "kubevirt.io", "virtualmachines")
        );
        let file = yaml_file("yamls/cluster/v1/nodes.yaml").unwrap();
        assert_eq!(
            (file.namespace, file.group.as_str(), file.plural.as_str()),
            (None, "", "nodes")
        );
        assert!(yaml_file("yamls/nodes.yaml").is_none());
        assert!(yaml_file("yamls/cluster/a/b/c/d.yaml").is_none());
    }
}
