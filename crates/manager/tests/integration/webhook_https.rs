//! The webhook end to end: a real HTTPS client on loopback that trusts the generated authority and nothing else.

use std::sync::Arc;

use api::names;
use apiserver::ApiServer;
use clock::Clock;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use manager::{
    https::serve,
    tls::{
        Clients, Presented,
        files::{Files, Follower},
        managed::{Keeper, SECRET},
        mint::{LIFE, mint},
    },
    watched::Watched,
    webhook::{CertificateSource, WebhookConfig, configurations::MUTATING_PATH, facts::Facts, server::router},
};
use serde_json::{Value, json};
use serving::Limits;
use tokio::{net::TcpListener, task::JoinSet};
use tower::ServiceExt;

use crate::support::{
    ClientTime, Connection, beginning, cluster, connect, days_on, listener, managed, manager_client, plan, review,
};

/// A webhook on a cluster, with a certificate in its Secret.
struct Webhook {
    cluster: ApiServer,
    listener: Arc<TcpListener>,
    presented: Presented,
    time: ClientTime,
    // Serves until it is dropped.
    _server: JoinSet<()>,
}

impl Webhook {
    async fn start() -> Self {
        let webhook = Self::start_presenting(Presented::default()).await;
        webhook.keep(days_on(0)).await;
        webhook
    }

    async fn start_presenting(presented: Presented) -> Self {
        let (cluster, listener) = (cluster().await, listener().await);
        let facts = Facts::new(manager_client(&cluster), Watched::default(), days_on(0));
        let mut server = JoinSet::new();
        let (listening, presenting) = (listener.clone(), presented.clone());
        server.spawn(async move {
            let served = serve(listening, presenting, &Clients::Any, router(facts), Limits::WEBHOOK).await;
            served.unwrap();
        });
        Self {
            cluster,
            listener,
            presented,
            time: ClientTime::new(),
            _server: server,
        }
    }

    /// What the manager does every now and then.
    async fn keep(&self, clock: Clock) {
        let client = manager_client(&self.cluster);
        let keeper = Keeper::new(client, clock, managed(), self.presented.clone());
        keeper.look().await.unwrap();
    }

    /// The authorities that the API server trusts: those in the validating configuration.
    fn trusted(&self) -> String {
        let configurations = self.cluster.store();
        let found = configurations.get(
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            "",
            "t-validating-webhook-configuration",
        );
        let bundle = found.unwrap()["webhooks"][0]["clientConfig"]["caBundle"].clone();
        let bytes: k8s_openapi::ByteString = serde_json::from_value(bundle).unwrap();
        String::from_utf8(bytes.0).unwrap()
    }

    async fn connect(&self) -> Connection {
        connect(&self.listener, &self.trusted(), &self.time).await.unwrap()
    }
}

fn with_status(phase: &str) -> Value {
    let mut plan = plan();
    plan["status"] = json!({"currentPhase": phase, "conditions": [{"type": "Progressing", "status": "True",
        "reason": phase, "message": "", "lastTransitionTime": "2026-03-13T03:57:09Z"}]});
    plan
}

#[tokio::test]
async fn a_plan_for_a_cluster_at_rest_is_allowed() {
    let webhook = Webhook::start().await;
    let answer = webhook
        .connect()
        .await
        .validate(&review("CREATE", plan(), json!(null)))
        .await;
    assert_eq!(answer["allowed"], true, "{answer}");
    assert_eq!(answer["uid"], "705ab4f5");
    assert_eq!(answer.get("patch"), None);
}

