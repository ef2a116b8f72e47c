//! Everything a decision may depend on, as one plain, sorted, serialisable value.
//!
//! A test case is such a value; a support bundle loads into one; a failing run saves one.

mod accounts;
mod before;
mod other_plans;
mod workloads;

use std::collections::BTreeMap;

use api::{
    Component, Insight, ReleaseDigests, ReleaseMetadata, RepositoryAccess, UpgradePlan,
    foreign::harvester::VersionSpec, image::Image, names,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use accounts::Accounts;
pub use before::Before;
pub use other_plans::{OtherPlan, StartedUpgrade};
pub use workloads::{JobOutcome, ObservedJob, ObservedPod, ObservedSucPlan, TerminationMessage, key, name_of};

use crate::shared::Shared;
use rules::{deadlines::Deadlines, estimate::Size};

/// What is known about one plan and the cluster around it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// How the manager was configured.
    pub settings: Settings,
    /// The plan itself.
    pub plan: Shared<UpgradePlan>,
    /// All other plans.
    pub other_plans: Vec<OtherPlan>,
    /// The Version that the plan names.
    pub version: Option<VersionSpec>,
    /// The Harvester version that runs.
    pub server_version: Option<String>,
    /// All nodes.
    pub nodes: Shared<BTreeMap<String, ObservedNode>>,
    /// The image that holds, or will hold, the ISO.
    pub iso_image: Option<ObservedImage>,
    /// The plan's repository.
    pub repo: ObservedRepo,
    /// The plan's system-upgrade-controller Plans, by component.
    pub suc_plans: BTreeMap<Component, ObservedSucPlan>,
    /// The plan's Jobs and those of its system-upgrade-controller Plans, by [`key`].
    pub jobs: Shared<BTreeMap<String, ObservedJob>>,
    /// Rancher's machine-plan Secrets.
    pub machine_plans: Shared<Vec<ObservedMachinePlan>>,
    /// The Rancher cluster.
    pub cluster: Option<ObservedCluster>,
    /// Longhorn's replica-replenishment-wait-interval.
    pub replenishment_interval: Option<String>,
    /// Whether the descheduler addon is enabled; absent when there is none.
    pub descheduler_enabled: Option<bool>,
    /// KubeVirt's workloadUpdateMethods; absent when there is no KubeVirt.
    pub workload_update_methods: Option<Vec<String>>,
    /// Harvester's ManagedCharts, by name.
    pub charts: BTreeMap<String, ObservedChart>,
    /// Pods of the upgrade that cannot start, or whose programs say what they wait for, by [`key`].
    pub pods: Shared<BTreeMap<String, ObservedPod>>,
    /// Volumes that are not healthy, by the claim they serve.
    pub unhealthy_volumes: Shared<Vec<String>>,
    /// Running VMs, by node.
    pub vms_by_node: Shared<BTreeMap<String, Vec<String>>>,
    /// Running VMs that a drain would kill, since they cannot move, by node.
    #[serde(default)]
    pub immovable_vms: Shared<BTreeMap<String, Vec<String>>>,
    /// How large the cluster is.
    #[serde(default)]
    pub size: Size,
    /// Per node, the VMs to start again.
    pub restore_list: BTreeMap<String, String>,
    /// What was there before the upgrade is stored.
    #[serde(default)]
    pub recorded: bool,
    /// What has to be probed outside the watched kinds.
    pub facts: Facts,
    /// The error that kept the last decision from being carried out, when it happened more than once.
    pub trouble: Option<String>,
    /// Known situations that would explain why the plan waits, the worst first. Only looked for while it is stalled.
    #[serde(default)]
    pub insights: Vec<Insight>,
}

/// How the manager was configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// The manager's own image, as it was deployed: what workloads run unless a plan says otherwise.
    pub own_image: Image,
    /// Other repositories that a plan may choose the image of workloads from.
    pub allowed_repositories: Vec<String>,
    /// Service accounts of our Jobs and Plans.
    pub accounts: Accounts,
    /// What serves the ISO, unless a plan says otherwise.
    pub repo_server: RepoServer,
    /// How long each wait may take.
    pub deadlines: Deadlines,
}

