//! What admission reads of the cluster, and how long it takes at most.

use crate::support;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use checks::{Cluster, admission::Reads};
use clock::Clock;
use http::{Request, Response};
use kube::client::Body;
use manager::{watched::Watched, webhook::facts::Facts};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{cluster, days_on, manager_client};

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
    assert_eq!(read.plans, Err("not read".into()));
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
    assert_eq!(kinds["settings"]["Ok"].as_array().unwrap().len(), 1);
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
    assert_eq!(checks::cluster::server_version(&read.settings.unwrap()), Some("v1.7.1"));
    assert_eq!(read.rancher_clusters.unwrap().len(), 1);
    assert_eq!(read.images, Ok(Vec::new()));
    // Of these the manager watches one object or none; one would pass for all of them.
    let late = checks::NoAnswer::from("no answer within 5 seconds");
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
    assert_eq!(read.v1_upgrades, Ok(Vec::new().into()));
    assert!(
        read.volumes
            .unwrap_err()
            .to_string()
            .contains("could not find the requested resource")
    );
}

/// Whatever a check may be about, wrong in the ways that it knows.
fn wrong() -> Vec<Value> {
    let of = |api_version: &str, kind: &str, namespace: &str, name: &str, rest: Value| {
        let mut object = rest;
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!(namespace);
        object["metadata"]["annotations"] = json!({"a": "b"});
        object
    };
    let volume = |name: &str, replicas: i64, state: &str, robustness: &str| {
        let claim = json!({"namespace": "default", "pvcName": format!("{name}-data")});
        let status = json!({"state": state, "robustness": robustness, "kubernetesStatus": claim});
        let rest = json!({"spec": {"numberOfReplicas": replicas}, "status": status});
        of("longhorn.io/v1beta2", "Volume", "longhorn-system", name, rest)
    };
    let harvester = "harvesterhci.io/v1beta1";
    let instance = |name: &str, spec: Value| {
        let conditions = json!([{"type": "LiveMigratable", "status": if name == "denied" { "False" } else { "True" },
            "reason": "DisksNotLiveMigratable", "message": "local"}]);
        let status = json!({"phase": "Running", "nodeName": "node-1", "conditions": conditions});
        let rest = json!({"spec": spec, "status": status});
        of("kubevirt.io/v1", "VirtualMachineInstance", "default", name, rest)
    };
    let devices = |key: &str| json!({"domain": {"devices": {key: [{"deviceName": "d", "name": "d"}]}}});
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["nowhere"]}]}]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    let plugged = json!([{"name": "hot", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}},
        {"name": "in-template", "dataVolume": {"name": "d", "hotpluggable": true}}]);
    let template =
        json!({"spec": {"domain": {"devices": {}}, "volumes": [{"name": "in-template", "dataVolume": {"name": "d"}}]}});
    let vm = |name: &str, status: Value| {
        let rest = json!({"spec": {"runStrategy": "Always", "template": template}, "status": status});
        of("kubevirt.io/v1", "VirtualMachine", "default", name, rest)
    };
    let unready = json!({"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    vec![
        volume("degraded", 3, "attached", "degraded"),
        volume("faulted", 3, "detached", "faulted"),
        volume("single", 1, "attached", "healthy"),
        volume("detached", 1, "detached", "unknown"),
        of(
            harvester,
            "VirtualMachineBackup",
            "default",
            "running",
            json!({"spec": {}, "status": {"readyToUse": false}}),
        ),
        of(
            harvester,
            "VirtualMachineBackup",
            "default",
            "failed",
            json!({"spec": {}, "status": {"error": {"message": "m"}}}),
        ),
        of(
            harvester,
            "ScheduleVMBackup",
            "default",
            "nightly",
            json!({"spec": {}, "status": {"suspended": false}}),
        ),
        of(
            harvester,
            "ScheduleVMBackup",
            "default",
            "held",
            json!({"spec": {}, "status": {"suspended": true}}),
        ),
        instance("device", devices("hostDevices")),
        instance("gpu", devices("gpus")),
        instance(
            "selected",
            json!({"domain": {"devices": {}}, "nodeSelector": {"zone": "nowhere"}}),
        ),
        instance("bound", json!({"domain": {"devices": {}}, "affinity": affinity})),
        instance("denied", json!({"domain": {"devices": {}}})),
        instance("plugged", json!({"domain": {"devices": {}}, "volumes": plugged})),
        vm("plugged", json!({})),
        vm(
            "asking",
            json!({"volumeRequests": [{"addVolumeOptions": {"name": "n"}}]}),
        ),
        vm("calm", json!({"volumeRequests": []})),
        of(
            "management.cattle.io/v3",
            "ManagedChart",
            "fleet-local",
            "unready",
            unready,
        ),
        of(
            harvester,
            "Addon",
            "default",
            "busy",
            json!({"spec": {"enabled": true}, "status": {"status": "AddonEnabling"}}),
        ),
        of(
            harvester,
            "Upgrade",
            "harvester-system",
            "running",
            json!({"spec": {}, "status": {}}),
        ),
        of(
            harvester,
            "Upgrade",
            "harvester-system",
            "completed",
            json!({"spec": {},
            "status": {"conditions": [{"type": "Completed", "status": "True"}]}}),
        ),
        of(
            harvester,
            "Upgrade",
            "harvester-system",
            "labelled",
            json!({"metadata": {"labels": {"harvesterhci.io/upgradeState": "Failed"}}, "spec": {}}),
        ),
    ]
}

