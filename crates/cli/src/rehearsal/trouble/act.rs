//! Plays the troubles of a rehearsal: each begins at its moment, and ends when a person has repaired it.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use anyhow::Context as _;
use api::{Phase, UpgradePlan};
use apiserver::{Change, ChangeKind, Identity};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinHandle};
use world::Troubles;

use super::{Chosen, Lift, Moment, Play, writes::Hands};
use crate::rehearsal::{Rehearsal, SERVICE_ACCOUNT};

/// Who changes objects for a trouble.
const USER: &str = "system:trouble";
/// A manager that is started again by a person says so here.
const DEPLOYMENT: &str = SERVICE_ACCOUNT;

/// The simulated failures with which a cluster begins.
#[must_use]
pub fn at_start(chosen: &[Chosen]) -> Troubles {
    let mut troubles = Troubles::default();
    for one in chosen.iter().filter(|one| one.at == Moment::Start) {
        if let Play::World(play) = one.row.play {
            play(&mut troubles, one);
        }
    }
    troubles
}

/// The manager of a rehearsal, which a trouble can end.
pub struct Manager<'a> {
    start: Box<dyn Fn() -> JoinHandle<()> + 'a>,
    running: Mutex<JoinHandle<()>>,
}

impl<'a> Manager<'a> {
    /// Starts it.
    #[must_use]
    pub fn start(start: impl Fn() -> JoinHandle<()> + 'a) -> Self {
        let running = Mutex::new(start());
        Self {
            start: Box::new(start),
            running,
        }
    }

    /// Ends it.
    pub fn end(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).abort();
    }

    fn start_again(&self) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = (self.start)();
    }
}

/// Which troubles have begun and are not over.
struct Active {
    chosen: Vec<Chosen>,
    begun: Mutex<Vec<usize>>,
    /// How many plans there have been.
    plans: AtomicUsize,
    /// A person restarted the manager.
    restarted: AtomicBool,
    bell: Notify,
}

impl Active {
    /// The simulated failures now.
    fn troubles(&self) -> Troubles {
        let mut troubles = Troubles::default();
        for index in self.begun.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if let Some((one, Play::World(play))) = self.chosen.get(*index).map(|one| (one, &one.row.play)) {
                play(&mut troubles, one);
            }
        }
        troubles
    }

    /// A plan that failed is tried again, or another one is created.
    fn is_retry(&self, change: &Change) -> bool {
        if change.resource.plural != "upgradeplans" {
            return false;
        }
        let Some(before) = &change.previous else {
            return self.plans.fetch_add(1, Ordering::Relaxed) > 0;
        };
        let asked = |plan: &Value| plan["metadata"]["annotations"][api::annotations::RETRY].clone();
        before["status"]["currentPhase"] == Phase::Failed.as_str() && asked(&change.object) != asked(before)
    }

    fn begin(&self, index: usize) {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).push(index);
    }

    /// Ends what a change by a person repairs; whether that was anything.
    fn end_by(&self, change: &Change) -> bool {
        let is_retry = self.is_retry(change);
        let is_over = |index: &usize| {
            let Some(one) = self.chosen.get(*index) else {
                return true;
            };
            match one.row.lift {
                Lift::Never => false,
                Lift::Retry => is_retry,
                Lift::Touch(plurals) => plurals.contains(&change.resource.plural.as_str()) && concerns(one, change),
            }
        };
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let before = begun.len();
        let manages = |index: &usize| {
            let row = self.chosen.get(*index).map(|one| &one.row.play);
            matches!(row, Some(Play::Manager))
        };
        if begun.iter().any(|index| manages(index) && is_over(index)) {
            self.restarted.store(true, Ordering::Relaxed);
            self.bell.notify_one();
        }
        begun.retain(|index| !is_over(index));
        begun.len() < before
    }
}

/// The change is to what the trouble is about: a named object, or an object of the upgrade.
fn concerns(chosen: &Chosen, change: &Change) -> bool {
    if change.kind == ChangeKind::Added {
        return false;
    }
    let metadata = &change.object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let namespaced = format!("{}/{name}", metadata["namespace"].as_str().unwrap_or_default());
    match (&chosen.row.play, change.resource.plural.as_str()) {
        (Play::Manager, _) => name == DEPLOYMENT,
        (_, "nodes") => chosen.is(name),
        (_, "virtualmachines") => chosen.is(&namespaced),
        (_, "bundles") => name.strip_prefix("mcc-").is_some_and(|chart| chosen.is(chart)),
        (_, "managedcharts") => chosen.is(name),
        (_, "persistentvolumeclaims") => name.ends_with("-scratch"),
        // What belongs to an upgrade, or Rancher.
        _ => !metadata["labels"][api::labels::UPGRADE_PLAN].is_null() || name == "rancher",
    }
}

