//! Managers that are killed and managers that are stopped: the upgrade ends right, and nothing is done twice.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use api::{Phase, UpgradePlan, UpgradePlanSpec};
use cli::rehearsal::SERVICE_ACCOUNT;
use kube::ResourceExt;
use serde_json::json;
use testbed::Request;
use world::{Durations, Shape};

use crate::{
    embedded::{self, masked},
    harvester::{Harvester, on_cluster},
    process::{Process, Recipe},
    repository,
};

/// An upgrade, or a part of one.
const LIMIT: Duration = Duration::from_secs(180);
/// Long enough for a busy machine to renew, short enough to wait for its end.
const LEASE: Duration = Duration::from_secs(6);
/// How often a manager is killed during an upgrade.
const KILLS: u32 = 20;
const KILLS_IN_A_PHASE: usize = 4;

fn shape() -> Shape {
    Shape {
        nodes: 3,
        vms: 6,
        ..Shape::default()
    }
}

/// What a node does takes a moment, so that there are moments in between.
fn durations() -> Durations {
    let moment = Duration::from_secs(1);
    Durations {
        preload: moment,
        cluster_upgrade: moment,
        rancher_wait: moment,
        pre_drain: moment,
        post_drain: moment,
        reboot: moment,
        ..Durations::instant()
    }
}

async fn repository(harvester: &mut Harvester) -> SocketAddr {
    repository::serve("up", harvester.facts.clone(), &mut harvester.tasks).await
}

async fn ended(harvester: &Harvester, recipes: &[&Recipe]) -> UpgradePlan {
    let ended = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty();
    let plan = harvester.plan_when("up", LIMIT, "ended", ended).await;
    let logs = || recipes.iter().map(|recipe| recipe.log()).collect::<Vec<_>>().join("\n");
    assert_eq!(plan.phase(), Some(Phase::Succeeded), "{:#?}\n{}", plan.status, logs());
    plan
}

/// Nothing that managers create is created twice, however many of them there were.
fn assert_nothing_twice(requests: &[Request], users: &[&str]) {
    let mut created: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for request in requests {
        let by_manager = users.contains(&request.user.as_str());
        // A token for kubelets is a question that is written as a creation: nothing is stored.
        let is_question = request.resource == "serviceaccounts/token";
        if by_manager && !is_question && request.verb == "create" && request.succeeded() {
            *created.entry((&request.resource, &request.name)).or_default() += 1;
        }
    }
    let jobs = created.keys().filter(|(resource, _)| *resource == "jobs").count();
    assert!(jobs >= 7, "a Job for the cluster and two for each node: {created:#?}");
    let twice: Vec<_> = created.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "created more than once: {twice:?}");
}

#[test]
fn a_manager_that_is_killed_twenty_times_ends_the_upgrade_right_and_does_nothing_twice() {
    on_cluster(shape(), durations(), async |harvester| {
        let seed = match std::env::var("SEED") {
            Ok(seed) => seed.parse().unwrap(),
            // Another one each time, without a generator that cannot be seeded.
            Err(_) => u64::from(std::process::id()),
        };
        println!("kills with SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let before = harvester.provision_generation().await.unwrap_or_default();
        let repository = repository(harvester).await;
        let recipe = Recipe::new(harvester, SERVICE_ACCOUNT, repository, LEASE).await;
        harvester.create_plan("up", UpgradePlanSpec::default()).await;
        let mut phases = Vec::new();
        for _ in 0..KILLS {
            let manager = recipe.start();
            // A phase that takes long must not get them all; nodes may have as many as are left.
            if let Some(last) = phases.last().cloned().filter(|last: &String| last != "NodeUpgrading")
                && phases.iter().filter(|phase| **phase == last).count() >= KILLS_IN_A_PHASE
            {
                let further = |plan: &UpgradePlan| plan.phase().is_some_and(|phase| phase.to_string() != last);
                harvester.plan_when("up", LIMIT, "further", further).await;
            }
            let moment = Duration::from_millis(random.u64(100..1000));
            tokio::time::sleep(moment).await;
            manager.kill();
            let plan = harvester.plans().get("up").await.unwrap();
            assert_ne!(
                plan.phase(),
                Some(Phase::Succeeded),
                "too late for a kill after {phases:?}"
            );
            phases.push(plan.phase().map(|phase| phase.to_string()).unwrap_or_default());
        }
        println!("killed in {phases:?}");
        let _manager = recipe.start();
        let plan = ended(harvester, &[&recipe]).await;
        assert_eq!(masked(&plan), masked(&embedded::upgraded(shape(), "up")));
        assert_eq!(harvester.provision_generation().await, Some(before + 1));
        assert_nothing_twice(&harvester.control_plane.audit().unwrap(), &[&recipe.user]);
        phases.sort();
        phases.dedup();
        assert!(phases.len() >= 4, "all kills were in {phases:?}");
    });
}

/// What is created and changes nothing: questions, and tokens of the account that reads from kubelets.
const QUESTIONS: [&str; 3] = ["serviceaccounts/token", "subjectaccessreviews", "tokenreviews"];

/// Managers that wrote while another one held the lease. The last writer of the lease holds it.
fn writes_of_others<'a>(requests: &'a [Request], users: &[&str]) -> Vec<(&'a str, &'a Request)> {
    let mut leader = "";
    let mut found = Vec::new();
    for request in requests.iter().filter(|request| users.contains(&request.user.as_str())) {
        if !request.is_write() || !request.succeeded() || QUESTIONS.contains(&request.resource.as_str()) {
            continue;
        }
        if request.resource == "leases" {
            leader = &request.user;
        } else if request.user != leader {
            found.push((leader, request));
        }
    }
    found
}

