//! What the roles that ship do not allow, by the real API server's own judgement.

mod jobs;

use std::{net::SocketAddr, sync::Arc};

use api::names;
use cli::rehearsal::{PREFIX, SERVICE_ACCOUNT};
use k8s_openapi::api::{batch::v1::Job, core::v1::Secret, rbac::v1::ClusterRole};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use manager::external_probes::{
    ExternalProbes, Kubelet, KubeletError, KubeletFile, Kubelets, Network, kubelets::Credentials,
};
use serde_json::{Value, json};
use world::{Durations, Shape};

use crate::{
    harvester::{Harvester, MANAGER, on_cluster},
    kubelets,
};

fn code<T: std::fmt::Debug>(outcome: kube::Result<T>) -> u16 {
    match outcome {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_managers_token_reads_secrets_in_fleet_local_and_nowhere_else() {
    on_cluster(small(), Durations::instant(), async |harvester| {
        let namespace = names::HARVESTER_NAMESPACE;
        let client = harvester.control_plane.client_of(namespace, SERVICE_ACCOUNT, MANAGER);
        let client = client.await.unwrap();
        let secrets = |namespace: &str| Api::<Secret>::namespaced(client.clone(), namespace);
        let all = ListParams::default();
        let here = secrets(names::FLEET_NAMESPACE).list(&all).await.unwrap();
        assert!(!here.items.is_empty(), "Rancher's plans are there");
        for elsewhere in [
            namespace,
            names::CATTLE_NAMESPACE,
            names::KUBE_SYSTEM_NAMESPACE,
            "default",
        ] {
            assert_eq!(code(secrets(elsewhere).list(&all).await), 403, "{elsewhere}");
            assert_eq!(code(secrets(elsewhere).get("any").await), 403, "{elsewhere}");
        }
        assert_eq!(code(Api::<Secret>::all(client.clone()).list(&all).await), 403);
        // But for the one with the webhook's certificate, which it makes itself.
        assert_eq!(code(secrets(namespace).get("webhook-server-cert").await), 404);

        // Where the API server insists on it, an owner that blocks deletion may only be named by who may touch the
        // owner's finalizers.
        harvester.create_plan("up", Default::default()).await;
        let plan = harvester.plans().get("up").await.unwrap();
        let owned = |name: &str| -> Job {
            let owner = manager::objects::owner(&plan);
            let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]});
            let job =
                json!({"metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"template": {"spec": pod}}});
            serde_json::from_value(job).unwrap()
        };
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        let create = PostParams::default();
        assert_eq!(code(jobs.create(&create, &owned("with-rule")).await), 200);
        let roles: Api<ClusterRole> = Api::all(harvester.client.clone());
        let name = format!("{PREFIX}manager-role");
        let mut rules = roles.get(&name).await.unwrap().rules.unwrap();
        let finalizers = |rule: &k8s_openapi::api::rbac::v1::PolicyRule| {
            let resources = rule.resources.iter().flatten();
            resources
                .into_iter()
                .any(|resource| resource == "upgradeplans/finalizers")
        };
        rules.retain(|rule| !finalizers(rule));
        let patch = Patch::Merge(json!({"rules": rules}));
        roles.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        // The API server judges by a cache of its own.
        let mut refused = false;
        for attempt in 0..200 {
            refused = code(jobs.create(&create, &owned(&format!("without-rule-{attempt}"))).await) == 403;
            if refused {
                break;
            }
        }
        assert!(refused, "the rule for finalizers is not needed");
    });
}

/// A cluster in which nothing happens.
fn small() -> Shape {
    Shape {
        nodes: 1,
        vms: 0,
        ..Shape::default()
    }
}

/// What a client does with a token: method, path, body.
type ApiRequest = (&'static str, String, Value);

async fn answer_to(client: &Client, (method, path, body): &ApiRequest) -> u16 {
    let request = http::Request::builder().method(*method).uri(path);
    let kind = match *method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = request.header("content-type", kind).body(body.to_string().into_bytes());
    code(client.request_text(request.unwrap()).await)
}

fn pod(privileged: bool) -> Value {
    let container = json!({"name": "a", "image": "a", "securityContext": {"privileged": privileged}});
    json!({"restartPolicy": "Never", "containers": [container]})
}

fn job(account: &str) -> Value {
    let mut pod = pod(true);
    pod["serviceAccountName"] = json!(account);
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "stolen"},
        "spec": {"template": {"spec": pod}},
    })
}

