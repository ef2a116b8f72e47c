//! Admission through the real API server over TLS: the manager's own server, the certificate it makes, and the
//! configurations that ship, into which it puts its authority.

use std::{sync::Arc, time::Duration};

use api::{NodeState, NodeUpgradeOption, Phase, UpgradePlan, UpgradePlanSpec, names};
use cli::rehearsal::{PREFIX, SERVICE_ACCOUNT};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::{Node, Service},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::Status,
    runtime::wait::await_condition,
};
use manager::{
    tls::{Clients, managed::Managed},
    webhook::{
        CertificateSource, WebhookConfig, configurations,
        configurations::{MUTATING_CONFIGURATION, SERVICE, VALIDATING_CONFIGURATION, service_names},
    },
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use world::{Durations, Shape};

use crate::harvester::{Harvester, MANAGER, on_cluster};

const LIMIT: Duration = Duration::from_secs(120);
/// What the API server puts before a refusal.
const DENIED: &str = "admission webhook \"vupgradeplan-v1beta1.kb.io\" denied the request: ";

/// Starts a manager that admits plans, and waits until the API server trusts it.
async fn start_manager(harvester: &mut Harvester) {
    let (client, namespace) = (harvester.client.clone(), names::HARVESTER_NAMESPACE);
    let service = format!("{PREFIX}{SERVICE}");
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let object = json!({"metadata": {"name": service}, "spec": {"ports": [{"port": 443, "targetPort": 9443}]}});
    let object = serde_json::from_value(object).unwrap();
    let created = services.create(&PostParams::default(), &object).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster_ip = created.spec.unwrap().cluster_ip.unwrap();
    harvester.network.route(&cluster_ip, listener.local_addr().unwrap());

    let [mutating, validating] = configurations(PREFIX, namespace, SERVICE_ACCOUNT, None);
    let mutating: MutatingWebhookConfiguration = serde_json::from_value(mutating).unwrap();
    let validating: ValidatingWebhookConfiguration = serde_json::from_value(validating).unwrap();
    let params = PostParams::default();
    Api::all(client.clone()).create(&params, &mutating).await.unwrap();
    Api::all(client.clone()).create(&params, &validating).await.unwrap();
    let managed = Managed {
        namespace: namespace.to_owned(),
        names: service_names(&service, namespace),
        mutating: format!("{PREFIX}{MUTATING_CONFIGURATION}"),
        validating: format!("{PREFIX}{VALIDATING_CONFIGURATION}"),
    };
    let name = managed.validating.clone();
    let config = manager::run::Config {
        webhook: Some(WebhookConfig {
            listener: Arc::new(listener),
            certificate: CertificateSource::Managed(managed),
            clients: Clients::Any,
        }),
        ..manager::run::Config::default()
    };
    harvester.start_manager_with(config).await;
    let trusted = |found: Option<&ValidatingWebhookConfiguration>| {
        let webhooks = found.and_then(|found| found.webhooks.as_ref());
        webhooks.is_some_and(|all| all.iter().all(|webhook| webhook.client_config.ca_bundle.is_some()))
    };
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client);
    let trusted = await_condition(configurations, &name, trusted);
    tokio::time::timeout(LIMIT, trusted).await.unwrap().unwrap();
    until_asked(harvester).await;
}

