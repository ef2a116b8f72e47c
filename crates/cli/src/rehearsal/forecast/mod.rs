//! The forecast of an upgrade: the cluster of a snapshot is rehearsed in virtual time, with the real manager and its webhooks.
//! Whenever the upgrade stands still, what it waits for is recorded with what `doctor` says about it; then the rehearsed administrator
//! removes the obstacle, so that the next one shows too. The time that obstacles take is not counted.

mod obstacles;
mod recorder;
mod remedies;
mod result;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use api::{Phase, UpgradePlan, reasons};
use checks::{doctor, preflight};
use clock::Clock;
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use rules::room::{NEW_IMAGES_BYTES, projection};
use serde_json::json;
use snapshot::Snapshot;
use view::forecast::{Blocker, BlockerKind, Forecast};
use world::{Durations, Shape, Troubles};

use super::{
    Rehearsal, Scenario,
    follow::View,
    from_snapshot::{self, Seen},
};
use obstacles::Obstacle;
use recorder::Recorder;
use remedies::Administrator;

/// An upgrade in which nothing has changed for so long stands still. No step of the simulated cluster is silent for as long.
const STILL: Duration = Duration::from_mins(30);
/// How often the rehearsal looks whether the upgrade continues.
const LOOK: Duration = Duration::from_mins(1);
/// How many obstacles are removed at most.
const MOST_OBSTACLES: usize = 500;
/// The version that is upgraded to when neither the user nor the snapshot names one.
const NEWEST: &str = "v1.8.0";
/// The version that is upgraded from when neither names one.
const OLDEST: &str = "v1.7.1";

/// What a forecast is asked for.
pub struct Asked {
    /// The cluster.
    pub snapshot: Snapshot,
    /// The version that runs; that of the snapshot when unset.
    pub from: Option<String>,
    /// The version to upgrade to; the newest Version of the snapshot when unset.
    pub to: Option<String>,
    /// Seed of all random values.
    pub seed: u64,
    /// VMs that were shut down are started again.
    pub restore_vm: bool,
}

/// A snapshot that no upgrade can be rehearsed on.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot has no nodes, so there is nothing to rehearse: {0}")]
pub struct NoNodes(String);

/// What was seen on the way.
struct Course {
    plan: UpgradePlan,
    refused: Option<String>,
    blockers: Vec<Blocker>,
    /// Times in which the upgrade stood still.
    stills: Vec<(Timestamp, Timestamp)>,
    stopped: BTreeSet<(String, String)>,
}

/// Rehearses the upgrade of a snapshot's cluster and says how it goes. Time is virtual.
///
/// # Errors
/// The snapshot has no nodes, or the simulated cluster could not be set up.
pub async fn forecast(asked: &Asked, clock: Clock, view: Arc<Mutex<View>>) -> anyhow::Result<Forecast> {
    let seen = from_snapshot::seen(&asked.snapshot);
    if seen.layout.nodes.is_empty() {
        let why = asked.snapshot.nodes.as_ref().err().map(ToString::to_string);
        return Err(NoNodes(why.unwrap_or_else(|| "its list of nodes is empty".to_owned())).into());
    }
    let from = asked.from.clone().or_else(|| seen.version.clone());
    let from = from.unwrap_or_else(|| OLDEST.to_owned());
    let to = asked.to.clone().or_else(|| newest(&asked.snapshot, &from));
    let to = to.unwrap_or_else(|| NEWEST.to_owned());
    let shape = Shape {
        nodes: seen.layout.nodes.len(),
        vms: seen.layout.vms.len(),
        from,
        to,
        seed: asked.seed,
        layout: Some(Arc::new(seen.layout.clone())),
        ..Shape::default()
    };
    let troubles = Troubles {
        full_disks: full_disks(&seen).into_iter().map(|(node, _)| node).collect(),
        ..Troubles::default()
    };
    let scenario = Scenario {
        shape: shape.clone(),
        troubles: troubles.clone(),
        durations: Durations::default(),
        ..Scenario::default()
    };
    let rehearsal = Rehearsal::start(scenario, clock).await?;
    rehearsal.server.store().set_history_limit(0);
    limit_migrations(&rehearsal, &seen).await?;
    let recorder = Recorder::start(&rehearsal, &seen.layout);
    let manager = rehearsal.start_only_manager();
    let course = run(&rehearsal, &recorder, &seen, troubles, asked.restore_vm, &view).await;
    view.lock().unwrap_or_else(PoisonError::into_inner).end();
    manager.abort();
    let course = course?;
    let mut wanted = preflight::hypothetical(Some(&shape.to), None);
    wanted.spec.restore_vm = asked.restore_vm.then_some(true);
    let question = preflight::Question::new(&asked.snapshot, &wanted);
    let report = (&question, &preflight::run_with(&question, &[]));
    let found = result::forecast(asked, &shape, &seen, &recorder.take(), &course, report);
    rehearsal.stop();
    Ok(found)
}

