//! The two objects that make the API server call the webhooks: the one source of what charts and manifests ship.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// The webhook that may change plans. It changes nothing; it is there because existing installations register it.
pub const MUTATING: &str = "mupgradeplan-v1beta1.kb.io";
/// The webhook that may refuse plans.
pub const VALIDATING: &str = "vupgradeplan-v1beta1.kb.io";
/// Where [`MUTATING`] is served.
pub const MUTATING_PATH: &str = "/mutate-management-harvesterhci-io-v1beta1-upgradeplan";
/// Where [`VALIDATING`] is served.
pub const VALIDATING_PATH: &str = "/validate-management-harvesterhci-io-v1beta1-upgradeplan";

/// Name of the MutatingWebhookConfiguration, behind the prefix of an installation.
pub const MUTATING_CONFIGURATION: &str = "mutating-webhook-configuration";
/// Name of the ValidatingWebhookConfiguration, behind the prefix of an installation.
pub const VALIDATING_CONFIGURATION: &str = "validating-webhook-configuration";
/// Name of the Service, behind the prefix of an installation.
pub const SERVICE: &str = "webhook-service";

/// DNS names of a Service; the first is the one the API server asks for.
#[must_use]
pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
    vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
    ]
}

/// The mutating and the validating configuration for the Service `<prefix>webhook-service` of a namespace, and for the
/// manager with this service account there. Without an authority, the manager puts in its own.
#[must_use]
pub fn configurations(prefix: &str, namespace: &str, account: &str, authority: Option<&str>) -> [Value; 2] {
    let rule = |operations: &[&str], resource: &str| {
        json!({
            "apiGroups": [api::GROUP], "apiVersions": ["v1beta1"], "operations": operations, "resources": [resource],
        })
    };
    let configuration = |kind: &str, name: &str, webhook: &str, path: &str, rules: &[Value]| {
        let service = format!("{prefix}{SERVICE}");
        let mut client = json!({"service": {"name": service, "namespace": namespace, "path": path}});
        if let Some(authority) = authority {
            client["caBundle"] = json!(ByteString(authority.as_bytes().to_vec()));
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": format!("{prefix}{name}")},
            "webhooks": [{
                "name": webhook,
                "admissionReviewVersions": ["v1"],
                "clientConfig": client,
                "failurePolicy": "Fail",
                // What the manager writes must not wait for the manager: a client that overloads it would stop an upgrade.
                "matchConditions": [{
                    "name": "not-the-manager",
                    "expression": format!("request.userInfo.username != 'system:serviceaccount:{namespace}:{account}'"),
                }],
                "rules": rules,
                "sideEffects": "None",
            }],
        })
    };
    [
        configuration(
            "MutatingWebhookConfiguration",
            MUTATING_CONFIGURATION,
            MUTATING,
            MUTATING_PATH,
            &[rule(&["CREATE", "UPDATE"], "upgradeplans")],
        ),
        configuration(
            "ValidatingWebhookConfiguration",
            VALIDATING_CONFIGURATION,
            VALIDATING,
            VALIDATING_PATH,
            // The manager's own status writes bypass the webhook; those of all other clients are refused.
            &[
                rule(&["CREATE", "UPDATE", "DELETE"], "upgradeplans"),
                rule(&["UPDATE"], "upgradeplans/status"),
            ],
        ),
    ]
}
