//! What admission reads of the cluster, and how long it takes at most.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what panics in a test fails it")]

mod support;

use std::time::Duration;

use checks::{Cluster, admission::Reads};
use clock::Clock;
use http::{Request, Response};
use kube::client::Body;
use manager::{watched::Watched, webhook::facts::Facts};
use tokio::task::JoinSet;

use support::{cluster, days_on, manager_client};

/// A client of an API server that never answers.
fn silent() -> kube::Client {
    let service = tower::service_fn(|_: Request<Body>| async {
        std::future::pending::<()>().await;
        Ok::<_, std::io::Error>(Response::new(Body::empty()))
    });
    kube::Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_is_waited_for_five_seconds_in_all() {
    let clock = Clock::simulated(support::beginning(), 1.0);
    let facts = Facts::new(silent(), Watched::default(), clock.clone());
    let read = facts.read(Reads::Everything).await;
    assert_eq!(read, Cluster::unknown("no answer within 5 seconds"));
    assert_eq!(clock.elapsed(), Duration::from_secs(5));
}

#[tokio::test]
async fn what_is_not_needed_is_not_read() {
    let facts = Facts::new(silent(), Watched::default(), days_on(0));
    assert_eq!(facts.read(Reads::Nothing).await, Cluster::unknown("not read"));
    let server = cluster().await;
    let facts = Facts::new(manager_client(&server), Watched::default(), days_on(0));
    let read = facts.read(Reads::Nodes).await;
    assert_eq!(read.nodes.unwrap().len(), 3);
    assert_eq!(read.plans, Err("not read".to_owned()));
}

#[tokio::test]
async fn the_shipped_roles_suffice_to_read_everything() {
    let server = cluster().await;
    let facts = Facts::new(manager_client(&server), Watched::default(), days_on(0));
    let read = serde_json::to_value(facts.read(Reads::Everything).await).unwrap();
    let kinds = read.as_object().unwrap();
    let unread: Vec<_> = kinds.iter().filter(|(_, listed)| listed.get("Ok").is_none()).collect();
    assert!(unread.is_empty(), "{unread:?}");
    assert_eq!(kinds["nodes"]["Ok"].as_array().unwrap().len(), 3);
    assert_eq!(kinds["managedCharts"]["Ok"].as_array().unwrap().len(), 4);
    assert_eq!(kinds["addons"]["Ok"].as_array().unwrap().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn what_the_manager_watches_anyway_is_not_listed_again() {
    let server = cluster().await;
    let watched = Watched::default();
    let mut watches = JoinSet::new();
    for watch in watched.watches(&manager_client(&server)) {
        watches.spawn(watch);
    }
    while !watched.is_synced() {
        watched.changed.notified().await;
    }
    let facts = Facts::new(silent(), watched, Clock::simulated(support::beginning(), 1.0));
    let read = facts.read(Reads::Everything).await;
    assert_eq!(read.plans, Ok(Vec::new()));
    assert_eq!(read.nodes.unwrap().len(), 3);
    assert_eq!(read.machines.unwrap().len(), 3);
    assert_eq!(read.versions.unwrap().len(), 1);
    assert_eq!(read.rancher_clusters.unwrap().len(), 1);
    assert_eq!(read.images, Ok(Vec::new()));
    // Of these the manager watches one object or none; one would pass for all of them.
    let late = "no answer within 5 seconds".to_owned();
    assert_eq!(read.managed_charts, Err(late.clone()));
    assert_eq!(read.addons, Err(late.clone()));
    assert_eq!(read.volumes, Err(late));
}

#[tokio::test]
async fn a_cluster_that_does_not_know_v1_upgrades_has_none_but_one_without_volumes_cannot_be_judged() {
    let server = cluster().await;
    let definitions: kube::Api<kube::api::DynamicObject> = {
        let kind = kube::api::GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        kube::Api::all_with(server.client(), &kube::api::ApiResource::from_gvk(&kind))
    };
    for name in ["upgrades.harvesterhci.io", "volumes.longhorn.io"] {
        definitions.delete(name, &Default::default()).await.unwrap();
    }
    let facts = Facts::new(manager_client(&server), Watched::default(), days_on(0));
    let read = facts.read(Reads::Everything).await;
    assert_eq!(read.v1_upgrades, Ok(Vec::new()));
    assert!(
        read.volumes
            .unwrap_err()
            .contains("could not find the requested resource")
    );
}