/// What serves the ISO's content in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RepoServer {
    /// `upgrade-toolkit repo`: straight from the image, unprivileged.
    #[default]
    Toolkit,
    /// nginx, over a loop mount in a privileged container.
    Nginx,
}

impl RepoServer {
    /// By its name, as in the annotation `management.harvesterhci.io/repo-server`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "toolkit" => Some(Self::Toolkit),
            "nginx" => Some(Self::Nginx),
            _ => None,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            own_image: Image {
                repository: names::TOOLKIT_IMAGE.to_owned(),
                tag: Some(concat!("v", env!("CARGO_PKG_VERSION")).to_owned()),
                digest: None,
            },
            allowed_repositories: Vec::new(),
            accounts: Accounts::default(),
            repo_server: RepoServer::default(),
            deadlines: Deadlines::default(),
        }
    }
}

/// A ManagedChart that an upgrade changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedChart {
    /// Fleet does not apply it for now.
    pub paused: bool,
    /// The uid of the plan whose Job paused it.
    pub paused_by: Option<String>,
    /// KubeVirt's workloadUpdateMethods among its values; null when it leaves them to its defaults.
    pub methods: Value,
    /// Fleet ignores changes of those methods.
    pub ignores_methods: bool,
    /// The generation of its status. It is that of Fleet's Bundle, not of the ManagedChart.
    pub observed_generation: i64,
    /// Why it is not ready, as Fleet reports it; nothing when it is.
    pub lacks: Option<String>,
    /// What a plan has noted on it before it changed its values.
    #[serde(default)]
    pub record: Option<String>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedNode {
    /// Harvester manages it.
    pub managed: bool,
    /// It only votes.
    pub witness: bool,
    /// It is Ready.
    pub ready: bool,
    /// Its operating system.
    pub os_image: String,
    /// Its kubelet.
    pub kubelet_version: String,
    /// Identifies the boot.
    pub boot_id: String,
    /// The operating system that we expect after its reboot.
    pub pending_os_image: Option<String>,
    /// Its boot before the Job that reboots it was created.
    pub boot_id_before_upgrade: Option<String>,
    /// It carries the taint that makes KubeVirt move VMs away.
    pub drain_taint: bool,
    /// Labels that system-upgrade-controller left for this plan's Plans.
    pub leftover_labels: Vec<String>,
}

/// The image that holds the ISO.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedImage {
    /// Its name.
    pub name: String,
    /// We created it.
    pub ours: bool,
    /// Imported or given up; absent while it is being imported.
    pub imported: Option<bool>,
    /// The SHA-512 that it says it should have.
    #[serde(default)]
    pub checksum: Option<String>,
}

/// The plan's repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedRepo {
    /// The Deployment: whether all replicas are available; absent when there is none.
    pub deployment_ready: Option<bool>,
    /// It serves a manifest; one that an older manager made does not.
    pub serves_manifest: bool,
    /// The Secret with the certificate that it serves with; one that an older manager made has none.
    pub secret: Option<String>,
    /// The Service: whether it has an address and a ready endpoint; absent when there is none.
    pub service_ready: Option<bool>,
}

/// A machine-plan Secret: where Rancher sets its hooks and we answer them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedMachinePlan {
    /// Name of the Secret.
    pub secret: String,
    /// The node, once its Machine is known.
    pub node: Option<String>,
    /// Rancher's question before it drains.
    pub pre_drain: Option<String>,
    /// Our answer.
    pub pre_hook: Option<String>,
    /// Rancher's question after it has drained and updated.
    pub post_drain: Option<String>,
    /// Our answer.
    pub post_hook: Option<String>,
}

impl ObservedMachinePlan {
    /// The token of Rancher's pre-drain hook, answered or not.
    #[must_use]
    pub fn pre_drain_token(&self) -> Option<&str> {
        self.pre_drain.as_deref().filter(|token| !token.is_empty())
    }

    /// The token of Rancher's post-drain hook, answered or not.
    #[must_use]
    pub fn post_drain_token(&self) -> Option<&str> {
        self.post_drain.as_deref().filter(|token| !token.is_empty())
    }

