//! The cluster upgrade: Rancher, charts, Longhorn, KubeVirt and addons, once per cluster, from a Job.
//!
//! [`STEPS`] is the whole of it, in order. Every step checks first and does what is missing, so that a Job that was interrupted
//! anywhere is simply run again; what a step must remember beyond its pod is written down before it is acted upon.
//! Everything goes through the Kubernetes API but Helm, which is behind [`installer::RancherInstaller`]. What a step
//! decides is a pure function next to it.

pub mod addons;
pub mod bundles;
pub mod catalog;
pub mod charts;
mod context;
pub mod harvester_chart;
pub mod helm_config;
pub mod helm_release;
pub mod installer;
pub mod longhorn;
pub mod manifests;
mod objects;
pub mod pauses;
pub mod rancher;
pub mod repository;
pub mod rollout;
pub mod settings;
pub mod suspend_agent;
pub mod version_line;

#[cfg(test)]
mod tests;

pub use context::{Context, Found};
pub use objects::{FIELD_MANAGER, called};

use std::time::Duration;

use api::names;

use program::{
    error::Result,
    report::Reporter,
    step::{Step, run_all},
};

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

/// One line of the table: name, minutes it may take, and what it does.
macro_rules! step {
    ($name:literal, $minutes:literal, $run:path $(, $argument:expr)*) => {
        Step {
            name: $name,
            limit: minutes($minutes),
            run: |context, ctx| Box::pin($run(context, ctx $(, $argument)*)),
        }
    };
}

/// The steps of a cluster upgrade, in order.
pub const STEPS: &[Step<Context>] = &[
    step!("wait-repository", 15, repository::wait),
    step!("read-release", 10, repository::read_release),
    step!("read-plan", 5, repository::read_plan),
    step!("guard-multus", 10, helm_config::guard_multus),
    step!("preserve-overcommit", 10, settings::preserve_overcommit),
    step!("pause-charts", 10, charts::pause),
    step!("suspend-agents", 20, suspend_agent::run),
    step!("allow-internal-names", 10, settings::allow_internal_names),
    step!("mark-administrated", 10, settings::mark_administrated),
    step!("prepare-rancher", 30, rancher::prepare),
    step!("upgrade-rancher", 60, rancher::upgrade),
    step!("wait-rancher-version", 15, rancher::wait_version),
    step!("refresh-rancher-charts", 15, rancher::refresh_charts),
    step!("wait-rancher-charts", 45, rancher::wait_charts),
    step!("wait-rancher-rollouts", 20, rancher::wait_rollouts),
    step!("redeploy-fleet-agent", 20, rancher::redeploy_agent),
    step!("settle-fleet", 20, rancher::settle_fleet),
    step!("complete-local-cluster", 10, settings::complete_local_cluster),
    step!("upgrade-cluster-repo", 20, catalog::upgrade),
    step!("apply-cdi", 10, manifests::apply_cdi),
    step!("upgrade-harvester-crd", 20, charts::upgrade_harvester_crd),
    step!("upgrade-harvester", 45, harvester_chart::upgrade),
    step!("wait-kubevirt", 30, harvester_chart::wait_kubevirt),
    step!("settle-longhorn", 60, longhorn::settle),
    step!("upgrade-monitoring-crd", 20, charts::upgrade_monitoring_crd),
    step!("upgrade-logging-crd", 20, charts::upgrade_logging_crd),
    step!("wait-addon-kind", 10, addons::wait_kind),
    step!(
        "upgrade-vm-import-controller",
        15,
        addons::upgrade,
        names::HARVESTER_NAMESPACE,
        "vm-import-controller"
    ),
    step!(
        "upgrade-pcidevices-controller",
        15,
        addons::upgrade,
        names::HARVESTER_NAMESPACE,
        "pcidevices-controller"
    ),
    step!(
        "upgrade-harvester-seeder",
        15,
        addons::upgrade,
        names::HARVESTER_NAMESPACE,
        "harvester-seeder"
    ),
    step!(
        "upgrade-descheduler",
        15,
        addons::upgrade,
        names::KUBE_SYSTEM_NAMESPACE,
        names::DESCHEDULER_ADDON
    ),
    step!("upgrade-monitoring", 15, addons::upgrade_monitoring),
    step!("upgrade-logging", 15, addons::upgrade_logging),
    step!(
        "upgrade-nvidia-driver-toolkit",
        15,
        addons::upgrade,
        names::HARVESTER_NAMESPACE,
        "nvidia-driver-toolkit"
    ),
    step!("upgrade-kubeovn", 15, addons::upgrade_kubeovn),
    step!("settle-bundles", 10, bundles::settle),
    step!("configure-traefik", 10, helm_config::configure_traefik),
];

/// Upgrades the cluster and leaves a termination message: notes for users although nothing failed.
///
/// # Errors
/// The first permanent error, or the step whose time was up.
pub async fn run(context: &Context, report: &Reporter) -> Result<()> {
    run_all(context, STEPS, report).await?;
    let notes = context.notes();
    if !notes.is_empty() {
        report.termination_message(&format!("done; {}", notes.join("; ")));
    }
    Ok(())
}
