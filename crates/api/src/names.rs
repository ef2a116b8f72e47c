//! Names of namespaces and of the objects that belong to a plan.

use sha2::{Digest, Sha256};

use crate::{Component, JobType};

/// Versions, ISO images, the repository, our Jobs.
pub const HARVESTER_NAMESPACE: &str = "harvester-system";
/// system-upgrade-controller Plans and their Jobs.
pub const CATTLE_NAMESPACE: &str = "cattle-system";
/// The Rancher cluster, Machines, machine-plan Secrets, ManagedCharts.
pub const FLEET_NAMESPACE: &str = "fleet-local";
/// Longhorn's settings and volumes.
pub const LONGHORN_NAMESPACE: &str = "longhorn-system";
/// The descheduler addon.
pub const KUBE_SYSTEM_NAMESPACE: &str = "kube-system";
/// Events of cluster-scoped objects, and the API server's own Service.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The Rancher cluster that Harvester runs on.
pub const LOCAL_CLUSTER: &str = "local";
/// The harvesterhci.io Setting with the running version.
pub const SERVER_VERSION_SETTING: &str = "server-version";
/// The longhorn.io Setting that delays replica rebuilds.
pub const REPLENISHMENT_SETTING: &str = "replica-replenishment-wait-interval";
/// The Addon that moves pods by itself.
pub const DESCHEDULER_ADDON: &str = "descheduler";
/// The KubeVirt object.
pub const KUBEVIRT: &str = "kubevirt";
/// The ManagedChart that owns the KubeVirt object.
pub const HARVESTER_CHART: &str = "harvester";
/// The ManagedCharts that an upgrade pauses and brings to other versions.
pub const MANAGED_CHARTS: [&str; 4] = [
    HARVESTER_CHART,
    "harvester-crd",
    "rancher-monitoring-crd",
    "rancher-logging-crd",
];
/// The lease that the managers compete for.
pub const LEASE: &str = "3509939c.harvesterhci.io";
/// The Service of the API server.
pub const KUBERNETES_SERVICE: &str = "kubernetes";
/// Repository and name of the toolkit's container image.
pub const TOOLKIT_IMAGE: &str = "rancher/harvester-upgrade-toolkit";

/// The variable with which programs in Jobs get the SHA-256 of the repository's manifest.
pub const MANIFEST_VARIABLE: &str = "HARVESTER_UPGRADE_MANIFEST_SHA256";

/// The variable that gives programs in Jobs the certificate of the repository, in PEM.
pub const CERTIFICATE_VARIABLE: &str = "HARVESTER_UPGRADE_REPO_CERTIFICATE";

/// Longest name, in bytes, that [`safe_concat`] returns.
const NAME_LIMIT: usize = 63;

/// Joins parts with `-`; a result of 64 bytes or more is cut and gets a short digest, 63 bytes in all.
#[must_use]
pub fn safe_concat(parts: &[&str]) -> String {
    let joined = parts.join("-");
    if joined.len() <= NAME_LIMIT {
        return joined;
    }
    let digest: String = Sha256::digest(joined.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let bytes = joined.as_bytes();
    let cut = if bytes[56].is_ascii_lowercase() || bytes[56].is_ascii_digit() {
        57
    } else {
        56
    };
    let head = String::from_utf8_lossy(&bytes[..cut]);
    format!("{head}-{}", &digest[..NAME_LIMIT - 1 - cut])
}

/// The SHA-256 of a text, in hexadecimal: for names that must be the same each time.
#[must_use]
pub fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The VirtualMachineImage that downloads the ISO of a plan.
#[must_use]
pub fn iso_image(plan: &str) -> String {
    safe_concat(&[plan, Component::Iso.as_str()])
}

/// Deployment and Service of the plan's repository.
#[must_use]
pub fn repo(plan: &str) -> String {
    safe_concat(&[plan, Component::Repo.as_str()])
}

/// How the plan's repository is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepoScheme {
    /// Over TLS, with the recorded certificate.
    Https,
    /// Plain, in an upgrade that began under an older manager.
    Http,
}

impl RepoScheme {
    /// By whether there is a certificate.
    #[must_use]
    pub fn by<T>(certificate: Option<T>) -> Self {
        certificate.map_or(Self::Http, |_| Self::Https)
    }

    /// As URLs begin.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }
}