/// When the manager that leads is stopped.
const STOPS: [Phase; 2] = [Phase::ImagePreloading, Phase::NodeUpgrading];

#[test]
fn of_two_managers_only_the_one_with_the_lease_writes_but_for_one_request_that_was_under_way() {
    on_cluster(shape(), durations(), async |harvester| {
        let before = harvester.provision_generation().await.unwrap_or_default();
        let repository = repository(harvester).await;
        let accounts = ["manager-a", "manager-b"];
        let mut recipes = Vec::new();
        for account in accounts {
            harvester.add_account(account).await;
            recipes.push(Recipe::new(harvester, account, repository, LEASE).await);
        }
        let mut managers: Vec<Process> = recipes.iter().map(Recipe::start).collect();
        harvester.create_plan("up", UpgradePlanSpec::default()).await;
        let mut leader = harvester.leader().await;
        for phase in STOPS {
            harvester
                .plan_when("up", LIMIT, "under way", |plan| plan.phase() >= Some(phase))
                .await;
            let index = accounts.iter().position(|account| *account == leader).unwrap();
            managers[index].signal("STOP");
            let next = harvester.leader_other_than(&leader).await;
            managers[index].signal("CONT");
            // It sees that it has lost the lease and ends; as its Deployment would, we start it again.
            let end = tokio::time::sleep(LIMIT);
            tokio::pin!(end);
            let status = loop {
                if let Some(status) = managers[index].ended() {
                    break status;
                }
                tokio::select! {
                    () = &mut end => panic!("{leader} goes on without the lease: {}", recipes[index].log()),
                    () = tokio::time::sleep(Duration::from_millis(50)) => {}
                }
            };
            assert!(!status.success());
            managers[index] = recipes[index].start();
            leader = next;
        }
        let plan = ended(harvester, &[&recipes[0], &recipes[1]]).await;
        assert_eq!(masked(&plan), masked(&embedded::upgraded(shape(), "up")));
        assert_eq!(harvester.provision_generation().await, Some(before + 1));
        let requests = harvester.control_plane.audit().unwrap();
        let users = [recipes[0].user.as_str(), recipes[1].user.as_str()];
        assert_nothing_twice(&requests, &users);
        // A manager that is stopped between the fence and the request behind it sends that one when it resumes; there is a
        // fence before each, and they follow one another. It changes and deletes nothing that another client has changed or replaced
        // meanwhile (that is refused, and does not count here), and what it creates has a fixed name (`lease.rs`).
        let others = writes_of_others(&requests, &users);
        assert!(others.len() <= STOPS.len(), "written without the lease: {others:#?}");
        let writers = users.iter().filter(|user| {
            let mut writes = requests.iter().filter(|request| request.user == **user);
            writes.any(|request| request.is_write() && request.resource.starts_with("upgradeplans"))
        });
        assert_eq!(writers.count(), 2, "both had their turn");
    });
}

/// Requests as the audit log has them: user, verb, resource, name.
fn log(lines: &[(&str, &str, &str, &str)]) -> Vec<Request> {
    let line = |(user, verb, resource, name): &(&str, &str, &str, &str)| {
        let line = json!({
            "verb": verb, "user": {"username": user}, "objectRef": {"resource": resource, "name": name},
            "responseStatus": {"code": 200}, "requestReceivedTimestamp": "2026-03-13T03:57:09Z",
            "stageTimestamp": "2026-03-13T03:57:09Z",
        });
        Request::parse(&line.to_string()).unwrap()
    };
    lines.iter().map(line).collect()
}

#[test]
fn a_write_of_a_manager_that_has_lost_the_lease_is_found() {
    let requests = log(&[
        ("a", "create", "leases", "lease"),
        ("a", "create", "jobs", "one"),
        ("b", "update", "leases", "lease"),
        ("somebody", "create", "jobs", "other"),
        ("a", "get", "leases", "lease"),
        ("a", "create", "jobs", "two"),
        ("b", "create", "jobs", "two"),
    ]);
    let found = writes_of_others(&requests, &["a", "b"]);
    assert_eq!(found, [("b", &requests[5])]);
}

#[test]
#[should_panic(expected = "created more than once")]
fn a_job_that_is_created_twice_is_found() {
    let names = ["1", "2", "3", "4", "5", "6", "7", "7"];
    assert_nothing_twice(&log(&names.map(|name| ("a", "create", "jobs", name))), &["a"]);
}
