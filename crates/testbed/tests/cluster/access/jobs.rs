//! What the accounts of Jobs and Plans may not do, by the real API server's own judgement, and what happens without them.

use api::{UpgradePlan, accounts, annotations, foreign::suc, names};
use cli::rehearsal::{PREFIX, SERVICE_ACCOUNT};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use manager::rbac::PROGRAMS;
use program::board::{Board, PodBoard};
use serde_json::{Value, json};
use world::Durations;

use super::{ApiRequest, answer_to, job, pod, small, thefts};
use crate::harvester::on_cluster;

/// What a thief of a token of a Job would do in addition to a thief of the manager's token.
fn thefts_of_jobs() -> Vec<ApiRequest> {
    let post = |path: &str, body: Value| ("POST", path.to_owned(), body);
    let patch = |path: &str, body: Value| ("PATCH", path.to_owned(), body);
    let get = |path: &str| ("GET", path.to_owned(), Value::Null);
    let put = |path: &str| ("PUT", path.to_owned(), json!({}));
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    let image = json!({"spec": {"containers": [{"name": "a", "image": "evil"}]}});
    let plans = "/apis/management.harvesterhci.io/v1beta1/upgradeplans";
    vec![
        post("/apis/batch/v1/namespaces/harvester-system/jobs", job("harvester")),
        post(
            "/api/v1/namespaces/harvester-system/pods/any/exec?command=sh",
            Value::Null,
        ),
        post("/api/v1/namespaces/cattle-system/pods/any/eviction", json!({})),
        // Another image in a pod of Harvester's or Rancher's would run as an administrator.
        patch("/api/v1/namespaces/harvester-system/pods/any", image.clone()),
        patch("/api/v1/namespaces/cattle-system/pods/any", image.clone()),
        patch(
            "/apis/apps/v1/namespaces/harvester-system/deployments/harvester",
            image.clone(),
        ),
        patch("/apis/apps/v1/namespaces/cattle-system/deployments/rancher", image),
        post(
            "/api/v1/namespaces/cattle-system/serviceaccounts/rancher/token",
            token.clone(),
        ),
        post(
            &format!("/api/v1/namespaces/harvester-system/serviceaccounts/{SERVICE_ACCOUNT}/token"),
            token,
        ),
        get("/api/v1/namespaces/fleet-local/secrets"),
        get("/api/v1/namespaces/longhorn-system/secrets"),
        patch(&format!("{plans}/up"), json!({"spec": {"force": true}})),
        patch(&format!("{plans}/up/status"), json!({"status": {}})),
        ("DELETE", "/api/v1/nodes/node-1".to_owned(), Value::Null),
        (
            "DELETE",
            "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/any".to_owned(),
            Value::Null,
        ),
        put("/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/any/vnc"),
    ]
}

/// What leads to an administrator and no role can forbid who needs the object for its work, and whose work it is.
/// `docs/security-jobs.md` says so of each, under "What a stolen token means".
fn ways_to_an_administrator() -> Vec<(ApiRequest, &'static [&'static str])> {
    let manifest = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: thief\n";
    // Nothing is changed: the API server only says whether it would be.
    let cluster = "/apis/provisioning.cattle.io/v1/namespaces/fleet-local/clusters/local?dryRun=All";
    let maps = "/api/v1/namespaces/harvester-system/configmaps";
    let cluster = |rke: Value| ("PATCH", cluster.to_owned(), json!({"spec": {"rkeConfig": rke}}));
    let both: &[&str] = &[accounts::NODE_UPGRADE, accounts::CLUSTER_UPGRADE];
    vec![
        // Rancher applies it to the cluster.
        (cluster(json!({ "additionalManifest": manifest })), both),
        // RKE2 of all nodes starts with it.
        (
            cluster(json!({"machineGlobalConfig": {"kube-apiserver-arg": ["anonymous-auth=true"]}})),
            both,
        ),
        // KubeVirt's operator applies what stands there, roles and all.
        (
            (
                "PUT",
                format!("{maps}/kubevirt-install-strategy-any?dryRun=All"),
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubevirt-install-strategy-any"}}),
            ),
            &[accounts::NODE_UPGRADE],
        ),
        (
            (
                "POST",
                format!("{maps}?dryRun=All"),
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubevirt-install-strategy-any"}}),
            ),
            &[accounts::NODE_UPGRADE],
        ),
        // Where Fleet's agent calls, and what an upgrade of Rancher believes of it (S-01).
        (
            (
                "PATCH",
                "/api/v1/namespaces/cattle-fleet-system/configmaps/fleet-controller?dryRun=All".to_owned(),
                json!({"data": {"config": "{}"}}),
            ),
            &[accounts::CLUSTER_UPGRADE],
        ),
        (
            (
                "PATCH",
                "/api/v1/namespaces/cattle-fleet-system/configmaps/upgrade-toolkit-rancher?dryRun=All".to_owned(),
                json!({"data": {"apiServerURL": "https://evil.test"}}),
            ),
            &[accounts::CLUSTER_UPGRADE],
        ),
    ]
}

/// Requests that a program needs for its work, by its account; `docs/security-jobs.md` says so of each.
fn is_its_work(account: &str, (method, path, _): &ApiRequest) -> bool {
    match account {
        // It reads what Helm keeps of Rancher, and runs a Plan: it is an administrator in all but name.
        accounts::CLUSTER_UPGRADE => {
            let plan = path == "/apis/upgrade.cattle.io/v1/namespaces/cattle-system/plans";
            plan || (*method == "GET" && path.ends_with("/cattle-system/secrets"))
        }
        _ => false,
    }
}

