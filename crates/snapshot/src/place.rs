//! Which lists of a snapshot an object of a file belongs to: what an API server does by path and selector.

use serde_json::Value;

use crate::{Kind, Place, kinds::Which};

/// Kinds of the table that have no namespace, by group and plural.
const CLUSTER_SCOPED: [(&str, &str); 6] = [
    ("", "nodes"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("harvesterhci.io", "settings"),
    ("management.harvesterhci.io", "upgradeplans"),
    ("storage.k8s.io", "volumeattachments"),
];

impl Kind {
    /// Its objects have no namespace.
    #[must_use]
    pub fn is_cluster_scoped(&self) -> bool {
        CLUSTER_SCOPED.contains(&(self.group, self.plural))
    }

    /// The object, which is of this group and kind, is one that would be listed.
    #[must_use]
    pub(crate) fn lists(&self, object: &Value) -> bool {
        let is_here = match self.place {
            Place::Everywhere => true,
            Place::In(namespace) => object["metadata"]["namespace"] == namespace,
        };
        is_here
            && match self.which {
                Which::All => true,
                Which::Labels(selector) => match selector.split_once('=') {
                    Some((key, value)) => object["metadata"]["labels"][key] == value,
                    None => object["metadata"]["labels"].get(selector).is_some(),
                },
                Which::Fields(selector) => selector
                    .split_once('=')
                    .is_some_and(|(path, value)| path.split('.').fold(object, |part, key| &part[key]) == value),
            }
    }

    /// The object is of this group and kind, whatever its version.
    #[must_use]
    pub(crate) fn is_of(&self, object: &Value) -> bool {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        object["kind"] == self.kind && group == self.group
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Snapshot;

    fn lists_of(object: &Value) -> Vec<&'static str> {
        let kinds = Snapshot::kinds().into_iter();
        kinds
            .filter(|kind| kind.is_of(object) && kind.lists(object))
            .map(|kind| kind.field)
            .collect()
    }

    #[test]
    fn an_object_is_in_the_lists_that_an_api_server_would_have_it_in() {
        let secret = |namespace: &str, name: &str, type_: &str| json!({"apiVersion": "v1", "kind": "Secret", "type": type_, "metadata": {"namespace": namespace, "name": name}});
        assert_eq!(
            lists_of(&secret("fleet-local", "a", "rke.cattle.io/machine-plan")),
            ["machine_plans"]
        );
        assert_eq!(lists_of(&secret("default", "a", "rke.cattle.io/machine-plan")), [""; 0]);
        assert_eq!(
            lists_of(&secret("default", "a", "helm.sh/release.v1")),
            ["helm_releases"]
        );
        assert_eq!(
            lists_of(&secret("fleet-local", "local-kubeconfig", "Opaque")),
            ["kubeconfig_secrets"]
        );
        let event =
            |type_: &str| json!({"apiVersion": "v1", "kind": "Event", "type": type_, "metadata": {"namespace": "x"}});
        assert_eq!(lists_of(&event("Warning")), ["events"]);
        assert_eq!(lists_of(&event("Normal")), [""; 0]);
        let longhorn =
            json!({"apiVersion": "longhorn.io/v1beta2", "kind": "Node", "metadata": {"namespace": "longhorn-system"}});
        assert_eq!(lists_of(&longhorn), ["longhorn_nodes"]);
        assert_eq!(lists_of(&json!({"apiVersion": "v1", "kind": "Node"})), ["nodes"]);
        let map = |labels: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "harvester-system", "labels": labels}});
        assert_eq!(
            lists_of(&map(json!({"management.harvesterhci.io/upgrade-plan": "x"}))),
            ["config_maps"]
        );
        assert_eq!(lists_of(&map(json!({}))), [""; 0]);
    }

    #[test]
    fn every_kind_without_namespace_is_in_the_table() {
        let scoped = Snapshot::kinds().into_iter().filter(Kind::is_cluster_scoped).count();
        assert_eq!(scoped, CLUSTER_SCOPED.len());
    }
}
