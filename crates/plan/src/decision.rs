//! What a decision is made of: data that the manager carries out.

use std::collections::BTreeMap;

use api::{Component, JobType, NodePlan, UpgradePlanStatus, reasons};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use rules::PlanEvent;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What to do next. Carried out in the order of the fields: the intended change and the previous value are recorded before
/// anything is changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Annotations to set on the plan (`Some`) or to remove (`None`).
    pub annotations: BTreeMap<String, Option<String>>,
    /// Whether the plan should carry our finalizer.
    pub finalizer: bool,
    /// The status that the plan should have.
    pub status: UpgradePlanStatus,
    /// Events to emit.
    pub events: Vec<PlanEvent>,
    /// Changes to other objects, in this order; each is safe to repeat.
    pub actions: Vec<Action>,
    /// Questions whose answers the next decision needs.
    pub needs: Vec<Need>,
    /// When to decide again even if nothing changes.
    pub wake_at: Option<Timestamp>,
}

impl Decision {
    /// The status would change, but only its waits.
    #[must_use]
    pub fn changes_only_waits(&self, before: &UpgradePlanStatus) -> bool {
        // Every field is named, so that none that is added is forgotten.
        let UpgradePlanStatus {
            conditions,
            current_phase,
            insights,
            iso_image_id,
            node_upgrade_statuses,
            notes,
            phase_transition_timestamps,
            postflight,
            preflight,
            previous_version,
            // It is written with other changes only.
            progress: _,
            provision_generation,
            release_digests,
            release_metadata,
            repository,
            single_node,
            version,
            waiting_for: _,
        } = &self.status;
        let same = current_phase == &before.current_phase
            && insights == &before.insights
            && iso_image_id == &before.iso_image_id
            && node_upgrade_statuses == &before.node_upgrade_statuses
            && notes == &before.notes
            && phase_transition_timestamps == &before.phase_transition_timestamps
            && postflight == &before.postflight
            && preflight == &before.preflight
            && previous_version == &before.previous_version
            && provision_generation == &before.provision_generation
            && release_digests == &before.release_digests
            && release_metadata == &before.release_metadata
            && repository == &before.repository
            && single_node == &before.single_node
            && version == &before.version;
        same && same_but_for_words(conditions, &before.conditions) && *before != self.status
    }
}

/// Conditions are the same but for the message of `Progressing`, which says what is waited for.
fn same_but_for_words(these: &[Condition], those: &[Condition]) -> bool {
    let is_same = |(this, that): (&Condition, &Condition)| {
        this.type_ == that.type_
            && this.status == that.status
            && this.reason == that.reason
            && this.observed_generation == that.observed_generation
            && this.last_transition_time == that.last_transition_time
            && (this.type_ == reasons::PROGRESSING || this.message == that.message)
    };
    these.len() == those.len() && these.iter().zip(those).all(is_same)
}

/// Questions outside the watched kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Need {
    /// Disks and certificates.
    Preflight,
    /// What is there before the first change, and what the checks say about it that block nothing.
    Before,
    /// The release metadata.
    Release,
    /// A certificate for the repository, with a key that the manager keeps to itself.
    RepoCertificate,
    /// The manifest of the release.
    Manifest,
    /// The image lists.
    ImageLists,
    /// How large the new images are, and how full the disks.
    NewImages,
    /// Which pods keep a drain from ending.
    KeptPods,
}

