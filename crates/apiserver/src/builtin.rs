//! The table of built-in kinds. A new built-in is one line here (and columns in `table::builtin` if wanted).

use crate::{
    kind::{Kind, ResourceId, ScalePaths, View},
    table::builtin_columns,
};

const NAMESPACED: u8 = 1;
const STATUS: u8 = 2;
const SCALE: u8 = 4;
const GENERATION: u8 = 8;
const REVIEW: u8 = 16;

/// group, version, kind, plural, short names, categories, flags.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    u8,
);

const WORKLOAD: u8 = NAMESPACED | STATUS | GENERATION;

#[rustfmt::skip]
const TABLE: &[Row] = &[
    ("", "v1", "Namespace", "namespaces", "ns", "", STATUS),
    ("", "v1", "Node", "nodes", "no", "", STATUS),
    ("", "v1", "Pod", "pods", "po", "all", WORKLOAD),
    ("", "v1", "Service", "services", "svc", "all", NAMESPACED | STATUS),
    ("", "v1", "ConfigMap", "configmaps", "cm", "", NAMESPACED),
    ("", "v1", "Secret", "secrets", "", "", NAMESPACED),
    ("", "v1", "Event", "events", "ev", "", NAMESPACED),
    ("", "v1", "ServiceAccount", "serviceaccounts", "sa", "", NAMESPACED),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", "", NAMESPACED | STATUS),
    ("", "v1", "PersistentVolume", "persistentvolumes", "pv", "", STATUS),
    ("", "v1", "Endpoints", "endpoints", "ep", "", NAMESPACED),
    ("apps", "v1", "Deployment", "deployments", "deploy", "all", WORKLOAD | SCALE),
    ("apps", "v1", "ReplicaSet", "replicasets", "rs", "all", WORKLOAD | SCALE),
    ("apps", "v1", "StatefulSet", "statefulsets", "sts", "all", WORKLOAD | SCALE),
    ("apps", "v1", "DaemonSet", "daemonsets", "ds", "all", WORKLOAD),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", "", "", NAMESPACED),
    ("batch", "v1", "Job", "jobs", "", "all", WORKLOAD),
    ("batch", "v1", "CronJob", "cronjobs", "cj", "all", WORKLOAD),
    ("coordination.k8s.io", "v1", "Lease", "leases", "", "", NAMESPACED),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "", "", NAMESPACED | GENERATION),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", "", WORKLOAD),
    ("events.k8s.io", "v1", "Event", "events", "ev", "", NAMESPACED),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", "", "", NAMESPACED),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "", "", NAMESPACED),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "", "", 0),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", "", "", 0),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses", "sc", "", 0),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "pc", "", GENERATION),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", "ing", "", WORKLOAD),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "netpol", "", NAMESPACED | GENERATION),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "", "api-extensions", GENERATION),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "", "api-extensions", GENERATION),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", "crd,crds", "api-extensions", STATUS | GENERATION),
    ("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", "", "", REVIEW),
    ("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", "", "", REVIEW),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", "", "", REVIEW),
    ("authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", "", "", REVIEW | NAMESPACED),
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", "", "", REVIEW),
];

fn words(list: &str) -> Vec<String> {
    list.split(',')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Every built-in kind.
pub(crate) fn kinds() -> Vec<Kind> {
    TABLE.iter().map(kind).collect()
}

fn kind(&(group, version, name, plural, short_names, categories, flags): &Row) -> Kind {
    let events_view = group == "events.k8s.io";
    let has = |flag: u8| flags & flag != 0;
    Kind {
        group: group.into(),
        version: version.into(),
        kind: name.into(),
        plural: plural.into(),
        singular: name.to_lowercase(),
        short_names: words(short_names),
        categories: words(categories),
        namespaced: has(NAMESPACED),
        status: has(STATUS),
        scale: has(SCALE).then(|| ScalePaths {
            spec_replicas: ".spec.replicas".into(),
            status_replicas: ".status.replicas".into(),
            label_selector: None,
        }),
        generation: has(GENERATION),
        resource: if events_view {
            ResourceId::new("", "events")
        } else {
            ResourceId::new(group, plural)
        },
        stored_api_version: match (events_view, group) {
            (true, _) | (_, "") => "v1".into(),
            (false, group) => format!("{group}/{version}"),
        },
        view: if events_view { View::EventsV1 } else { View::Stored },
        schema: None,
        columns: builtin_columns(group, name),
        selectable_fields: Vec::new(),
        create_only: has(REVIEW),
        warning: None,
    }
}
