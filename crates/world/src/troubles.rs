//! Simulated failures, as data. None by default.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::{Component, JobType};

/// Failures of a simulated cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Troubles {
    /// Jobs that fail, hang or do not get their image. The first match counts.
    pub jobs: Vec<JobTrouble>,
    /// How often the import of an ISO fails before it works. More than the image's `retry` fails it for good.
    pub iso_failures: u32,
    /// The scratch claim of the import of an ISO is not bound, so its importer does not start.
    pub scratch_pending: bool,
    /// Nodes whose reboot fails.
    pub reboots: BTreeMap<String, RebootTrouble>,
    /// Nodes whose kubelet cannot end pods: those that are deleted stay, and run.
    pub stuck_kubelets: BTreeSet<String>,
    /// VMs, by `namespace/name`, whose migration fails.
    pub migrations: BTreeMap<String, MigrationTrouble>,
    /// VMs, by `namespace/name`, that do not start.
    pub vms_that_do_not_start: BTreeSet<String>,
    /// Nodes whose kubelet comes up with its new version only so long after Rancher is through with it.
    pub late_kubelets: BTreeMap<String, Duration>,
    /// Harvester's node-down controller is an old one: it takes the drain taint away from every node that is Ready.
    pub drain_taint_is_taken_away: bool,
    /// Nodes whose last machine plan could not be applied. Rancher's limits do not hold for them.
    pub failed_machine_plans: BTreeSet<String>,
    /// Nodes whose probes have not been well since their last machine plan was applied. Nor do they for these.
    pub unhealthy_machines: BTreeSet<String>,
    /// Charts that Fleet does not get ready.
    pub stuck_charts: BTreeSet<String>,
    /// Nodes with a pod whose PodDisruptionBudget never allows an eviction.
    pub blocked_drains: BTreeSet<String>,
    /// What is wrong with the repository.
    pub repository: Option<RepositoryTrouble>,
    /// Nodes whose disk is nearly full.
    pub full_disks: BTreeSet<String>,
    /// An attacker creates look-alikes of all objects of a plan.
    pub saboteur: bool,
    /// How many days the API server's certificates are still valid; a year when unset.
    pub certificate_days: Option<i64>,
}

/// A Job that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTrouble {
    /// Value of the label `upgrade-component`.
    pub component: Component,
    /// Value of the label `job-type`; any when unset.
    pub job_type: Option<JobType>,
    /// Its node; any when unset.
    pub node: Option<String>,
    /// The failure.
    pub failure: JobFailure,
}

/// How a Job fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobFailure {
    /// Its first pods fail, so many; the next one succeeds.
    Fails(u32),
    /// Each of its pods is killed when a step of its program has begun, and leaves behind what the steps before it did.
    DiesAt(&'static str),
    /// Its pod runs for ever.
    Hangs,
    /// Its pod never gets its image.
    ImagePullBackOff,
}

/// How a reboot fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebootTrouble {
    /// The node stays away.
    NeverReturns,
    /// The node comes back with the operating system it had.
    OldSystem,
    /// The node loses its power in the middle of the Job that installs its system, and comes back with the one it had. The
    /// Job's next pod installs it, and all goes well.
    DuringInstallation,
}

/// How a migration fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationTrouble {
    /// The first attempts fail, so many; the next one succeeds.
    Fails(u32),
    /// It never ends.
    Stuck,
}

/// What is wrong with the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepositoryTrouble {
    /// Its pods never become ready.
    NeverReady,
    /// Its pods are ready, but no client can reach it.
    Unreachable,
    /// It has no lists of the images of releases.
    NoImageLists,
    /// The lists of its archives of images are empty.
    EmptyImageLists,
    /// Its ISO is another one than the Version says.
    AnotherIso,
    /// Another server serves other versions than those in the ISO.
    SwappedRelease,
    /// Another server serves the manifest of another release.
    ReplayedManifest,
    /// Another server answers for its name from the beginning, with another release and without the key of its certificate.
    Impostor,
}

/// Lists all variants of a trouble. The list is that of a match, so that a variant which is not on it does not compile.
macro_rules! all_of {
    ($trouble:ident: $($variant:ident),+ $(,)?) => {
        impl $trouble {
            /// All of them.
            pub const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];
        }

        const _: fn($trouble) = |trouble| match trouble {
            $($trouble::$variant)|+ => (),
        };
    };
}

all_of!(RebootTrouble: NeverReturns, OldSystem, DuringInstallation);

all_of!(
    RepositoryTrouble: NeverReady,
    Unreachable,
    NoImageLists,
    EmptyImageLists,
    AnotherIso,
    SwappedRelease,
    ReplayedManifest,
    Impostor,
);

impl Troubles {
    /// The failure of a Job's pod.
    #[must_use]
    pub fn of_job(&self, component: Component, job_type: Option<JobType>, node: &str) -> Option<JobFailure> {
        self.jobs
            .iter()
            .find(|trouble| {
                trouble.component == component
                    && (trouble.job_type.is_none() || trouble.job_type == job_type)
                    && trouble.node.as_deref().is_none_or(|wanted| wanted == node)
            })
            .map(|trouble| trouble.failure)
    }
}
