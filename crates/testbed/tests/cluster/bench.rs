//! What an upgrade costs on a real control plane, by its audit log and by the kernel. Run by `bench/cluster`; measures,
//! asserts nothing but that no upgrade stalls.

use std::{collections::BTreeMap, fs, time::Duration};

use api::{Phase, UpgradePlan, UpgradePlanSpec};
use cli::rehearsal::SERVICE_ACCOUNT;
use jiff::SignedDuration;
use kube::ResourceExt;
use serde_json::json;
use testbed::Request;
use world::{Durations, Shape};

use crate::{
    harvester::{Harvester, on_cluster, runs_plans},
    process::{Process, Recipe},
    repository,
};

/// As that of a manager that ships.
const LEASE: Duration = Duration::from_secs(30);
/// The unit of times in `/proc/<pid>/stat`, on every Linux that we know.
const TICKS_PER_SECOND: f64 = 100.0;
const MIB: f64 = 1024.0;
/// What is measured when nothing else is asked for: nodes and VMs.
const SIZES: &str = "3/6 30/60 100/1000";

/// What one upgrade cost.
struct Cost {
    total: SignedDuration,
    own: SignedDuration,
    cpu_seconds: f64,
    peak_mib: f64,
    heap_mib: f64,
    verbs: BTreeMap<String, usize>,
    plan_writes: usize,
    conflicts: usize,
    /// Between the creation of the plan and its end, without renewals of the lease.
    requests: usize,
}

/// No upgrade takes longer than this: most of it is Kubernetes' own Job controller, two Jobs a node, a second each.
fn limit(nodes: usize) -> Duration {
    Duration::from_secs(120 + 10 * u64::try_from(nodes).unwrap_or_default())
}

async fn upgrade(harvester: &mut Harvester, nodes: usize) -> Option<Cost> {
    let repository = repository::serve("up", harvester.facts.clone(), &mut harvester.tasks).await;
    let recipe = Recipe::new(harvester, SERVICE_ACCOUNT, repository, LEASE).await;
    let manager = recipe.start();
    harvester.leader().await;
    harvester.create_plan("up", UpgradePlanSpec::default()).await;
    let ended = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty();
    let plan = harvester.plan_within("up", limit(nodes), ended).await?;
    assert_eq!(
        plan.phase(),
        Some(Phase::Succeeded),
        "{:#?}\n{}",
        plan.status,
        recipe.log()
    );
    let requests = harvester.control_plane.audit().unwrap();
    Some(cost(&requests, &recipe.user, &manager))
}

fn cost(requests: &[Request], user: &str, manager: &Process) -> Cost {
    let mine = |request: &&Request| request.user == user;
    let is_plan = |request: &Request| request.resource.starts_with("upgradeplans");
    let created = requests
        .iter()
        .position(|request| is_plan(request) && request.verb == "create");
    let last = requests
        .iter()
        .rposition(|request| mine(&request) && is_plan(request) && request.is_write());
    let during = &requests[created.unwrap()..=last.unwrap()];
    let mut verbs = BTreeMap::new();
    for request in requests.iter().filter(mine) {
        *verbs.entry(request.verb.clone()).or_default() += 1;
    }
    let (cpu_seconds, peak_mib, heap_mib) = used(manager);
    let asked = during
        .iter()
        .filter(mine)
        .filter(|request| request.resource != "leases");
    Cost {
        total: during[during.len() - 1].answered.duration_since(during[0].answered),
        own: own(during, user),
        cpu_seconds,
        peak_mib,
        heap_mib,
        verbs,
        plan_writes: during
            .iter()
            .filter(mine)
            .filter(|request| is_plan(request) && request.is_write())
            .count(),
        conflicts: during.iter().filter(mine).filter(|request| request.code == 409).count(),
        requests: asked.count(),
    }
}

/// How long all others waited for the manager: between any two writes, the time is that of who wrote next. Leases and
/// events move nothing on.
fn own(requests: &[Request], user: &str) -> SignedDuration {
    let moves = |request: &&Request| request.is_write() && !["leases", "events"].contains(&request.resource.as_str());
    let writes: Vec<&Request> = requests.iter().filter(moves).collect();
    let gaps = writes.windows(2).filter(|pair| pair[1].user == user);
    gaps.map(|pair| {
        pair[1]
            .answered
            .duration_since(pair[0].answered)
            .max(SignedDuration::ZERO)
    })
    .sum()
}