/// A change to an object other than the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// Create an object of ours; it is fine if it exists.
    Create(Child),
    /// Store what was there before the upgrade. It is never overwritten.
    StoreRecord,
    /// Resume a paused Job.
    ResumeJob {
        /// Its name.
        name: String,
    },
    /// Delete one Job and its pods.
    DeleteJob {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its UID as it was seen: another Job of its name stays.
        uid: Option<String>,
    },
    /// Delete all objects of ours that serve a component.
    Delete {
        /// What they are.
        kind: ChildKind,
        /// The component.
        component: Component,
        /// The step of a node, for Jobs of nodes.
        job_type: Option<JobType>,
    },
    /// Set (`Some`) or remove (`None`) annotations of a node.
    AnnotateNode {
        /// Its name.
        node: String,
        /// By key.
        annotations: BTreeMap<String, Option<String>>,
    },
    /// Remove labels of a node.
    UnlabelNode {
        /// Its name.
        node: String,
        /// The keys.
        labels: Vec<String>,
    },
    /// Let VMs come to a node again.
    UntaintNode {
        /// Its name.
        node: String,
    },
    /// Answer Rancher on a machine-plan Secret.
    AnswerHook {
        /// The Secret.
        secret: String,
        /// The annotation that holds the answer.
        hook: String,
        /// The answer: Rancher's own token.
        token: String,
    },
    /// Make Rancher upgrade all nodes, each one gated by our hooks. Only from the generation we know.
    ProvisionCluster {
        /// The version that the nodes should run.
        kubernetes_version: String,
        /// The generation that the cluster has now.
        from: i64,
        /// The generation that we give it.
        to: i64,
        /// The upgradeStrategy that is replaced, noted on the cluster too: it outlives the plan.
        saved_strategy: String,
        /// The operating system of the release, recorded on the cluster too: a later plan knows what has begun.
        os: String,
    },
    /// Put the cluster's upgradeStrategy back.
    RestoreUpgradeStrategy {
        /// What it was; null when there was none.
        strategy: Value,
    },
    /// Set Longhorn's replica-replenishment-wait-interval.
    SetReplenishmentInterval {
        /// Seconds, as text.
        value: String,
    },
    /// Turn the descheduler addon on or off.
    EnableDescheduler {
        /// On.
        enabled: bool,
    },
    /// Set what the chart `harvester` makes of KubeVirt's workloadUpdateMethods, and give up the field on the KubeVirt
    /// object, where earlier upgrades left their names on it.
    SetChartMethods {
        /// The methods; null leaves them to the chart's defaults.
        methods: Value,
        /// Have Fleet apply the chart, if it is paused.
        resume: bool,
        /// What the chart was like, noted on it too: it outlives the plan. Nothing once it is so again.
        record: Option<String>,
    },
    /// Have Fleet not apply a chart, as before.
    PauseChart {
        /// Its name.
        name: String,
    },
    /// Have Fleet apply a chart that we paused.
    ResumeChart {
        /// Its name.
        name: String,
    },
    /// Set KubeVirt's workloadUpdateMethods on the object itself and give up the field, to restore what an older version
    /// of ours changed.
    SetWorkloadUpdateMethods {
        /// The methods.
        methods: Vec<String>,
    },
    /// Fleet no longer ignores changes of those methods, as an older version of ours had it do.
    StopIgnoringWorkloadUpdateMethods,
}

impl Action {
    /// It takes the upgrade further, and only after those before it: a Job that reboots a node, after the note of the node's
    /// boot. All others are independent: one that fails does not prevent the others.
    #[must_use]
    pub const fn needs_those_before(&self) -> bool {
        matches!(
            self,
            Self::Create(_) | Self::ResumeJob { .. } | Self::AnswerHook { .. } | Self::ProvisionCluster { .. }
        )
    }
}

/// Kinds of objects that we create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ChildKind {
    /// VirtualMachineImage.
    Image,
    /// Deployment.
    Deployment,
    /// Service.
    Service,
    /// system-upgrade-controller Plan.
    SucPlan,
    /// Job.
    Job,
}

impl ChildKind {
    /// The name of the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Image => "VirtualMachineImage",
            Self::Deployment => "Deployment",
            Self::Service => "Service",
            Self::SucPlan => "Plan",
            Self::Job => "Job",
        }
    }
}

/// An object that we create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Child {
    /// The image that downloads the ISO.
    IsoImage {
        /// Where from.
        url: String,
        /// Its checksum, or nothing.
        checksum: String,
    },
    /// The repository's Deployment.
    RepoDeployment {
        /// How many pods.
        replicas: i32,
        /// The claim that holds the ISO.
        claim: String,
        /// The SHA-512 that the ISO should have, if it is given.
        checksum: Option<String>,
        /// The Secret with the certificate that it serves with.
        secret: String,
    },
    /// The Secret with the repository's recorded certificate and its key.
    RepoSecret {
        /// Its name.
        name: String,
    },
    /// The repository's Service.
    RepoService,
    /// A system-upgrade-controller Plan.
    SucPlan {
        /// What it does on every node.
        plan: NodePlan,
        /// How many nodes at once.
        concurrency: i64,
        /// Images to remove, for the clean-up.
        images: Vec<String>,
    },
    /// The Job that applies the cluster's manifests.
    ClusterJob,
    /// A Job of a node.
    NodeJob {
        /// Which step.
        job_type: JobType,
        /// The node.
        node: String,
        /// Create it suspended.
        suspend: bool,
    },
    /// The Job that starts a node's VMs again.
    RestoreJob {
        /// The node.
        node: String,
    },
}

impl Child {
    /// It has pods that run the toolkit's image.
    #[must_use]
    pub const fn runs_programs(&self) -> bool {
        !matches!(
            self,
            Self::IsoImage { .. } | Self::RepoService | Self::RepoSecret { .. }
        )
    }
}
