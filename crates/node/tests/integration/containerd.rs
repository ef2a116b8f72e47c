//! Images on a real containerd: from an ISO over our repository into it, and out again.

use crate::support;
use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use crate::support::{
    Shown,
    archive::{AGENT, COMMON, COMMON_IMAGES, PREVIOUS_IMAGES, RKE2, RKE2_IMAGES, archive, release_files, tampered},
    containerd::Containerd,
    hostile::{Hostile, ServerFault},
    plan,
};
use clock::Clock;
use node::images::{
    ImageStore,
    clean::{Runtime, Stays, Time, clean},
    crictl::Crictl,
    prepare::{AGENT_FOLDER, RKE2_FOLDER},
};
use release::{
    iso::Iso,
    repo::{Limits, serve},
    testing::Sources,
};
use tokio::net::TcpListener;

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn plenty() -> Time {
    Time::of(Clock::system(), Duration::from_mins(10))
}

async fn import(store: &dyn ImageStore, images: &[&str]) {
    let compressed = archive(images, 20_000);
    let tar = zstd::decode_all(compressed.as_slice()).unwrap();
    store.import(Box::new(std::io::Cursor::new(tar))).await.unwrap();
}

/// The ISO of a release, served as the manager's Deployment serves it.
async fn serve_iso(iso: &Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/harvester-iso", listener.local_addr().unwrap());
    let iso = Arc::new(Iso::open(iso).unwrap());
    tokio::spawn(serve(
        listener,
        iso,
        Limits::REPOSITORY,
        Clock::system(),
        std::future::pending(),
    ));
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn from_the_iso_into_containerd_and_exactly_the_stale_ones_out_again() {
    let Some(containerd) = Containerd::start().await else {
        return;
    };
    let store = containerd.store();
    import(&store, &PREVIOUS_IMAGES).await;
    import(&store, &["registry.example:5000/mirror/old-component:v3"]).await;

    let sources = Sources::new();
    for (path, content) in release_files(300_000) {
        sources.add(&path, &content);
    }
    let url = serve_iso(&sources.iso()).await;
    let shown = Shown::default();
    let (summary, done) =
        support::prepare(&url, Box::new(store.clone()), containerd.root(), plan(), shown.clone()).await;
    done.unwrap();
    assert_eq!(summary.imported, [COMMON, RKE2]);
    let present = store.list().await.unwrap();
    for image in COMMON_IMAGES.iter().chain(&RKE2_IMAGES) {
        assert!(present.contains(*image), "{image} is not in {present:?}");
    }
    for (folder, path) in [(RKE2_FOLDER, RKE2), (AGENT_FOLDER, AGENT)] {
        let saved = containerd.root().join(folder).join(path.rsplit('/').next().unwrap());
        assert!(std::fs::read(saved).unwrap() == release_files(300_000)[path]);
    }

    // Again: nothing is imported, nothing is written.
    let (summary, done) = support::prepare(&url, Box::new(store.clone()), containerd.root(), plan(), shown).await;
    done.unwrap();
    assert_eq!((summary.imported.len(), summary.written.len()), (0, 0));
    assert_eq!((summary.skipped.len(), summary.kept.len()), (2, 4));

    // What the new release no longer has goes, from whatever registry it came.
    let current: Vec<String> = COMMON_IMAGES
        .iter()
        .chain(&RKE2_IMAGES)
        .map(|name| (*name).to_owned())
        .collect();
    let stale = rules::stale_images::stale(&strings(&PREVIOUS_IMAGES), &current);
    assert_eq!(
        stale,
        [
            "docker.io/rancher/harvester:v1.7.1",
            "docker.io/rancher/old-component:v3"
        ]
    );
    let runtime: Box<dyn Runtime> = if containerd.add_crictl() {
        Box::new(Crictl::of_host(containerd.root()).unwrap())
    } else {
        Box::new(store.clone())
    };
    let cleaned = clean(runtime.as_ref(), &stale, &plenty()).await.unwrap();
    assert_eq!(cleaned.failed, []);
    let (nameless, mut named): (Vec<String>, Vec<String>) = cleaned
        .removed
        .into_iter()
        .partition(|name| name.starts_with("sha256:"));
    named.sort();
    let mirrored = "registry.example:5000/mirror/old-component:v3".to_owned();
    assert_eq!(named, [stale, vec![mirrored]].concat());
    assert_eq!(nameless.len(), 1, "the old image whose name the new release took over");
    let mut expected: BTreeSet<String> = current.into_iter().collect();
    expected.insert("docker.io/rancher/harvester-upgrade-toolkit:v1.7.1".to_owned());
    assert_eq!(store.list().await.unwrap(), expected);

    // And a second time there is nothing left to remove.
    let again = clean(runtime.as_ref(), &named, &plenty()).await.unwrap();
    assert!(again.removed.is_empty() && again.failed.is_empty(), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s07_a_blob_that_is_not_what_its_digest_says_is_refused_by_name_and_nothing_is_imported() {
    let Some(containerd) = Containerd::start().await else {
        return;
    };
    let store = containerd.store();
    // Another configuration under the name of the right one: what the image runs, and as whom.
    let change_config = |config: &mut Vec<u8>, _: &mut Vec<u8>| {
        let text = String::from_utf8(std::mem::take(config)).unwrap();
        *config = text
            .replace("\"config\":{}", "\"config\":{\"User\":\"root\"}")
            .into_bytes();
    };
    let change_layer = |_: &mut Vec<u8>, layer: &mut Vec<u8>| layer[700] ^= 1;
    let changed = tampered(&["docker.io/evil/changed:v1"], 20_000, change_config);
    let tar = zstd::decode_all(changed.as_slice()).unwrap();
    store.import(Box::new(std::io::Cursor::new(tar))).await.unwrap();
    let present = store.list().await.unwrap();
    assert!(
        present.contains("docker.io/evil/changed:v1"),
        "containerd refuses it itself: this test shows nothing"
    );
    for (change, words) in [
        (
            change_config as fn(&mut Vec<u8>, &mut Vec<u8>),
            ".json is refused: its SHA-256 is",
        ),
        (change_layer, "layer.tar is refused: its SHA-256 is"),
    ] {
        let mut files = release_files(300_000);
        files.insert(COMMON.to_owned(), tampered(&COMMON_IMAGES, 300_000, change));
        let hostile = Hostile::start(files).await;
        let place = Box::new(store.clone());
        let (summary, done) = support::prepare(&hostile.url, place, containerd.root(), plan(), Shown::default()).await;
        let error = done.unwrap_err().to_string();
        assert!(error.contains(COMMON) && error.contains(words), "{error}");
        assert_eq!(summary.imported, Vec::<String>::new());
        let present = store.list().await.unwrap();
        let of_release = COMMON_IMAGES.iter().find(|image| present.contains(**image));
        assert_eq!(of_release, None, "{present:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_breaks_reaches_containerd_whole_or_not_at_all() {
    let Some(containerd) = Containerd::start().await else {
        return;
    };
    let store = containerd.store();
    let repository = Hostile::start(release_files(300_000)).await;
    repository
        .always(COMMON, ServerFault::CutAfter(0))
        .faults(COMMON, [ServerFault::CutAfter(200_000)]);
    let prepare = || {
        support::prepare(
            &repository.url,
            Box::new(store.clone()),
            containerd.root(),
            plan(),
            Shown::default(),
        )
    };
    let error = prepare().await.1.unwrap_err();
    assert!(error.to_string().contains("gave up after"), "{error}");
    assert!(store.list().await.unwrap().is_empty());

    // Cut in the middle of the import, the stream goes on in the same import.
    repository.behave();
    repository.requests();
    repository.faults(COMMON, [ServerFault::CutAfter(200_000), ServerFault::CutAfter(300_000)]);
    prepare().await.1.unwrap();
    let present = store.list().await.unwrap();
    assert!(
        COMMON_IMAGES.iter().all(|image| present.contains(*image)),
        "{present:?}"
    );
    let gets = repository
        .requests()
        .iter()
        .filter(|request| request.starts_with(&format!("GET {COMMON}")))
        .count();
    assert_eq!(gets, 3, "one stream over three connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_crictl_ctr_removes_the_same() {
    let Some(containerd) = Containerd::start().await else {
        return;
    };
    let store = containerd.store();
    import(&store, &PREVIOUS_IMAGES).await;
    // Two names of one image: the tag of the other would go with it.
    import(&store, &["docker.io/rancher/shared:v1"]).await;
    containerd.tag("docker.io/rancher/shared:v1", "docker.io/rancher/still-needed:v2");

    let targets = strings(&["docker.io/rancher/old-component:v3", "docker.io/rancher/shared:v1"]);
    let cleaned = clean(&store, &targets, &plenty()).await.unwrap();
    assert_eq!(cleaned.removed, ["docker.io/rancher/old-component:v3"]);
    assert_eq!(
        cleaned.kept,
        [("docker.io/rancher/shared:v1".to_owned(), Stays::SharesName)]
    );
    let left = store.list().await.unwrap();
    assert!(left.contains("docker.io/rancher/still-needed:v2") && !left.contains("docker.io/rancher/old-component:v3"));
    assert_eq!(left.len(), 5, "{left:?}");
}
