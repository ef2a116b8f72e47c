//! What a manager still sends when it loses the lease in the middle of an action.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{Component, RepositoryAccess, UpgradePlan};
use clock::Clock;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::{Client, client::Body};
use plan::{decision::ChildKind, observed::Settings};
use release::tls::Identity;
use rules::PlanEvent;
use serde_json::{Value, json};

use super::{ActError, Actor, children::with_pods};
use crate::{keyring::Keyring, lease::Leadership};

/// A request: its method, its path and its body.
type Sent = (http::Method, String, Value);

/// An API server that has three Jobs of a plan, and lets the lease be lost with the first request that changes something,
/// unless it is down: then it takes nothing.
struct Server {
    leadership: Leadership,
    sent: Arc<Mutex<Vec<Sent>>>,
    is_down: Arc<Mutex<bool>>,
}

impl Server {
    fn new() -> Self {
        let leadership = Leadership::contested(Clock::system());
        leadership.extend(Duration::MAX);
        Self {
            leadership,
            sent: Arc::default(),
            is_down: Arc::default(),
        }
    }

    fn actor(&self) -> Actor {
        let (leadership, sent, is_down) = (self.leadership.clone(), self.sent.clone(), self.is_down.clone());
        let answer = move |request: http::Request<Body>| {
            let (leadership, sent, is_down) = (leadership.clone(), sent.clone(), *is_down.lock().unwrap());
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let is_write = head.method != http::Method::GET;
                let said: Value = serde_json::from_slice(&body).unwrap_or_default();
                let (code, answer) = match head.method.as_str() {
                    _ if is_down => (
                        500,
                        json!({"kind": "Status", "status": "Failure", "message": "down", "code": 500}),
                    ),
                    "GET" => (200, jobs()),
                    "POST" => (201, said.clone()),
                    _ => (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})),
                };
                if is_write {
                    let path = head.uri.path().to_owned();
                    sent.lock().unwrap().push((head.method, path, said));
                }
                if is_write && !is_down {
                    leadership.extend(Duration::ZERO);
                }
                let response = http::Response::builder().status(code);
                response
                    .body(Body::from(answer.to_string().into_bytes()))
                    .map_err(tower::BoxError::from)
            }
        };
        let client = Client::new(tower::service_fn(answer), "default");
        Actor::new(client, Settings::default(), self.leadership.clone(), None)
    }

    fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }
}

fn jobs() -> Value {
    let jobs = ["one", "two", "three"].map(|name| {
        let owner = json!({
            "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "name": "up", "uid": "plan-uid",
        });
        json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {
                "name": name, "namespace": "harvester-system", "uid": format!("uid-of-{name}"), "ownerReferences": [owner],
            },
        })
    });
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": jobs})
}

fn plan() -> UpgradePlan {
    let mut plan = UpgradePlan::new("up", Default::default());
    plan.metadata.uid = Some("plan-uid".to_owned());
    plan
}

#[tokio::test]
async fn of_several_deletions_none_is_sent_after_the_lease_is_lost() {
    let server = Server::new();
    let actor = server.actor();
    let result = actor
        .delete(&plan(), ChildKind::Job, Component::NodeUpgrade, None)
        .await;
    assert!(matches!(result, Err(ActError::NotLeader)), "{result:?}");
    let sent = server.sent();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(sent[0].2["preconditions"]["uid"], "uid-of-one");
}

#[tokio::test]
async fn no_key_of_a_repository_is_stored_after_the_lease_is_lost() {
    let server = Server::new();
    let keyring = Keyring::default();
    let access = RepositoryAccess {
        certificate: "PUBLIC".to_owned(),
        secret: "up-repo-x".to_owned(),
        in_use: false,
    };
    let identity = Identity {
        certificate: "PUBLIC".to_owned(),
        key: "KEY".to_owned(),
    };
    keyring.add("plan-uid", access, identity);
    let actor = server.actor().with_keys(keyring);
    actor.store_key(&plan(), "up-repo-x").await.unwrap();
    let late = actor.store_key(&plan(), "up-repo-x").await;
    assert!(matches!(late, Err(ActError::NotLeader)), "{late:?}");
    assert_eq!(server.sent().len(), 1, "nothing is sent without the lease");
}

#[tokio::test]
async fn a_job_is_deleted_by_the_uid_that_was_decided_on() {
    let server = Server::new();
    let actor = server.actor();
    let jobs = actor.in_namespace::<Job>("harvester-system");
    let uid = Some("seen".to_owned());
    actor
        .delete_one(&jobs, "up-pre-drain-node-1", uid.clone(), with_pods())
        .await
        .unwrap();
    let (method, path, body) = server.sent().remove(0);
    assert_eq!(method, http::Method::DELETE);
    assert!(path.ends_with("/harvester-system/jobs/up-pre-drain-node-1"), "{path}");
    assert_eq!(body["preconditions"]["uid"], "seen");
    assert_eq!(body["propagationPolicy"], "Foreground");
    let late = actor.delete_one(&jobs, "up-pre-drain-node-1", uid, with_pods()).await;
    assert!(matches!(late, Err(ActError::NotLeader)));
    assert_eq!(server.sent().len(), 1, "nothing is sent without the lease");
}

#[tokio::test]
async fn of_several_events_that_are_caught_up_with_none_is_sent_after_the_lease_is_lost() {
    let server = Server::new();
    let actor = server.actor();
    *server.is_down.lock().unwrap() = true;
    for text in ["one", "two", "three"] {
        let event = PlanEvent::normal("Any", text);
        let events = vec![(Timestamp::UNIX_EPOCH, event)];
        actor.report(&plan(), events, Duration::ZERO).await.unwrap();
    }
    let before = server.sent().len();
    *server.is_down.lock().unwrap() = false;
    let result = actor.catch_up(Duration::from_secs(3600)).await;
    assert!(matches!(result, Err(ActError::NotLeader)), "{result:?}");
    assert_eq!(server.sent().len(), before + 1);
}
