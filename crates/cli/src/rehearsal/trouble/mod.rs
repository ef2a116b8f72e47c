//! Troubles that a rehearsal plays on request: one table of what can go wrong, read by `rehearse --trouble`, its list, its
//! documentation and the tests of `doctor`.
//!
//! A row says how a trouble is played; [`act`] plays it. Nothing here knows what the manager decides.

pub mod act;
mod by_volumes;
mod by_world;
mod by_writes;
mod choice;
mod list;
mod writes;

use api::{Component, JobType, NodeState, Phase};
use futures::future::BoxFuture;
use world::Troubles;

pub use choice::{Chosen, Scene, Unusable, choose};
pub use list::{as_json, as_text, cells};

use writes::Hands;

/// Something that can go wrong.
pub struct Row {
    /// What a user calls it.
    pub name: &'static str,
    /// What it happens to.
    pub object: Object,
    /// To which of them, unless the user names one; all of them when empty.
    pub default: &'static str,
    /// When it begins, unless the user says so.
    pub begins: Moment,
    /// The last phase in which it can begin and still be noticed. Without one it always begins when the table says.
    pub last: Option<Phase>,
    /// The smallest cluster that it can happen in.
    pub nodes: usize,
    /// What happens.
    pub happens: &'static str,
    /// How a user notices.
    pub shows: Shows,
    /// How an administrator repairs it in a served rehearsal.
    pub remedy: &'static str,
    /// When the trouble is over although no client can repair its cause.
    pub(crate) lift: Lift,
    pub(crate) play: Play,
}

/// What a trouble happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// Nothing that a user chooses.
    None,
    /// A node.
    Node,
    /// A VM that can be live-migrated, as `namespace/name`.
    MigratableVm,
    /// A VM that is shut down for the upgrade, as `namespace/name`.
    StoppedVm,
    /// A ManagedChart.
    Chart,
    /// A Job of the upgrade.
    Job,
    /// A step of a program of the upgrade.
    Step,
    /// A number of days.
    Days,
}

/// When a trouble begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the upgrade.
    Start,
    /// When a plan reaches a phase.
    Phase(Phase),
    /// When a node reaches a state.
    Node(NodeState),
}

/// How a user notices a trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// `doctor` names these situations, the first about an object that begins so.
    Doctor(&'static [&'static str], &'static str),
    /// The plan waits for this: a name of `status.waitingFor[].what`.
    Waits(&'static str),
    /// The plan fails, and says this.
    Fails(&'static str),
    /// The upgrade succeeds in spite of it.
    Succeeds,
}

/// When a trouble that no client can repair is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lift {
    /// Never by itself.
    Never,
    /// When a person retries the plan, or creates another one.
    Retry,
    /// When a person deletes, restarts or changes an object of one of these resources.
    Touch(&'static [&'static str]),
}

pub(crate) enum Play {
    /// The simulated cluster plays it by itself.
    World(fn(&mut Troubles, &Chosen)),
    /// A client changes objects.
    Writes(fn(Hands, Chosen) -> BoxFuture<'static, anyhow::Result<()>>),
    /// The manager of upgrades ends. It is started again when a person restarts its Deployment.
    Manager,
}

/// The Jobs that a user can name.
pub const JOBS: [(&str, Component, Option<JobType>); 7] = [
    ("image-preload", Component::ImagePreload, None),
    ("cluster-upgrade", Component::ClusterUpgrade, None),
    ("pre-drain", Component::NodeUpgrade, Some(JobType::PreDrain)),
    ("post-drain", Component::NodeUpgrade, Some(JobType::PostDrain)),
    (
        "single-node-upgrade",
        Component::NodeUpgrade,
        Some(JobType::SingleNodeUpgrade),
    ),
    ("restore-vm", Component::NodeUpgrade, Some(JobType::RestoreVm)),
    ("image-cleanup", Component::ImageCleanup, None),
];

/// All troubles, in the order of an upgrade.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    by_world::ROWS.iter().chain(by_writes::ROWS).chain(by_volumes::ROWS)
}

impl std::fmt::Debug for Row {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

impl Row {
    /// The situations that `doctor` then names.
    #[must_use]
    pub fn ids(&self) -> &'static [&'static str] {
        match self.shows {
            Shows::Doctor(ids, _) => ids,
            Shows::Waits(_) | Shows::Fails(_) | Shows::Succeeds => &[],
        }
    }

    /// The trouble of a name, or of the id of a situation.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        let by_name = rows().find(|row| row.name == name);
        by_name.or_else(|| rows().find(|row| row.ids().iter().any(|id| id.eq_ignore_ascii_case(name))))
    }
}

impl Object {
    /// The word for it in usage; none where there is nothing to choose.
    #[must_use]
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Node => Some("NODE"),
            Self::MigratableVm | Self::StoppedVm => Some("NAMESPACE/VM"),
            Self::Chart => Some("CHART"),
            Self::Job => Some("JOB"),
            Self::Step => Some("STEP"),
            Self::Days => Some("DAYS"),
        }
    }
}

impl Moment {
    /// How a user writes it; nothing for the start.
    #[must_use]
    pub fn name(self) -> Option<String> {
        match self {
            Self::Start => None,
            Self::Phase(phase) => {
                Some(plan::pipeline::find(phase).map_or_else(|| phase.to_string(), |(entry, _)| entry.name.to_owned()))
            }
            Self::Node(state) => Some(state.to_string()),
        }
    }
}