/// The newest Version of the snapshot that is newer than what runs.
fn newest(snapshot: &Snapshot, from: &str) -> Option<String> {
    let parse = |text: &str| semver::Version::parse(text.trim_start_matches('v')).ok();
    let running = parse(from);
    let versions = snapshot.versions.as_deref().unwrap_or_default().iter();
    let newer = versions.filter_map(|version| {
        let name = version.metadata.name.clone()?;
        let parsed = parse(&name)?;
        (Some(&parsed) > running.as_ref()).then_some((parsed, name))
    });
    newer.max().map(|(_, name)| name)
}

/// Nodes on which the images of the release do not fit, and why.
fn full_disks(seen: &Seen) -> Vec<(String, String)> {
    let nodes = seen.layout.nodes.iter();
    nodes
        .filter_map(|node| {
            let why = projection(&node.name, node.disk?, NEW_IMAGES_BYTES)?;
            Some((node.name.clone(), why))
        })
        .collect()
}

/// Gives KubeVirt the limits of migrations that the cluster has.
async fn limit_migrations(rehearsal: &Rehearsal, seen: &Seen) -> anyhow::Result<()> {
    let Some(migrations) = &seen.layout.migrations else {
        return Ok(());
    };
    let kubevirts: Api<api::foreign::kubevirt::KubeVirt> =
        Api::namespaced(rehearsal.server.client(), api::names::HARVESTER_NAMESPACE);
    let patch = json!({"spec": {"configuration": {"migrations": migrations}}});
    let patched = kubevirts
        .patch(api::names::KUBEVIRT, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.map(drop).context("failed to set the limits of migrations")
}

/// Runs plans until one has succeeded or nothing more can be done.
async fn run(
    rehearsal: &Rehearsal,
    recorder: &Recorder,
    seen: &Seen,
    mut troubles: Troubles,
    restore_vm: bool,
    view: &Mutex<View>,
) -> anyhow::Result<Course> {
    let wanted = rehearsal.plan(restore_vm, &[]);
    let (plan, refused) = match rehearsal.create(&wanted).await {
        Ok(plan) => (plan, None),
        Err(why) => (
            rehearsal.create_unchecked(wanted.clone()).await?,
            Some(format!("{why:#}")),
        ),
    };
    let mut course = Course {
        plan,
        refused,
        blockers: Vec::new(),
        stills: Vec::new(),
        stopped: BTreeSet::new(),
    };
    let mut administrator = Administrator::default();
    let end = rehearsal.clock.now() + longest(&seen.layout);
    loop {
        let name = course.plan.name_any();
        let look = |plan: &UpgradePlan| {
            let now = rehearsal.clock.now();
            view.lock().unwrap_or_else(PoisonError::into_inner).show(now, plan);
            plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty()
        };
        let ended = rehearsal.follow(&name, Some(LOOK), look).await;
        course.plan = match &ended {
            Some(plan) => (**plan).clone(),
            None => rehearsal.read(&name).await?,
        };
        administrator.start_again(rehearsal, &course.plan).await?;
        let (now, since) = (rehearsal.clock.now(), recorder.last_change());
        match (ended, course.plan.phase()) {
            (Some(_), Some(Phase::Succeeded)) => break,
            (Some(_), _) => {
                // A plan whose pre-flight checks failed stays failed: the next one follows.
                if troubles.full_disks.is_empty() {
                    course.blockers.push(failed(&course.plan));
                    break;
                }
                free_disks(rehearsal, seen, &mut troubles, &mut course);
                recorder.forget();
                course.stills.clear();
                course.plan = rehearsal.create_unchecked(wanted.clone()).await?;
            }
            (None, _) if now >= end || course.blockers.len() > MOST_OBSTACLES => {
                course.blockers.push(stuck(&course.plan));
                break;
            }
            (None, _) if now < since + STILL || is_moving(rehearsal) => {}
            (None, _) => {
                let snapshot = snapshot::live::take(&rehearsal.server.client(), now).await;
                let report = doctor::examine(&snapshot);
                let mut found = obstacles::obstacles(&course.plan, &report);
                found.retain(|obstacle| administrator.is_new(obstacle));
                if found.is_empty() && !troubles.full_disks.is_empty() {
                    free_disks(rehearsal, seen, &mut troubles, &mut course);
                } else if found.is_empty() {
                    course.blockers.push(stuck(&course.plan));
                    break;
                }
                let continues = remove(rehearsal, &mut administrator, &mut course, found).await?;
                course.stills.push((since, rehearsal.clock.now()));
                recorder.touch();
                if !continues {
                    break;
                }
            }
        }
    }
    settle(rehearsal, &mut administrator, &course.plan).await?;
    course.stopped = administrator.stopped();
    Ok(course)
}

/// The administrator removes what was found. The upgrade cannot continue when one of them cannot be removed.
async fn remove(
    rehearsal: &Rehearsal,
    administrator: &mut Administrator,
    course: &mut Course,
    found: Vec<Obstacle>,
) -> anyhow::Result<bool> {
    let mut continues = true;
    for obstacle in found {
        let done = administrator.remove(rehearsal, &course.plan, &obstacle).await?;
        continues &= done.is_some();
        course.blockers.push(Blocker {
            in_rehearsal: done,
            ..obstacle.blocker
        });
    }
    Ok(continues)
}

/// Disks that are too full are named, and freed.
fn free_disks(rehearsal: &Rehearsal, seen: &Seen, troubles: &mut Troubles, course: &mut Course) {
    let row = preflight::row("P48");
    for (node, why) in full_disks(seen) {
        course.blockers.push(Blocker {
            kind: BlockerKind::Disk,
            objects: vec![checks::finding::ObjectRef::new("Node", None, &node)],
            node: Some(node),
            message: why,
            remedy: row.map(|row| row.remedy.to_owned()).unwrap_or_default(),
            commands: Vec::new(),
            id: row.map(|row| row.id.to_owned()),
            in_rehearsal: Some("disk space was freed on the node.".to_owned()),
        });
    }
    troubles.full_disks.clear();
    rehearsal.set_troubles(troubles.clone());
}

/// A plan that has failed for good.
fn failed(plan: &UpgradePlan) -> Blocker {
    let why = plan.condition(reasons::PROGRESSING).map(|known| known.message.clone());
    other(format!("The plan fails: {}", why.unwrap_or_default()))
}

/// A plan that stands still for a reason that the rehearsal cannot remove.
fn stuck(plan: &UpgradePlan) -> Blocker {
    let waits = plan.status.iter().flat_map(|status| &status.waiting_for);
    let waits: Vec<&str> = waits
        .map(|wait| wait.message.as_deref().unwrap_or(&wait.what))
        .take(5)
        .collect();
    other(format!("The plan stands still: {}", waits.join("; ")))
}

fn other(message: String) -> Blocker {
    Blocker {
        kind: BlockerKind::Other,
        node: None,
        objects: Vec::new(),
        message,
        remedy: "Resolve what the message names, and forecast again.".to_owned(),
        commands: Vec::new(),
        id: None,
        in_rehearsal: None,
    }
}

/// A migration of a large VM is silent for long.
fn is_moving(rehearsal: &Rehearsal) -> bool {
    let migrations = rehearsal.objects("kubevirt.io", "virtualmachineinstancemigrations");
    migrations
        .iter()
        .any(|migration| migration.data["status"]["phase"] == "Running")
}

/// Far longer than any upgrade that makes progress.
fn longest(layout: &world::Layout) -> Duration {
    let times = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
    Duration::from_hours(72)
        + Duration::from_hours(6) * times(layout.nodes.len())
        + Duration::from_mins(10) * times(layout.vms.len())
}

/// VMs are started again after the plan has ended.
async fn settle(rehearsal: &Rehearsal, administrator: &mut Administrator, plan: &UpgradePlan) -> anyhow::Result<()> {
    administrator.start_all_again(rehearsal, plan).await?;
    for _ in 0..60 {
        let running = rehearsal.objects("batch", "jobs").iter().any(|job| {
            job.labels().contains_key(api::labels::UPGRADE_PLAN) && job.data["status"]["conditions"].is_null()
        });
        rehearsal.clock.sleep(Duration::from_secs(10)).await;
        if !running {
            break;
        }
    }
    // A VM that was started takes a while.
    rehearsal.clock.sleep(Duration::from_mins(1)).await;
    Ok(())
}
