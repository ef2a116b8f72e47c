//! How VMs leave a node: as KubeVirt's evacuation controller moves them (docs/world.md).

use std::{collections::BTreeMap, time::Duration};

use crate::support::*;
use api::JobType;
use serde_json::{Value, json};
use world::{Durations, Shape, Troubles};

const HARVESTER: &str = api::names::HARVESTER_NAMESPACE;
const MIGRATION: &str = "kubevirt.io/v1/VirtualMachineInstanceMigration";
const SOURCE: &str = "kubevirt.io/evacuationMigration";

async fn with(vms: usize, troubles: Troubles) -> TestCluster {
    let shape = Shape {
        vms,
        ..Default::default()
    };
    let cluster = test_cluster(shape, Durations::default(), troubles).await;
    cluster.plan("up").await;
    cluster
}

async fn pre_drain(cluster: &TestCluster, node: &str) {
    cluster.create(JOB, node_job("up", JobType::PreDrain, node)).await;
}

async fn is_done(cluster: &TestCluster, node: &str) -> bool {
    let name = api::names::node_job("up", JobType::PreDrain, node);
    cluster
        .get(JOB, HARVESTER, &name)
        .await
        .is_some_and(|job| is(&job, "Complete"))
}

/// How many migrations run off each node at this moment.
async fn running(cluster: &TestCluster) -> BTreeMap<String, usize> {
    let mut running = BTreeMap::new();
    for migration in cluster.list(MIGRATION, "").await {
        if migration["status"]["phase"] == "Running" {
            let source = migration["metadata"]["annotations"][SOURCE].as_str().unwrap();
            *running.entry(source.to_owned()).or_default() += 1;
        }
    }
    running
}

/// Evacuates nodes, and returns how many seconds that took and the most migrations that were seen at a time off a node and in
/// all.
async fn empty(cluster: &TestCluster, nodes: &[&str]) -> (u64, usize, usize) {
    empty_looking_every(cluster, nodes, 10).await
}

async fn empty_looking_every(cluster: &TestCluster, nodes: &[&str], pause: u64) -> (u64, usize, usize) {
    for node in nodes {
        pre_drain(cluster, node).await;
    }
    let (mut seconds, mut most_of_a_node, mut most) = (0, 0, 0);
    loop {
        let mut done = true;
        for node in nodes {
            done &= is_done(cluster, node).await;
        }
        if done {
            return (seconds, most_of_a_node, most);
        }
        assert!(seconds < 24 * 3600, "{:?}", running(cluster).await);
        let now = running(cluster).await;
        most_of_a_node = now.values().copied().max().unwrap_or(0).max(most_of_a_node);
        most = now.values().sum::<usize>().max(most);
        cluster.clock.sleep(Duration::from_secs(pause)).await;
        seconds += pause;
    }
}

#[tokio::test(start_paused = true)]
async fn r33_two_migrations_run_off_a_node_at_a_time_and_the_time_they_take_goes_with_the_vms() {
    let few = empty(&with(6, Troubles::default()).await, &["node-1"]).await;
    let cluster = with(60, Troubles::default()).await;
    let there = vms_on(&cluster, "node-1").await.len();
    let many = empty(&cluster, &["node-1"]).await;
    assert!(vms_on(&cluster, "node-1").await.is_empty());
    assert_eq!((many.1, many.2), (2, 2));
    // Most of them move, two at a time, each for half a minute at least.
    let least = u64::try_from(there / 3 * 30).unwrap();
    assert!(few.0 < 120 && many.0 > least, "{few:?} {many:?} {there}");
}

#[tokio::test(start_paused = true)]
async fn r33_five_migrations_run_in_the_cluster_at_a_time() {
    let shape = Shape {
        nodes: 6,
        vms: 90,
        ..Default::default()
    };
    let cluster = test_cluster(shape, Durations::default(), Troubles::default()).await;
    cluster.plan("up").await;
    let (_, of_a_node, all) = empty(&cluster, &["node-4", "node-5", "node-6"]).await;
    assert_eq!((of_a_node, all), (2, 5));
}

