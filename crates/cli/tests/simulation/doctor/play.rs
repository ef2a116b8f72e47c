//! Simulated upgrades, and snapshots of them.

use std::{collections::BTreeMap, sync::OnceLock, time::Duration};

use api::{Phase, UpgradePlan};
use cli::rehearsal::{Rehearsal, beginning};
use clock::Clock;
use kube::ResourceExt;
use snapshot::Snapshot;

use crate::{
    run::{Case, in_paused_time},
    watched::Watched,
};

/// How often an upgrade is looked at, in its time.
pub(crate) const EVERY: Duration = Duration::from_secs(60);
/// Longer than any of these upgrades takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(8 * 3600);

/// The embedded cluster now.
pub(crate) async fn take(rehearsal: &Rehearsal) -> Snapshot {
    snapshot::live::take(&rehearsal.server.client(), rehearsal.clock.now()).await
}

/// The only plan of a snapshot.
pub(crate) fn plan(snapshot: &Snapshot) -> Option<&UpgradePlan> {
    snapshot.plans.as_ref().ok()?.first()
}

/// The name of what a plan is at: the state of the node that is in flight, else its phase.
pub(crate) fn moment(plan: &UpgradePlan) -> String {
    let statuses = plan.status.iter().flat_map(|status| &status.node_upgrade_statuses);
    let in_flight = statuses.into_iter().find_map(|(_, entry)| {
        let is_in_flight = entry.progress().stage().is_in_flight();
        entry.state().filter(|_| is_in_flight).map(str::to_owned)
    });
    let phase = || plan.phase().map(|phase| phase.to_string());
    in_flight.or_else(phase).unwrap_or_default()
}

/// Runs an upgrade, takes a snapshot of it again and again, and ends with it or when `look` has seen enough.
pub(crate) async fn follow(rehearsal: &Watched, every: Duration, mut look: impl FnMut(&Snapshot) -> bool) {
    let end = rehearsal.clock.now() + LIMIT;
    while rehearsal.clock.now() < end {
        rehearsal.clock.sleep(every).await;
        let snapshot = take(rehearsal).await;
        let ended = plan(&snapshot)
            .and_then(UpgradePlan::phase)
            .is_some_and(Phase::is_terminal);
        if look(&snapshot) || ended {
            return;
        }
    }
}

/// Starts a cluster with a plan.
pub(crate) async fn start(case: &Case) -> (Watched, String, tokio::task::JoinHandle<()>) {
    let clock = Clock::simulated(beginning(), 1.0);
    let rehearsal = Watched::start(case.scenario.clone(), clock).await;
    let manager = rehearsal.start_only_manager();
    let plan = rehearsal.plan(case.restore_vm, &case.pause);
    let plan = rehearsal.create_unchecked(plan).await.unwrap();
    (rehearsal, plan.name_any(), manager)
}

/// The first snapshot of each moment of an upgrade of three nodes that goes well.
pub(crate) fn moments() -> &'static BTreeMap<String, Snapshot> {
    static MOMENTS: OnceLock<BTreeMap<String, Snapshot>> = OnceLock::new();
    MOMENTS.get_or_init(|| {
        let mut case = Case::three_nodes();
        case.scenario.shape.vms = 6;
        case.restore_vm = true;
        let mut moments = BTreeMap::new();
        in_paused_time(async {
            let (rehearsal, _, _manager) = start(&case).await;
            follow(&rehearsal, Duration::from_secs(15), |snapshot| {
                if let Some(plan) = plan(snapshot) {
                    moments.entry(moment(plan)).or_insert_with(|| snapshot.clone());
                }
                false
            })
            .await;
        });
        moments
    })
}