    /// The token of Rancher's pre-drain hook, unless it is answered.
    #[must_use]
    pub fn pending_pre_drain(&self) -> Option<&str> {
        let token = self.pre_drain_token();
        token.filter(|token| self.pre_hook.as_deref() != Some(*token))
    }

    /// The token of Rancher's post-drain hook, unless it is answered.
    #[must_use]
    pub fn pending_post_drain(&self) -> Option<&str> {
        let token = self.post_drain_token();
        token.filter(|token| self.post_hook.as_deref() != Some(*token))
    }

    /// Rancher drains the node, or has drained it and not uncordoned it yet: it keeps its tokens until then.
    #[must_use]
    pub fn is_in_drain(&self) -> bool {
        self.pre_drain_token().is_some() || self.post_drain_token().is_some()
    }
}

/// The Rancher cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedCluster {
    /// The version it should run.
    pub kubernetes_version: Option<String>,
    /// Counts how often its nodes were provisioned.
    pub provision_generation: i64,
    /// How its nodes are drained.
    pub upgrade_strategy: Option<Value>,
    /// How they were drained before an upgrade of ours, while it is not restored.
    pub saved_upgrade_strategy: Option<String>,
    /// The operating system of the release that its nodes are being upgraded to, while our hooks are in place.
    #[serde(default)]
    pub gated_release: Option<String>,
    /// All is as wanted.
    pub ready: bool,
    /// What Rancher says about what it is doing.
    pub message: Option<String>,
}

/// What has to be probed outside the watched kinds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Facts {
    /// For the pre-flight checks.
    pub preflight: Fetched<PreflightFacts>,
    /// What is there before the first change.
    pub before: Fetched<Before>,
    /// The release metadata in the repository.
    pub release: Fetched<ReleaseMetadata>,
    /// A certificate for the repository whose key the manager has in hand. The key itself is never here.
    pub repo_certificate: Fetched<RepositoryAccess>,
    /// The digests in the manifest of the repository; whether the ISO is the requested one is not decided yet.
    pub digests: Fetched<ReleaseDigests>,
    /// The image lists in the repository.
    pub image_lists: Fetched<ImageLists>,
    /// How large the new images are, and how full the disks.
    pub new_images: Fetched<NewImages>,
    /// Which pods keep a drain from ending.
    pub kept_pods: Fetched<KeptPods>,
}

/// Pods that may not be evicted from nodes which are being drained, at some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptPods {
    /// When that was.
    pub at: Timestamp,
    /// Per node, each pod with the budget that keeps it.
    pub by_node: BTreeMap<String, Vec<String>>,
}

/// A fact that has to be probed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fetched<T> {
    /// It was not probed, or the result is pending.
    #[default]
    Unknown,
    /// No answer yet.
    Failed {
        /// Why.
        error: String,
        /// When it was probed last.
        at: Timestamp,
        /// How often.
        attempts: u32,
    },
    /// The answer.
    Got(T),
}

/// What the pre-flight checks look at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreflightFacts {
    /// Per managed node.
    pub kubelets: BTreeMap<String, KubeletFacts>,
    /// Addresses of the API server.
    pub api_servers: Vec<String>,
    /// When the certificate of an address ends, for those that answered.
    pub certificates: BTreeMap<String, Timestamp>,
    /// Upgrades of Harvester's own controller (V1) that run.
    pub v1_upgrades: Vec<String>,
}

/// What loading the new images means for the disks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NewImages {
    /// Bytes of all archives together; absent when the repository does not say.
    pub archive_bytes: Option<u64>,
    /// Per managed node.
    pub kubelets: BTreeMap<String, KubeletFacts>,
}

/// What a kubelet says about its disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletFacts {
    /// Bytes in all.
    pub capacity_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Above this, it removes images.
    pub image_gc_high_threshold_percent: f64,
}

/// The image lists in the repository; absent when it has none for these versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageLists {
    /// Of the previous version.
    pub previous: Option<Vec<String>>,
    /// Of the new version.
    pub current: Option<Vec<String>>,
}