/// Written by a person, not by what runs in the cluster.
fn is_by_person(change: &Change) -> bool {
    !change.user.starts_with("system:")
}

/// Plays troubles for as long as it is polled. Those of the start are played when it is first polled: before the plan is created.
///
/// # Errors
/// A change was refused.
pub async fn play(
    rehearsal: &Rehearsal,
    chosen: Vec<Chosen>,
    manager: &Manager<'_>,
    said: impl Fn(&Chosen),
) -> anyhow::Error {
    match try_play(rehearsal, chosen, manager, said).await {
        Ok(()) => std::future::pending().await,
        Err(error) => error,
    }
}

async fn try_play(
    rehearsal: &Rehearsal,
    chosen: Vec<Chosen>,
    manager: &Manager<'_>,
    said: impl Fn(&Chosen),
) -> anyhow::Result<()> {
    if chosen.is_empty() {
        return Ok(());
    }
    let active = Arc::new(Active {
        begun: Mutex::default(),
        plans: AtomicUsize::new(0),
        restarted: AtomicBool::new(false),
        bell: Notify::new(),
        chosen,
    });
    let (observed, facts) = (active.clone(), rehearsal.facts.clone());
    rehearsal.server.store().observe(move |change| {
        if is_by_person(change) && observed.end_by(change) {
            facts.set_troubles(observed.troubles());
        }
    });
    let hands = Hands {
        client: rehearsal.server.client_as(Identity {
            user: USER.to_owned(),
            groups: vec!["system:masters".to_owned()],
        }),
        clock: rehearsal.clock.clone(),
    };
    let mut pending: Vec<usize> = (0..active.chosen.len()).collect();
    let mut works = FuturesUnordered::new();
    let mut changes = rehearsal.plan_changes.clone();
    loop {
        changes.mark_unchanged();
        let plans = rehearsal.all_plans();
        let (due, later): (Vec<usize>, Vec<usize>) = pending.into_iter().partition(|index| {
            let one = active.chosen.get(*index);
            one.is_some_and(|one| is_due(one.at, &plans))
        });
        pending = later;
        for index in due {
            let Some(one) = active.chosen.get(index) else { continue };
            active.begin(index);
            said(one);
            match one.row.play {
                Play::World(_) => rehearsal.set_troubles(active.troubles()),
                Play::Writes(play) => works.push(play(hands.clone(), one.clone())),
                Play::Manager => {
                    manager.end();
                    works.push(install_manager(hands.clone()).boxed());
                }
            }
        }
        tokio::select! {
            biased;
            Some(done) = works.next(), if !works.is_empty() => done?,
            () = active.bell.notified() => {
                if active.restarted.swap(false, Ordering::Relaxed) {
                    manager.start_again();
                }
            }
            changed = changes.changed() => changed.context("the cluster has ended")?,
        }
    }
}

/// A plan has reached the moment.
fn is_due(at: Moment, plans: &[UpgradePlan]) -> bool {
    let has_reached = |plan: &UpgradePlan, phase: Phase| {
        let now = plan.phase();
        now >= Some(phase) && (now != Some(Phase::Failed))
    };
    let is_at = |plan: &UpgradePlan, state: api::NodeState| {
        let nodes = plan
            .status
            .iter()
            .flat_map(|status| status.node_upgrade_statuses.values());
        nodes.into_iter().any(|node| node.is(state))
    };
    match at {
        Moment::Start => true,
        Moment::Phase(phase) => plans.iter().any(|plan| has_reached(plan, phase)),
        Moment::Node(state) => plans.iter().any(|plan| is_at(plan, state)),
    }
}

/// The Deployment that a person restarts. Its pods are not simulated.
async fn install_manager(hands: Hands) -> anyhow::Result<()> {
    let labels = json!({"control-plane": "controller-manager"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": DEPLOYMENT, "namespace": api::names::HARVESTER_NAMESPACE, "labels": labels},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "rancher/harvester-upgrade-toolkit"}]},
        }},
    });
    hands.create(deployment).await
}
