//! What of a snapshot a rehearsal can be like: its nodes, VMs, volumes, pods, budgets, addons and settings as a [`Layout`], and
//! in words what the snapshot does not say. Pure; nothing is invented.

mod nodes;
mod vms;
mod volumes;
mod workloads;

use std::collections::BTreeSet;

use api::names;
use serde_json::Value;
use snapshot::{ListedOnce, Snapshot};
use world::Layout;

/// Settings of Longhorn that the simulation obeys or shows. Those that name images stay its own.
const LONGHORN_SETTINGS: [&str; 4] = [
    names::REPLENISHMENT_SETTING,
    "default-replica-count",
    "node-drain-policy",
    "concurrent-replica-rebuild-per-node-limit",
];

/// Lists that a rehearsal needs, and what is missing in the forecast without them.
const NEEDED: [(&str, &str); 11] = [
    ("vmis", "VMs are not part of the forecast"),
    (
        "pods",
        "the room that nodes have left for VMs is not known, and pods that a budget guards are not known",
    ),
    ("budgets", "disruption budgets are not part of the forecast"),
    ("volumes", "volumes are not part of the forecast"),
    ("replicas", "volumes are not part of the forecast"),
    (
        "engines",
        "which replicas are whole is taken from the replicas themselves",
    ),
    ("machines", "the order of nodes may be another one"),
    (
        "machine_plans",
        "the node that Rancher upgrades first is taken to be the oldest one of the control plane",
    ),
    ("settings", "settings are those of a new cluster"),
    ("addons", "addons are those of a new cluster"),
    ("kubevirts", "limits of live migrations are those of KubeVirt"),
];

/// What was seen of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// The cluster.
    pub layout: Layout,
    /// The version of Harvester that runs.
    pub version: Option<String>,
    /// What the snapshot does not say, and what follows.
    pub unknown: Vec<String>,
    /// What is taken to be otherwise than in the snapshot.
    pub assumed: Vec<String>,
}

/// The layout of a cluster at one moment.
#[must_use]
pub fn seen(snapshot: &Snapshot) -> Seen {
    let mut seen = Seen {
        version: version(snapshot),
        unknown: unknown(snapshot),
        ..Seen::default()
    };
    let running = vms::running(snapshot, &mut seen);
    seen.layout.nodes = nodes::nodes(snapshot, &running, &mut seen.assumed, &mut seen.unknown);
    let nodes: BTreeSet<String> = seen.layout.nodes.iter().map(|node| node.name.clone()).collect();
    seen.layout.vms = running.into_iter().filter(|(_, vm)| nodes.contains(&vm.node)).collect();
    workloads::add(snapshot, &nodes, &mut seen.layout);
    seen.layout.volumes = volumes::volumes(snapshot, &nodes, &seen.layout, &mut seen.unknown);
    workloads::keep_those_that_matter(&mut seen.layout);
    seen.layout.addons = all(&snapshot.addons)
        .iter()
        .filter(|addon| is_named(&addon.metadata))
        .map(|addon| (key(&addon.metadata), addon.spec.enabled.unwrap_or_default()))
        .collect();
    let settings = all(&snapshot.settings)
        .iter()
        .filter(|setting| !setting.value.is_empty());
    seen.layout.settings = settings
        .filter(|setting| is_named(&setting.metadata))
        .map(|setting| (key(&setting.metadata).1, setting.value.clone()))
        .collect();
    seen.layout.longhorn_settings = all(&snapshot.longhorn_settings)
        .iter()
        .map(|setting| (key(&setting.metadata).1, setting.value.clone()))
        .filter(|(name, value)| LONGHORN_SETTINGS.contains(&name.as_str()) && !value.is_empty())
        .collect();
    seen.layout.migrations = migrations(snapshot);
    seen
}