#[tokio::test]
async fn a_denial_is_a_422_with_a_cause_for_each_thing_that_is_wrong() {
    let webhook = Webhook::start().await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(webhook.cluster.client());
    let cordon = json!({"spec": {"unschedulable": true}});
    let params = PatchParams::default();
    nodes.patch("node-2", &params, &Patch::Merge(cordon)).await.unwrap();
    let mut plan = plan();
    plan["spec"] = json!({"version": "v9", "nodeUpgradeOption": {"pauseNodes": ["ghost"]}});
    let answer = webhook
        .connect()
        .await
        .validate(&review("CREATE", plan, json!(null)))
        .await;
    assert_eq!(answer["allowed"], false);
    let status = &answer["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
    assert_eq!(status["status"], "Failure");
    assert_eq!(
        status["message"],
        "UpgradePlan.management.harvesterhci.io \"up\" is invalid: [spec.version: Not found: \"v9\", \
         spec: Forbidden: node \"node-2\" is unschedulable, \
         spec.nodeUpgradeOption.pauseNodes[0]: Not found: \"ghost\"]"
    );
    let causes = json!([
        {"reason": "FieldValueNotFound", "message": "Not found: \"v9\"", "field": "spec.version"},
        {"reason": "FieldValueForbidden", "message": "Forbidden: node \"node-2\" is unschedulable", "field": "spec"},
        {"reason": "FieldValueNotFound", "message": "Not found: \"ghost\"", "field": "spec.nodeUpgradeOption.pauseNodes[0]"},
    ]);
    assert_eq!(status["details"]["causes"], causes);
    assert_eq!(status["details"]["kind"], "UpgradePlan");
}

#[tokio::test]
async fn updates_and_deletions_are_answered_on_the_same_connection() {
    let webhook = Webhook::start().await;
    let mut connection = webhook.connect().await;
    let mut pausing = plan();
    pausing["spec"]["nodeUpgradeOption"] = json!({"pauseNodes": ["node-1"]});
    let answer = connection.validate(&review("UPDATE", pausing.clone(), plan())).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    pausing["spec"]["nodeUpgradeOption"]["pauseNodes"] = json!(["ghost"]);
    let answer = connection.validate(&review("UPDATE", pausing.clone(), plan())).await;
    assert_eq!(answer["status"]["code"], 422);
    let stale = connection.validate(&review("UPDATE", pausing.clone(), pausing)).await;
    assert_eq!(stale["allowed"], true, "a stale name never blocks");

    let answer = connection.validate(&review("DELETE", json!(null), plan())).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let answer = connection
        .validate(&review("DELETE", json!(null), with_status("NodeUpgrading")))
        .await;
    let refused = "cannot delete UpgradePlan while nodes are being upgraded";
    assert!(
        answer["status"]["message"].as_str().unwrap().ends_with(refused),
        "{answer}"
    );
}

#[tokio::test]
async fn the_mutating_webhook_allows_and_changes_nothing() {
    let webhook = Webhook::start().await;
    let answer = webhook
        .connect()
        .await
        .ask(MUTATING_PATH, &review("CREATE", plan(), json!(null)))
        .await;
    assert_eq!(answer["allowed"], true);
    assert_eq!((answer.get("patch"), answer.get("patchType")), (None, None));
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_with_400() {
    let webhook = Webhook::start().await;
    let mut connection = webhook.connect().await;
    let mut broken = plan();
    broken["spec"]["force"] = json!("perhaps");
    for path in [MUTATING_PATH, manager::webhook::configurations::VALIDATING_PATH] {
        let answer = connection
            .ask(path, &review("CREATE", broken.clone(), json!(null)))
            .await;
        assert_eq!(
            (&answer["allowed"], &answer["status"]["code"]),
            (&json!(false), &json!(400))
        );
        assert_eq!(answer["uid"], "705ab4f5");
        let answer = connection.ask(path, &json!("not a review")).await;
        assert_eq!(answer["status"]["code"], 400);
    }
    let (code, _) = connection.post("/elsewhere", "{}").await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn a_body_of_more_than_3_mebibytes_is_refused_with_413() {
    // Without a socket: a server that hangs up early would leave it to chance whether the client sees the answer.
    let facts = Facts::new(manager_client(&cluster().await), Watched::default(), days_on(0));
    for (size, code) in [(3 * 1024 * 1024, 200), (3 * 1024 * 1024 + 1, 413)] {
        let request = http::Request::post(MUTATING_PATH).body(axum::body::Body::from(vec![b' '; size]));
        let response = router(facts.clone()).oneshot(request.unwrap()).await.unwrap();
        assert_eq!(response.status().as_u16(), code);
    }
}

#[tokio::test]
async fn a_list_that_fails_is_an_internal_error_with_the_others() {
    let webhook = Webhook::start().await;
    // Without the role that lets it list, nothing but the API server's refusal is known.
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(webhook.cluster.client());
    roles.delete("t-manager-role", &Default::default()).await.unwrap();
    let answer = webhook
        .connect()
        .await
        .validate(&review("CREATE", plan(), json!(null)))
        .await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("[]: Internal error: failed to list nodes: "),
        "{message}"
    );
    assert!(message.contains("cannot list resource"), "{message}");
    assert_eq!(message.matches("failed to list nodes").count(), 1);
}

#[tokio::test]
async fn a_certificate_is_renewed_while_a_connection_is_open_and_new_handshakes_get_the_new_one() {
    let webhook = Webhook::start().await;
    let before = webhook.trusted();
    let mut open = webhook.connect().await;

    webhook.time.advance_days(59);
    webhook.keep(days_on(59)).await;
    assert_eq!(webhook.connect().await.certificate, open.certificate, "not due yet");
    webhook.time.advance_days(2);
    webhook.keep(days_on(61)).await;

    let renewed = webhook.connect().await;
    assert_ne!(renewed.certificate, open.certificate);
    let answer = open.validate(&review("CREATE", plan(), json!(null))).await;
    assert_eq!(answer["allowed"], true, "the open connection stays open");
    assert!(
        webhook.trusted().contains(before.trim()),
        "the authority before is still trusted"
    );
    assert!(connect(&webhook.listener, &before, &webhook.time).await.is_err());
    webhook.time.advance_days(80);
    assert!(
        connect(&webhook.listener, &webhook.trusted(), &webhook.time)
            .await
            .is_ok()
    );
    webhook.time.advance_days(11);
    assert!(
        connect(&webhook.listener, &webhook.trusted(), &webhook.time)
            .await
            .is_err(),
        "certificates do end"
    );
}

#[tokio::test]
async fn without_a_certificate_handshakes_fail_and_the_server_stays() {
    let webhook = Webhook::start_presenting(Presented::default()).await;
    let authority = mint(&managed().names, beginning(), LIFE).unwrap().authority;
    assert!(connect(&webhook.listener, &authority, &webhook.time).await.is_err());
    webhook.keep(days_on(0)).await;
    let answer = webhook
        .connect()
        .await
        .validate(&review("CREATE", plan(), json!(null)))
        .await;
    assert_eq!(answer["allowed"], true);
}

#[tokio::test]
async fn a_certificate_from_files_is_presented_and_read_again_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let files = Files {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    let presented = Presented::default();
    let webhook = Webhook::start_presenting(presented.clone()).await;
    let mut follower = Follower::new(files.clone(), presented);
    assert!(follower.look().await.unwrap_err().to_string().contains("tls.crt"));

    let (first, second) = (
        mint(&managed().names, beginning(), LIFE).unwrap(),
        mint(&managed().names, beginning(), LIFE).unwrap(),
    );
    std::fs::write(&files.certificate, &first.pem.chain).unwrap();
    std::fs::write(&files.key, &first.pem.key).unwrap();
    assert!(follower.look().await.unwrap());
    assert!(!follower.look().await.unwrap(), "nothing new");
    let mut open = connect(&webhook.listener, &first.authority, &webhook.time)
        .await
        .unwrap();

    std::fs::write(&files.certificate, &second.pem.chain).unwrap();
    assert!(follower.look().await.is_err(), "the key is still that of the other");
    assert!(
        connect(&webhook.listener, &first.authority, &webhook.time)
            .await
            .is_ok()
    );
    std::fs::write(&files.key, &second.pem.key).unwrap();
    assert!(follower.look().await.unwrap());
    assert!(
        connect(&webhook.listener, &second.authority, &webhook.time)
            .await
            .is_ok()
    );
    let answer = open.validate(&review("DELETE", json!(null), plan())).await;
    assert_eq!(answer["allowed"], true, "the open connection stays open");
}

#[tokio::test]
async fn a_whole_manager_serves_the_webhook_with_a_certificate_of_its_own() {
    let (cluster, listener) = (cluster().await, listener().await);
    let config = manager::run::Config {
        webhook: Some(WebhookConfig {
            listener: listener.clone(),
            certificate: CertificateSource::Managed(managed()),
            clients: Clients::Any,
        }),
        ..manager::run::Config::default()
    };
    let client = manager_client(&cluster);
    let probes = Arc::new(manager::external_probes::Network::default());
    let running = tokio::spawn(async move {
        let forever = std::future::pending();
        manager::run::run(client, days_on(0), probes, config, None, forever).await
    });
    // The Secret shows when there is a certificate; the configuration gets its authority next, then it is presented.
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), names::HARVESTER_NAMESPACE);
    let mut connection = loop {
        tokio::task::yield_now().await;
        let Some(secret) = secrets.get_opt(SECRET).await.unwrap() else {
            continue;
        };
        let authority = String::from_utf8(secret.data.unwrap()["ca.crt"].0.clone()).unwrap();
        if let Ok(connection) = connect(&listener, &authority, &ClientTime::new()).await {
            break connection;
        }
    };
    let answer = connection.validate(&review("CREATE", plan(), json!(null))).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    running.abort();
}
