//! A cluster on the embedded API with a simulated KubeVirt, and a board.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use api::{
    WaitingFor, accounts,
    foreign::kubevirt::{VirtualMachine, VirtualMachineInstance},
    names,
};
use apiserver::{ApiServer, Config, Verb};
use clock::Clock;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use manager::{client::for_product, field_validation::Mode};
use program::{board::Board, report::Reporter};
use serde_json::{Value, json};
use testbed::Writes;
use world::Definitions;

use testbed::rights;

/// What KubeVirt answers to a request, by verb and VM: a status code and a message. Nothing: it succeeds.
pub(crate) type Answers = Arc<Mutex<BTreeMap<String, (u16, &'static str)>>>;

pub(crate) struct Harness {
    pub(crate) server: ApiServer,
    mode: Mode,
    pub(crate) clock: Clock,
    /// What KubeVirt was asked, as `stop default/web`, in order.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    pub(crate) answers: Answers,
    pub(crate) board: Arc<Shown>,
    /// How often a request was to be refused.
    to_be_refused: AtomicUsize,
}

/// Keeps everything that was shown.
#[derive(Default)]
pub(crate) struct Shown {
    pub(crate) waits: Mutex<Vec<WaitingFor>>,
    pub(crate) termination_message: Mutex<String>,
}

impl Board for Shown {
    fn show<'a>(&'a self, waiting: &'a [WaitingFor]) -> BoxFuture<'a, ()> {
        self.waits.lock().unwrap().extend_from_slice(waiting);
        Box::pin(std::future::ready(()))
    }

    fn termination_message(&self, text: &str) {
        *self.termination_message.lock().unwrap() = text.to_owned();
    }
}

pub(crate) fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

pub(crate) const PLAN: &str = "up";

/// The specification of an instance with what none can be without.
fn whole(mut spec: Value) -> Value {
    if spec["domain"]["devices"].is_null() {
        spec["domain"]["devices"] = json!({});
    }
    spec
}

impl Harness {
    /// A cluster of these nodes, with a plan.
    pub(crate) async fn new(nodes: &[&str]) -> Self {
        let clock = Clock::simulated("2026-03-13T03:57:09Z".parse().unwrap(), 1.0);
        let now = clock.clone();
        let server = ApiServer::new(Config {
            enforce_rbac: true,
            ..Config::new(Arc::new(move || now.now()))
        });
        let mut objects: Vec<Value> = nodes.iter().map(|name| node(name)).collect();
        for namespace in [names::HARVESTER_NAMESPACE, "dev"] {
            objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
        }
        objects.push(
            json!({"apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
            "metadata": {"name": PLAN}, "spec": {"version": "v1.8.0"}}),
        );
        let (definitions, mode) = match testbed::real_definitions() {
            Some(real) => (Definitions::Given(real), Mode::Strict),
            None => (Definitions::Ours, Mode::Warn),
        };
        world::install_by(&server.client(), definitions, &objects)
            .await
            .unwrap();
        rights::install(&server).await;
        Self {
            mode,
            server,
            clock,
            asked: Arc::default(),
            answers: Arc::default(),
            board: Arc::default(),
            to_be_refused: AtomicUsize::new(0),
        }
    }

    pub(crate) fn reporter(&self) -> Reporter {
        Reporter::new(self.clock.clone(), self.board.clone())
    }

    /// A VM that runs on a node; `spec` is that of its instance.
    pub(crate) async fn vm(&self, namespace: &str, name: &str, on: &str, spec: Value) {
        let vm = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"runStrategy": "Always", "template": {"spec": whole(spec.clone())}}});
        world::install(&self.strict(), &[vm]).await.unwrap();
        self.instance(namespace, name, on, spec).await;
    }

    /// An instance without a VM, or in addition to one.
    pub(crate) async fn instance(&self, namespace: &str, name: &str, on: &str, spec: Value) {
        let vmi = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": name, "namespace": namespace, "labels": {"kubevirt.io/nodeName": on}},
            "spec": whole(spec), "status": {"phase": "Running", "nodeName": on}});
        world::install(&self.strict(), &[vmi]).await.unwrap();
    }

    /// Whether an object is refused because none may be so.
    pub(crate) async fn refuses(&self, object: &Value) -> bool {
        self.to_be_refused.fetch_add(1, Ordering::Relaxed);
        world::install(&self.strict(), std::slice::from_ref(object))
            .await
            .is_err()
    }

    /// A client of the administrator that may not write what is not in the definitions.
    pub(crate) fn strict(&self) -> Client {
        for_product(self.server.client(), self.mode).0
    }

    /// A client of the programs of a node.
    pub(crate) fn client(&self) -> Client {
        self.client_of(accounts::NODE_UPGRADE)
    }

    /// A client of a program whose requests to KubeVirt's own API are answered by a KubeVirt that stops and starts at once.
    pub(crate) fn client_of(&self, account: &'static str) -> Client {
        let (server, asked, answers) = (self.server.clone(), self.asked.clone(), self.answers.clone());
        let admin = server.client();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, asked, answers, admin) = (server.clone(), asked.clone(), answers.clone(), admin.clone());
            async move {
                let path = request.uri().path().to_owned();
                if let Some(path) = path.strip_prefix("/apis/subresources.kubevirt.io/v1/") {
                    let who = server.client_as(rights::identity(account));
                    let allowed = match path.rsplit_once('/') {
                        Some((_, verb)) => rights::may(who, "update", "virtualmachines", Some(verb)).await,
                        None => rights::may(who, "list", path, None).await,
                    };
                    let (code, text) = match allowed {
                        true => kubevirt(&admin, &asked, &answers, path).await,
                        false => (403, "forbidden".to_owned()),
                    };
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                        "message": text, "reason": ""});
                    let body = if code < 300 {
                        Vec::new()
                    } else {
                        serde_json::to_vec(&status).unwrap()
                    };
                    let body = Either::Left(Full::new(Bytes::from(body)));
                    return Ok(Response::builder().status(code).body(body).unwrap());
                }
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await?;
                let response = server
                    .handle(&rights::identity(account), Request::from_parts(parts, bytes))
                    .await;
                Ok::<_, tower::BoxError>(response.map(Either::Right))
            }
        });
        for_product(Client::new(service, "default"), self.mode).0
    }

    /// What was written so far, by programs only or by all clients, and what of it was refused because no object may be so.
    pub(crate) fn written(&self, by: Option<&str>) -> (Option<Writes>, Vec<String>) {
        let (mut writes, mut refused) = (Writes::begin(), Vec::new());
        for write in self.server.store().history() {
            let is_theirs = by.is_none_or(|user| user == write.user);
            if !is_theirs || ![Verb::Create, Verb::Update, Verb::Patch].contains(&write.verb) {
                continue;
            }
            if let Some(writes) = &mut writes {
                writes.add(&write.resource.group, &write.resource.plural, &write.sent);
            }
            if [400, 422].contains(&write.code) {
                refused.push(format!("{}: {}", write.resource, write.refusal.unwrap_or_default()));
            }
        }
        (writes, refused)
    }

    /// The foreign kinds that programs wrote, where the real definitions are there.
    pub(crate) fn kinds_written(&self) -> Option<Vec<String>> {
        let program = rights::identity(accounts::NODE_UPGRADE).user;
        Some(self.written(Some(&program)).0?.kinds())
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn answer(&self, request: &str, code: u16, message: &'static str) {
        self.answers.lock().unwrap().insert(request.to_owned(), (code, message));
    }

    /// What is on the list of a node.
    pub(crate) async fn list(&self, node: &str) -> Option<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.server.client(), names::HARVESTER_NAMESPACE);
        let list = maps.get_opt(&names::restore_config_map(PLAN)).await.unwrap()?;
        list.data?.get(node).cloned()
    }

    /// All events as `type reason source/host: message`, sorted; each must be about the plan and where kubectl looks.
    pub(crate) async fn events(&self) -> Vec<String> {
        let events: Api<Event> = Api::all(self.server.client());
        let events = events.list(&ListParams::default()).await.unwrap();
        let mut texts: Vec<String> = events
            .items
            .iter()
            .map(|event| {
                assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
                assert_eq!(event.involved_object.kind.as_deref(), Some("UpgradePlan"));
                assert_eq!(event.involved_object.name.as_deref(), Some(PLAN));
                assert!(event.involved_object.namespace.is_none());
                assert!(event.involved_object.uid.as_ref().is_some_and(|uid| !uid.is_empty()));
                let source = event.source.clone().unwrap_or_default();
                format!(
                    "{} {} {}/{}: {}",
                    event.type_.clone().unwrap_or_default(),
                    event.reason.clone().unwrap_or_default(),
                    source.component.unwrap_or_default(),
                    source.host.unwrap_or_default(),
                    event.message.clone().unwrap_or_default()
                )
            })
            .collect();
        texts.sort();
        texts
    }
}

