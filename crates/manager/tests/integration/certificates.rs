//! When the certificates of API servers end, asked over real connections.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use manager::{
    external_probes::{ExternalProbes, Network},
    tls::mint::mint,
};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const DAY: Duration = Duration::from_hours(24);

fn now() -> Timestamp {
    "2026-03-13T03:57:09Z".parse().unwrap()
}

fn in_days(days: u32) -> Timestamp {
    now().saturating_add(DAY * days).unwrap()
}

/// A server that presents a chain whose certificates end after so many days each; its address.
async fn presenting(bind: &str, from: Timestamp, days: &[u32]) -> Option<String> {
    let name = ["kubernetes".to_owned()];
    let minted: Vec<_> = days
        .iter()
        .map(|days| mint(&name, from, DAY * *days).unwrap().pem)
        .collect();
    let chain = minted
        .iter()
        .map(|pem| CertificateDer::from_pem_slice(pem.chain.as_bytes()).unwrap());
    let key = PrivateKeyDer::from_pem_slice(minted[0].key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.collect(), key)
        .unwrap();
    let listener = TcpListener::bind(bind).await.ok()?;
    let address = listener.local_addr().unwrap().to_string();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that has seen enough goes; that is not this server's business.
            let _ = acceptor.accept(stream).await;
        }
    });
    Some(address)
}

#[tokio::test]
async fn of_a_chain_the_certificate_that_ends_first_counts_wherever_it_stands() {
    for days in [&[365, 5, 90][..], &[5, 365], &[90, 365, 5]] {
        let address = presenting("127.0.0.1:0", now(), days).await.unwrap();
        assert_eq!(
            Network::default().certificate_end(&address).await.unwrap(),
            in_days(5),
            "{days:?}"
        );
    }
}

#[tokio::test]
async fn a_certificate_that_no_client_trusts_or_that_has_ended_is_reported_all_the_same() {
    let long_ago: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    let address = presenting("127.0.0.1:0", long_ago, &[1]).await.unwrap();
    let ended: Timestamp = "2020-01-02T00:00:00Z".parse().unwrap();
    assert_eq!(Network::default().certificate_end(&address).await.unwrap(), ended);
}

#[tokio::test]
async fn an_api_server_on_ipv6_is_reached_by_its_address_in_brackets() {
    let Some(address) = presenting("[::1]:0", now(), &[30]).await else {
        eprintln!("this machine has no IPv6: nothing was tested");
        return;
    };
    assert!(address.starts_with("[::1]:"), "{address}");
    assert_eq!(Network::default().certificate_end(&address).await.unwrap(), in_days(30));
}

#[tokio::test]
async fn a_server_that_is_not_there_or_speaks_no_tls_is_named_with_the_cause() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let closing = tokio::spawn(async move { drop(listener.accept().await) });
    let error = Network::default()
        .certificate_end(&address)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.starts_with(&format!("{address}: ")), "{error}");
    closing.await.unwrap();
    // Now no server listens there.
    let error = Network::default()
        .certificate_end(&address)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with(&format!("{address}: ")) && error.contains("refused"),
        "{error}"
    );
}

/// Time passes only while all tasks wait, so no real time passes.
#[tokio::test(start_paused = true)]
async fn a_server_that_takes_the_call_and_says_nothing_is_given_up_after_ten_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let taken = listener.accept().await;
        std::future::pending::<()>().await;
        drop(taken);
    });
    let network = Network::default();
    let asked = tokio::time::timeout(Duration::from_secs(60), network.certificate_end(&address)).await;
    let expected = format!("{address}: no TLS handshake within 10 s");
    assert_eq!(asked.expect("it is given up").unwrap_err().to_string(), expected);
}
