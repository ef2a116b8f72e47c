//! Rancher's Helm values. Pure.

use api::node::is_witness;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::features::{self, Features};

/// Keys of charts before `image.*`.
const LEGACY: [&str; 3] = ["rancherImage", "rancherImageTag", "rancherImagePullPolicy"];

/// The version in the values; nothing when they name none.
#[must_use]
pub(super) fn version(values: &Value) -> Option<&str> {
    let texts = [&values["rancherImageTag"], &values["image"]["tag"]];
    texts
        .into_iter()
        .find_map(|text| text.as_str().filter(|text| !text.is_empty()))
}

/// Whether the values have that version.
#[must_use]
pub fn is_at(values: &Value, target: &str) -> bool {
    version(values) == Some(target)
}

/// The values for the new version. What they do not name stays as users have set it.
#[must_use]
pub fn upgraded(current: &Value, target: &str, nodes: &[Node]) -> Value {
    let mut values = if current.is_object() {
        current.clone()
    } else {
        json!({})
    };
    let legacy = LEGACY.iter().any(|key| !current[*key].is_null());
    if let Some(values) = values.as_object_mut() {
        LEGACY.iter().for_each(|key| drop(values.remove(*key)));
    }
    if !values["image"].is_object() {
        values["image"] = json!({});
    }
    if legacy || values["image"]["repository"].is_null() {
        values["image"]["repository"] = json!("rancher/rancher");
    }
    if legacy || values["image"]["pullPolicy"].is_null() {
        values["image"]["pullPolicy"] = json!("IfNotPresent");
    }
    values["image"]["tag"] = json!(target);
    // Negative: as many as there are nodes, but no more than two. A witness runs none.
    if nodes.len() == 3 && nodes.iter().any(is_witness) {
        values["replicas"] = json!(-2);
    }
    values["features"] = json!(features(current, target).text);
    values
}

/// The features for the new version.
pub(super) fn features(current: &Value, target: &str) -> Features {
    features::of(current["features"].as_str().unwrap_or_default(), target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: usize, witness: bool) -> Vec<Node> {
        let mut nodes = vec![Node::default(); count];
        if witness {
            nodes[0].metadata.labels = Some([(api::labels::WITNESS.to_owned(), String::new())].into());
        }
        nodes
    }

    #[test]
    fn legacy_keys_become_new_ones_and_the_rest_stays() {
        let current =
            json!({"rancherImageTag": "v2.13.0", "rancherImagePullPolicy": "Always", "hostname": "h", "replicas": -1});
        let values = upgraded(&current, "v2.14.0", &nodes(3, false));
        assert_eq!(
            values,
            json!({
                "hostname": "h", "replicas": -1,
                "features": "multi-cluster-management=false,multi-cluster-management-agent=false,managed-system-upgrade-controller=false",
                "image": {"repository": "rancher/rancher", "pullPolicy": "IfNotPresent", "tag": "v2.14.0"},
            })
        );
        // A retry changes nothing.
        assert_eq!(upgraded(&values, "v2.14.0", &nodes(3, false)), values);
        assert!(is_at(&values, "v2.14.0") && !is_at(&current, "v2.14.0"));
    }

    #[test]
    fn a_private_registry_and_features_of_users_are_kept() {
        let current = json!({"image": {"repository": "my/rancher", "tag": "v2.13.0"}, "features": "fleet=true,multi-cluster-management=true"});
        let values = upgraded(&current, "v2.15.0-rc1", &nodes(1, false));
        assert_eq!(values["image"]["repository"], "my/rancher");
        assert_eq!(
            values["features"],
            "multi-cluster-management=false,multi-cluster-management-agent=false,managed-system-upgrade-controller=false,\
             crt-token-ttl-rotation=false,fleet=true"
        );
    }

    #[test]
    fn two_nodes_and_a_witness_run_two_pods() {
        assert_eq!(upgraded(&json!({}), "v2", &nodes(3, true))["replicas"], -2);
        assert_eq!(
            upgraded(&json!({"replicas": -1}), "v2", &nodes(4, true))["replicas"],
            -1
        );
        assert_eq!(
            upgraded(&json!({"replicas": -1}), "v2", &nodes(3, false))["replicas"],
            -1
        );
    }

    #[test]
    fn values_without_a_version_say_so() {
        assert_eq!(version(&json!({"image": {"tag": ""}})), None);
        assert_eq!(version(&json!({"image": {"tag": "v2"}})), Some("v2"));
    }
}
