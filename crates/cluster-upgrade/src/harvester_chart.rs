//! The Harvester chart itself, with the values an upgrade settles, and KubeVirt, which follows it.

use api::{
    ProgramWait,
    foreign::{kubevirt::KubeVirt, longhorn, rancher::ManagedChart},
    names,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use serde_json::{Value, json};

use program::{
    error::Result,
    report::{Look, Waiting},
    step::StepContext,
};

use super::{charts, context::Context};

const OWN_STORAGE_CLASS: &str = "harvester-longhorn";
const IS_DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Longhorn's setting of what a drain may take away.
pub const DRAIN_POLICY: &str = "node-drain-policy";
/// Longhorn's setting of whether volumes leave a cordoned node.
pub const DETACH_WHEN_CORDONED: &str = "detach-manually-attached-volumes-when-cordoned";

/// Brings the Harvester chart to the release's version.
pub(super) async fn upgrade(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let charts = context.namespaced::<ManagedChart>(names::FLEET_NAMESPACE);
    let chart = charts.need(names::HARVESTER_CHART).await?;
    let classes = context.global::<StorageClass>().list("").await?;
    let settings = context.namespaced::<longhorn::Setting>(names::LONGHORN_NAMESPACE);
    let value = |setting: Option<longhorn::Setting>| setting.map(|setting| setting.value);
    let drain_policy = value(settings.get(DRAIN_POLICY).await?);
    let detach = value(settings.get(DETACH_WHEN_CORDONED).await?);
    let current = chart.spec.values.clone().unwrap_or_default();
    let values = value_changes(&current, &classes, drain_policy.as_deref(), detach.as_deref());
    let version = &context.release()?.harvester_chart;
    charts::upgrade(context, ctx, names::HARVESTER_CHART, version, &values).await
}

/// The values of the chart that an upgrade settles, as a patch. Values that users have set stay.
#[must_use]
pub fn value_changes(
    current: &Value,
    classes: &[StorageClass],
    drain_policy: Option<&str>,
    detach_when_cordoned: Option<&str>,
) -> Value {
    let mut patch = json!({});
    let is_default = |class: &StorageClass| class.annotations().get(IS_DEFAULT_CLASS).is_some_and(|v| v == "true");
    let another = classes
        .iter()
        .any(|class| is_default(class) && class.name_any() != OWN_STORAGE_CLASS);
    if another && current["storageClass"]["defaultStorageClass"] != false {
        patch["storageClass"] = json!({"defaultStorageClass": false});
    }
    let set = &current["longhorn"]["defaultSettings"];
    let mut defaults = json!({});
    // The policy of older releases lets a drain wait for ever for a volume with one replica.
    if set["nodeDrainPolicy"].is_null() && drain_policy == Some("block-if-contains-last-replica") {
        defaults["nodeDrainPolicy"] = json!("allow-if-replica-is-stopped");
    }
    if set["detachManuallyAttachedVolumesWhenCordoned"].is_null() && detach_when_cordoned == Some("false") {
        defaults["detachManuallyAttachedVolumesWhenCordoned"] = json!(true);
    }
    // Newer charts take texts here and refuse numbers.
    if let Value::Number(limit) = &set["concurrentAutomaticEngineUpgradePerNodeLimit"] {
        defaults["concurrentAutomaticEngineUpgradePerNodeLimit"] = json!(limit.to_string());
    }
    if defaults.as_object().is_some_and(|defaults| !defaults.is_empty()) {
        patch["longhorn"] = json!({ "defaultSettings": defaults });
    }
    patch
}

/// KubeVirt runs the release's version.
pub(super) async fn wait_kubevirt(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let kubevirts = context.namespaced::<KubeVirt>(names::HARVESTER_NAMESPACE);
    let version = context.release()?.kubevirt.clone().unwrap_or_default();
    let called = kubevirts.called(names::KUBEVIRT);
    kubevirts
        .until(ctx, names::KUBEVIRT, |kubevirt| {
            kubevirt_look(&called, kubevirt, &version)
        })
        .await
}

/// Whether KubeVirt is at a version.
#[must_use]
pub fn kubevirt_look(called: &str, kubevirt: Option<&KubeVirt>, version: &str) -> Look {
    Look::of(kubevirt_lacks(kubevirt, version).map_or_else(Vec::new, |lacks| {
        vec![Waiting {
            what: ProgramWait::KubeVirtVersion,
            object: called.to_owned(),
            message: format!("{called} is not at {version}: {lacks}"),
        }]
    }))
}

/// What KubeVirt still lacks.
#[must_use]
pub fn kubevirt_lacks(kubevirt: Option<&KubeVirt>, version: &str) -> Option<String> {
    let Some(kubevirt) = kubevirt else {
        return Some("it does not exist".to_owned());
    };
    let observed = kubevirt.status.observed_kube_virt_version.as_deref();
    if observed != Some(version) {
        return Some(format!("it runs {}", observed.unwrap_or("an unknown version")));
    }
    let phase = kubevirt.status.phase.as_deref().unwrap_or("unknown");
    (phase != "Deployed").then(|| format!("its phase is {phase}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, default: &str) -> StorageClass {
        serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {IS_DEFAULT_CLASS: default}}, "provisioner": "p",
        }))
        .unwrap()
    }

    #[test]
    fn values_of_users_are_never_changed() {
        let current = json!({
            "longhorn": {"defaultSettings": {"nodeDrainPolicy": "always-allow", "detachManuallyAttachedVolumesWhenCordoned": false}},
            "storageClass": {"defaultStorageClass": false},
        });
        let classes = [class("mine", "true"), class(OWN_STORAGE_CLASS, "false")];
        let patch = value_changes(
            &current,
            &classes,
            Some("block-if-contains-last-replica"),
            Some("false"),
        );
        assert_eq!(patch, json!({}));
    }

    #[test]
    fn what_is_unset_is_settled_when_the_cluster_needs_it() {
        let current = json!({"longhorn": {"defaultSettings": {"concurrentAutomaticEngineUpgradePerNodeLimit": 3}}});
        let classes = [class("mine", "true")];
        let patch = value_changes(
            &current,
            &classes,
            Some("block-if-contains-last-replica"),
            Some("false"),
        );
        assert_eq!(
            patch,
            json!({
                "storageClass": {"defaultStorageClass": false},
                "longhorn": {"defaultSettings": {
                    "nodeDrainPolicy": "allow-if-replica-is-stopped",
                    "detachManuallyAttachedVolumesWhenCordoned": true,
                    "concurrentAutomaticEngineUpgradePerNodeLimit": "3",
                }},
            })
        );
        let calm = value_changes(
            &json!({}),
            &[class(OWN_STORAGE_CLASS, "true")],
            Some("always-allow"),
            None,
        );
        assert_eq!(calm, json!({}));
    }

    #[test]
    fn kubevirt_is_done_when_it_runs_the_version_and_says_so() {
        let mut kubevirt = KubeVirt::named("kubevirt");
        kubevirt.status.phase = Some("Deployed".into());
        assert_eq!(
            kubevirt_lacks(Some(&kubevirt), "1.7.0").unwrap(),
            "it runs an unknown version"
        );
        kubevirt.status.observed_kube_virt_version = Some("1.7.0".into());
        assert_eq!(kubevirt_lacks(Some(&kubevirt), "1.7.0"), None);
        kubevirt.status.phase = Some("Deploying".into());
        assert_eq!(
            kubevirt_lacks(Some(&kubevirt), "1.7.0").unwrap(),
            "its phase is Deploying"
        );
        assert!(kubevirt_lacks(None, "1.7.0").is_some());
    }
}
