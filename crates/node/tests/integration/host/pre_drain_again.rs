//! `pre-drain`, run again: after it was killed, and after it was done.

use std::time::Duration;

use apiserver::{Fault, FaultPlan};
use node::{limits::Limits, pre_drain::steps};
use serde_json::json;

use crate::host::programs::{Cluster, NODE};

/// A node with a VM that cannot move, and none that can.
async fn with_pinned() -> Cluster {
    let cluster = Cluster::new(3).await;
    let device = json!({"domain": {"devices": {"hostDevices": [{"name": "nic"}]}}});
    cluster.harness.vm("default", "pinned", NODE, device).await;
    cluster
}

type State = (
    std::collections::BTreeMap<String, String>,
    Vec<String>,
    Option<String>,
    Vec<String>,
);

async fn state(cluster: &Cluster) -> State {
    let (files, taints) = (cluster.node.files(), cluster.taints().await);
    let mut asked = cluster.harness.asked();
    asked.dedup();
    (files, taints, cluster.harness.list(NODE).await, asked)
}

#[tokio::test(start_paused = true)]
async fn killed_after_any_step_write_or_call_and_started_again_it_ends_the_same() {
    let cluster = with_pinned().await;
    cluster.run(steps).await.unwrap();
    let expected = state(&cluster).await;
    assert_eq!(expected.2.as_deref(), Some("default/pinned"));
    for done in 0..steps(&Limits::default()).len() {
        let cluster = with_pinned().await;
        cluster.run_part(steps, done).await.unwrap();
        cluster.run(steps).await.unwrap();
        assert_eq!(state(&cluster).await, expected, "killed after {done} steps");
    }
    for number in 1.. {
        let cluster = with_pinned().await;
        let killed = cluster.run_until_write(steps, number).await;
        cluster.run(steps).await.unwrap();
        assert_eq!(state(&cluster).await, expected, "killed after write {number}");
        if !killed {
            assert!(number > 3, "there are more writes than {number}");
            break;
        }
    }
    for number in 1..=2 {
        let cluster = with_pinned().await;
        assert!(cluster.run_until_call(steps, number).await);
        cluster.run(steps).await.unwrap();
        assert_eq!(state(&cluster).await, expected, "killed after call {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_run_touches_no_file_and_writes_nothing_new_to_the_cluster() {
    let cluster = with_pinned().await;
    cluster.run(steps).await.unwrap();
    let before = (
        cluster.node.identities(),
        cluster.taints().await,
        cluster.harness.list(NODE).await,
    );
    cluster.run(steps).await.unwrap();
    assert_eq!(
        (
            cluster.node.identities(),
            cluster.taints().await,
            cluster.harness.list(NODE).await
        ),
        before
    );
}

#[tokio::test(start_paused = true)]
async fn writes_that_the_api_server_refuses_for_a_while_are_tried_again() {
    let undisturbed = with_pinned().await;
    undisturbed.run(steps).await.unwrap();
    for code in [503, 500, 429, 409] {
        let cluster = with_pinned().await;
        let (clock, back) = (
            cluster.harness.clock.clone(),
            cluster.harness.clock.now() + Duration::from_mins(3),
        );
        cluster.harness.server.set_faults(FaultPlan::writes(move |_| {
            if clock.now() < back {
                Fault::Reject(code)
            } else {
                Fault::None
            }
        }));
        cluster.run(steps).await.unwrap();
        assert_eq!(
            state(&cluster).await,
            state(&undisturbed).await,
            "while writes were refused with {code}"
        );
    }
}
