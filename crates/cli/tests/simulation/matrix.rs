//! From every failure a way to the end: each way in which an upgrade can fail, times each way in which a person can go
//! on, ends with an upgraded cluster on which nothing of ours is left.
//!
//! What cannot fail is not here: RepoCreate and MetadataPopulate wait for ever and say so, since nothing has been changed
//! yet. Where a remedy has no meaning, the table says why.

use std::{
    collections::VecDeque,
    sync::Mutex,
    time::{Duration, Instant},
};

use api::{
    NodeState, Phase, UpgradePlan,
    labels::{component, job_type},
};
use cli::rehearsal::{Rehearsal, Scenario, beginning};
use clock::Clock;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use world::{
    Shape, Troubles,
    troubles::{JobFailure, JobTrouble, RebootTrouble},
};

use crate::{
    remains,
    run::in_paused_time,
    user::{has_failed, is_at, until_gone},
};

/// How an upgrade is broken off.
#[derive(Clone, Debug)]
enum Broken {
    /// Something goes wrong, and the plan fails of it.
    Fails(Troubles),
    /// Somebody deletes the plan when a node is in a state. The webhook would refuse that in ClusterUpgrading and
    /// NodeUpgrading, but it may be away.
    DeletedAt(&'static str, NodeState),
    /// A node stays away after its reboot until somebody repairs it. The plan waits, and says so.
    Away(&'static str),
}

/// What a person does about it, once what was broken is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    /// Nothing.
    Waits,
    /// Sets the retry annotation.
    Retries,
    /// Deletes the plan and creates another one.
    StartsOver,
    /// Creates another plan beside the one that failed.
    Beside,
}

#[derive(Clone, Debug)]
struct Case {
    name: String,
    nodes: usize,
    broken: Broken,
    remedy: Remedy,
    pause: Vec<String>,
}

/// How long people take.
const A_WHILE: Duration = Duration::from_secs(600);
/// Longer than two upgrades of a small cluster take.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

fn job_fails(component: &str, job_type: Option<&str>, node: &str) -> Troubles {
    let trouble = JobTrouble {
        component: component.to_owned(),
        job_type: job_type.map(str::to_owned),
        node: (!node.is_empty()).then(|| node.to_owned()),
        failure: JobFailure::Fails(1000),
    };
    Troubles {
        jobs: vec![trouble],
        ..Troubles::default()
    }
}

fn old_system(node: &str) -> Troubles {
    Troubles {
        reboots: [(node.to_owned(), RebootTrouble::OldSystem)].into(),
        ..Troubles::default()
    }
}

/// The first node that is upgraded, one in the middle, and the last one.
const PLACES: [(&str, &str); 3] = [("first", "node-1"), ("middle", "node-2"), ("last", "node-3")];

/// Every way in which a plan fails: its name, how many nodes, what goes wrong.
fn failures() -> Vec<(String, usize, Troubles)> {
    let mut all = vec![
        (
            "Initialize: full disk".to_owned(),
            3,
            Troubles {
                full_disks: ["node-2".to_owned()].into(),
                ..Troubles::default()
            },
        ),
        (
            "Initialize: certificates".to_owned(),
            3,
            Troubles {
                certificate_days: Some(3),
                ..Troubles::default()
            },
        ),
        (
            "ISODownload".to_owned(),
            3,
            Troubles {
                iso_failures: 100,
                ..Troubles::default()
            },
        ),
        (
            "ClusterUpgrade: Job".to_owned(),
            3,
            job_fails(component::CLUSTER_UPGRADE, None, ""),
        ),
    ];
    for (place, node) in PLACES {
        for (name, component, step) in [
            ("ImagePreload: Job", component::IMAGE_PRELOAD, None),
            ("NodeUpgrade: skip-manifests Job", component::SKIP_MANIFESTS_APPLY, None),
            (
                "NodeUpgrade: pre-drain Job",
                component::NODE_UPGRADE,
                Some(job_type::PRE_DRAIN),
            ),
            (
                "NodeUpgrade: post-drain Job",
                component::NODE_UPGRADE,
                Some(job_type::POST_DRAIN),
            ),
            ("ImageCleanup: Job", component::IMAGE_CLEANUP, None),
        ] {
            all.push((format!("{name}, {place} node"), 3, job_fails(component, step, node)));
        }
        all.push((format!("NodeUpgrade: came back old, {place} node"), 3, old_system(node)));
    }
    let single = component::NODE_UPGRADE;
    for (name, troubles) in [
        ("ImagePreload: Job", job_fails(component::IMAGE_PRELOAD, None, "")),
        ("ClusterUpgrade: Job", job_fails(component::CLUSTER_UPGRADE, None, "")),
        (
            "NodeUpgrade: Job",
            job_fails(single, Some(job_type::SINGLE_NODE_UPGRADE), ""),
        ),
        ("NodeUpgrade: came back old", old_system("node-1")),
        ("ImageCleanup: Job", job_fails(component::IMAGE_CLEANUP, None, "")),
    ] {
        all.push((format!("{name}, single node"), 1, troubles));
    }
    all
}

/// The states of a node at which a plan is deleted, and of how many nodes the cluster has.
fn deletions() -> Vec<(&'static str, usize, NodeState)> {
    use NodeState::*;
    let mut all = vec![
        ("node-1", 3, ImagePreloading),
        ("node-1", 3, ImagePreloaded),
        ("node-2", 3, UpgradePaused),
        ("node-1", 1, SingleNodeUpgrading),
        ("node-1", 1, WaitingReboot),
        ("node-1", 1, SingleNodeUpgraded),
    ];
    for (_, node) in PLACES {
        let states = [
            PreDraining,
            PreDrained,
            PostDraining,
            WaitingReboot,
            PostDrained,
            ImageCleaning,
            ImageCleaned,
        ];
        all.extend(states.map(|state| (node, 3, state)));
    }
    all
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, nodes, troubles) in failures() {
        for remedy in [Remedy::Retries, Remedy::StartsOver, Remedy::Beside] {
            cases.push(Case {
                name: name.clone(),
                nodes,
                broken: Broken::Fails(troubles.clone()),
                remedy,
                pause: Vec::new(),
            });
        }
    }
    for (node, nodes, state) in deletions() {
        cases.push(Case {
            name: format!("deleted while {node} of {nodes} is {state}"),
            nodes,
            broken: Broken::DeletedAt(node, state),
            // A plan that is gone can neither be tried again nor have another one beside it.
            remedy: Remedy::StartsOver,
            pause: Vec::from_iter((state == NodeState::UpgradePaused).then(|| node.to_owned())),
        });
    }
    for (place, node) in PLACES {
        // A plan that waits has not failed: there is nothing to try again, and a plan beside it waits for its end.
        for remedy in [Remedy::Waits, Remedy::StartsOver] {
            cases.push(Case {
                name: format!("NodeUpgrade: never came back and was repaired later, {place} node"),
                nodes: 3,
                broken: Broken::Away(node),
                remedy,
                pause: Vec::new(),
            });
        }
    }
    cases
}

