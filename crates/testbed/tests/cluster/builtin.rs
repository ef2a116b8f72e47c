//! What the manager and the programs write of built-in kinds on their way, by the functions that write it: asked of a real
//! API server that refuses unknown fields. What else the manager writes, whole upgrades on this tier show.

use std::time::Duration;

use api::{UpgradePlan, WaitingFor, annotations, names};
use clock::Clock;
use cluster_upgrade::{
    FIELD_MANAGER, catalog,
    rancher::{FLEET_SYSTEM, Journal, aggregation_secret, restored_fleet_config},
};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    apps::v1::Deployment,
    authentication::v1::TokenRequest,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event, Namespace, Node, Pod, Secret, ServiceAccount},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use manager::{
    lease::{Leadership, LeaseTiming, compete},
    metrics::server::Gate,
    tls::{
        Presented,
        managed::{Keeper, Managed, SECRET},
    },
    webhook::configurations,
};
use node::vm::restore_list;
use program::{
    board::{Board, PodBoard},
    plan_events::Recorder,
};
use rules::{PlanEvent, drain_taint};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const NAMESPACE: &str = names::HARVESTER_NAMESPACE;
const NODE: &str = "node-1";

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

/// Writes all of it, and looks whether it is there.
pub(crate) async fn is_accepted(client: &Client) {
    let plan = json!({"metadata": {"name": "on-its-way"}, "spec": {"version": "v1.8.0"}});
    create::<UpgradePlan>(&Api::all(client.clone()), plan).await;
    lease(client).await;
    certificate(client).await;
    list_of_vms(client).await;
    taint(client).await;
    board_and_event(client).await;
    steps_of_the_cluster_upgrade(client).await;
    reviews(client).await;
}

