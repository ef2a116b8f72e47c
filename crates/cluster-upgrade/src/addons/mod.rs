//! Addons: brought to the release's versions, with the users' values kept. None of them stops an upgrade.

mod plan;
mod text_edit;
mod values;
mod write;

use plan::{Change, logging_values, monitoring_values};
use values::{Merged, Yaml, YamlError, merged};

use std::time::Duration;

use api::{
    ProgramWait,
    annotations::ADDON_DEFAULTS,
    foreign::{harvester::Addon, rancher::ManagedChart},
    names,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use serde_json::{Value, json};

use program::{
    error::Result,
    report::{Look, Waiting},
    step::StepContext,
};

use super::{context::Context, manifests::AddonManifest, version_line::line_name};

const CRD: &str = "addons.harvesterhci.io";
/// Namespace and name of the monitoring addon.
const MONITORING: (&str, &str) = ("cattle-monitoring-system", "rancher-monitoring");
/// Namespace and name of the logging addon.
const LOGGING: (&str, &str) = ("cattle-logging-system", "rancher-logging");
const KUBEOVN: (&str, &str) = (names::KUBE_SYSTEM_NAMESPACE, "kubeovn-operator");
const KUBEOVN_CRD: &str = "kubeovn-operator-crd";
const KUBEOVN_CRD_PATIENCE: Duration = Duration::from_secs(60);

/// Harvester serves addons.
pub(super) async fn wait_kind(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let definitions = context.global::<CustomResourceDefinition>();
    let called = definitions.called(CRD);
    definitions
        .until(ctx, CRD, |found| match found {
            Some(_) => Look::Done,
            None => {
                let message = format!("{called} does not exist, so addons cannot be upgraded");
                Look::wait(Waiting {
                    what: ProgramWait::AddonKind,
                    object: called.clone(),
                    message,
                })
            }
        })
        .await
}

/// The manifest of an addon that came with this program.
fn manifest(context: &Context, name: &str) -> Result<Option<Value>> {
    match context.manifests.addon(name)? {
        AddonManifest::Found(manifest) => Ok(Some(manifest)),
        AddonManifest::Absent(why) => {
            context.note(format!("addon {name} is not upgraded: {why}"));
            Ok(None)
        }
    }
}

/// The defaults that an addon has now: those that are recorded, otherwise those of the running release, if the image has them.
/// Without any, everything counts as the user's.
fn defaults_before(context: &Context, current: &Addon, name: &str) -> Result<Option<String>> {
    if let Some(recorded) = current.annotations().get(ADDON_DEFAULTS) {
        return Ok(Some(recorded.clone()));
    }
    let Some(line) = line_name(context.previous_version()?) else {
        return Ok(None);
    };
    let before = context.manifests.addon_before(&line, name)?;
    Ok(before.and_then(|before| before["spec"]["valuesContent"].as_str().map(str::to_owned)))
}

/// Installs an addon, or brings it to the version and values of its manifest.
pub(super) async fn upgrade(context: &Context, ctx: StepContext<'_>, namespace: &str, name: &str) -> Result<()> {
    let Some(manifest) = manifest(context, name)? else {
        return Ok(());
    };
    let addons = context.namespaced::<Addon>(namespace);
    let Some(current) = addons.get(name).await? else {
        return write::install(context, &manifest, namespace, name).await;
    };
    let version = manifest["spec"]["version"].as_str().unwrap_or_default();
    let defaults = manifest["spec"]["valuesContent"].as_str().unwrap_or_default();
    let base = defaults_before(context, &current, name)?;
    let present = current.spec.values_content.as_deref().unwrap_or_default();
    let change = match merged(base.as_deref(), present, defaults) {
        Ok(Merged { text, reshaped }) => {
            for path in reshaped {
                context.note(format!(
                    "{path} of addon {namespace}/{name} is the release's: what was set there has another shape"
                ));
            }
            Change {
                version,
                values: text.filter(|values| values != present),
                defaults: Some(defaults),
            }
        }
        Err(error) => {
            // Values that cannot be read are the user's: the version moves, they stay.
            context.note(format!(
                "the values of addon {namespace}/{name} are kept as they are: {error}"
            ));
            Change::to(version)
        }
    };
    write::change(context, ctx, namespace, name, &current, &change).await
}

/// Monitoring follows the release's chart; two values are added where users have not set them.
pub(super) async fn upgrade_monitoring(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let version = context.release()?.monitoring_chart.clone();
    let (namespace, name) = MONITORING;
    edit(context, ctx, MONITORING, &version, |values| {
        for key in plan::monitoring_lacks(values) {
            context.note(format!(
                "{key} of addon {namespace}/{name} is not set: its values have something else where it belongs"
            ));
        }
        monitoring_values(values);
    })
    .await
}

/// Logging follows the release's chart, and its event router the release's image.
pub(super) async fn upgrade_logging(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let release = context.release()?;
    let router = release.logging_chart_harvester_event_router.clone().unwrap_or_default();
    let version = release.logging_chart.clone().unwrap_or_default();
    edit(context, ctx, LOGGING, &version, |values| {
        logging_values(values, &router)
    })
    .await
}

/// Brings an addon that exists to a version, with some of its values edited.
async fn edit(
    context: &Context,
    ctx: StepContext<'_>,
    (namespace, name): (&str, &str),
    version: &str,
    edit: impl Fn(&mut Value),
) -> Result<()> {
    let addons = context.namespaced::<Addon>(namespace);
    let Some(current) = addons.get(name).await? else {
        context.note(format!("addon {namespace}/{name} does not exist: nothing to upgrade"));
        return Ok(());
    };
    let edited = edited(&current, version, edit);
    let change = edited.unwrap_or_else(|error| {
        context.note(format!(
            "the values of addon {namespace}/{name} are kept as they are: {error}"
        ));
        Change::to(version)
    });
    write::change(context, ctx, namespace, name, &current, &change).await
}

/// What an addon is to become when some of its values are edited.
fn edited<'a>(current: &Addon, version: &'a str, edit: impl Fn(&mut Value)) -> Result<Change<'a>, YamlError> {
    let present = current.spec.values_content.as_deref().unwrap_or_default();
    let mut yaml = Yaml::parse(present)?;
    edit(&mut yaml.value);
    Ok(Change {
        values: yaml.text(),
        ..Change::to(version)
    })
}

