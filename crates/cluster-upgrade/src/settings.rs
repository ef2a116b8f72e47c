//! Small changes that one line of versions needs: settings of Harvester and Rancher, and marks on the local cluster.

use api::{
    foreign::{harvester, management, rancher},
    names,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use program::{error::Result, step::StepContext};

use super::{context::Context, version_line::is_of_line};

const OVERCOMMIT: &str = "overcommit-config";
const INTERNAL_NAMES: &str = "tls-internal-cn-allowed-services";
const INTERNAL_NAMES_VALUE: &str = "kube-system/ingress-expose,kube-system/rke2-traefik";
const ADMINISTRATED: &str = "provisioning.cattle.io/administrated";
const MANAGEMENT_CLUSTER: &str = "provisioning.cattle.io/management-cluster-name";

/// The default overcommit changes with v1.8: a cluster that relied on that of v1.7 keeps it.
pub(super) async fn preserve_overcommit(context: &Context, _: StepContext<'_>) -> Result<()> {
    if !is_of_line(context.previous_version()?, 1, 7) {
        return Ok(());
    }
    let settings = context.global::<harvester::Setting>();
    let Some(setting) = settings.get(OVERCOMMIT).await? else {
        context.note(format!(
            "{} does not exist: nothing to preserve",
            settings.called(OVERCOMMIT)
        ));
        return Ok(());
    };
    if let Some(value) = overcommit_to_pin(&setting) {
        settings.merge(OVERCOMMIT, &json!({ "value": value })).await?;
    }
    Ok(())
}

/// The value to pin: the default, when no value was set.
#[must_use]
pub fn overcommit_to_pin(setting: &harvester::Setting) -> Option<&str> {
    (setting.value.is_empty() && !setting.default.is_empty()).then_some(setting.default.as_str())
}

/// New Rancher serves its certificate only under names of Services that it is configured with.
pub(super) async fn allow_internal_names(context: &Context, _: StepContext<'_>) -> Result<()> {
    if !is_of_line(context.previous_version()?, 1, 8) {
        return Ok(());
    }
    let settings = context.global::<management::Setting>();
    match settings.get(INTERNAL_NAMES).await? {
        Some(setting) if setting.value == INTERNAL_NAMES_VALUE => {}
        Some(_) => drop(
            settings
                .merge(INTERNAL_NAMES, &json!({"value": INTERNAL_NAMES_VALUE}))
                .await?,
        ),
        None => {
            let setting = json!({
                "apiVersion": "management.cattle.io/v3", "kind": "Setting",
                "metadata": {"name": INTERNAL_NAMES}, "value": INTERNAL_NAMES_VALUE,
            });
            settings.apply(INTERNAL_NAMES, &setting).await?;
        }
    }
    Ok(())
}

/// New Rancher leaves alone the provisioning of clusters that are marked as administrated.
pub(super) async fn mark_administrated(context: &Context, _: StepContext<'_>) -> Result<()> {
    if !is_of_line(context.previous_version()?, 1, 8) {
        return Ok(());
    }
    let clusters = context.global::<management::Cluster>();
    let cluster = clusters.need(names::LOCAL_CLUSTER).await?;
    if cluster
        .annotations()
        .get(ADMINISTRATED)
        .is_none_or(|value| value != "true")
    {
        let patch = json!({"metadata": {"annotations": {ADMINISTRATED: "true"}}});
        clusters.merge(names::LOCAL_CLUSTER, &patch).await?;
    }
    Ok(())
}

/// The provisioning cluster names its management cluster and its Fleet workspace, which new Rancher expects.
pub(super) async fn complete_local_cluster(context: &Context, _: StepContext<'_>) -> Result<()> {
    let clusters = context.namespaced::<rancher::Cluster>(names::FLEET_NAMESPACE);
    let cluster = clusters.need(names::LOCAL_CLUSTER).await?;
    let (labels, status) = local_cluster_changes(&cluster);
    if let Some(patch) = labels {
        clusters.merge(names::LOCAL_CLUSTER, &patch).await?;
    }
    if let Some(patch) = status {
        clusters.merge_status(names::LOCAL_CLUSTER, &patch).await?;
    }
    Ok(())
}

/// What the provisioning cluster lacks: a patch of its labels, and one of its status.
#[must_use]
pub fn local_cluster_changes(cluster: &rancher::Cluster) -> (Option<Value>, Option<Value>) {
    let named = cluster.labels().get(MANAGEMENT_CLUSTER).map(String::as_str) == Some(names::LOCAL_CLUSTER);
    let labels = json!({"metadata": {"labels": {MANAGEMENT_CLUSTER: names::LOCAL_CLUSTER}}});
    let in_workspace = cluster.status.fleet_workspace_name.as_deref() == Some(names::FLEET_NAMESPACE);
    let status = json!({"status": {"fleetWorkspaceName": names::FLEET_NAMESPACE}});
    ((!named).then_some(labels), (!in_workspace).then_some(status))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", "{}", Some("{}"))]
    #[case("{\"cpu\":1}", "{}", None)]
    #[case("", "", None)]
    fn only_a_default_in_force_is_pinned(#[case] value: &str, #[case] default: &str, #[case] pinned: Option<&str>) {
        let mut setting = harvester::Setting::named(OVERCOMMIT);
        setting.value = value.into();
        setting.default = default.into();
        assert_eq!(overcommit_to_pin(&setting), pinned);
    }

    #[test]
    fn a_complete_cluster_is_left_alone() {
        let mut cluster = rancher::Cluster::named("local");
        let (labels, status) = local_cluster_changes(&cluster);
        assert!(labels.is_some() && status.is_some());
        cluster.labels_mut().insert(MANAGEMENT_CLUSTER.into(), "local".into());
        cluster.status.fleet_workspace_name = Some("fleet-local".into());
        assert_eq!(local_cluster_changes(&cluster), (None, None));
    }
}