#[test]
fn s06_a_stolen_token_of_a_job_does_its_jobs_work_and_nothing_else() {
    on_cluster(small(), Durations::instant(), async |harvester| {
        let installer = format!("{PREFIX}{}", accounts::RANCHER_INSTALLER);
        let mut done = Vec::new();
        for program in PROGRAMS.into_iter().filter(|program| program.bound_to.is_none()) {
            let name = format!("{PREFIX}{}", program.account);
            let client = harvester.control_plane.client_of(program.namespace, &name, "thief");
            let client = client.await.unwrap();
            let requests = thefts().into_iter().chain(thefts_of_jobs());
            for request in requests.filter(|request| !is_its_work(program.account, request)) {
                let answer = answer_to(&client, &request).await;
                if answer != 403 {
                    done.push(format!("{}: {} {}: {answer}", program.account, request.0, request.1));
                }
            }
            for (request, work_of) in ways_to_an_administrator() {
                let may = answer_to(&client, &request).await != 403;
                let expected = work_of.contains(&program.account);
                assert_eq!(
                    may, expected,
                    "{}: {} {}: is it its work?",
                    program.account, request.0, request.1
                );
            }
            // Only the Job of the cluster gets at Helm's account, and the page says what that means.
            let token =
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
            let path = format!("/api/v1/namespaces/harvester-system/serviceaccounts/{installer}/token");
            let expected = if program.account == accounts::CLUSTER_UPGRADE {
                200
            } else {
                403
            };
            let answer = answer_to(&client, &("POST", path, token)).await;
            assert_eq!(answer, expected, "{}: token of Helm's account", program.account);
            // KubeVirt's own API: there is none here, so a permitted request gets 404.
            for (verb, path) in [
                (
                    "PUT",
                    "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/any/stop",
                ),
                (
                    "PUT",
                    "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/any/start",
                ),
                ("GET", "/apis/subresources.kubevirt.io/v1/healthz"),
            ] {
                let may = match program.account {
                    accounts::NODE_UPGRADE => path.ends_with("stop"),
                    accounts::VM_RESTORE => !path.ends_with("stop"),
                    _ => false,
                };
                let answer = answer_to(&client, &(verb, path.to_owned(), json!({}))).await;
                assert_eq!(
                    answer,
                    if may { 404 } else { 403 },
                    "{}: {verb} {path}",
                    program.account
                );
            }
        }
        assert_eq!(done, [""; 0]);
    });
}

#[test]
fn s06_a_board_is_written_to_by_the_status_of_a_pod_which_changes_no_image() {
    on_cluster(small(), Durations::instant(), async |harvester| {
        let namespace = names::HARVESTER_NAMESPACE;
        let pods: Api<Pod> = Api::namespaced(harvester.client.clone(), namespace);
        let whole = json!({"metadata": {"name": "board"}, "spec": pod(false)});
        pods.create(&PostParams::default(), &serde_json::from_value(whole).unwrap())
            .await
            .unwrap();
        let name = format!("{PREFIX}{}", accounts::NODE_UPGRADE);
        let client = harvester.control_plane.client_of(namespace, &name, "program");
        let client = client.await.unwrap();
        let board = PodBoard::of_simulated(client.clone(), namespace, "board");
        let wait = serde_json::from_value(json!({"what": "RKE2", "since": "2026-03-13T03:57:09Z"})).unwrap();
        board.show(&[wait]).await;
        let shown = pods.get("board").await.unwrap();
        let annotations = shown.metadata.annotations.unwrap_or_default();
        assert!(
            annotations[annotations::WAITING_FOR].contains("RKE2"),
            "{annotations:?}"
        );
        // What else is sent there is passed over.
        let path = format!("/api/v1/namespaces/{namespace}/pods/board/status");
        let evil = json!({"spec": {"containers": [{"name": "a", "image": "evil"}]}});
        answer_to(&client, &("PATCH", path, evil)).await;
        let kept = pods.get("board").await.unwrap().spec.unwrap();
        assert_eq!(kept.containers[0].image.as_deref(), Some("a"));
    });
}

#[test]
fn s06_an_account_that_is_missing_is_named_on_the_plan_with_the_remedy_and_the_upgrade_continues_once_it_is_there() {
    on_cluster(small(), Durations::instant(), async |harvester| {
        let namespace = names::CATTLE_NAMESPACE;
        let name = format!("{PREFIX}{}", accounts::NODE_PLANS);
        let all: Api<ServiceAccount> = Api::namespaced(harvester.client.clone(), namespace);
        all.delete(&name, &DeleteParams::default()).await.unwrap();
        harvester.start_manager().await;
        harvester.create_plan("up", Default::default()).await;
        let says = |plan: &UpgradePlan| {
            let text = serde_json::to_string(&plan.status).unwrap();
            let account = format!("ServiceAccount {namespace}/{name}");
            [
                account.as_str(),
                "does not exist",
                "install the chart",
                "--plan-service-account",
            ]
            .iter()
            .all(|word| text.contains(word))
        };
        let limit = std::time::Duration::from_secs(90);
        harvester
            .plan_when("up", limit, "message about what is missing", says)
            .await;
        let back = json!({"metadata": {"name": name}});
        all.create(&PostParams::default(), &serde_json::from_value(back).unwrap())
            .await
            .unwrap();
        harvester.plan_when("up", limit, "going on", |plan| !says(plan)).await;
        let plans: Api<suc::Plan> = Api::namespaced(harvester.client.clone(), namespace);
        let made = plans.list(&ListParams::default()).await.unwrap();
        let account = made.items[0].spec.service_account_name.as_deref();
        assert_eq!(account, Some(name.as_str()));
    });
}
