//! Kubelets as the manager asks them: over TLS on loopback, with a certificate of the cluster's authority. They let in whom
//! the API server says they may, as real ones do, and answer from the world's facts.

use std::{convert::Infallible, net::SocketAddr, path::Path, sync::Arc};

use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, header::AUTHORIZATION, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};
use world::Facts;

type Answer = (u16, String, Bytes);

/// A kubelet.
#[derive(Clone)]
struct Kubelet {
    node: String,
    client: Client,
    facts: Facts,
}

/// Listens as the kubelet of a node until the tasks are dropped; returns its address. The certificate is one of those in the
/// control plane's directory.
pub(crate) async fn serve(
    directory: &Path,
    certificate: &str,
    (node, client, facts): (&str, Client, Facts),
    tasks: &mut JoinSet<()>,
) -> SocketAddr {
    let kubelet = Kubelet {
        node: node.to_owned(),
        client,
        facts,
    };
    let acceptor = TlsAcceptor::from(Arc::new(tls(directory, certificate)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (kubelet, acceptor) = (kubelet.clone(), acceptor.clone());
            connections.spawn(async move {
                // Who does not trust us goes away.
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = service_fn(|request: Request<hyper::body::Incoming>| {
                    let kubelet = kubelet.clone();
                    async move { Ok::<_, Infallible>(respond(kubelet.answer(&request).await)) }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                drop(connection.serve_connection(TokioIo::new(stream), service).await);
            });
            while connections.try_join_next().is_some() {}
        }
    });
    address
}

fn tls(directory: &Path, certificate: &str) -> ServerConfig {
    let file = |end: &str| directory.join("pki").join(format!("{certificate}.{end}"));
    let chain = CertificateDer::pem_file_iter(file("crt")).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap()
}

impl Kubelet {
    async fn answer(&self, request: &Request<hyper::body::Incoming>) -> Answer {
        let header = request.headers().get(AUTHORIZATION);
        let token = header.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let path = request.uri().path().trim_start_matches('/');
        match self.refusal(token, path).await {
            Some((code, why)) => (code, "text/plain".to_owned(), why.into()),
            None => {
                let answer = self.facts.kubelet(&self.node, path);
                answer.unwrap_or((404, "text/plain".to_owned(), Bytes::new()))
            }
        }
    }

    /// Why a client may not read something, if so.
    async fn refusal(&self, token: Option<&str>, path: &str) -> Option<(u16, String)> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.map(str::to_owned),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
        let status = answer.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Some((401, "Unauthorized".to_owned()));
        };
        let subresource = match path.split('/').next() {
            Some("stats") => "stats",
            Some("configz") => "configz",
            _ => "proxy",
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username.clone(),
                groups: user.groups,
                resource_attributes: Some(ResourceAttributes {
                    verb: Some("get".to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    name: Some(self.node.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
        let allowed = answer.status.is_some_and(|status| status.allowed);
        let user = user.username.unwrap_or_default();
        let why = format!("Forbidden (user={user}, verb=get, resource=nodes, subresource(s)=[{subresource}])");
        (!allowed).then_some((403, why))
    }
}

fn respond((status, content_type, body): Answer) -> Response<Full<Bytes>> {
    let response = Response::builder().status(status).header("content-type", content_type);
    response.body(Full::new(body)).unwrap()
}
