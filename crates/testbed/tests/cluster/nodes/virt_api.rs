//! KubeVirt's own API behind the API server's aggregation, as far as programs call it: stop a VM, start a VM, health. What a
//! VM then does is the world's.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use api::{foreign::kubevirt::VirtualMachine, names};
use http_body_util::Full;
use hyper::{Method, Request, Response, body::Bytes, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, Request as ApiRequest},
};
use serde_json::{Value, json};
use testbed::Nodes;
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::network::tls;

const GROUP: &str = "subresources.kubevirt.io";
const ROOT: &str = "/apis/subresources.kubevirt.io/v1";
/// In the control plane's network.
const PORT: u16 = 8443;
/// How long the API server may take to find it.
const LIMIT: Duration = Duration::from_secs(60);

/// Serves it, and waits until the API server knows it.
pub(super) async fn serve(nodes: &Nodes, client: &Client, tasks: &mut JoinSet<()>) {
    let socket = nodes.control_plane.directory().join("virt-api.sock");
    listen(&socket, client.clone(), tasks);
    let address = nodes.serve(PORT, &socket).unwrap();
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "virt-api", "namespace": names::HARVESTER_NAMESPACE},
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": PORT}]},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "virt-api", "namespace": names::HARVESTER_NAMESPACE,
            "labels": {"kubernetes.io/service-name": "virt-api"}},
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
    });
    let registration = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{GROUP}")},
        "spec": {
            "group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "insecureSkipTLSVerify": true,
            "service": {"name": "virt-api", "namespace": names::HARVESTER_NAMESPACE, "port": 443},
        },
    });
    let namespace = format!("namespaces/{}", names::HARVESTER_NAMESPACE);
    create(client, &format!("/api/v1/{namespace}/services"), &service).await;
    create(
        client,
        &format!("/apis/discovery.k8s.io/v1/{namespace}/endpointslices"),
        &slice,
    )
    .await;
    create(client, "/apis/apiregistration.k8s.io/v1/apiservices", &registration).await;
    let healthy = async {
        while node::vm::subresource::healthz(client).await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(LIMIT, healthy)
        .await
        .expect("the API server serves KubeVirt's API");
}

async fn create(client: &Client, path: &str, object: &Value) {
    let request = ApiRequest::new(path).create(&Default::default(), serde_json::to_vec(object).unwrap());
    client.request::<Value>(request.unwrap()).await.unwrap();
}

fn listen(socket: &Path, client: Client, tasks: &mut JoinSet<()>) {
    let listener = UnixListener::bind(socket).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(tls()));
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(answer(stream, acceptor.clone(), client.clone()));
            while connections.try_join_next().is_some() {}
        }
    });
}

async fn answer(stream: UnixStream, acceptor: TlsAcceptor, client: Client) {
    // A client that goes away in between is of no interest.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        let client = client.clone();
        async move { Ok::<_, Infallible>(respond(&client, request.method(), request.uri().path()).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new();
    drop(connection.serve_connection(TokioIo::new(stream), service).await);
}

async fn respond(client: &Client, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let Some(rest) = path.strip_prefix(ROOT) else {
        return of(404, &json!({}));
    };
    let parts: Vec<&str> = rest.trim_start_matches('/').split('/').collect();
    match (method, parts.as_slice()) {
        (&Method::GET, [""]) => of(
            200,
            &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v1"), "resources": []}),
        ),
        (&Method::GET, ["healthz"]) => of(200, &json!({"apiserver": {"connectivity": "ok"}})),
        (
            &Method::PUT,
            [
                "namespaces",
                namespace,
                "virtualmachines",
                name,
                verb @ ("stop" | "start"),
            ],
        ) => {
            let strategy = if *verb == "stop" { "Halted" } else { "Always" };
            let vms: Api<VirtualMachine> = Api::namespaced(client.clone(), namespace);
            let patch = json!({"spec": {"runStrategy": strategy}});
            match vms.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                // As KubeVirt: accepted, and nothing more to say.
                Ok(_) => Response::builder().status(202).body(Full::default()).unwrap(),
                Err(kube::Error::Api(status)) => of(status.code, &serde_json::to_value(&status).unwrap()),
                Err(error) => of(500, &json!({"message": error.to_string()})),
            }
        }
        _ => of(404, &json!({})),
    }
}

fn of(status: u16, body: &Value) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap()
}
