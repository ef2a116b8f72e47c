//! What we write of built-in kinds, asked of a real API server: every field is one that it knows, and pods that claim to
//! need no rights are let into a namespace that gives none.

use api::{JobType, UpgradePlan, annotations, names};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{
    Api, Client, CustomResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use manager::{
    client::for_product,
    field_validation::Mode,
    objects::{job, repo},
    webhook::configurations,
};
use plan::observed::Settings;
use rules::{
    PlanEvent,
    event_object::{EventReporter, build},
};
use serde::Serialize;
use serde_json::{Value, json};
use testbed::ControlPlane;

const SHIPPED: &str = include_str!("../../../../config/manager/manager.yaml");

const ISO: repo::Iso<'_> = repo::Iso {
    claim: "claim",
    checksum: None,
};

fn plan(server: Option<&str>) -> UpgradePlan {
    let mut plan = UpgradePlan::new("up", Default::default());
    plan.metadata.uid = Some("3f5a1c52-65c4-4c28-9d6b-0b5a3d1f9a11".to_owned());
    plan.metadata.annotations = server.map(|name| [(annotations::REPO_SERVER.to_owned(), name.to_owned())].into());
    plan
}

fn typed(version: &str, kind: &str, object: impl Serialize) -> Value {
    let mut object = serde_json::to_value(object).unwrap();
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    object
}

fn jobs() -> Vec<Value> {
    let settings = Settings::default();
    let steps = [JobType::PreDrain, JobType::PostDrain, JobType::SingleNodeUpgrade];
    let mut jobs: Vec<_> = steps
        .map(|step| job::node(&plan(None), &settings, step, "node-1", true).unwrap())
        .into();
    jobs.push(job::cluster(&plan(None), &settings).unwrap());
    jobs.push(job::restore_vm(&plan(None), &settings, "node-1").unwrap());
    jobs.iter().map(|job| typed("batch/v1", "Job", job)).collect()
}

fn repository(server: Option<&str>) -> Value {
    let deployment = repo::deployment(&plan(server), &Settings::default(), 2, ISO, "up-repo-x").unwrap();
    typed("apps/v1", "Deployment", deployment)
}

/// All that an upgrade and an installation make of built-in kinds.
fn objects() -> Vec<Value> {
    let mut objects = jobs();
    objects.push(repository(None));
    objects.push(repository(Some("nginx")));
    objects.push(typed("v1", "Service", repo::service(&plan(None)).unwrap()));
    let identity = release::tls::mint(&["up-repo".to_owned()], clock::Clock::system().now()).unwrap();
    let secret = repo::secret(&plan(None), "up-repo-x", &identity).unwrap();
    objects.push(typed("v1", "Secret", secret));
    for host in [None, Some("node-1")] {
        let reporter = EventReporter {
            component: "upgrade-toolkit",
            host,
        };
        let event = PlanEvent::warning("UpgradeFailed", "because");
        let event = build(
            &plan(None).metadata,
            reporter,
            "2026-03-13T03:57:09Z".parse().unwrap(),
            &event,
        );
        objects.push(typed("v1", "Event", event));
    }
    objects.extend(manager::rbac::objects("t-", names::HARVESTER_NAMESPACE, "manager"));
    objects.extend(configurations("t-", names::HARVESTER_NAMESPACE, "manager", None));
    objects.extend(serde_saphyr::from_multiple::<Value>(SHIPPED).unwrap());
    objects
}

/// Tries to create an object, and says why it cannot be.
async fn refusal(client: &Client, object: &Value) -> Option<String> {
    let dynamic: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let kind = GroupVersionKind::try_from(dynamic.types.as_ref().unwrap()).unwrap();
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match &dynamic.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let created = api.create(&dry, &dynamic).await;
    created
        .err()
        .map(|error| format!("{}: {error}", object["metadata"]["name"]))
}

/// A pod of a template in a namespace of its own.
fn pod(namespace: &str, object: &Value) -> Value {
    let mut spec = object["spec"]["template"]["spec"].clone();
    for account in ["serviceAccountName", "serviceAccount"] {
        spec.as_object_mut().unwrap().remove(account);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": spec})
}

/// A namespace with a level of Pod Security, named after it.
async fn namespace(client: &Client, name: &str, level: &str) {
    let namespace = json!({"metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": level}}});
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    Api::namespaced(client.clone(), name)
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
}

#[test]
fn everything_that_we_write_of_built_in_kinds_is_known_and_who_claims_no_rights_needs_none() {
    if !testbed::is_wanted() {
        return;
    }
    let _turn = crate::turn();
    let control_plane = ControlPlane::start(&[]).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = control_plane.client("pods").await.unwrap();
        let (client, _) = for_product(client, Mode::Strict);
        // Our owner references name a kind that must be there.
        world::install_by(&client, crate::harvester::definitions().0, &[])
            .await
            .unwrap();
        let name = UpgradePlan::crd_name();
        await_condition(Api::all(client.clone()), name, is_crd_established())
            .await
            .unwrap();
        namespace(&client, names::HARVESTER_NAMESPACE, "privileged").await;
        for name in [
            names::FLEET_NAMESPACE,
            names::CATTLE_NAMESPACE,
            names::LONGHORN_NAMESPACE,
        ] {
            namespace(&client, name, "privileged").await;
        }
        namespace(&client, "restricted", "restricted").await;
        namespace(&client, "baseline", "baseline").await;

        let mut refused = Vec::new();
        let written = objects();
        for object in &written {
            refused.extend(refusal(&client, object).await);
        }
        println!(
            "{} objects of built-in kinds are known to the last field",
            written.len()
        );
        assert!(refused.is_empty(), "{refused:#?}");
        // Unknown fields are found, so that this can fail.
        let mut odd = jobs().remove(0);
        odd["spec"]["template"]["spec"]["containers"][0]["envs"] = json!([]);
        let found = refusal(&client, &odd).await.unwrap();
        assert!(found.contains("unknown field"), "{found}");

        crate::builtin::is_accepted(&client).await;

        let shipped = serde_saphyr::from_multiple::<Value>(SHIPPED).unwrap();
        let manager = shipped.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let restore = typed(
            "batch/v1",
            "Job",
            job::restore_vm(&plan(None), &Settings::default(), "node-1").unwrap(),
        );
        let cluster = typed(
            "batch/v1",
            "Job",
            job::cluster(&plan(None), &Settings::default()).unwrap(),
        );
        for (who, object) in [
            ("repository", &repository(None)),
            ("restore-vm", &restore),
            ("cluster-upgrade", &cluster),
            ("manager", manager),
        ] {
            assert_eq!(refusal(&client, &pod("restricted", object)).await, None, "{who}");
        }
        // Who works on the host needs all rights: the namespaces do refuse.
        let on_host = pod("baseline", &jobs()[0]);
        assert!(refusal(&client, &on_host).await.unwrap().contains("PodSecurity"));
    });
}
