//! Managed charts and addons: nothing is being rolled out.

use api::{UpgradePlan, foreign::harvester::Addon, names};
use kube::ResourceExt;

use crate::{Cluster, FieldError};

use super::{SPEC, all, forbidden, full_name, within};

/// A chart that says nothing about being ready passes.
pub(super) fn are_ready(_: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let charts = within(&cluster.managed_charts, "managedcharts", names::FLEET_NAMESPACE)?;
    let unready = charts.into_iter().filter(|chart| {
        let mut conditions = chart.status.conditions.iter().flatten();
        conditions.any(|condition| condition.type_ == "Ready" && condition.status.as_deref() != Some("True"))
    });
    let errors = unready.map(|chart| {
        let why = format!(
            "managed chart {} is not ready, please wait for it to be ready or fix it",
            chart.name_any()
        );
        FieldError::forbidden(SPEC, why)
    });
    Ok(errors.collect())
}

pub(super) fn addons_are_settled(_: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let addons = all(&cluster.addons, "addons")?;
    let processing: Vec<String> = addons.iter().filter_map(processing).collect();
    Ok(forbidden(&processing, |first| {
        format!("{first}, please wait for it to be ready or fix it")
    }))
}

/// What is still being done to the addon.
fn processing(addon: &Addon) -> Option<String> {
    let status = addon.status.status.as_deref().unwrap_or_default();
    let (wanted, settled) = if addon.spec.enabled == Some(true) {
        ("enabled", status == "AddonDeploySuccessful")
    } else {
        ("disabled", status == "AddonDisabled" || status.is_empty())
    };
    (!settled).then(|| format!("addon {} is {wanted} but still on status {status}", full_name(addon)))
}
