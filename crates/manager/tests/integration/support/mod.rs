//! What the tests of the webhook share: a cluster on the embedded API, an HTTPS client by hand, and reviews.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use api::names;
use apiserver::{ApiServer, Identity, WebhookHandler};
use clock::Clock;
use futures::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::{body::Bytes, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use manager::{
    client::for_product,
    field_validation::Mode,
    tls::managed::Managed,
    upgrade_record::Look,
    watched::Watched,
    webhook::{
        configurations,
        configurations::{MUTATING_PATH, VALIDATING_PATH, service_names},
        facts::Facts,
        server,
    },
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    time_provider::TimeProvider,
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use world::{Definitions, Shape};

/// What names of an installation begin with.
pub(crate) const PREFIX: &str = "t-";
/// The service account of the manager.
pub(crate) const ACCOUNT: &str = "manager";
/// The name the API server asks the webhook for.
pub(crate) const HOST: &str = "t-webhook-service.harvester-system.svc";

/// When the tests begin.
pub(crate) fn beginning() -> Timestamp {
    "2026-03-13T03:57:09Z".parse().unwrap()
}

/// A clock that is so many days on.
pub(crate) fn days_on(days: i64) -> Clock {
    let later = Duration::from_hours(24) * u32::try_from(days).unwrap();
    Clock::simulated(beginning().saturating_add(later).unwrap(), 1.0)
}

/// A cluster that asks both webhooks, in this process.
pub(crate) async fn asking_cluster() -> ApiServer {
    let cluster = cluster().await;
    let address = |path: &str| format!("harvester-system/t-webhook-service{path}");
    let facts = Facts::new(manager_client(&cluster), Watched::default(), days_on(0));
    let of_mutation = facts.clone();
    let validate: WebhookHandler = Arc::new(move |review| {
        let facts = facts.clone();
        async move {
            let answer = server::validate(&facts, review.to_string().as_bytes()).await;
            serde_json::to_value(answer).unwrap()
        }
        .boxed()
    });
    let mutate: WebhookHandler = Arc::new(move |review| {
        let answer = server::mutate(review.to_string().as_bytes(), of_mutation.now());
        std::future::ready(serde_json::to_value(answer).unwrap()).boxed()
    });
    cluster.set_webhook_handler(&address(VALIDATING_PATH), validate);
    cluster.set_webhook_handler(&address(MUTATING_PATH), mutate);
    cluster
}

/// A cluster of three nodes at rest, with the shipped roles enforced and both webhook configurations.
pub(crate) async fn cluster() -> ApiServer {
    let server = ApiServer::new(apiserver::Config {
        enforce_rbac: true,
        ..apiserver::Config::new(Arc::new(beginning))
    });
    let client = server.client();
    let shape = Shape {
        vms: 0,
        ..Shape::default()
    };
    let definitions = testbed::real_definitions().map_or(Definitions::Ours, Definitions::Given);
    world::install_by(&client, definitions, &shape.objects()).await.unwrap();
    for object in manager::rbac::objects(PREFIX, names::HARVESTER_NAMESPACE, ACCOUNT) {
        create(&client, object).await;
    }
    for object in configurations(PREFIX, names::HARVESTER_NAMESPACE, ACCOUNT, None) {
        create(&client, object).await;
    }
    server
}

/// The manager's client: it may do what the shipped roles allow, and write no unknown field.
pub(crate) fn manager_client(server: &ApiServer) -> kube::Client {
    let client = server.client_as(Identity::service_account(names::HARVESTER_NAMESPACE, ACCOUNT));
    for_product(client, Mode::Strict).0
}

/// How a manager reads the cluster, before its caches hold anything.
pub(crate) fn look(client: kube::Client) -> Look {
    Look::new(client, Watched::default(), Clock::system())
}

/// What the certificate of the tests is for.
pub(crate) fn managed() -> Managed {
    Managed {
        namespace: names::HARVESTER_NAMESPACE.to_owned(),
        names: service_names("t-webhook-service", names::HARVESTER_NAMESPACE),
        mutating: "t-mutating-webhook-configuration".to_owned(),
        validating: "t-validating-webhook-configuration".to_owned(),
    }
}

/// Creates an object of any kind.
pub(crate) async fn create(client: &kube::Client, object: Value) -> DynamicObject {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &object).await.unwrap()
}

/// A listener on loopback.
pub(crate) async fn listener() -> Arc<TcpListener> {
    Arc::new(TcpListener::bind("127.0.0.1:0").await.unwrap())
}

/// A plan for the Version that the cluster has.
pub(crate) fn plan() -> Value {
    json!({"apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
        "metadata": {"name": "up"}, "spec": {"version": "v1.8.0"}})
}

/// What the API server asks.
pub(crate) fn review(operation: &str, object: Value, old: Value) -> Value {
    let kind = json!({"group": "management.harvesterhci.io", "version": "v1beta1", "kind": "UpgradePlan"});
    let resource = json!({"group": "management.harvesterhci.io", "version": "v1beta1", "resource": "upgradeplans"});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5", "kind": kind, "resource": resource, "operation": operation, "name": "up",
        "userInfo": {"username": "admin"}, "object": object, "oldObject": old, "dryRun": false,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"}}})
}

/// The time by which a client judges certificates.
#[derive(Clone, Debug)]
pub(crate) struct ClientTime(Arc<AtomicI64>);

impl ClientTime {
    /// At the beginning.
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(beginning().as_second())))
    }

    /// So many days on.
    pub(crate) fn advance_days(&self, days: i64) {
        self.0.fetch_add(days * 24 * 3600, Ordering::SeqCst);
    }
}

impl TimeProvider for ClientTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.load(Ordering::SeqCst)).unwrap();
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// An open connection.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// The certificate that the server presented.
    pub(crate) certificate: Vec<u8>,
}

/// Connects as the API server does: trusting `authorities` only, asking for [`HOST`].
pub(crate) async fn connect(
    listener: &TcpListener,
    authorities: &str,
    time: &ClientTime,
) -> std::io::Result<Connection> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_details(Arc::new(ring::default_provider()), Arc::new(time.clone()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await?;
    let host = ServerName::try_from(HOST).unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(host, stream).await?;
    let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    Ok(Connection { sender, certificate })
}

impl Connection {
    /// Posts a body; status code and body of the answer.
    pub(crate) async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> (u16, Bytes) {
        let request = http::Request::post(path)
            .header("Host", HOST)
            .header("Content-Type", "application/json")
            .body(Full::new(body.into()))
            .unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        let code = response.status().as_u16();
        (code, response.into_body().collect().await.unwrap().to_bytes())
    }

    /// Asks the validating webhook; its `response`.
    pub(crate) async fn validate(&mut self, review: &Value) -> Value {
        self.ask(configurations::VALIDATING_PATH, review).await
    }

    /// Asks a webhook; its `response`.
    pub(crate) async fn ask(&mut self, path: &str, review: &Value) -> Value {
        let (code, body) = self.post(path, serde_json::to_vec(review).unwrap()).await;
        assert_eq!(code, 200, "{body:?}");
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["kind"], "AdmissionReview");
        answer["response"].clone()
    }
}
