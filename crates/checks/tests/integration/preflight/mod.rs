//! Preflight: for each check a small cluster in which it finds something, and a near miss in which it does not.

mod admitted;
mod charts;
mod cluster;
mod documented;
mod known_issues;
mod leftovers;
mod nodes;
mod platform;
mod rules;
mod size;
mod storage;
mod vms;

use std::collections::BTreeMap;

use api::{UpgradePlan, names};
use checks::{
    finding::{Finding, Report},
    preflight,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use snapshot::{Snapshot, kinds::KubeletDisk};

pub(crate) const NOW: &str = "2026-03-13T12:00:00Z";
const GIB: u64 = 1024 * 1024 * 1024;

/// A cluster and the plan that is to run on it.
pub(crate) struct World {
    pub(crate) snapshot: Snapshot,
    pub(crate) plan: UpgradePlan,
}

/// A check with a cluster in which it finds something that `says` so, and one in which it just does not.
pub(crate) struct Case {
    id: &'static str,
    says: &'static str,
    found: fn(&mut World),
    near: fn(&mut World),
}

const fn case(id: &'static str, says: &'static str, found: fn(&mut World), near: fn(&mut World)) -> Case {
    Case { id, says, found, near }
}

fn cases() -> impl Iterator<Item = &'static Case> {
    let all: [&[Case]; 8] = [
        &admitted::CASES,
        &charts::CASES,
        &cluster::CASES,
        &leftovers::CASES,
        &nodes::CASES,
        &platform::CASES,
        &storage::CASES,
        &vms::CASES,
    ];
    all.into_iter().flatten()
}

pub(crate) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

impl World {
    /// Three nodes of v1.7.1 on which nothing is wrong, and a plan for v1.8.0.
    pub(crate) fn healthy() -> Self {
        let mut world = Self {
            snapshot: Snapshot::empty(now()),
            plan: preflight::hypothetical(Some("v1.8.0"), None),
        };
        for number in 1..=3 {
            world.add("nodes", node(number));
            world.add("machines", crate::support::machine(number));
            let disk = KubeletDisk {
                capacity_bytes: 200 * GIB,
                used_bytes: 50 * GIB,
                image_gc_high_threshold_percent: 85.0,
            };
            world.snapshot.kubelet_disks.insert(format!("node-{number}"), Ok(disk));
        }
        world.snapshot.certificates =
            BTreeMap::from([("10.0.0.1:6443".to_owned(), Ok("2027-03-13T12:00:00Z".parse().unwrap()))]);
        world.add(
            "versions",
            json!({"metadata": {"name": "v1.8.0", "namespace": names::HARVESTER_NAMESPACE}, "spec": {
                "isoURL": "https://releases.example.com/v1.8.0.iso", "isoChecksum": "0".repeat(128),
                "minUpgradableVersion": "v1.7.0"}}),
        );
        world.add(
            "settings",
            json!({"metadata": {"name": "server-version"}, "value": "v1.7.1"}),
        );
        let fleet = json!({"name": "local", "namespace": names::FLEET_NAMESPACE});
        world.add(
            "rancher_clusters",
            json!({"metadata": fleet, "status": {"ready": true}}),
        );
        world.add(
            "capi_clusters",
            json!({"metadata": fleet, "status": {"phase": "Provisioned"}}),
        );
        world.add(
            "kubeconfig_secrets",
            json!({"type": "Opaque", "metadata": {"name": "local-kubeconfig",
            "namespace": names::FLEET_NAMESPACE, "labels": {"cluster.x-k8s.io/cluster-name": "local"}}}),
        );
        world.add(
            "leases",
            lease(names::HARVESTER_NAMESPACE, names::LEASE, "2026-03-13T11:59:50.000000Z"),
        );
        world.add(
            "deployments",
            deployment("cattle-system", "system-upgrade-controller", 1),
        );
        world
    }

    /// Adds an object.
    pub(crate) fn add(&mut self, field: &str, object: Value) {
        self.snapshot.add(field, object).unwrap();
    }

    /// Changes an object by name.
    pub(crate) fn change(&mut self, field: &str, name: &str, change: impl Fn(&mut Value)) {
        let key: String = field.split('_').enumerate().fold(String::new(), |key, (index, word)| {
            key + &if index == 0 {
                word.to_owned()
            } else {
                word[..1].to_uppercase() + &word[1..]
            }
        });
        let mut all = serde_json::to_value(&self.snapshot).unwrap();
        let list = all[&key]["Ok"].as_array_mut().unwrap();
        let object = list
            .iter_mut()
            .find(|object| object["metadata"]["name"] == name)
            .unwrap();
        change(object);
        self.snapshot = serde_json::from_value(all).unwrap();
    }

    pub(crate) fn empty(&mut self, field: &str) {
        self.snapshot.set_unknown(field, "");
        self.snapshot.set_listed(field);
    }

    pub(crate) fn report(&self) -> Report {
        preflight::run(&self.snapshot, &self.plan)
    }

    pub(crate) fn findings(&self, id: &str) -> Vec<Finding> {
        let found = self.report().findings.into_iter();
        found.filter(|finding| finding.id == id).collect()
    }
}

pub(crate) fn node(number: usize) -> Value {
    let mut node = crate::support::node(number);
    node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = json!("true");
    node["metadata"]["labels"]["node-role.kubernetes.io/etcd"] = json!("true");
    node["status"]["allocatable"] = json!({"cpu": "32", "memory": "64Gi"});
    node["status"]["nodeInfo"] = json!({"kubeletVersion": "v1.34.1+rke2r1", "osImage": "Harvester v1.7.1"});
    node
}

pub(crate) fn lease(namespace: &str, name: &str, renewed: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"holderIdentity": "a", "renewTime": renewed}})
}

pub(crate) fn deployment(namespace: &str, name: &str, available: i32) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 1, "selector": {}, "template": {}}, "status": {"availableReplicas": available}})
}

/// The annotation of a plan.
pub(crate) fn annotate(plan: &mut UpgradePlan, key: &str, value: &str) {
    let annotations = plan.metadata.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned());
}