/// Kube-OVN: its definitions by a chart of their own, then the addon, whose values are never touched.
pub(super) async fn upgrade_kubeovn(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let (namespace, name) = KUBEOVN;
    let Some(manifest) = manifest(context, name)? else {
        return Ok(());
    };
    let version = manifest["spec"]["version"].as_str().unwrap_or_default();
    let charts = context.namespaced::<ManagedChart>(names::FLEET_NAMESPACE);
    let present = charts.get(KUBEOVN_CRD).await?;
    if present.is_none_or(|chart| chart.spec.version.as_deref() != Some(version)) {
        charts.apply(KUBEOVN_CRD, &kubeovn_crd(version)).await?;
    }
    let called = charts.called(KUBEOVN_CRD);
    let ready = charts.until(ctx, KUBEOVN_CRD, |chart| {
        let summary = chart.and_then(|chart| chart.status.summary.as_ref());
        if summary.and_then(|summary| summary.ready).unwrap_or(0) != 0 {
            return Look::Done;
        }
        let message = format!("{called} is not ready");
        Look::wait(Waiting {
            what: ProgramWait::ManagedChart,
            object: called.clone(),
            message,
        })
    });
    if !context.at_most(KUBEOVN_CRD_PATIENCE, ready).await? {
        context.note(format!("{called} is not ready"));
    }
    let addons = context.namespaced::<Addon>(namespace);
    let Some(current) = addons.get(name).await? else {
        return write::install(context, &manifest, namespace, name).await;
    };
    let change = Change::to(version);
    write::change(context, ctx, namespace, name, &current, &change).await
}

fn kubeovn_crd(version: &str) -> Value {
    json!({
        "apiVersion": "management.cattle.io/v3", "kind": "ManagedChart",
        "metadata": {"name": KUBEOVN_CRD, "namespace": names::FLEET_NAMESPACE},
        "spec": {
            "chart": KUBEOVN_CRD, "releaseName": KUBEOVN_CRD, "version": version,
            "defaultNamespace": names::KUBE_SYSTEM_NAMESPACE, "repoName": "harvester-charts", "timeoutSeconds": 600,
            "targets": [{
                "clusterName": names::LOCAL_CLUSTER,
                "clusterSelector": {"matchExpressions": [
                    {"key": "provisioning.cattle.io/unmanaged-system-agent", "operator": "DoesNotExist"},
                ]},
            }],
        },
    })
}