/// The API server reads its configurations from a cache of its own: waits until it asks with the authority that is in
/// them. Until then it cannot ask, and refuses with 500.
async fn until_asked(harvester: &Harvester) {
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let plan = UpgradePlan::new("asked", UpgradePlanSpec::default());
    let end = tokio::time::sleep(LIMIT);
    tokio::pin!(end);
    loop {
        let refused = refusal(harvester.plans().create(&dry, &plan).await);
        if refused.code == 422 {
            return;
        }
        tokio::select! {
            () = &mut end => panic!("{refused:?}"),
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
    }
}

fn refusal<T: std::fmt::Debug>(outcome: kube::Result<T>) -> Status {
    match outcome {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("not refused: {other:?}"),
    }
}

async fn cordon(harvester: &Harvester, node: &str, cordoned: Value) {
    let nodes: Api<Node> = Api::all(harvester.client.clone());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": cordoned}}));
    nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
}

fn pausing(nodes: &[&str]) -> UpgradePlanSpec {
    UpgradePlanSpec {
        version: Some("v1.8.0".to_owned()),
        node_upgrade_option: Some(NodeUpgradeOption {
            pause_nodes: Some(nodes.iter().map(|node| (*node).to_owned()).collect()),
        }),
        ..UpgradePlanSpec::default()
    }
}

async fn change_pause(harvester: &Harvester, nodes: Value) -> kube::Result<UpgradePlan> {
    let patch = Patch::Merge(json!({"spec": {"nodeUpgradeOption": {"pauseNodes": nodes}}}));
    harvester.plans().patch("up", &PatchParams::default(), &patch).await
}

#[test]
fn the_api_server_asks_the_manager_and_passes_its_refusals_on_to_the_letter() {
    // Without VMs: some of those that the world makes stand in the way of an upgrade on purpose.
    let shape = Shape {
        vms: 0,
        ..Shape::default()
    };
    on_cluster(shape, Durations::instant(), async |harvester| {
        start_manager(harvester).await;
        let (plans, create) = (harvester.plans(), PostParams::default());

        cordon(harvester, "node-2", json!(true)).await;
        let mut wrong = UpgradePlan::new("up", pausing(&["ghost"]));
        wrong.spec.version = Some("v9".to_owned());
        // The manager learns of the cordon by its watch.
        let refused = loop {
            let refused = refusal(plans.create(&create, &wrong).await);
            if refused.message.contains("unschedulable") {
                break refused;
            }
            tokio::task::yield_now().await;
        };
        let message = "UpgradePlan.management.harvesterhci.io \"up\" is invalid: [spec.version: Not found: \"v9\", \
                       spec: Forbidden: node \"node-2\" is unschedulable, \
                       spec.nodeUpgradeOption.pauseNodes[0]: Not found: \"ghost\"]";
        assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
        assert_eq!(refused.message, format!("{DENIED}{message}"));
        let details = serde_json::to_value(refused.details.unwrap()).unwrap();
        let causes = json!([
            {"reason": "FieldValueNotFound", "message": "Not found: \"v9\"", "field": "spec.version"},
            {"reason": "FieldValueForbidden", "message": "Forbidden: node \"node-2\" is unschedulable", "field": "spec"},
            {"reason": "FieldValueNotFound", "message": "Not found: \"ghost\"", "field": "spec.nodeUpgradeOption.pauseNodes[0]"},
        ]);
        assert_eq!(details["causes"], causes, "{details:#}");

        cordon(harvester, "node-2", Value::Null).await;
        let good = UpgradePlan::new("up", pausing(&["node-2"]));
        let end = tokio::time::sleep(LIMIT);
        tokio::pin!(end);
        while let Err(error) = plans.create(&create, &good).await {
            assert!(error.to_string().contains("unschedulable"), "{error}");
            tokio::select! {
                () = &mut end => panic!("{error}"),
                () = tokio::task::yield_now() => {}
            }
        }
        let paused = |plan: &UpgradePlan| {
            let nodes = plan
                .status
                .iter()
                .flat_map(|status| status.node_upgrade_statuses.values());
            let mut states = nodes.filter_map(|node| node.state());
            plan.phase() == Some(Phase::NodeUpgrading) && states.any(|state| state == NodeState::UpgradePaused.as_str())
        };
        harvester.plan_when("up", LIMIT, "paused", paused).await;

        let second = UpgradePlan::new("second", pausing(&[]));
        let refused = refusal(plans.create(&create, &second).await);
        assert!(
            refused.message.contains("another upgrade \"up\" is in progress"),
            "{refused:?}"
        );
        let refused = refusal(plans.delete("up", &DeleteParams::default()).await);
        let message = "UpgradePlan.management.harvesterhci.io \"up\" is invalid: metadata.name: Forbidden: \
                       cannot delete UpgradePlan while nodes are being upgraded";
        assert_eq!((refused.code, refused.message), (422, format!("{DENIED}{message}")));
        let refused = refusal(change_pause(harvester, json!(["node-2", "ghost"])).await);
        let message = "UpgradePlan.management.harvesterhci.io \"up\" is invalid: \
                       spec.nodeUpgradeOption.pauseNodes[1]: Not found: \"ghost\"";
        assert_eq!((refused.code, refused.message), (422, format!("{DENIED}{message}")));

        change_pause(harvester, json!(["node-2", "node-3"])).await.unwrap();
        change_pause(harvester, Value::Null).await.unwrap();
        harvester.succeeded("up", LIMIT).await;
        plans.delete("up", &DeleteParams::default()).await.unwrap();
    });
}

/// Installs the configurations that ship, with no server behind them, and waits until the API server asks in vain.
async fn install_without_manager(harvester: &Harvester, of: impl Fn(Value) -> Value) {
    let (client, params) = (harvester.client.clone(), PostParams::default());
    let [mutating, validating] = configurations(PREFIX, names::HARVESTER_NAMESPACE, SERVICE_ACCOUNT, None).map(of);
    let mutating: MutatingWebhookConfiguration = serde_json::from_value(mutating).unwrap();
    let validating: ValidatingWebhookConfiguration = serde_json::from_value(validating).unwrap();
    Api::all(client.clone()).create(&params, &mutating).await.unwrap();
    Api::all(client).create(&params, &validating).await.unwrap();
    let end = tokio::time::sleep(LIMIT);
    tokio::pin!(end);
    // The API server reads configurations from a cache of its own.
    while annotate(&harvester.plans()).await.is_ok() {
        tokio::select! {
            () = &mut end => panic!("the API server does not ask"),
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
    }
}

async fn annotate(plans: &Api<UpgradePlan>) -> kube::Result<UpgradePlan> {
    let patch = json!({"metadata": {"annotations": {"a": "b"}, "finalizers": ["example.com/x"]}});
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    plans.patch("up", &dry, &Patch::Merge(patch)).await
}

#[test]
fn s05_the_managers_own_writes_go_through_while_its_webhook_is_down() {
    let shape = Shape {
        nodes: 1,
        vms: 0,
        ..Shape::default()
    };
    on_cluster(shape, Durations::instant(), async |harvester| {
        harvester.create_plan("up", pausing(&[])).await;
        install_without_manager(harvester, |configuration| configuration).await;
        let refused = refusal(annotate(&harvester.plans()).await);
        assert!(refused.message.contains("failed calling webhook"), "{refused:?}");
        let namespace = names::HARVESTER_NAMESPACE;
        let client = harvester.control_plane.client_of(namespace, SERVICE_ACCOUNT, MANAGER);
        let own: Api<UpgradePlan> = Api::all(client.await.unwrap());
        annotate(&own).await.expect("the manager continues");
        let mut known = harvester.plans().get("up").await.unwrap();
        known.status.get_or_insert_default().previous_version = Some("v0.0.1".to_owned());
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let refused = refusal(harvester.plans().replace_status("up", &dry, &known).await);
        assert!(refused.message.contains("failed calling webhook"), "{refused:?}");
        own.replace_status("up", &dry, &known).await.expect("and reports");
        // What others want waits for it, deletion too.
        let refused = refusal(harvester.plans().delete("up", &DeleteParams::default()).await);
        assert!(refused.message.contains("failed calling webhook"), "{refused:?}");
    });
}

#[test]
fn s05_without_the_condition_the_manager_waits_for_itself() {
    let shape = Shape {
        nodes: 1,
        vms: 0,
        ..Shape::default()
    };
    on_cluster(shape, Durations::instant(), async |harvester| {
        harvester.create_plan("up", pausing(&[])).await;
        let bare = |mut configuration: Value| {
            configuration["webhooks"][0]["matchConditions"] = Value::Null;
            configuration
        };
        install_without_manager(harvester, bare).await;
        let namespace = names::HARVESTER_NAMESPACE;
        let client = harvester.control_plane.client_of(namespace, SERVICE_ACCOUNT, MANAGER);
        let own: Api<UpgradePlan> = Api::all(client.await.unwrap());
        let refused = refusal(annotate(&own).await);
        assert!(refused.message.contains("failed calling webhook"), "{refused:?}");
    });
}