/// What a thief of the manager's token would do.
fn thefts() -> Vec<ApiRequest> {
    let privileged = || json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stolen"}, "spec": pod(true)});
    let mut requests: Vec<ApiRequest> = Vec::new();
    for namespace in [
        "default",
        "kube-system",
        "cattle-system",
        "harvester-system",
        "fleet-local",
    ] {
        requests.push(("POST", format!("/api/v1/namespaces/{namespace}/pods"), privileged()));
    }
    for namespace in [
        "default",
        "kube-system",
        "cattle-system",
        "fleet-local",
        "longhorn-system",
    ] {
        let jobs = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
        requests.push(("POST", jobs, job("default")));
    }
    let plan = json!({"apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": {"name": "stolen"}, "spec": {
        "upgrade": {"image": "a"}, "nodeSelector": {}, "serviceAccountName": "default"}});
    requests.push((
        "POST",
        "/apis/upgrade.cattle.io/v1/namespaces/default/plans".to_owned(),
        plan,
    ));
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "stolen"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}}});
    requests.push((
        "POST",
        "/apis/apps/v1/namespaces/kube-system/deployments".to_owned(),
        deployment,
    ));
    let patch = |path: &str, body: Value| ("PATCH", path.to_owned(), body);
    let get = |path: &str| ("GET", path.to_owned(), Value::Null);
    requests.extend([
        // A kubelet runs any requested command in any container.
        get("/api/v1/nodes/node-1/proxy/pods"),
        (
            "POST",
            "/api/v1/nodes/node-1/proxy/run/kube-system/a/a".to_owned(),
            Value::Null,
        ),
        get("/api/v1/nodes/node-1/proxy/exec/kube-system/a/a?command=sh"),
        get("/api/v1/secrets"),
        get("/api/v1/namespaces/kube-system/secrets"),
        get("/api/v1/namespaces/cattle-system/secrets/any"),
        patch("/api/v1/namespaces/kube-system/secrets/any", json!({"data": {}})),
        patch("/api/v1/namespaces/harvester-system/secrets/any", json!({"data": {}})),
        // Tokens of others, rights of others.
        (
            "POST",
            "/api/v1/namespaces/harvester-system/serviceaccounts/harvester/token".to_owned(),
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}),
        ),
        (
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "stolen"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}),
        ),
        // Objects other than those that an upgrade changes.
        patch(
            "/apis/management.cattle.io/v3/namespaces/fleet-local/managedcharts/others",
            json!({"spec": {"paused": true}}),
        ),
        patch(
            "/apis/provisioning.cattle.io/v1/namespaces/fleet-local/clusters/others",
            json!({"spec": {}}),
        ),
        patch(
            "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/settings/default-replica-count",
            json!({"value": "1"}),
        ),
        patch(
            "/apis/harvesterhci.io/v1beta1/namespaces/kube-system/addons/others",
            json!({"spec": {"enabled": false}}),
        ),
        get("/apis/harvesterhci.io/v1beta1/settings"),
        // Many at once.
        (
            "DELETE",
            "/apis/batch/v1/namespaces/harvester-system/jobs".to_owned(),
            Value::Null,
        ),
        get("/apis/batch/v1/jobs"),
        get("/api/v1/configmaps"),
    ]);
    requests
}

#[test]
fn s06_a_stolen_token_of_the_manager_does_the_managers_work_and_nothing_else() {
    on_cluster(small(), Durations::instant(), async |harvester| {
        let namespace = names::HARVESTER_NAMESPACE;
        let client = harvester.control_plane.client_of(namespace, SERVICE_ACCOUNT, MANAGER);
        let client = client.await.unwrap();
        let mut done = Vec::new();
        for request in thefts() {
            let answer = answer_to(&client, &request).await;
            if answer != 403 {
                done.push(format!("{} {}: {answer}", request.0, request.1));
            }
        }
        assert_eq!(done, [""; 0]);
        // What remains, and docs/security-rights.md says so: a Job in harvester-system runs as any account there.
        let remains = (
            "POST",
            format!("/apis/batch/v1/namespaces/{namespace}/jobs"),
            job("harvester"),
        );
        assert_eq!(answer_to(&client, &remains).await, 200);
    });
}

