//! Each trouble of `rehearse --trouble`, with its defaults: the cluster is run with it until it shows as its row says.

use std::{collections::BTreeMap, time::Duration};

use api::{Phase, UpgradePlan, reasons};
use checks::doctor::examine;
use cli::rehearsal::{
    Rehearsal, beginning,
    trouble::{
        Chosen, Row, Scene, Shows,
        act::{self, Manager},
        choose, rows,
    },
};
use clock::Clock;
use snapshot::Snapshot;

use super::{Injected, judged, named, play};
use crate::{
    run::{Case, in_paused_time},
    watched::Watched,
};

/// Longer than any trouble needs to show.
const LIMIT: Duration = Duration::from_secs(10 * 3600);
/// Longer than any repaired upgrade takes.
pub(crate) const LONG: Duration = Duration::from_secs(24 * 3600);
/// So long an upgrade that has ended is still looked at.
const AFTERWARDS: Duration = Duration::from_secs(40 * 60);

/// The cluster that troubles are played in.
pub(crate) fn case() -> Case {
    let mut case = Case::three_nodes();
    case.scenario.shape.vms = 6;
    case.restore_vm = true;
    case
}

/// A trouble as a user requests it.
pub(crate) fn chosen(text: &str) -> Chosen {
    let scene = Scene::of(&case().scenario.shape, true);
    choose(text, &scene).unwrap_or_else(|problem| panic!("{problem}"))
}

/// Runs an upgrade with a trouble for as long as `work` takes; the name of the plan is given to it.
pub(crate) async fn with_trouble<T>(text: Option<&str>, work: impl AsyncFnOnce(&Watched, &str) -> T) -> T {
    let troubles: Vec<Chosen> = text.map(chosen).into_iter().collect();
    let mut case = case();
    case.scenario.troubles = act::at_start(&troubles);
    let rehearsal = Watched::start_and_retry(case.scenario.clone(), Clock::simulated(beginning(), 1.0)).await;
    let manager = Manager::start(|| rehearsal.start_only_manager());
    let work = async {
        let plan = rehearsal.create_unchecked(rehearsal.plan(true, &[])).await.unwrap();
        work(&rehearsal, plan.metadata.name.as_deref().unwrap()).await
    };
    let result = tokio::select! {
        biased;
        error = act::play(&rehearsal, troubles, &manager, |_| ()) => panic!("{error:#}"),
        result = work => result,
    };
    manager.end();
    result
}

/// Looks at an upgrade every minute, and some time after its end, until `look` has seen enough. The last that was seen.
pub(crate) async fn until(rehearsal: &Rehearsal, mut look: impl FnMut(&Snapshot) -> bool) -> Snapshot {
    let end = rehearsal.clock.now() + LIMIT;
    let mut ended = None;
    loop {
        rehearsal.clock.sleep(play::EVERY).await;
        let snapshot = play::take(rehearsal).await;
        let phase = play::plan(&snapshot).and_then(UpgradePlan::phase);
        let now = rehearsal.clock.now();
        if phase.is_some_and(Phase::is_terminal) {
            ended.get_or_insert(now + AFTERWARDS);
        }
        if look(&snapshot) || now > end || ended.is_some_and(|ended| now > ended) {
            return snapshot;
        }
    }
}

/// Why a trouble does not show as its row says.
fn fault(row: &Row, snapshot: &Snapshot) -> Option<String> {
    let plan = play::plan(snapshot)?;
    let said = |type_: &str| plan.condition(type_).map(|condition| condition.message.clone());
    let waits: Vec<&str> = plan
        .status
        .iter()
        .flat_map(|status| &status.waiting_for)
        .map(|wait| wait.what.as_str())
        .collect();
    match row.shows {
        Shows::Doctor(ids, object) => {
            let report = examine(snapshot);
            let is_missing = |id: &&&str| named(&report, id, object).is_none();
            let missing = ids.iter().find(is_missing)?;
            judged(missing, "trouble", object, &report).result.err()
        }
        Shows::Waits(what) => {
            let is_stalled = plan
                .condition(reasons::DEGRADED)
                .is_some_and(|degraded| degraded.status == "True");
            (!is_stalled || !waits.contains(&what)).then(|| format!("waits for {waits:?}, stalled {is_stalled}"))
        }
        Shows::Fails(text) => {
            let message = said(reasons::PROGRESSING).unwrap_or_default();
            let has_failed = plan.phase() == Some(Phase::Failed) && message.contains(text);
            (!has_failed).then(|| format!("{:?}: {message}", plan.phase()))
        }
        Shows::Succeeds => {
            (plan.phase() != Some(Phase::Succeeded)).then(|| format!("{:?}, waits for {waits:?}", plan.phase()))
        }
    }
}

/// What an upgrade left behind: its times, and who wrote how much.
type Trace = (String, BTreeMap<String, u64>);

/// Plays a trouble until it shows; what it shows, or what it shows instead.
fn played(text: Option<&str>, row: &Row) -> (Snapshot, Option<String>, Trace) {
    in_paused_time(with_trouble(text, async |rehearsal: &Watched, plan: &str| {
        // How it ends is seen at its end: looking at it all the way takes long.
        if matches!(row.shows, Shows::Fails(_) | Shows::Succeeds) {
            let has_ended = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal);
            rehearsal.follow(plan, Some(LIMIT), has_ended).await;
        }
        let snapshot = until(rehearsal, |snapshot| fault(row, snapshot).is_none()).await;
        let fault = fault(row, &snapshot);
        let times = serde_json::to_string(&play::plan(&snapshot).map(|plan| &plan.status)).unwrap();
        let written = rehearsal.server.store().counters().writes_by_user;
        // What is left behind is not what this is about.
        rehearsal.take_violations();
        (snapshot, fault, (times, written.into_iter().collect()))
    }))
}

pub(super) fn run() -> Vec<Injected> {
    let mut all = Vec::new();
    for row in rows() {
        let Shows::Doctor(ids, object) = row.shows else {
            continue;
        };
        let (snapshot, ..) = played(Some(row.name), row);
        let report = examine(&snapshot);
        all.extend(ids.iter().map(|id| judged(id, "trouble", object, &report)));
    }
    all
}

#[test]
fn each_trouble_without_a_situation_of_doctor_shows_as_its_row_says() {
    let mut faults = Vec::new();
    let healthy = Row::named("power-loss").unwrap();
    let (_, fault, untroubled) = played(None, healthy);
    assert_eq!(fault, None);
    for row in rows().filter(|row| row.ids().is_empty()) {
        let (_, fault, trace) = played(Some(row.name), row);
        println!(
            "{:<30} {:?} {}",
            row.name,
            row.shows,
            if fault.is_none() { "seen" } else { "missed" }
        );
        faults.extend(fault.map(|fault| format!("{}: {fault}", row.name)));
        if trace == untroubled {
            faults.push(format!("{} does nothing", row.name));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
