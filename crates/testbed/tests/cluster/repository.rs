//! The upgrade repository as a manager outside the cluster reaches it: over TLS on loopback, as by a port-forward, with the
//! certificate in the Secret that its pods mount.

use std::{convert::Infallible, net::SocketAddr};

use api::names;
use http_body_util::Full;
use hyper::{
    Method, Request, Response,
    body::{Bytes, Incoming},
    header::CONTENT_LENGTH,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use release::tls::acceptor;
use tokio::{net::TcpListener, task::JoinSet};
use world::{Facts, RepositoryError};

/// Serves the repository of a plan until the tasks are dropped; returns its address.
pub(crate) async fn serve(plan: &str, facts: Facts, tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let base = names::repo_url(plan, names::RepoScheme::Https);
    let plan = plan.to_owned();
    let host = base.trim_end_matches("/harvester-iso").to_owned();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (host, facts) = (host.clone(), facts.clone());
            let identity = facts.repository_identity(&plan);
            connections.spawn(async move {
                // Without its Secret no pod serves.
                let Some(identity) = identity else { return };
                let Ok(stream) = acceptor(&identity).unwrap().accept(stream).await else {
                    return;
                };
                let certificate = identity.certificate;
                let service = service_fn(|request: Request<Incoming>| {
                    let url = format!("{host}{}", request.uri().path());
                    std::future::ready(Ok::<_, Infallible>(answer(
                        &facts,
                        request.method(),
                        &url,
                        &certificate,
                    )))
                });
                let connection = hyper::server::conn::http1::Builder::new();
                // A client that goes away in between is not our business.
                drop(connection.serve_connection(TokioIo::new(stream), service).await);
            });
            while connections.try_join_next().is_some() {}
        }
    });
    address
}

fn answer(facts: &Facts, method: &Method, url: &str, certificate: &str) -> Response<Full<Bytes>> {
    let response = Response::builder();
    let response = match (method, facts.repository(url, Some(certificate))) {
        (&Method::HEAD, _) => match facts.size(url) {
            Some(size) => response.header(CONTENT_LENGTH, size).body(Full::default()),
            None => response.status(404).body(Full::default()),
        },
        (_, Ok(body)) => response.body(Full::new(body)),
        (_, Err(RepositoryError::Status(code))) => response.status(code).body(Full::default()),
        (_, Err(RepositoryError::Unreachable(_) | RepositoryError::Untrusted(_))) => {
            response.status(503).body(Full::default())
        }
    };
    response.unwrap()
}