/// In every test: whatever programs and others wrote, the real definitions have all its fields.
impl Drop for Harness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let (writes, refused) = self.written(None);
        assert_eq!(refused.len(), *self.to_be_refused.get_mut(), "{refused:#?}");
        assert_eq!(writes.map(|writes| writes.unknown()).unwrap_or_default(), [""; 0]);
    }
}

/// KubeVirt: 409 where there is nothing to do, 404 without a VM.
async fn kubevirt(admin: &Client, asked: &Mutex<Vec<String>>, answers: &Answers, path: &str) -> (u16, String) {
    let request = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["healthz"] => "healthz".to_owned(),
        ["namespaces", namespace, "virtualmachines", name, verb] => format!("{verb} {namespace}/{name}"),
        other => panic!("KubeVirt has no {other:?}"),
    };
    asked.lock().unwrap().push(request.clone());
    let answer = answers.lock().unwrap().get(&request).copied();
    if let Some((code, message)) = answer {
        return (code, message.to_owned());
    }
    let Some((verb, vm)) = request.split_once(' ') else {
        return (200, String::new());
    };
    let (namespace, name) = vm.split_once('/').unwrap();
    let vms: Api<VirtualMachine> = Api::namespaced(admin.clone(), namespace);
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(admin.clone(), namespace);
    if vms.get_opt(name).await.unwrap().is_none() {
        return (404, format!("virtualmachine.kubevirt.io \"{name}\" not found"));
    }
    let instance = vmis.get_opt(name).await.unwrap();
    let strategy = match (verb, instance) {
        ("stop", None) => return (409, "VM is not running".to_owned()),
        ("start", Some(_)) => return (409, "VM is already running".to_owned()),
        ("stop", Some(_)) => {
            vmis.delete(name, &DeleteParams::default()).await.unwrap();
            "Halted"
        }
        _ => "Always",
    };
    let patch = Patch::Merge(json!({"spec": {"runStrategy": strategy}}));
    vms.patch(name, &PatchParams::default(), &patch).await.unwrap();
    if verb == "start" {
        let vmi = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": name, "namespace": namespace}, "spec": whole(json!({})), "status": {"phase": "Scheduling"}});
        let vmi = serde_json::from_value(vmi).unwrap();
        vmis.create(&PostParams::default(), &vmi).await.unwrap();
    }
    (202, String::new())
}
