//! The network inside the cluster, as far as the API server uses it: kubelets and Services. It sends everything that is
//! for them to one Unix socket: CONNECT with an address, then what it has to say. Kubelets answer from the world's facts;
//! what is for a Service goes to its listener on loopback.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
};

use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream},
    net::{TcpStream, UnixListener, UnixStream},
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivatePkcs8KeyDer},
};
use world::Facts;

/// A request that is longer than this is none of the API server's.
const LONGEST_HEAD: u64 = 4096;

/// Who answers at which address.
#[derive(Clone)]
pub(crate) struct Network {
    nodes: Arc<BTreeMap<String, String>>,
    services: Arc<Mutex<BTreeMap<String, SocketAddr>>>,
    facts: Facts,
}

impl Network {
    /// Listens for the API server until the tasks are dropped. `nodes` names the nodes by their addresses.
    pub(crate) fn serve(socket: &Path, nodes: BTreeMap<String, String>, facts: Facts, tasks: &mut JoinSet<()>) -> Self {
        let network = Self {
            nodes: Arc::new(nodes),
            services: Arc::default(),
            facts,
        };
        let listener = UnixListener::bind(socket).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls()));
        let serving = network.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (network, acceptor) = (serving.clone(), acceptor.clone());
                connections.spawn(async move {
                    // A client that goes away in between is not our business.
                    drop(network.answer(stream, &acceptor).await);
                });
                while connections.try_join_next().is_some() {}
            }
        });
        network
    }

    /// What is for the address of a Service goes to a listener.
    pub(crate) fn route(&self, cluster_ip: &str, listener: SocketAddr) {
        self.services.lock().unwrap().insert(cluster_ip.to_owned(), listener);
    }

    async fn answer(&self, stream: UnixStream, acceptor: &TlsAcceptor) -> std::io::Result<()> {
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
        let listener = self.services.lock().unwrap().get(address).copied();
        if let Some(listener) = listener {
            let mut service = TcpStream::connect(listener).await?;
            accept(&mut stream).await?;
            tokio::io::copy_bidirectional(&mut stream, &mut service).await?;
            return Ok(());
        }
        let Some(node) = self.nodes.get(address) else {
            stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await?;
            return stream.flush().await;
        };
        accept(&mut stream).await?;
        let stream = acceptor.accept(stream).await?;
        let service = service_fn(|request: Request<hyper::body::Incoming>| {
            let answer = self.facts.kubelet(node, request.uri().path());
            std::future::ready(Ok::<_, Infallible>(respond(answer)))
        });
        let connection = hyper::server::conn::http1::Builder::new();
        drop(connection.serve_connection(TokioIo::new(stream), service).await);
        Ok(())
    }
}

async fn accept(stream: &mut BufStream<UnixStream>) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    stream.flush().await
}

/// The API server does not check a kubelet's certificate unless configured to.
pub(crate) fn tls() -> ServerConfig {
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