/// A client of an API server that has these objects and no others.
fn having(objects: Vec<Value>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let plural = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let group = request.uri().path().split('/').nth(2).unwrap_or_default().to_owned();
        let is_asked = |object: &&Value| {
            let kind = object["kind"].as_str().unwrap().to_lowercase();
            plural == format!("{kind}s") && object["apiVersion"].as_str().unwrap().starts_with(&group)
        };
        let items: Vec<&Value> = objects.iter().filter(is_asked).collect();
        let list = json!({"metadata": {}, "items": items});
        async move { Ok::<_, std::io::Error>(Response::new(Body::from(list.to_string().into_bytes()))) }
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn what_is_kept_of_the_cluster_is_all_that_the_checks_read() {
    async fn whole<K>(client: &kube::Client) -> checks::ListedOnce<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let listed = kube::Api::<K>::all(client.clone()).list(&Default::default()).await;
        Ok(listed.unwrap().items.into())
    }
    let server = cluster().await;
    let at_rest = Facts::new(manager_client(&server), Watched::default(), days_on(0));
    let at_rest = at_rest.read(Reads::Everything).await;
    let client = having(wrong());
    let read = Facts::new(client.clone(), Watched::default(), days_on(0));
    let read = read.read(Reads::Everything).await;
    let kept = Cluster {
        nodes: at_rest.nodes.clone(),
        machines: at_rest.machines.clone(),
        versions: at_rest.versions.clone(),
        rancher_clusters: at_rest.rancher_clusters.clone(),
        ..read
    };
    let whole = Cluster {
        volumes: whole(&client).await,
        vm_backups: whole(&client).await,
        backup_schedules: whole(&client).await,
        vms: whole(&client).await,
        vmis: whole(&client).await,
        managed_charts: whole(&client).await,
        addons: whole(&client).await,
        v1_upgrades: whole(&client).await,
        ..kept.clone()
    };
    let plan: api::UpgradePlan = serde_json::from_value(support::plan()).unwrap();
    let of = |cluster: &Cluster| {
        let errors = checks::admission::create(&plan, cluster);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(of(&kept), of(&whole));
    assert_eq!(of(&kept).len(), 12, "{:#?}", of(&kept));
    assert!(kept.vms.unwrap().iter().all(|vm| vm.metadata.annotations.is_none()));
}

/// A client of an API server that has 1,200 VMs and counts what it is asked.
fn counting(asked: Arc<Mutex<Vec<String>>>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let asked = asked.clone();
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            asked.lock().unwrap().push(format!("{}?{query}", request.uri().path()));
            let number = |key: &str| {
                let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                pairs
                    .find(|(name, _)| *name == key)
                    .and_then(|(_, value)| value.parse().ok())
            };
            let is_vms = request.uri().path().ends_with("/virtualmachines");
            let (from, most): (usize, usize) = (number("continue").unwrap_or(0), number("limit").unwrap_or(usize::MAX));
            let all = if is_vms { 1_200 } else { 0 };
            let to = from.saturating_add(most).min(all);
            let vm = |index| {
                let owned = json!([{"manager": "x", "fieldsV1": {"f:spec": "y".repeat(1_000)}}]);
                json!({"metadata": {"name": format!("vm-{index}"), "namespace": "a", "managedFields": owned}, "spec": {}})
            };
            let items: Vec<Value> = (from..to).map(vm).collect();
            let next = if to < all { to.to_string() } else { String::new() };
            let list = json!({"metadata": {"continue": next}, "items": items});
            Ok::<_, std::io::Error>(Response::new(Body::from(list.to_string().into_bytes())))
        }
    });
    kube::Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn s04_however_often_clients_ask_the_cluster_is_listed_once_a_second_and_in_pages() {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let clock = Clock::simulated(support::beginning(), 1.0);
    let facts = Facts::new(counting(asked.clone()), Watched::default(), clock.clone());
    let vms = || {
        let asked = asked.lock().unwrap();
        asked.iter().filter(|path| path.contains("/virtualmachines?")).count()
    };
    let asks = (0..50).map(|_| facts.read(Reads::Everything));
    for read in futures::future::join_all(asks).await {
        let vms = read.vms.unwrap();
        assert_eq!(vms.len(), 1_200);
        assert!(vms.iter().all(|vm| vm.metadata.managed_fields.is_none()));
    }
    assert_eq!(vms(), 3, "three pages of 500, for all who ask");
    clock.sleep(Duration::from_secs(1)).await;
    facts.read(Reads::Everything).await;
    assert_eq!(vms(), 6, "and older content is not served");
}