/// Seconds of CPU; the most memory it ever had resident; how much of what it has now is not its program's own file.
fn used(manager: &Process) -> (f64, f64, f64) {
    let stat = fs::read_to_string(manager.proc().join("stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: f64 = [fields[11], fields[12]]
        .iter()
        .map(|field| field.parse::<f64>().unwrap())
        .sum();
    let status = fs::read_to_string(manager.proc().join("status")).unwrap();
    let mib = |field: &str| -> f64 {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        let kib: f64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        kib / MIB
    };
    (ticks / TICKS_PER_SECOND, mib("VmHWM:"), mib("RssAnon:"))
}

fn measure(nodes: usize, vms: usize) -> Option<Cost> {
    let shape = Shape {
        nodes,
        vms,
        ..Shape::default()
    };
    let mut found = None;
    on_cluster(shape, Durations::instant(), async |harvester| {
        found = upgrade(harvester, nodes).await;
    });
    found
}

#[test]
#[ignore = "measures; run by bench/cluster"]
fn table() {
    let sizes = std::env::var("SIZES").unwrap_or_else(|_| SIZES.to_owned());
    println!("Plans are run by {}\n", runs_plans());
    println!(
        "{:>6} {:>6} {:>8} {:>7} {:>7} {:>8} {:>8} {:>7} {:>10} {:>9} {:>8}  requests by verb",
        "nodes",
        "VMs",
        "total s",
        "own s",
        "CPU s",
        "peak MiB",
        "heap MiB",
        "writes",
        "conflicts",
        "requests",
        "per node"
    );
    for size in sizes.split_whitespace() {
        let (nodes, vms) = size.split_once('/').expect("NODES/VMS");
        let (nodes, vms): (usize, usize) = (nodes.parse().unwrap(), vms.parse().unwrap());
        let Some(cost) = measure(nodes, vms) else {
            panic!("the upgrade of {nodes} nodes stalled");
        };
        let verbs: Vec<String> = cost
            .verbs
            .iter()
            .map(|(verb, count)| format!("{verb} {count}"))
            .collect();
        println!(
            "{nodes:>6} {vms:>6} {:>8.1} {:>7.2} {:>7.2} {:>8.1} {:>8.1} {:>7} {:>10} {:>9} {:>8}  {}",
            cost.total.as_secs_f64(),
            cost.own.as_secs_f64(),
            cost.cpu_seconds,
            cost.peak_mib,
            cost.heap_mib,
            cost.plan_writes,
            cost.conflicts,
            cost.requests,
            cost.requests / nodes,
            verbs.join(", ")
        );
    }
}

#[test]
#[ignore = "takes an hour; run by bench/cluster --again 100"]
fn again() {
    let runs: u32 = std::env::var("RUNS").map_or(100, |runs| runs.parse().unwrap());
    let mut slowest = SignedDuration::ZERO;
    for run in 1..=runs {
        let Some(cost) = measure(3, 6) else {
            panic!("run {run} of {runs} stalled");
        };
        slowest = slowest.max(cost.total);
        println!(
            "run {run} of {runs}: {:.1} s, {:.2} s of it ours, {} plan writes, {} conflicts",
            cost.total.as_secs_f64(),
            cost.own.as_secs_f64(),
            cost.plan_writes,
            cost.conflicts
        );
    }
    println!(
        "{runs} runs, none stalled; the slowest took {:.1} s",
        slowest.as_secs_f64()
    );
}

#[test]
fn the_time_before_a_write_is_that_of_who_wrote() {
    let line = |user: &str, resource: &str, second: u32| {
        let at = format!("2026-03-13T03:57:{second:02}Z");
        let line = json!({
            "verb": "update", "user": {"username": user}, "objectRef": {"resource": resource},
            "requestReceivedTimestamp": at, "stageTimestamp": at,
        });
        Request::parse(&line.to_string()).unwrap()
    };
    let requests = [
        line("user", "upgradeplans", 0),
        line("us", "upgradeplans", 1),
        line("kubelet", "leases", 2),
        line("us", "jobs", 3),
        line("others", "jobs", 10),
        line("us", "upgradeplans", 11),
    ];
    assert_eq!(own(&requests, "us").as_secs(), 4);
}
