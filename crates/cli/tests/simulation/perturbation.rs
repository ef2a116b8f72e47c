//! What happens to one write of the manager, or right after it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use apiserver::{ApiServer, Fault, FaultPlan, ReadFault, ResourceId, Verb};
use cli::rehearsal::{Rehearsal, manager_group, manager_user};
use clock::Clock;
use tokio::sync::Notify;

/// The manager that a run starts with.
pub(crate) const FIRST: &str = "manager-1";
/// How long a watch is delayed: longer than the manager waits for its own writes to show.
const DEAF_FOR: Duration = Duration::from_secs(90);
/// How far back a stale list goes, and how many lists are stale: all that a manager begins with.
const STALE_BY: u64 = 25;
const STALE_LISTS: u64 = 21;

/// What happens to one write of the manager, or right after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Perturbation {
    /// The manager dies right after it; another one takes over.
    Crash,
    /// It is applied, but the manager sees a broken connection.
    LostReply,
    /// It is refused as if another client had been faster.
    Conflict,
    /// It is refused because the API server is busy.
    Unavailable,
    /// The manager dies right after it, and the next one is first shown the past.
    CrashIntoThePast,
    /// From then on, for a while, the manager does not hear of changes of one kind.
    Deaf,
    /// From then on, the manager cannot renew its lease, and another one that was waiting takes over.
    Overlap,
}

impl Perturbation {
    pub(crate) const ALL: [Self; 7] = [
        Self::Crash,
        Self::LostReply,
        Self::Conflict,
        Self::Unavailable,
        Self::CrashIntoThePast,
        Self::Deaf,
        Self::Overlap,
    ];
}

/// What a run has to do when its perturbation has begun.
pub(crate) struct Signals {
    /// The manager is to be killed.
    pub crashed: Arc<Notify>,
    /// Watches of `deaf_to` are delayed for a while.
    pub deaf: Arc<Notify>,
    pub deaf_to: ResourceId,
}

/// Installs a perturbation: the number of the write, counted from 1 without renewals of leases, and what happens.
pub(crate) fn perturb(rehearsal: &Rehearsal, perturbed: Option<(u64, Perturbation)>) -> Signals {
    let kinds = [
        ("management.harvesterhci.io", "upgradeplans"),
        ("batch", "jobs"),
        ("", "nodes"),
        ("", "secrets"),
        ("upgrade.cattle.io", "plans"),
    ];
    let (number, perturbation) = perturbed.unwrap_or((0, Perturbation::Crash));
    let (group, plural) = kinds[usize::try_from(number).unwrap_or_default() % kinds.len()];
    let signals = Signals {
        crashed: Arc::new(Notify::new()),
        deaf: Arc::new(Notify::new()),
        deaf_to: ResourceId::new(group, plural),
    };
    if perturbed.is_none() {
        return signals;
    }
    let begun = Arc::new(AtomicBool::new(false));
    let writes = write_faults(number, perturbation, &signals, &begun);
    let lists = AtomicU64::new(0);
    let user = manager_user();
    let reads = move |read: &apiserver::ReadAttempt<'_>| {
        let stale = perturbation == Perturbation::CrashIntoThePast
            && begun.load(Ordering::SeqCst)
            && read.verb == Verb::List
            && read.who.user == user
            && lists.fetch_add(1, Ordering::SeqCst) < STALE_LISTS;
        if stale {
            ReadFault::StaleList { older_by: STALE_BY }
        } else {
            ReadFault::None
        }
    };
    rehearsal.server.set_faults(writes.with_reads(reads));
    signals
}

fn write_faults(number: u64, perturbation: Perturbation, signals: &Signals, begun: &Arc<AtomicBool>) -> FaultPlan {
    let (user, first) = (manager_user(), manager_group(FIRST));
    let (crashed, deaf, begun) = (signals.crashed.clone(), signals.deaf.clone(), begun.clone());
    let count = AtomicU64::new(0);
    FaultPlan::writes(move |write| {
        if write.who.user != user {
            return Fault::None;
        }
        if write.resource.plural == "leases" {
            let cut_off = perturbation == Perturbation::Overlap
                && begun.load(Ordering::SeqCst)
                && write.who.groups.contains(&first);
            return if cut_off { Fault::Reject(503) } else { Fault::None };
        }
        if count.fetch_add(1, Ordering::SeqCst) + 1 != number {
            return Fault::None;
        }
        begun.store(true, Ordering::SeqCst);
        match perturbation {
            Perturbation::Crash | Perturbation::CrashIntoThePast => Fault::CrashAfter(crashed.clone()),
            Perturbation::LostReply => Fault::LoseReply,
            Perturbation::Conflict => Fault::ConflictBefore,
            Perturbation::Unavailable => Fault::Reject(503),
            Perturbation::Deaf => {
                deaf.notify_one();
                Fault::None
            }
            Perturbation::Overlap => Fault::None,
        }
    })
}

/// Holds watches back for a while.
pub(crate) async fn be_deaf(server: ApiServer, clock: Clock, resource: ResourceId) {
    server.delay_watches(&manager_user(), &resource, true);
    clock.sleep(DEAF_FOR).await;
    server.delay_watches(&manager_user(), &resource, false);
}
