//! The release that a simulated cluster is upgraded to: its versions, and the files that its ISO holds.

/// Versions of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of harvester-release.yaml")]
pub struct Release {
    pub harvester: String,
    pub harvester_chart: String,
    pub os: String,
    pub kubernetes: String,
    pub rancher: String,
    pub monitoring_chart: String,
    pub logging_chart: String,
    pub logging_event_router: String,
    pub kubevirt: String,
    pub min_upgradable_version: String,
}

/// RKE2 before the upgrade.
const OLD_KUBERNETES: &str = "v1.34.3+rke2r1";
/// KubeVirt before the upgrade.
const OLD_KUBEVIRT: &str = "1.6.3-150700.3.10.1";
/// The account of Jobs that system-upgrade-controller runs.
pub(crate) const PLAN_SERVICE_ACCOUNT: &str = "system-upgrade-controller";
/// Rancher before the upgrade.
const OLD_RANCHER: &str = "v2.13.1";
/// Chart and version of Fleet, before the upgrade and after.
const OLD_FLEET: (&str, &str) = ("108.0.1+up0.14.1", "0.14.1");
pub(crate) const FLEET: (&str, &str) = ("109.0.0+up0.15.0-alpha.8", "0.15.0-alpha.8");
/// Chart and version of Rancher's webhook, before the upgrade and after.
const OLD_RANCHER_WEBHOOK: (&str, &str) = ("108.0.1+up0.9.1", "0.9.1");
pub(crate) const RANCHER_WEBHOOK: (&str, &str) = ("109.0.0+up0.10.0-rc.5", "0.10.0-rc.5");
/// Longhorn before the upgrade and after.
const OLD_LONGHORN: &str = "v1.10.1";
pub(crate) const LONGHORN: &str = "v1.11.0";
/// The addons of the new release that are not charts of Rancher's have this version.
pub(crate) const ADDON: &str = "1.1.0";
/// Their version before the upgrade.
const OLD_ADDON: &str = "1.0.0";
/// Chart version of logging before the upgrade.
const OLD_LOGGING_CHART: &str = "105.2.0+up4.10.0";
/// Chart version of monitoring before the upgrade.
const OLD_MONITORING_CHART: &str = "105.1.2+up61.3.2-rancher.7";

/// The parts of Harvester that run before an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installed {
    pub(crate) kubernetes: String,
    pub(crate) kubevirt: String,
    pub(crate) rancher: String,
    pub(crate) fleet: (&'static str, &'static str),
    pub(crate) rancher_webhook: (&'static str, &'static str),
    pub(crate) longhorn: &'static str,
    pub(crate) monitoring_chart: String,
    pub(crate) logging_chart: String,
    pub(crate) addon: &'static str,
}

impl Installed {
    /// The parts of a release.
    pub(crate) fn of(release: &Release) -> Self {
        Self {
            kubernetes: release.kubernetes.clone(),
            kubevirt: release.kubevirt.clone(),
            rancher: release.rancher.clone(),
            fleet: FLEET,
            rancher_webhook: RANCHER_WEBHOOK,
            longhorn: LONGHORN,
            monitoring_chart: release.monitoring_chart.clone(),
            logging_chart: release.logging_chart.clone(),
            addon: ADDON,
        }
    }

    /// The parts of the release before the newest.
    pub(crate) fn before() -> Self {
        Self {
            kubernetes: OLD_KUBERNETES.to_owned(),
            kubevirt: OLD_KUBEVIRT.to_owned(),
            rancher: OLD_RANCHER.to_owned(),
            fleet: OLD_FLEET,
            rancher_webhook: OLD_RANCHER_WEBHOOK,
            longhorn: OLD_LONGHORN,
            monitoring_chart: OLD_MONITORING_CHART.to_owned(),
            logging_chart: OLD_LOGGING_CHART.to_owned(),
            addon: OLD_ADDON,
        }
    }
}

/// The RKE2 of a release: each patch release brings the next one, and a candidate that of its release.
fn rke2_of(version: &str) -> String {
    let numbers = version.trim_start_matches('v').split('-').next().unwrap_or_default();
    let patch: u32 = numbers
        .split('.')
        .nth(2)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    format!("v1.35.{}+rke2r1", 2 + patch)
}

impl Release {
    /// The release of that version.
    #[must_use]
    pub fn of(version: &str) -> Self {
        Self {
            harvester: version.to_owned(),
            harvester_chart: version.trim_start_matches('v').to_owned(),
            os: format!("Harvester {version}"),
            kubernetes: rke2_of(version),
            rancher: "v2.14.0-alpha9".to_owned(),
            monitoring_chart: "108.0.2+up77.9.1-rancher.11".to_owned(),
            logging_chart: "108.0.1+up4.10.0-rancher.13".to_owned(),
            logging_event_router: format!("rancher/harvester-eventrouter:{version}"),
            kubevirt: "1.7.0-150700.3.19.1".to_owned(),
            min_upgradable_version: "v1.7.0".to_owned(),
        }
    }

    /// The content of `harvester-release.yaml`.
    #[must_use]
    pub fn yaml(&self) -> String {
        let Self {
            harvester,
            harvester_chart,
            os,
            kubernetes,
            rancher,
            monitoring_chart,
            logging_chart,
            logging_event_router,
            kubevirt,
            min_upgradable_version,
        } = self;
        let ((fleet, fleet_app), (webhook, webhook_app)) = (FLEET, RANCHER_WEBHOOK);
        format!(
            "harvester: {harvester}\nharvesterChart: {harvester_chart}\nos: {os}\nkubernetes: {kubernetes}\n\
             rancher: {rancher}\nmonitoringChart: {monitoring_chart}\nloggingChart: {logging_chart}\n\
             loggingChartHarvesterEventRouter: {logging_event_router}\nkubevirt: {kubevirt}\n\
             minUpgradableVersion: '{min_upgradable_version}'\n\
             rancherDependencies:\n\
             \x20 fleet: {{chart: {fleet}, app: {fleet_app}}}\n\
             \x20 fleet-crd: {{chart: {fleet}, app: {fleet_app}}}\n\
             \x20 rancher-webhook: {{chart: {webhook}, app: {webhook_app}}}\n"
        )
    }
}

/// The images of a release: most carry its version, some do not change, some must never be removed.
#[must_use]
pub fn image_list(version: &str, kubernetes: &str) -> String {
    let tag = kubernetes.replace('+', "-");
    let images = [
        format!("docker.io/rancher/harvester:{version}"),
        format!("docker.io/rancher/harvester-webhook:{version}"),
        format!("docker.io/rancher/harvester-upgrade:{version}"),
        format!("docker.io/rancher/harvester-upgrade-toolkit:{version}"),
        format!("docker.io/rancher/harvester-cluster-repo:{version}"),
        format!("docker.io/rancher/rke2-runtime:{tag}"),
        format!("docker.io/rancher/hardened-kubernetes:{tag}"),
        format!("docker.io/longhornio/longhorn-engine:{version}"),
        format!("docker.io/longhornio/longhorn-manager:{version}"),
        "docker.io/rancher/mirrored-pause:3.6".to_owned(),
        "docker.io/rancher/hardened-etcd:v3.5.21-k3s1-build20250612".to_owned(),
    ];
    images.join("\n") + "\n"
}