fn scenario(case: &Case) -> Scenario {
    let troubles = match &case.broken {
        Broken::Fails(troubles) => troubles.clone(),
        Broken::DeletedAt(..) => Troubles::default(),
        Broken::Away(node) => Troubles {
            reboots: [((*node).to_owned(), RebootTrouble::NeverReturns)].into(),
            ..Troubles::default()
        },
    };
    Scenario {
        shape: Shape {
            nodes: case.nodes,
            vms: 3,
            ..Shape::default()
        },
        troubles,
        ..Scenario::default()
    }
}

/// Creates a plan that starts VMs again, and tells its name.
async fn create(rehearsal: &Rehearsal, pause: &[String]) -> String {
    rehearsal.create(&rehearsal.plan(true, pause)).await.unwrap().name_any()
}

async fn delete(rehearsal: &Rehearsal, name: &str) -> Result<(), String> {
    let plans: Api<UpgradePlan> = Api::all(rehearsal.server.client());
    plans.delete(name, &DeleteParams::default()).await.unwrap();
    let gone = until_gone(rehearsal, name);
    let limit = tokio::time::timeout(LIMIT, gone);
    limit
        .await
        .map_err(|_| format!("{name} does not go: {}", told(rehearsal, name)))
}

/// What a plan says that it waits for.
fn told(rehearsal: &Rehearsal, name: &str) -> String {
    let store = rehearsal.server.store();
    let plan = store.get("management.harvesterhci.io", "upgradeplans", "", name);
    let Some(plan) = plan else {
        return "it is gone".to_owned();
    };
    let status = &plan["status"];
    format!(
        "{} {} {}",
        status["currentPhase"], status["nodeUpgradeStatuses"], status["waitingFor"]
    )
}