/// The lease is created, and renewed.
async fn lease(client: &Client) {
    let leadership = Leadership::contested(Clock::system());
    let timing = LeaseTiming::with_duration(Duration::from_secs(3));
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let renewed = async {
        leadership.gained().await;
        let renewal = async || leases.get(names::LEASE).await.unwrap().spec.unwrap().renew_time;
        let first = renewal().await;
        while renewal().await == first {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        () = compete(client.clone(), NAMESPACE, "pods", timing, &leadership) => panic!("the lease was lost"),
        done = tokio::time::timeout(Duration::from_secs(60), renewed) => done.unwrap(),
    }
}

/// The Secret of the webhook's certificate is created, and both configurations get its authority.
async fn certificate(client: &Client) {
    for configuration in configurations("w-", NAMESPACE, "manager", None) {
        let object: DynamicObject = serde_json::from_value(configuration).unwrap();
        let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let managed = Managed {
        namespace: NAMESPACE.to_owned(),
        names: vec!["w-webhook-service.harvester-system.svc".to_owned()],
        mutating: "w-mutating-webhook-configuration".to_owned(),
        validating: "w-validating-webhook-configuration".to_owned(),
    };
    let validating = managed.validating.clone();
    let keeper = Keeper::new(client.clone(), Clock::system(), managed, Presented::default());
    keeper.look().await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let data = secrets.get(SECRET).await.unwrap().data.unwrap();
    assert!(data.contains_key("tls.crt") && data.contains_key("tls.key"));
    let all: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let webhooks = all.get(&validating).await.unwrap().webhooks.unwrap();
    assert!(webhooks.iter().all(|webhook| webhook.client_config.ca_bundle.is_some()));
    // No server serves them here.
    all.delete(&validating, &DeleteParams::default()).await.unwrap();
}

/// The list of VMs that are to be started again is created, and gets longer.
async fn list_of_vms(client: &Client) {
    for vm in ["default/web", "default/database"] {
        let vms = [vm.parse().unwrap()];
        restore_list::add(client, "on-its-way", NODE, &vms).await.unwrap();
    }
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let list = maps.get(&names::restore_config_map("on-its-way")).await.unwrap();
    assert_eq!(restore_list::of_node(&list, NODE), Some("default/web,default/database"));
    assert_eq!(list.owner_references().len(), 1);
}

/// A node is tainted by the program, and the manager takes the taint away; both leave others alone.
async fn taint(client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let own = json!({"key": "users-own", "effect": "PreferNoSchedule"});
    let node = create(&nodes, json!({"metadata": {"name": NODE}, "spec": {"taints": [own]}})).await;
    let patch = async |patch: Value| {
        let patched = nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(patch)).await;
        let node = patched.unwrap();
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        let keys = taints
            .into_iter()
            .flatten()
            .map(|taint| taint.key.clone())
            .collect::<Vec<_>>();
        (node, keys)
    };
    let (node, keys) = patch(drain_taint::patch(&node, true).unwrap()).await;
    assert!(keys.contains(&"kubevirt.io/drain".to_owned()) && keys.contains(&"users-own".to_owned()));
    let (_, keys) = patch(drain_taint::patch(&node, false).unwrap()).await;
    assert!(!keys.contains(&"kubevirt.io/drain".to_owned()) && keys.contains(&"users-own".to_owned()));
}

/// A program shows what it waits for on its pod, and creates events on the plan.
async fn board_and_event(client: &Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pod = json!({"metadata": {"name": "program"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(&pods, pod).await;
    let waiting =
        json!({"what": "LonghornVolume", "message": "volume vol is degraded", "since": "2026-03-13T03:57:09Z"});
    let waiting: WaitingFor = serde_json::from_value(waiting).unwrap();
    PodBoard::of_simulated(client.clone(), NAMESPACE, "program")
        .show(&[waiting])
        .await;
    let shown = pods.get("program").await.unwrap();
    assert!(
        shown.annotations().contains_key(annotations::WAITING_FOR),
        "showing never fails, and was refused"
    );

    let recorder = Recorder::new(client.clone(), Clock::system(), "on-its-way", "restore-vm", NODE);
    recorder.record(PlanEvent::warning("RestoreVMFailed", "because")).await;
    let events: Api<Event> = Api::namespaced(client.clone(), names::DEFAULT_NAMESPACE);
    let created = events
        .list(&ListParams::default().fields("reason=RestoreVMFailed"))
        .await
        .unwrap();
    assert_eq!(created.items.len(), 1, "creating an event never fails, and was refused");
}

/// What steps of the cluster upgrade write of built-in kinds, in the ways in which they write it.
async fn steps_of_the_cluster_upgrade(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": FLEET_SYSTEM}})).await;
    let journal = Journal {
        target: "v2.14.0".to_owned(),
        ..Journal::default()
    };
    let kept: ConfigMap = apply(client, &journal.config_map()).await;
    assert_eq!(Journal::from_data(&kept.data.unwrap()), journal);
    apply::<Secret>(client, &aggregation_secret()).await;

    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), FLEET_SYSTEM);
    let config = json!({"apiServerURL": "", "agentTLSMode": "strict"}).to_string();
    let map = create(
        &maps,
        json!({"metadata": {"name": "fleet-controller"}, "data": {"config": config}}),
    )
    .await;
    let patch = restored_fleet_config(Some(&map), "https://vip", "Y2E=")
        .unwrap()
        .unwrap();
    let ours = PatchParams::default();
    let patched = maps
        .patch("fleet-controller", &ours, &Patch::Merge(patch))
        .await
        .unwrap();
    assert!(patched.data.unwrap()["config"].contains("https://vip"));

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), names::CATTLE_NAMESPACE);
    let containers = json!([{"name": "httpd", "image": "old"}, {"name": "other", "image": "other"}]);
    let labels = json!({"app": "repo"});
    let repo = json!({"metadata": {"name": "harvester-cluster-repo"}, "spec": {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    }});
    create(&deployments, repo).await;
    let patch = Patch::Strategic(catalog::image_patch("new"));
    let patched = deployments
        .patch("harvester-cluster-repo", &ours, &patch)
        .await
        .unwrap();
    let pod = patched.spec.unwrap().template.spec.unwrap();
    let images: Vec<_> = pod.containers.into_iter().filter_map(|found| found.image).collect();
    assert_eq!(images, ["new", "other"]);
}

/// Applies an object as the steps do.
async fn apply<K>(client: &Client, object: &Value) -> K
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let text = |key: &str| object["metadata"][key].as_str().unwrap().to_owned();
    let api: Api<K> = Api::namespaced(client.clone(), &text("namespace"));
    let how = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&text("name"), &how, &Patch::Apply(object)).await.unwrap()
}

/// Who asks for metrics is looked up by a TokenReview and a SubjectAccessReview.
async fn reviews(client: &Client) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let request = TokenRequest::default();
    let answer = accounts
        .create_token_request("default", &PostParams::default(), &request)
        .await;
    let header = format!("Bearer {}", answer.unwrap().status.unwrap().token);
    let mut headers = http::HeaderMap::new();
    headers.insert(http::header::AUTHORIZATION, header.parse().unwrap());
    let (code, why) = Gate::new(client.clone(), Clock::system())
        .admit(&headers)
        .await
        .unwrap_err();
    // Both questions were asked and answered: it is known, and may not.
    assert_eq!(code, http::StatusCode::FORBIDDEN, "{why}");
    assert!(why.contains("system:serviceaccount:harvester-system:default"), "{why}");
}