#[tokio::test(start_paused = true)]
async fn r33_memory_takes_time() {
    let took = async |memory: &str| {
        let cluster = with(6, Troubles::default()).await;
        let on_node_1 = vms_on(&cluster, "node-1").await;
        let vmis = cluster.list(VMI, "").await;
        for vmi in vmis
            .iter()
            .filter(|vmi| on_node_1.iter().any(|name| vmi["metadata"]["name"] == *name))
        {
            let (namespace, name) = (&vmi["metadata"]["namespace"], &vmi["metadata"]["name"]);
            let larger = json!({"spec": {"domain": {"memory": {"guest": memory}}}});
            cluster
                .patch(VMI, namespace.as_str().unwrap(), name.as_str().unwrap(), larger)
                .await;
        }
        empty(&cluster, &["node-1"]).await.0
    };
    let (small, large) = (took("2Gi").await, took("64Gi").await);
    // 62 GiB more, at 10 seconds each.
    assert!(large >= small + 500, "{small} {large}");
}

#[tokio::test(start_paused = true)]
async fn r45_a_migration_reports_when_it_began_and_ended_in_its_migration_state() {
    let cluster = with(6, Troubles::default()).await;
    empty(&cluster, &["node-1"]).await;
    let migrations = cluster.list(MIGRATION, "").await;
    assert!(!migrations.is_empty());
    for migration in &migrations {
        let status = &migration["status"];
        assert_eq!(status["phase"], "Succeeded");
        let at = |field: &str| status["migrationState"][field].as_str().unwrap_or_default().to_owned();
        let (began, ended) = (at("startTimestamp"), at("endTimestamp"));
        assert!(!began.is_empty() && began < ended, "{status}");
        for field in ["startTimestamp", "endTimestamp"] {
            assert_eq!(status[field], Value::Null, "KubeVirt has no such field there: {status}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r33_an_evacuation_of_many_hours_does_not_run_into_the_limit_of_its_step_while_vms_leave() {
    let slow = Durations {
        migration_per_gib: Duration::from_mins(10),
        ..Durations::default()
    };
    let shape = Shape {
        vms: 150,
        ..Default::default()
    };
    let cluster = test_cluster(shape, slow, Troubles::default()).await;
    cluster.plan("up").await;
    let (seconds, ..) = empty_looking_every(&cluster, &["node-1"], 600).await;
    let limit = node::limits::Limits::default().vms.as_secs();
    assert!(seconds > limit, "{seconds} s: the limit is {limit} s");
    let name = api::names::node_job("up", JobType::PreDrain, "node-1");
    let failed = cluster.get(JOB, HARVESTER, &name).await.unwrap()["status"]["failed"].clone();
    assert_eq!(
        failed.as_i64().unwrap_or(0),
        0,
        "the step ran into its limit and was tried again"
    );
}

#[tokio::test(start_paused = true)]
async fn r56_vms_leave_although_an_old_controller_takes_the_drain_taint_away() {
    let troubles = Troubles {
        drain_taint_is_taken_away: true,
        ..Default::default()
    };
    let cluster = with(18, troubles).await;
    let (seconds, ..) = empty(&cluster, &["node-1"]).await;
    assert!(vms_on(&cluster, "node-1").await.is_empty());
    assert!(seconds < 15 * 60, "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn r18_a_vm_that_kubevirt_will_not_migrate_is_waited_for_until_the_plan_says_stop() {
    let cluster = with(6, Troubles::default()).await;
    let name = vms_on(&cluster, "node-1").await.remove(0);
    let conditions = json!([
        {"type": "Ready", "status": "True"},
        {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable", "message": "a disk is not shared"},
    ]);
    let vmis = cluster.list(VMI, "").await;
    let vmi = vmis.iter().find(|vmi| vmi["metadata"]["name"] == name).unwrap();
    let namespace = vmi["metadata"]["namespace"].as_str().unwrap();
    cluster
        .patch(VMI, namespace, &name, json!({"status": {"conditions": conditions}}))
        .await;
    pre_drain(&cluster, "node-1").await;
    cluster.minutes(60).await;
    assert_eq!(vms_on(&cluster, "node-1").await, std::slice::from_ref(&name));
    let pods = cluster.list(POD, HARVESTER).await;
    let said = |pod: &Value| {
        pod["metadata"]["annotations"]
            .to_string()
            .contains("DisksNotLiveMigratable")
    };
    assert!(pods.iter().any(said), "{pods:#?}");
    cluster
        .patch(UPGRADE_PLAN, "", "up", json!({"spec": {"onMigrationFailure": "Stop"}}))
        .await;
    let job = api::names::node_job("up", JobType::PreDrain, "node-1");
    cluster.until(10, JOB, HARVESTER, &job, |job| is(job, "Complete")).await;
    let vm = cluster.get(VM, namespace, &name).await.unwrap();
    assert_eq!(vm["spec"]["runStrategy"], "Halted");
}
