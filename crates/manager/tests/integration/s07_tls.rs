//! S-07: the manager reads the manifest of a release from the plan's own repository or from none. Another server that answers for
//! its name, at the first question already, vouches for nothing.

use crate::support;
use std::sync::Arc;

use api::{RepositoryAccess, UpgradePlan, names};
use clock::Clock;
use manager::{
    external_probes::{ExternalProbes, Network},
    facts::{Known, answer},
};
use plan::{
    Need,
    observed::{Facts, Fetched},
};
use release::tls::{Identity, acceptor, mint};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};

fn plan(identity: Option<&Identity>) -> UpgradePlan {
    let mut plan = UpgradePlan::new("up", Default::default());
    plan.metadata.uid = Some("uid".to_owned());
    plan.status.get_or_insert_default().repository = identity.map(|identity| RepositoryAccess {
        certificate: identity.certificate.clone(),
        secret: "up-repo-x".to_owned(),
        in_use: true,
    });
    plan
}

fn identity(name: &str) -> Identity {
    mint(&[name.to_owned()], Clock::system().now()).unwrap()
}

/// Answers every request with a manifest.
async fn reply(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    // Whatever comes first is taken for a request.
    if !matches!(stream.read(&mut [0; 4096]).await, Ok(1..)) {
        return;
    }
    let body = json!({"iso": {"sha512": "ab".repeat(64), "size": 7}, "files": {}}).to_string();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// A server that answers for the repository, over TLS or without; returns its address.
async fn server_with(identity: Option<&Identity>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let acceptor = identity.map(|identity| acceptor(identity).unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            match &acceptor {
                None => reply(stream).await,
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        reply(stream).await;
                    }
                }
            }
        }
    });
    address
}

/// What the manager learns of the release, by the very function that its loop uses.
async fn digests(plan: &UpgradePlan, host: String) -> Facts {
    let client = apiserver::ApiServer::new(apiserver::Config::new(Arc::new(support::beginning))).client();
    let probes = Network {
        repo_host: Some(host),
        ..Network::default()
    };
    let mut known = Known::default();
    assert!(known.ask(plan, Need::Manifest));
    let answer = answer(
        support::look(client),
        Arc::new(probes),
        plan,
        Need::Manifest,
        Vec::new(),
    )
    .await;
    known.take(answer, &support::days_on(0));
    known.of(plan)
}

async fn refusal(plan: &UpgradePlan, host: String) -> String {
    match digests(plan, host).await.digests {
        Fetched::Failed { error, .. } => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn s07_the_first_manifest_comes_from_the_server_with_the_key_only() {
    let own = identity(&names::repo_server_name("up"));
    let found = digests(&plan(Some(&own)), server_with(Some(&own)).await).await;
    assert!(matches!(found.digests, Fetched::Got(_)), "{:?}", found.digests);
    // Without a recorded certificate the attack succeeds: every server is trusted.
    let found = digests(&plan(None), server_with(None).await).await;
    assert!(matches!(found.digests, Fetched::Got(_)));

    let for_the_name = identity(&names::repo_server_name("up"));
    let of_another_plan = identity(&names::repo_server_name("other"));
    for impostor in [&for_the_name, &of_another_plan] {
        let error = refusal(&plan(Some(&own)), server_with(Some(impostor)).await).await;
        for word in ["harvester-iso.manifest", "invalid peer certificate"] {
            assert!(error.contains(word), "{error}");
        }
    }
    // One that is on record counts for the plan's own name only.
    let error = refusal(&plan(Some(&of_another_plan)), server_with(Some(&of_another_plan)).await).await;
    assert!(error.contains("invalid peer certificate"), "{error}");
    let error = refusal(&plan(Some(&own)), server_with(None).await).await;
    assert!(error.contains("harvester-iso.manifest"), "{error}");
}

#[tokio::test]
async fn s07_a_manager_that_is_configured_without_tls_uses_it_where_a_certificate_is_recorded() {
    let own = identity(&names::repo_server_name("up"));
    let host = format!("http://{}", server_with(None).await);
    assert!(matches!(
        digests(&plan(None), host.clone()).await.digests,
        Fetched::Got(_)
    ));
    let error = refusal(&plan(Some(&own)), host).await;
    assert!(error.contains("http://"), "{error}");
}

#[tokio::test]
async fn a_certificate_that_the_manager_makes_is_for_the_service_by_all_its_names() {
    let name = names::repo_server_name("up");
    let made = Network::default().mint(&name).await.unwrap();
    let trusted = manager::tls::Certificate::read(&manager::tls::Pem {
        chain: made.certificate.clone(),
        key: made.key.clone(),
    })
    .unwrap();
    let now = Clock::system().now();
    for name in [name.as_str(), "up-repo.harvester-system"] {
        trusted.verify(&made.certificate, name, now).unwrap();
    }
    assert!(
        trusted
            .verify(&made.certificate, "other-repo.harvester-system.svc", now)
            .is_err()
    );
    let life = trusted.ends.as_second() - trusted.begins.as_second();
    assert!(life < 200 * 24 * 3600, "it ends: {life} s");
    assert_ne!(Network::default().mint("x.svc").await.unwrap().key, made.key);
}
