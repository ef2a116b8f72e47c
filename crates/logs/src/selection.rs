//! Which pods' logs are collected, and whose they are.
//!
//! A pod is the upgrade's own only if an object that the plan owns by UID owns it. Labels can be set by others: what has
//! only the label is collected, as a component of the cluster.

use std::collections::BTreeSet;

use api::{Component, JobType, component, labels, names};
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{
    collector::{ContainerFacts, ContainerState, PodFacts},
    key::Class,
    line,
};

/// On mirrors of static pods: the hash of the file, which stays when the mirror is created again.
const STATIC_POD: &str = "kubernetes.io/config.hash";

/// A label of the manager's pods, as the chart sets it.
const MANAGER: (&str, &str) = ("control-plane", "controller-manager");

/// A set of pods of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemPods {
    /// What they are called in the index.
    pub component: String,
    /// Their namespace.
    pub namespace: String,
    /// A label that they have; all pods of the namespace without one.
    pub label: Option<(String, String)>,
    /// The only container that is collected; all without one.
    pub container: Option<String>,
}

/// A namespace, the label of pods in it, and their container.
type SystemRow = (&'static str, Option<(&'static str, &'static str)>, Option<&'static str>);

/// What an upgrade touches, as the logs of earlier releases have it.
pub const SYSTEM: &[SystemRow] = &[
    ("kube-system", None, None),
    ("harvester-system", None, None),
    ("longhorn-system", None, None),
    ("cattle-system", Some(("app", "rancher")), None),
    (
        "cattle-system",
        Some(("upgrade.cattle.io/controller", "system-upgrade-controller")),
        Some("upgrade"),
    ),
    ("cattle-fleet-system", Some(("app", "fleet-controller")), None),
    ("cattle-fleet-local-system", Some(("app", "fleet-agent")), None),
];

/// Which pods are collected for a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The name of the plan.
    pub plan: String,
    /// UIDs of the plan, and of all objects that it owns directly or through others: Jobs, Plans, Deployments.
    pub owners: BTreeSet<String>,
    /// The manager's pods, by their namespace and a label: they are the upgrade's own.
    pub manager: Option<(String, (String, String))>,
    /// Components of the cluster.
    pub system: Vec<SystemPods>,
    /// Without the components of the cluster.
    pub own_only: bool,
}

impl Selection {
    /// The pods of a plan, and the components of the cluster that an upgrade touches.
    #[must_use]
    pub fn of_plan(plan: &str, uid: &str) -> Self {
        let system = SYSTEM.iter().map(|(namespace, label, container)| SystemPods {
            component: label.map_or(*namespace, |(_, value)| value).to_owned(),
            namespace: (*namespace).to_owned(),
            label: label.map(|(key, value)| (key.to_owned(), value.to_owned())),
            container: container.map(str::to_owned),
        });
        Self {
            plan: plan.to_owned(),
            owners: BTreeSet::from([uid.to_owned()]),
            manager: Some((
                names::HARVESTER_NAMESPACE.to_owned(),
                (MANAGER.0.to_owned(), MANAGER.1.to_owned()),
            )),
            system: system.collect(),
            own_only: false,
        }
    }

    /// The namespaces whose pods must be known.
    #[must_use]
    pub fn namespaces(&self) -> BTreeSet<&str> {
        if self.own_only {
            return BTreeSet::from([names::HARVESTER_NAMESPACE, names::CATTLE_NAMESPACE]);
        }
        let system = self.system.iter().map(|pods| pods.namespace.as_str());
        let manager = self.manager.iter().map(|(namespace, _)| namespace.as_str());
        system.chain(manager).collect()
    }