/// How many migrations KubeVirt runs at a time.
fn migrations(snapshot: &Snapshot) -> Option<Value> {
    let kubevirt = all(&snapshot.kubevirts).first()?;
    let migrations = kubevirt.spec.other.get("configuration")?.get("migrations")?;
    migrations.is_object().then(|| migrations.clone())
}

fn version(snapshot: &Snapshot) -> Option<String> {
    checks::cluster::server_version(all(&snapshot.settings)).map(str::to_owned)
}

/// What the snapshot lacks.
fn unknown(snapshot: &Snapshot) -> Vec<String> {
    let missing = snapshot.unknown_kinds();
    let mut unknown = Vec::new();
    for (field, without) in NEEDED {
        let why = missing.iter().find(|(name, _)| *name == field).map(|(_, why)| why);
        let partial = snapshot.partial.get(field);
        let plain = |why: &str| api::quoted::plain(why, api::quoted::LONGEST_MESSAGE);
        match (why, partial) {
            (Some(why), _) => unknown.push(format!("{}: {}: {without}.", words(field), plain(why))),
            (None, Some(why)) => unknown.push(format!(
                "{}: {}: those that are missing are not part of the forecast.",
                words(field),
                plain(why)
            )),
            (None, None) => {}
        }
    }
    if snapshot.kubelet_disks.is_empty() {
        unknown.push("Disks of nodes are not known: whether new images fit is not checked.".to_owned());
    }
    let silent: Vec<&str> = snapshot
        .kubelet_disks
        .iter()
        .filter(|(_, disk)| disk.is_err())
        .map(|(node, _)| node.as_str())
        .collect();
    if !silent.is_empty() {
        unknown.push(format!(
            "The disks of nodes {} are not known: whether new images fit there is not checked.",
            listed(&silent)
        ));
    }
    unknown
}

fn words(field: &str) -> &'static str {
    match field {
        "vmis" => "Running VMs",
        "pods" => "Pods",
        "budgets" => "PodDisruptionBudgets",
        "volumes" => "Longhorn volumes",
        "replicas" => "Longhorn replicas",
        "engines" => "Longhorn engines",
        "machines" => "Machines",
        "machine_plans" => "Machine plans",
        "settings" => "Settings",
        "addons" => "Addons",
        "kubevirts" => "KubeVirt",
        _ => "Objects",
    }
}

/// Some names; the rest is counted.
fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<String> = names
        .iter()
        .take(SHOWN)
        .map(|name| api::quoted::plain(name, api::quoted::LONGEST_NAME))
        .collect();
    let more = names.len().saturating_sub(SHOWN);
    if more > 0 {
        format!("{} and {more} more", shown.join(", "))
    } else {
        shown.join(", ")
    }
}

/// The objects of a list that may be missing.
fn all<K>(list: &ListedOnce<K>) -> &[K] {
    list.as_deref().unwrap_or_default()
}

fn key(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> (String, String) {
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

/// The object has a name, and a namespace if any, that an API server accepts. A file may say anything.
fn is_named(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> bool {
    meta.name.as_deref().is_some_and(is_name) && meta.namespace.as_deref().is_none_or(is_name)
}

fn is_name(text: &str) -> bool {
    let is_edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    text.len() <= 253
        && is_edge(text.bytes().next())
        && is_edge(text.bytes().last())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.')
}

/// Labels that an API server accepts.
fn labels(of: Option<&std::collections::BTreeMap<String, String>>) -> std::collections::BTreeMap<String, String> {
    let is_word = |text: &str| {
        text.len() <= 63
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
            && text.bytes().next().is_none_or(|byte| byte.is_ascii_alphanumeric())
            && text.bytes().last().is_none_or(|byte| byte.is_ascii_alphanumeric())
    };
    let is_key = |key: &str| match key.split_once('/') {
        Some((prefix, name)) => is_name(prefix) && !name.is_empty() && is_word(name),
        None => !key.is_empty() && is_word(key),
    };
    let labels = of.into_iter().flatten();
    labels
        .filter(|(key, value)| is_key(key) && is_word(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
