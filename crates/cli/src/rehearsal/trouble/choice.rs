//! What a user requests by `--trouble NAME[=OBJECT][@PHASE]`, compared with the cluster that is rehearsed. Pure.

use std::collections::BTreeSet;

use api::{CERTIFICATE_DAYS, Component, JobType, NodeState, Phase, foreign, names};
use node::limits::Limits;
use plan::pipeline::PIPELINE;
use serde_json::Value;
use world::Shape;

use super::{JOBS, Moment, Object, Row, rows};

/// A trouble that was requested, with everything it needs.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Which one.
    pub row: &'static Row,
    /// What it happens to.
    pub to: Vec<String>,
    /// When it begins.
    pub at: Moment,
}

/// The cluster that is rehearsed.
pub struct Scene {
    nodes: Vec<String>,
    migratable: Vec<String>,
    stopped: Vec<String>,
    /// Whether users can work on it.
    served: bool,
}

/// Why a trouble cannot be played.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unusable {
    /// No row has the name.
    #[error("--trouble {0}: there is no such trouble; choose one of {names} (--trouble list explains them)", names = known())]
    Name(String),
    /// The situation cannot be played.
    #[error("--trouble {0}: the simulated cluster cannot play this situation; it plays {ids}", ids = playable())]
    Situation(String),
    /// Nothing can be chosen.
    #[error("--trouble {0}: it takes no object")]
    NoObject(String),
    /// The cluster has no such object.
    #[error("--trouble {0}: the cluster has no {1} {2}; choose one of {3}")]
    Object(String, &'static str, String, String),
    /// The cluster has none of them.
    #[error("--trouble {0}: the cluster has no such VM; use more --vms")]
    NoVm(String),
    /// No such moment, or too late.
    #[error("--trouble {0}: it cannot begin at {1}; choose one of {2}")]
    Phase(String, String, String),
    /// It always begins when the table says.
    #[error("--trouble {0}: it takes no phase")]
    NoPhase(String),
    /// The cluster is too small.
    #[error("--trouble {0}: it needs at least {1} --nodes")]
    Nodes(String, usize),
    /// It begins after the upgrade.
    #[error("--trouble {0}: it begins after the upgrade, so it needs --serve")]
    Served(String),
}

fn known() -> String {
    rows().map(|row| row.name).collect::<Vec<_>>().join(", ")
}

fn playable() -> String {
    let ids: BTreeSet<&str> = rows().flat_map(|row| row.ids().iter().copied()).collect();
    ids.into_iter().collect::<Vec<_>>().join(", ")
}

impl Scene {
    /// The cluster of a shape.
    #[must_use]
    pub fn of(shape: &Shape, served: bool) -> Self {
        let (mut migratable, mut stopped) = (Vec::new(), Vec::new());
        for vmi in shape
            .objects()
            .iter()
            .filter(|object| object["kind"] == "VirtualMachineInstance")
        {
            let text = |key: &str| vmi["metadata"][key].as_str().unwrap_or_default();
            let name = format!("{}/{}", text("namespace"), text("name"));
            let list = if is_migratable(vmi) {
                &mut migratable
            } else {
                &mut stopped
            };
            list.push(name);
        }
        Self {
            nodes: shape.node_names(),
            migratable,
            stopped,
            served,
        }
    }

    /// The objects that a trouble can happen to.
    fn objects(&self, object: Object) -> Vec<String> {
        let owned = |name: &&str| (*name).to_owned();
        match object {
            Object::None => Vec::new(),
            Object::Node => self.nodes.clone(),
            Object::MigratableVm => self.migratable.clone(),
            Object::StoppedVm => self.stopped.clone(),
            Object::Chart => names::MANAGED_CHARTS.iter().map(owned).collect(),
            Object::Job => jobs(self.nodes.len()),
            Object::Step => {
                let on = jobs(self.nodes.len());
                let is_run = |(_, component, job_type): &(&str, Component, Option<JobType>)| {
                    let mut jobs = JOBS.iter().filter(|(name, ..)| on.iter().any(|job| job == name));
                    jobs.any(|(_, of, kind)| of == component && kind == job_type)
                };
                let named: BTreeSet<&str> = steps().iter().filter(|step| is_run(step)).map(|step| step.0).collect();
                named.iter().map(owned).collect()
            }
            // A certificate that lasts longer is no trouble.
            Object::Days => (0..CERTIFICATE_DAYS).map(|days| days.to_string()).collect(),
        }
    }
}

/// The VM leaves a node without being shut down.
fn is_migratable(vmi: &Value) -> bool {
    serde_json::from_value::<foreign::kubevirt::VirtualMachineInstance>(vmi.clone())
        .is_ok_and(|vmi| rules::migration::denial(&vmi).is_none())
}

/// The Jobs that a cluster of so many nodes has.
fn jobs(nodes: usize) -> Vec<String> {
    let other = |job: &str| match job {
        "single-node-upgrade" => nodes > 1,
        "pre-drain" | "post-drain" => nodes == 1,
        _ => false,
    };
    let names = JOBS.iter().map(|(name, ..)| *name);
    names.filter(|name| !other(name)).map(str::to_owned).collect()
}

