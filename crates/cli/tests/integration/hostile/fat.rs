//! Load on the manager from clients without rights: tenants with the content of their objects, every client that reaches
//! the webhook by what is in a review.

use std::{net::Ipv4Addr, time::Duration};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::hostile::{
    client::{GOOD, PATIENCE, status},
    servers::{Manager, chart_limit, post, review_of},
};

/// How many addresses ask at once.
const ASKERS: u8 = 8;
/// Bytes of annotations per object: Kubernetes allows 256 KiB.
const FAT: usize = 200 * 1024;
/// A kubelet that waits longer than this restarts the manager, after some failures.
const PROBE: Duration = Duration::from_secs(5);

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 6, 6, number)
}

/// An object of a tenant, as large as Kubernetes lets it be.
fn fat(api_version: &str, kind: &str, number: usize, spec: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {
        "name": format!("{}-{number}", kind.to_lowercase()), "namespace": "tenant", "annotations": {"a": "x".repeat(FAT)},
    }, "spec": spec})
}

/// Many VMs that are stopped, and some that run.
fn tenants() -> Vec<Value> {
    let template = json!({"spec": {"domain": {"devices": {}}}});
    let stopped = json!({"runStrategy": "Halted", "template": template});
    let vms = (0..600).map(|number| fat("kubevirt.io/v1", "VirtualMachine", number, &stopped));
    let running = json!({"domain": {"devices": {}}});
    let instances = (0..300).map(|number| fat("kubevirt.io/v1", "VirtualMachineInstance", number, &running));
    vms.chain(instances).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s04_create_reviews_in_a_cluster_of_fat_objects_take_no_more_memory_than_the_chart_gives() {
    let manager = Manager::start_among(&tenants()).await;
    let webhook = &manager.webhook;
    let before = manager.process.peak();
    let plan = json!({"metadata": {"name": "up"}, "spec": {"version": "v1.8.0"}});
    let request = post(webhook.path, &review_of("CREATE", &plan, &json!(null)).to_string());
    let asks = (0..ASKERS).map(|number| webhook.door.ask(address(number), request.as_bytes()));
    let (answers, well_meant) = tokio::join!(
        timeout(PATIENCE, join_all(asks)),
        timeout(PATIENCE, async {
            manager.health.serves(GOOD).await && webhook.serves(GOOD).await
        })
    );
    let (peak, limit) = (manager.process.peak(), chart_limit());
    eprintln!(
        "from {} MiB to at most {} MiB of {}",
        before >> 20,
        peak >> 20,
        limit >> 20
    );
    assert!(peak < limit, "it took {peak} bytes");
    assert_eq!(well_meant, Ok(true), "a well-behaved client is not served");
    let answers: Vec<String> = answers.expect("all are answered").into_iter().flatten().collect();
    assert_eq!(answers.len(), usize::from(ASKERS));
    for answer in &answers {
        assert_eq!(status(answer), 200, "{answer}");
    }
    // All of them were looked at: those that are in an upgrade's way are two that the cluster had before.
    assert!(
        answers
            .iter()
            .any(|answer| answer.contains(": default/lab-5, dev/ml-3; or set")),
        "{}",
        answers[0]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s05_an_update_with_as_many_nodes_to_pause_as_fit_keeps_no_probe_waiting() {
    let manager = Manager::start().await;
    let webhook = &manager.webhook;
    let plan = |prefix: &str| {
        let names: Vec<String> = (0..32_000).map(|number| format!("{prefix}{number}")).collect();
        json!({"metadata": {"name": "up"}, "spec": {"version": "v1.8.0", "nodeUpgradeOption": {"pauseNodes": names}}})
    };
    let request = post(
        webhook.path,
        &review_of("UPDATE", &plan("new-"), &plan("old-")).to_string(),
    );
    let asks = (0..ASKERS).map(|number| webhook.door.ask(address(number), request.as_bytes()));
    let attack = join_all(asks);
    let probes = async {
        for _ in 0..20 {
            assert_eq!(
                timeout(PROBE, manager.health.serves(GOOD)).await,
                Ok(true),
                "a probe is not answered"
            );
        }
    };
    let (answers, ()) = timeout(PATIENCE, async { tokio::join!(attack, probes) })
        .await
        .expect("all are answered");
    let answered = answers.iter().flatten().filter(|answer| status(answer) == 200);
    assert!(answered.count() > 0, "none got so far as to be understood");
    assert!(webhook.serves(GOOD).await);
}