    /// What is known of a pod, if its logs are collected.
    #[must_use]
    pub fn facts(&self, pod: &Pod) -> Option<PodFacts> {
        let meta = &pod.metadata;
        let namespace = meta.namespace.clone()?;
        let is_ours = self.is_own(meta) || self.is_manager(meta);
        let is_labelled = label(meta, labels::UPGRADE_PLAN) == Some(self.plan.as_str());
        let system = self.system.iter().find(|pods| pods.has(meta));
        if !is_ours && (self.own_only || (!is_labelled && system.is_none())) {
            return None;
        }
        let only = system
            .and_then(|pods| pods.container.as_deref())
            .filter(|_| !is_ours && !is_labelled);
        let component = match (is_ours || is_labelled, system) {
            (true, _) => self.component_of(meta),
            (false, Some(pods)) => pods.component.clone(),
            (false, None) => return None,
        };
        let spec = pod.spec.as_ref();
        let uid = meta
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(STATIC_POD));
        let created = meta.creation_timestamp.as_ref().map_or(0, |time| line::nanos(time.0));
        let owners = meta.owner_references.iter().flatten();
        Some(PodFacts {
            namespace,
            name: meta.name.clone()?,
            uid: uid.or(meta.uid.as_ref())?.clone(),
            class: if is_ours { Class::Own } else { Class::System },
            component,
            node: spec.and_then(|spec| spec.node_name.clone()),
            created,
            is_deleting: meta.deletion_timestamp.is_some(),
            is_job: owners.into_iter().any(|owner| owner.kind == "Job"),
            containers: containers(pod, only),
        })
    }

    fn is_own(&self, meta: &ObjectMeta) -> bool {
        let mut owners = meta.owner_references.iter().flatten();
        owners.any(|owner| !owner.uid.is_empty() && self.owners.contains(&owner.uid))
    }

    fn is_manager(&self, meta: &ObjectMeta) -> bool {
        self.manager.as_ref().is_some_and(|(namespace, (key, value))| {
            meta.namespace.as_deref() == Some(namespace) && label(meta, key) == Some(value.as_str())
        })
    }

    fn component_of(&self, meta: &ObjectMeta) -> String {
        if self.is_manager(meta) {
            return "manager".to_owned();
        }
        let component = component::Component::of(meta).map(Component::as_str);
        let step = JobType::of(meta).map(JobType::as_str);
        step.or(component).unwrap_or("upgrade").to_owned()
    }
}

impl SystemPods {
    fn has(&self, meta: &ObjectMeta) -> bool {
        let is_labelled = self
            .label
            .as_ref()
            .is_none_or(|(key, value)| label(meta, key) == Some(value.as_str()));
        meta.namespace.as_deref() == Some(self.namespace.as_str()) && is_labelled
    }
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

fn containers(pod: &Pod, only: Option<&str>) -> Vec<ContainerFacts> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    let all = status.init_container_statuses.iter().flatten();
    let all = all.chain(status.container_statuses.iter().flatten());
    let wanted = all.filter(|container| only.is_none_or(|only| container.name == only));
    wanted.map(container).collect()
}

fn container(status: &ContainerStatus) -> ContainerFacts {
    let state = status.state.as_ref();
    let state = match state {
        Some(state) if state.running.is_some() => ContainerState::Running,
        Some(state) if state.terminated.is_some() => ContainerState::Ended,
        _ => ContainerState::Waiting,
    };
    let last = status.last_state.as_ref();
    ContainerFacts {
        name: status.name.clone(),
        instance: u32::try_from(status.restart_count).unwrap_or(0),
        state,
        has_previous: last.is_some_and(|last| last.terminated.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(namespace: &str, labels: &Value, owner: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "namespace": namespace, "name": "p", "uid": "u-1", "labels": labels,
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner}],
            },
            "spec": {"nodeName": "node-1", "containers": []},
            "status": {"containerStatuses": [
                {"name": "apply", "image": "", "imageID": "", "ready": false, "restartCount": 2,
                 "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}},
                {"name": "upgrade", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                 "state": {"waiting": {}}},
            ]},
        }))
        .unwrap()
    }

    fn selection() -> Selection {
        let mut selection = Selection::of_plan("up", "plan-uid");
        selection.owners.insert("job-uid".to_owned());
        selection
    }

    #[test]
    fn s01_a_pod_is_the_upgrades_own_by_uid_and_never_by_label() {
        let labels = json!({labels::UPGRADE_PLAN: "up", labels::UPGRADE_COMPONENT: "node-upgrade", labels::JOB_TYPE: "pre-drain"});
        let own = selection().facts(&pod("harvester-system", &labels, "job-uid")).unwrap();
        assert_eq!(
            (own.class, own.component.as_str(), own.is_job),
            (Class::Own, "pre-drain", true)
        );
        let foreign = selection().facts(&pod("harvester-system", &labels, "other")).unwrap();
        assert_eq!(foreign.class, Class::System);
    }

    #[test]
    fn pods_of_users_are_not_collected() {
        assert_eq!(selection().facts(&pod("default", &json!({}), "other")), None);
        let rancher = json!({"app": "rancher"});
        assert!(selection().facts(&pod("cattle-system", &rancher, "other")).is_some());
        assert_eq!(selection().facts(&pod("cattle-system", &json!({}), "other")), None);
    }

    #[test]
    fn only_the_container_that_is_named_is_collected() {
        let labels = json!({"upgrade.cattle.io/controller": "system-upgrade-controller"});
        let facts = selection().facts(&pod("cattle-system", &labels, "other")).unwrap();
        let names: Vec<_> = facts
            .containers
            .iter()
            .map(|container| container.name.as_str())
            .collect();
        assert_eq!(names, ["upgrade"]);
        let all = selection().facts(&pod("kube-system", &json!({}), "other")).unwrap();
        assert_eq!(all.containers.len(), 2);
        assert_eq!((all.containers[0].instance, all.containers[0].has_previous), (2, true));
    }
}