/// Where the plan's repository serves the ISO's content. The host is the Service's own name, however long.
#[must_use]
pub fn repo_url(plan: &str, scheme: RepoScheme) -> String {
    format!(
        "{}://{}.{HARVESTER_NAMESPACE}/harvester-iso",
        scheme.as_str(),
        repo(plan)
    )
}

/// Where the plan's repository serves the manifest of that content.
#[must_use]
pub fn repo_manifest_url(plan: &str, scheme: RepoScheme) -> String {
    format!("{}.manifest", repo_url(plan, scheme))
}

/// The name that the certificate of the plan's repository is verified for, whatever the domain of the cluster.
#[must_use]
pub fn repo_server_name(plan: &str) -> String {
    format!("{}.{HARVESTER_NAMESPACE}.svc", repo(plan))
}

/// A Secret with a certificate of the plan's repository and its key. Another certificate has another name: no client of ours may read
/// what is in a Secret that exists, so it would be unknown whose key it contains.
#[must_use]
pub fn repo_secret(plan: &str, certificate: &str) -> String {
    safe_concat(&[&repo(plan), &digest(certificate)[..10]])
}

/// A system-upgrade-controller Plan of the plan, by what it serves.
#[must_use]
pub fn suc_plan(plan: &str, component: Component) -> String {
    safe_concat(&[plan, component.as_str()])
}

/// The Job that applies the cluster's manifests.
#[must_use]
pub fn cluster_job(plan: &str) -> String {
    safe_concat(&[plan, Component::ClusterUpgrade.as_str()])
}

/// A Job of a node, by its step.
#[must_use]
pub fn node_job(plan: &str, job_type: JobType, node: &str) -> String {
    safe_concat(&[plan, Component::NodeUpgrade.as_str(), job_type.as_str(), node])
}

/// The ConfigMap with what was there before a plan, or with the first part of it.
#[must_use]
pub fn record_config_map(plan: &str) -> String {
    safe_concat(&[plan, "record"])
}

/// A ConfigMap with another part, counted from 0. `record` identifies what it is a part of: parts of two records never mix.
#[must_use]
pub fn record_part_config_map(plan: &str, record: &str, part: usize) -> String {
    safe_concat(&[plan, "record", record, &part.to_string()])
}

/// The ConfigMap that lists the VMs to start again.
#[must_use]
pub fn restore_config_map(plan: &str) -> String {
    safe_concat(&[plan, "restore-vm"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_joined_as_they_are() {
        assert_eq!(
            node_job("up", JobType::PreDrain, "node-1"),
            "up-node-upgrade-pre-drain-node-1"
        );
        assert_eq!(
            repo_url("up", RepoScheme::Http),
            "http://up-repo.harvester-system/harvester-iso"
        );
    }

    #[test]
    fn w32_the_host_of_the_repository_is_the_name_of_its_service_however_long_the_plans_is() {
        let plan = "a".repeat(80);
        let host = repo_url(&plan, RepoScheme::Https);
        let host = host
            .trim_start_matches("https://")
            .split('/')
            .next()
            .unwrap_or_default();
        assert_eq!(host, format!("{}.{HARVESTER_NAMESPACE}", repo(&plan)));
        assert!(repo(&plan).len() <= 63);
    }

    #[test]
    fn a_name_of_63_bytes_is_kept_and_one_of_64_is_cut() {
        let kept = "a".repeat(59);
        assert_eq!(iso_image(&kept).len(), 63);
        assert_eq!(iso_image(&kept), format!("{kept}-iso"));
        let cut = iso_image(&"a".repeat(60));
        assert_eq!(cut.len(), 63);
        assert_eq!(&cut[..58], format!("{}-", "a".repeat(57)));
    }

    #[test]
    fn a_cut_never_ends_in_a_separator_before_the_digest() {
        // Byte 56 is the dash between the parts, so one byte less is kept and one digit more.
        let name = safe_concat(&[&"a".repeat(56), &"b".repeat(20)]);
        assert_eq!(name.len(), 63);
        assert_eq!(&name[..57], format!("{}-", "a".repeat(56)));
        assert!(!name[57..].contains('-'));
    }

    #[test]
    fn the_digest_is_that_of_the_whole_joined_name() {
        let parts = ["x".repeat(40), "y".repeat(40)];
        let joined = parts.join("-");
        let hex: String = Sha256::digest(joined.as_bytes())
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let name = safe_concat(&[&parts[0], &parts[1]]);
        assert!(name.ends_with(&hex[..5]), "{name} {hex}");
    }
}