async fn mend(rehearsal: &Rehearsal) {
    rehearsal.set_troubles(Troubles::default());
    // A node that was away is turned on again: anything about it makes its kubelet look.
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(rehearsal.server.client());
    for node in nodes.list(&Default::default()).await.unwrap() {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"repaired": "true"}}}));
        nodes
            .patch(&node.name_any(), &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

/// Runs a case; tells what is not as it should be in the end.
async fn simulate(case: &Case) -> Vec<String> {
    match go(case).await {
        Ok(problems) => problems,
        Err(problem) => vec![problem],
    }
}

async fn go(case: &Case) -> Result<Vec<String>, String> {
    let clock = Clock::simulated(beginning(), 1.0);
    let rehearsal = Rehearsal::start(scenario(case), clock).await.unwrap();
    let before = remains::of(&rehearsal);
    let manager = rehearsal.start_only_manager();
    let first = create(&rehearsal, &case.pause).await;
    let follow = async |there: &dyn Fn(&UpgradePlan) -> bool| {
        let found = rehearsal.follow(&first, Some(LIMIT), there).await;
        found
            .map(drop)
            .ok_or_else(|| format!("never broke: {}", told(&rehearsal, &first)))
    };
    match &case.broken {
        Broken::Fails(_) => follow(&has_failed).await?,
        Broken::DeletedAt(node, state) => follow(&|plan| is_at(plan, node, *state)).await?,
        Broken::Away(node) => {
            follow(&|plan| is_at(plan, node, NodeState::WaitingReboot)).await?;
            rehearsal.clock.sleep(A_WHILE * 6).await;
        }
    }
    if matches!(case.broken, Broken::Fails(_)) {
        rehearsal.clock.sleep(A_WHILE).await;
        mend(&rehearsal).await;
    }
    let last = match case.remedy {
        Remedy::Waits => first.clone(),
        Remedy::Retries => {
            let plans: Api<UpgradePlan> = Api::all(rehearsal.server.client());
            let patch = Patch::Merge(json!({"metadata": {"annotations": {api::annotations::RETRY: "1"}}}));
            plans.patch(&first, &PatchParams::default(), &patch).await.unwrap();
            first.clone()
        }
        Remedy::StartsOver => {
            delete(&rehearsal, &first).await?;
            create(&rehearsal, &[]).await
        }
        Remedy::Beside => create(&rehearsal, &[]).await,
    };
    if matches!(case.broken, Broken::Away(_)) {
        rehearsal.clock.sleep(A_WHILE).await;
        mend(&rehearsal).await;
    }
    let ended = |plan: &UpgradePlan| {
        let is_over = match case.remedy {
            Remedy::Retries => plan.phase() == Some(Phase::Succeeded),
            _ => plan.phase().is_some_and(Phase::is_terminal),
        };
        is_over && plan.finalizers().is_empty()
    };
    let ended = rehearsal.follow(&last, Some(LIMIT), ended).await;
    let ended = ended.ok_or_else(|| format!("never ended: {}", told(&rehearsal, &last)))?;
    // VMs that start again, and garbage collection, take their time.
    rehearsal.clock.sleep(A_WHILE).await;
    manager.abort();
    let mut problems = remains::after(&rehearsal, &before);
    if ended.phase() != Some(Phase::Succeeded) {
        problems.insert(0, format!("not upgraded: {}", told(&rehearsal, &last)));
    }
    Ok(problems)
}

#[test]
fn from_every_failure_each_remedy_leads_to_an_upgraded_cluster() {
    let wanted = std::env::var("MATRIX").unwrap_or_default();
    let cases: VecDeque<Case> = cases()
        .into_iter()
        .filter(|case| format!("{} × {:?}", case.name, case.remedy).contains(&wanted))
        .collect();
    let count = cases.len();
    let (queue, failed) = (Mutex::new(cases), Mutex::new(Vec::new()));
    let began = Instant::now();
    let work = || {
        while let Some(case) = { queue.lock().unwrap().pop_front() } {
            let problems = in_paused_time(simulate(&case));
            let name = format!("{} × {:?}", case.name, case.remedy);
            let verdict = if problems.is_empty() { "ok" } else { "NOT OK" };
            println!("{verdict:7} {name}");
            if !problems.is_empty() {
                println!("{}", problems.join("\n"));
                failed
                    .lock()
                    .unwrap()
                    .push(format!("{name}:\n  {}", problems.join("\n  ")));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap();
    println!(
        "{count} cases, {} ended well, {} did not; {} s",
        count - failed.len(),
        failed.len(),
        began.elapsed().as_secs()
    );
    assert!(failed.is_empty(), "{} of {count}:\n{}", failed.len(), failed.join("\n"));
}
