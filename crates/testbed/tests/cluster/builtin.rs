//! What the manager and the programs write of built-in kinds on their way, by the functions that write it: asked of a real
//! API server that refuses unknown fields. What else the manager writes, whole upgrades on this tier show.

use std::time::Duration;

use api::{UpgradePlan, WaitingFor, annotations, names};
use clock::Clock;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    authentication::v1::TokenRequest,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event, Node, Pod, Secret, ServiceAccount},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use manager::{
    lease::{Leadership, LeaseTiming, compete},
    metrics::server::Gate,
    objects::node::without_drain_taint,
    tls::{
        Presented,
        managed::{Keeper, Managed, SECRET},
    },
    webhook::configurations,
};
use node::{drain_steps::taints, vm::restore_list};
use program::{
    board::{Board, PodBoard},
    plan_events::Recorder,
};
use rules::PlanEvent;
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
    reviews(client).await;
}

/// The lease is created, and renewed.
async fn lease(client: &Client) {
    let leadership = Leadership::contested(Clock::system());
    let timing = LeaseTiming::lasting(Duration::from_secs(3));
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
    // Nobody serves them here.
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
    let (node, keys) = patch(taints(&node, true).unwrap()).await;
    assert!(keys.contains(&"kubevirt.io/drain".to_owned()) && keys.contains(&"users-own".to_owned()));
    let (_, keys) = patch(without_drain_taint(&node)).await;
    assert!(!keys.contains(&"kubevirt.io/drain".to_owned()) && keys.contains(&"users-own".to_owned()));
}

/// A program shows what it waits for on its pod, and tells events on the plan.
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
    recorder.tell(PlanEvent::warning("RestoreVMFailed", "because")).await;
    let events: Api<Event> = Api::namespaced(client.clone(), names::DEFAULT_NAMESPACE);
    let told = events
        .list(&ListParams::default().fields("reason=RestoreVMFailed"))
        .await
        .unwrap();
    assert_eq!(told.items.len(), 1, "telling never fails, and was refused");
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
