//! S-07: a server that answers for the repository's name without the key of the plan's certificate is refused by name before
//! anything is read, and what the server with the key sends must still match the record.

use crate::support;
use crate::support::{
    PATIENCE,
    archive::{COMMON, RKE2, manifest as manifest_of, release_files},
    bench::{Bench, LAYER, names},
    plan,
};
use clock::Clock;
use node::images::Repository;
use program::Error;
use release::{
    bundle::Sha256Sum,
    manifest,
    tls::{Identity, Trust, acceptor, mint},
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};

const MANIFEST: &str = "harvester-iso.manifest";
const NAME: &str = "up-repo.harvester-system.svc";

fn identity(name: &str) -> Identity {
    mint(&[name.to_owned()], Clock::system().now()).unwrap()
}

fn trust(identity: &Identity) -> Trust {
    Trust {
        certificate: identity.certificate.clone(),
        server_name: NAME.to_owned(),
    }
}

/// A repository as it is when the manager records its manifest, and the digest of that.
async fn recorded() -> (Bench, Sha256Sum) {
    let mut files = release_files(LAYER);
    let text = manifest_of(&files);
    let root = manifest::sha256(text.as_bytes());
    files.insert(MANIFEST.to_owned(), text.into());
    (Bench::with(files).await, root)
}

/// Answers over TLS with what the repository behind it has. Its URL.
async fn front(bench: &Bench, identity: &Identity) -> String {
    let behind = bench.repository.url.split('/').nth(2).unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/harvester-iso", listener.local_addr().unwrap());
    let acceptor = acceptor(identity).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, behind) = (acceptor.clone(), behind.clone());
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut behind = TcpStream::connect(behind).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut behind).await;
            });
        }
    });
    url
}

async fn prepare(bench: &Bench, url: &str, trust: Option<&Trust>, root: &Sha256Sum) -> program::Result<()> {
    let repository = Repository::new(url, trust, Clock::system(), PATIENCE).unwrap();
    let repository = repository.pinned_to(Some(root.clone()));
    let store = Box::new(bench.memory_store.clone());
    let (_, done) = support::prepare_from(repository, store, bench.root.path(), plan(), bench.board.clone()).await;
    done
}

/// It is refused with these words, and nothing was asked for, brought or left.
async fn assert_refused(bench: &Bench, done: program::Result<()>, words: &str) {
    let error = done.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("harvester-iso") && text.contains(words),
        "{text} does not say {words}"
    );
    assert_eq!(bench.memory_store.imports(), 0);
    let folder = bench.place(RKE2).parent().unwrap().to_owned();
    assert_eq!(names(&folder), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_recorded_is_brought_over_tls() {
    let (bench, root) = recorded().await;
    let own = identity(NAME);
    let url = front(&bench, &own).await;
    prepare(&bench, &url, Some(&trust(&own)), &root).await.unwrap();
    bench.assert_complete();
}

#[tokio::test]
async fn s07_an_impostor_with_any_other_certificate_is_refused_before_anything_is_requested() {
    let own = identity(NAME);
    for (who, name) in [
        ("a server that makes a certificate for the name", NAME),
        ("the repository of another plan", "other-repo.harvester-system.svc"),
    ] {
        let (bench, root) = recorded().await;
        let url = front(&bench, &identity(name)).await;
        let done = prepare(&bench, &url, Some(&trust(&own)), &root).await;
        assert_refused(&bench, done, "invalid peer certificate").await;
        assert_eq!(
            bench.repository.requests(),
            Vec::<String>::new(),
            "{who} was asked for something"
        );
    }
}

#[tokio::test]
async fn s07_a_recorded_certificate_counts_for_its_own_name_only() {
    let (bench, root) = recorded().await;
    let other = identity("other-repo.harvester-system.svc");
    let url = front(&bench, &other).await;
    let done = prepare(&bench, &url, Some(&trust(&other)), &root).await;
    assert_refused(&bench, done, "invalid peer certificate").await;
}

#[tokio::test]
async fn s07_no_server_is_trusted_without_tls_where_a_certificate_is_recorded() {
    let (bench, root) = recorded().await;
    let plain = bench.repository.url.clone();
    let own = identity(NAME);
    // Without a recorded certificate every server is trusted: the attack succeeds.
    prepare(&bench, &plain, None, &root).await.unwrap();
    let (bench, root) = recorded().await;
    // He answers on the port for TLS as he would without.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/harvester-iso", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
                .await;
        }
    });
    let done = prepare(&bench, &url, Some(&trust(&own)), &root).await;
    assert_refused(&bench, done, "not the repository of this upgrade").await;
    // And the program itself does not connect without TLS, whatever its URL.
    let plain = bench.repository.url.clone();
    let error = Repository::new(&plain, Some(&trust(&own)), Clock::system(), PATIENCE).unwrap_err();
    assert!(error.to_string().contains(&plain), "{error}");
    assert_eq!(bench.repository.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn s07_swapped_truncated_and_replayed_content_is_refused_over_tls_too() {
    let own = identity(NAME);
    let mut older = release_files(LAYER / 2);
    older.insert(MANIFEST.to_owned(), manifest_of(&older).into());
    let swapped = |bench: &Bench| {
        let mut archive = bench.files[COMMON].clone();
        archive[10] ^= 1;
        [(COMMON.to_owned(), archive)].into()
    };
    let truncated = |bench: &Bench| [(COMMON.to_owned(), bench.files[COMMON][..100_000].to_vec())].into();
    let replayed = |_: &Bench| older.clone();
    type Files = std::collections::BTreeMap<String, Vec<u8>>;
    type Attack<'a> = &'a dyn Fn(&Bench) -> Files;
    let attacks: [(Attack<'_>, &str); 3] = [
        (&swapped, COMMON),
        (&truncated, "truncated"),
        (&replayed, "another release"),
    ];
    for (attack, words) in attacks {
        let (bench, root) = recorded().await;
        let url = front(&bench, &own).await;
        for (path, content) in attack(&bench) {
            bench.repository.put(&path, content);
        }
        let error = prepare(&bench, &url, Some(&trust(&own)), &root).await.unwrap_err();
        assert!(error.to_string().contains(words), "{error} does not say {words}");
        assert!(!error.is_transient(), "{error}");
        assert_eq!(bench.memory_store.imports(), 0);
    }
}
