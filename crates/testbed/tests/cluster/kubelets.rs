//! What the kubelets answer to the API server, from the world's facts. The API server sends everything that is for a node
//! to one Unix socket: CONNECT with the node's address, then HTTPS.

use std::{collections::BTreeMap, convert::Infallible, path::Path, sync::Arc};

use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream},
    net::{UnixListener, UnixStream},
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivatePkcs8KeyDer},
};
use world::Facts;

/// A request that is longer than this is none of the API server's.
const LONGEST_HEAD: u64 = 4096;

/// Listens for the API server and answers for all nodes until the tasks are dropped. `addresses` names the nodes.
pub(crate) fn serve(socket: &Path, addresses: BTreeMap<String, String>, facts: Facts, tasks: &mut JoinSet<()>) {
    let listener = UnixListener::bind(socket).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(tls()));
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (addresses, acceptor, facts) = (addresses.clone(), acceptor.clone(), facts.clone());
            connections.spawn(async move {
                // A client that goes away in between is not our business.
                drop(answer(stream, &addresses, &acceptor, &facts).await);
            });
            while connections.try_join_next().is_some() {}
        }
    });
}

async fn answer(
    stream: UnixStream,
    addresses: &BTreeMap<String, String>,
    acceptor: &TlsAcceptor,
    facts: &Facts,
) -> std::io::Result<()> {
    let mut stream = BufStream::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if (&mut stream).take(LONGEST_HEAD).read_line(&mut head).await? == 0 {
            return Ok(());
        }
    }
    // `CONNECT address:port HTTP/1.1`
    let target = head.split(' ').nth(1).unwrap_or_default();
    let address = target.rsplit_once(':').map_or(target, |(address, _)| address);
    let Some(node) = addresses.get(address) else {
        return stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await;
    };
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    stream.flush().await?;
    let stream = acceptor.accept(stream).await?;
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        let answer = facts.node_proxy(node, request.uri().path());
        std::future::ready(Ok::<_, Infallible>(respond(answer)))
    });
    let connection = hyper::server::conn::http1::Builder::new();
    drop(connection.serve_connection(TokioIo::new(stream), service).await);
    Ok(())
}

/// The API server does not check a kubelet's certificate unless told to.
fn tls() -> ServerConfig {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap()
}

fn respond(answer: Option<(u16, String, Bytes)>) -> Response<Full<Bytes>> {
    let (status, content_type, body) = answer.unwrap_or((404, "text/plain".to_owned(), Bytes::new()));
    Response::builder()
        .status(status)
        .header("content-type", content_type)
        .body(Full::new(body))
        .unwrap()
}