/// The steps of programs that a user can name, and the Jobs that they are in.
pub(super) fn steps() -> Vec<(&'static str, Component, Option<JobType>)> {
    let limits = Limits::default();
    let of_nodes = [
        (JobType::PreDrain, node::pre_drain::steps(&limits)),
        (JobType::PostDrain, node::post_drain::steps(&limits)),
        (JobType::SingleNodeUpgrade, node::single_node::steps(&limits)),
    ];
    let of_cluster = cluster_upgrade::STEPS
        .iter()
        .map(|step| (step.name, Component::ClusterUpgrade, None));
    let of_nodes = of_nodes.into_iter().flat_map(|(job_type, steps)| {
        let named = steps.into_iter().map(|step| step.name);
        named
            .map(|name| (name, Component::NodeUpgrade, Some(job_type)))
            .collect::<Vec<_>>()
    });
    of_cluster.chain(of_nodes).collect()
}

/// Reads what a user requests.
///
/// # Errors
/// There is no such trouble, or it makes no sense in this cluster.
pub fn choose(text: &str, scene: &Scene) -> Result<Chosen, Unusable> {
    let (rest, phase) = match text.rsplit_once('@') {
        Some((rest, phase)) => (rest, Some(phase)),
        None => (text, None),
    };
    let (name, object) = match rest.split_once('=') {
        Some((name, object)) => (name, Some(object)),
        None => (rest, None),
    };
    let Some(row) = Row::named(name) else {
        let is_situation = checks::doctor::situation(&name.to_uppercase().replace('B', "b")).is_some();
        let problem = if is_situation {
            Unusable::Situation
        } else {
            Unusable::Name
        };
        return Err(problem(name.to_owned()));
    };
    if scene.nodes.len() < row.nodes {
        return Err(Unusable::Nodes(name.to_owned(), row.nodes));
    }
    let at = match phase {
        Some(phase) => moment(row, name, phase)?,
        None => row.begins,
    };
    if at == Moment::Phase(Phase::Succeeded) && !scene.served {
        return Err(Unusable::Served(name.to_owned()));
    }
    Ok(Chosen {
        row,
        to: objects(row, name, object, scene)?,
        at,
    })
}

fn objects(row: &Row, name: &str, object: Option<&str>, scene: &Scene) -> Result<Vec<String>, Unusable> {
    let Some(word) = row.object.word() else {
        return match object {
            Some(_) => Err(Unusable::NoObject(name.to_owned())),
            None => Ok(Vec::new()),
        };
    };
    let there = scene.objects(row.object);
    if there.is_empty() {
        return Err(Unusable::NoVm(name.to_owned()));
    }
    match object.or(Some(row.default).filter(|default| !default.is_empty())) {
        None => Ok(there),
        Some(wanted) if there.iter().any(|object| object == wanted) => Ok(vec![wanted.to_owned()]),
        Some(wanted) => Err(Unusable::Object(
            name.to_owned(),
            word,
            wanted.to_owned(),
            there.join(", "),
        )),
    }
}

/// The moments at which a trouble can begin, as users name them.
pub(super) fn moments(row: &Row) -> Vec<Moment> {
    let Some(last) = row.last else { return Vec::new() };
    let phases = PIPELINE.iter().filter(|entry| entry.active <= last);
    let mut moments: Vec<Moment> = phases.map(|entry| Moment::Phase(entry.active)).collect();
    if last >= Phase::NodeUpgrading {
        let states = [NodeState::PreDraining, NodeState::PreDrained, NodeState::PostDraining];
        moments.extend(states.map(Moment::Node));
    }
    moments
}

fn moment(row: &Row, name: &str, wanted: &str) -> Result<Moment, Unusable> {
    let there = moments(row);
    if there.is_empty() {
        return Err(Unusable::NoPhase(name.to_owned()));
    }
    let is_named = |moment: &Moment| {
        let is = |text: &str| text.eq_ignore_ascii_case(wanted);
        let is_value = matches!(moment, Moment::Phase(phase) if is(phase.as_str()));
        is_value || moment.name().is_some_and(|name| is(&name))
    };
    there.iter().copied().find(is_named).ok_or_else(|| {
        let names: Vec<String> = there.iter().filter_map(|moment| moment.name()).collect();
        Unusable::Phase(name.to_owned(), wanted.to_owned(), names.join(", "))
    })
}

impl Chosen {
    /// What happens, in a line.
    #[must_use]
    pub fn describe(&self) -> String {
        let to = if self.to.is_empty() {
            String::new()
        } else {
            format!("={}", self.to.join(","))
        };
        format!("{}{to}", self.row.name)
    }

    /// What it happens to.
    pub(super) fn objects(&self) -> impl Iterator<Item = String> {
        self.to.iter().cloned()
    }

    /// It happens to this.
    pub(super) fn is(&self, object: &str) -> bool {
        self.to.iter().any(|to| to == object)
    }

    /// The number of days.
    pub(super) fn days(&self) -> Option<i64> {
        self.to.first().and_then(|days| days.parse().ok())
    }
}
