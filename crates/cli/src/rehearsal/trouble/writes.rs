//! What troubles need to change objects as a client does.

use anyhow::Context as _;
use clock::Clock;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// A client, and the time in the cluster.
#[derive(Clone)]
pub(crate) struct Hands {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
}

/// Group, version and kind.
pub(super) type Kind = (&'static str, &'static str, &'static str);

pub(super) const NODE: Kind = ("", "v1", "Node");
pub(super) const PLAN: Kind = ("management.harvesterhci.io", "v1beta1", "UpgradePlan");

impl Hands {
    pub(super) fn api(&self, (group, version, kind): Kind, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    /// Creates an object, with its status where it has one.
    pub(super) async fn create(&self, object: Value) -> anyhow::Result<()> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let (namespace, name) = (
            text(&object["metadata"]["namespace"]),
            text(&object["metadata"]["name"]),
        );
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let api: Api<DynamicObject> = if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), &namespace, &resource)
        };
        let status = object["status"].clone();
        let object: DynamicObject = serde_json::from_value(object)?;
        let created = api.create(&PostParams::default(), &object).await;
        created.with_context(|| format!("failed to create {kind} {name}"))?;
        if !status.is_null() {
            let patch = Patch::Merge(json!({"status": status}));
            let patched = api.patch_status(&name, &PatchParams::default(), &patch).await;
            patched.with_context(|| format!("failed to write the status of {kind} {name}"))?;
        }
        Ok(())
    }

    /// Changes an object.
    pub(super) async fn patch(&self, kind: Kind, (namespace, name): (&str, &str), patch: Value) -> anyhow::Result<()> {
        let api = self.api(kind, namespace);
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("failed to change {} {name}", kind.2))?;
        Ok(())
    }

    /// The same time as text, so many minutes ago.
    pub(super) fn ago(&self, minutes: i64) -> String {
        let at = self.clock.now_in_seconds() - jiff::SignedDuration::from_mins(minutes);
        at.to_string()
    }
}