/// A kubelet that is asked as the manager asks it.
async fn asked(
    harvester: &Harvester,
    address: SocketAddr,
    account: &str,
    file: KubeletFile,
) -> Result<(), KubeletError> {
    let namespace = names::HARVESTER_NAMESPACE;
    let config = harvester
        .control_plane
        .config_of(namespace, SERVICE_ACCOUNT, MANAGER)
        .await
        .unwrap();
    let client = Client::try_from(config.clone()).unwrap();
    let credentials = Credentials::Account {
        namespace: namespace.to_owned(),
        name: account.to_owned(),
    };
    let kubelets = Kubelets::new(client, config, credentials).at(Some(address.to_string()));
    let network = Network {
        kubelets: Some(Arc::new(kubelets)),
        ..Network::default()
    };
    let kubelet = Kubelet {
        node: "node-1".to_owned(),
        address: None,
    };
    let body = network.kubelet(&kubelet, file).await?;
    assert!(serde_json::from_slice::<Value>(&body).is_ok());
    Ok(())
}

#[test]
fn s06_kubelets_are_asked_over_verified_tls_with_a_token_that_reads_two_things_of_them() {
    on_cluster(small(), Durations::instant(), async |harvester| {
        let reader = format!("{PREFIX}{}", manager::rbac::KUBELET_READER);
        let address = harvester.kubelets;
        for file in [KubeletFile::Summary, KubeletFile::Configz] {
            assert_eq!(asked(harvester, address, &reader, file).await, Ok(()));
        }
        // The token is no good for anything else, and the manager's own would not do.
        let client = harvester
            .control_plane
            .client_of(names::HARVESTER_NAMESPACE, &reader, "thief");
        let client = client.await.unwrap();
        for path in ["/api/v1/nodes", "/api/v1/pods", "/api/v1/nodes/node-1/proxy/pods"] {
            assert_eq!(
                answer_to(&client, &("GET", path.to_owned(), Value::Null)).await,
                403,
                "{path}"
            );
        }
        let refused = asked(harvester, address, "harvester", KubeletFile::Summary)
            .await
            .unwrap_err();
        assert!(refused.to_string().contains("--kubelet-service-account"), "{refused}");

        // A server without a certificate of the cluster gets no token.
        let stranger = ("node-1", harvester.client.clone(), harvester.facts.clone());
        let directory = harvester.control_plane.directory().to_owned();
        let stranger = kubelets::serve(&directory, "front-proxy-client", stranger, &mut harvester.tasks).await;
        let refused = asked(harvester, stranger, &reader, KubeletFile::Summary)
            .await
            .unwrap_err();
        let refused = refused.to_string();
        for word in [
            "is not to be trusted",
            "--kubelet-certificate-authority",
            &stranger.to_string(),
        ] {
            assert!(refused.contains(word), "no {word} in: {refused}");
        }

        // Each of the two is needed.
        let roles: Api<ClusterRole> = Api::all(harvester.client.clone());
        let rules = json!({"rules": [{"apiGroups": [""], "resources": ["nodes/stats"], "verbs": ["get"]}]});
        let name = format!("{PREFIX}kubelet-reader-role");
        roles
            .patch(&name, &PatchParams::default(), &Patch::Merge(rules))
            .await
            .unwrap();
        let end = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            match asked(harvester, address, &reader, KubeletFile::Configz).await {
                Err(KubeletError::Forbidden(why)) => {
                    assert!(
                        why.contains("subresource(s)=[configz]") && why.contains(&reader),
                        "{why}"
                    );
                    break;
                }
                // The API server judges by a cache of its own.
                Ok(()) if tokio::time::Instant::now() < end => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(asked(harvester, address, &reader, KubeletFile::Summary).await, Ok(()));
    });
}
