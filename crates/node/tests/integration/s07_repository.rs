//! S-07: another server answers as the repository. What it serves does not match the record, and is refused by name; nothing
//! is imported and nothing is left behind.

use crate::support;
use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use crate::support::{
    PATIENCE,
    archive::{self, AGENT, COMMON, COMMON_IMAGES, COMMON_LIST, RKE2, hex, manifest as manifest_of, release_files},
    bench::{Bench, LAYER, names},
    hostile::{Hostile, ServerFault::Damage},
    plan,
};
use clock::Clock;
use node::{images::Repository, node_run::Repository as _};
use program::{Error, board::NoBoard, report::Reporter, step::StepContext};
use release::{
    bundle::Sha256Sum,
    manifest::{self, ROOTFS},
    testing::SAMPLE_RELEASE,
};

const MANIFEST: &str = "harvester-iso.manifest";

/// A repository as it is when the manager records its manifest, and the digest of that.
async fn recorded() -> (Bench, Sha256Sum) {
    let mut files = release_files(LAYER);
    let text = manifest_of(&files);
    let root = manifest::sha256(text.as_bytes());
    files.insert(MANIFEST.to_owned(), text.into());
    (Bench::with(files).await, root)
}

async fn prepare(bench: &Bench, root: Option<&Sha256Sum>) -> program::Result<()> {
    let store = Box::new(bench.memory_store.clone());
    let url = &bench.repository.url;
    let (_, done) = support::prepare_pinned(
        url,
        root.cloned(),
        store,
        bench.root.path(),
        plan(),
        bench.board.clone(),
    )
    .await;
    done
}

/// It is refused with these words, and nothing was brought that is not on record.
async fn assert_refused(bench: &Bench, root: &Sha256Sum, words: &[&str]) {
    let error = prepare(bench, Some(root)).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text} does not say {word}");
    }
    for path in [RKE2, AGENT] {
        if let Some(saved) = bench.saved(path) {
            assert!(saved == bench.files[path], "{path} is not the one on record");
        }
    }
    let folder = bench.place(RKE2).parent().unwrap().to_owned();
    let left = names(&folder);
    assert!(!left.iter().any(|name| name.ends_with(".partial")), "{left:?}");
}

/// Other images under the names of the release, in an archive of the same size.
fn forged() -> Vec<u8> {
    let real = release_files(LAYER).remove(COMMON).unwrap();
    let mut forged = archive::archive(&COMMON_IMAGES, LAYER - 1000);
    assert!(forged.len() <= real.len());
    // A frame that decompressors pass over fills it up.
    let rest = real.len() - forged.len() - 8;
    forged.extend_from_slice(&0x184D_2A50_u32.to_le_bytes());
    forged.extend_from_slice(&u32::try_from(rest).unwrap().to_le_bytes());
    forged.resize(real.len(), 0);
    forged
}

#[tokio::test]
async fn what_is_recorded_is_brought() {
    let (bench, root) = recorded().await;
    prepare(&bench, Some(&root)).await.unwrap();
    bench.assert_complete();
    prepare(&bench, Some(&root)).await.unwrap();
    assert_eq!(bench.memory_store.imports(), 2, "those of the first run");
}

#[tokio::test]
async fn s07_a_swapped_archive_is_refused_even_when_the_bundle_vouches_for_it() {
    let (bench, root) = recorded().await;
    let mut files = bench.files.clone();
    files.insert(COMMON.to_owned(), forged());
    archive::add_checksums(&mut files);
    bench.repository.put(COMMON, files[COMMON].clone());
    prepare(&bench, None)
        .await
        .expect("without a record the attack succeeds");
    let (bench, _) = recorded().await;
    bench.repository.put(COMMON, files[COMMON].clone());
    assert_refused(&bench, &root, &[COMMON, "the SHA-256 is"]).await;
    assert_eq!(bench.memory_store.imports(), 0);
    bench
        .repository
        .put("bundle/metadata.yaml", files["bundle/metadata.yaml"].clone());
    assert_refused(&bench, &root, &["bundle/metadata.yaml is refused"]).await;
    assert_eq!(bench.memory_store.imports(), 0);
}

#[tokio::test]
async fn s07_a_truncated_archive_is_refused_before_any_of_it_is_fetched() {
    let (bench, root) = recorded().await;
    let half = bench.files[COMMON][..100_000].to_vec();
    bench.repository.put(COMMON, half);
    assert_refused(&bench, &root, &[COMMON, "has 100000 bytes", "truncated"]).await;
    assert_eq!(bench.memory_store.imports(), 0);
    let fetched = bench.repository.requests();
    assert!(
        !fetched.iter().any(|request| request == &format!("GET {COMMON}")),
        "{fetched:?}"
    );
}

#[tokio::test]
async fn s07_a_swapped_list_or_release_is_refused() {
    for (path, content) in [
        (COMMON_LIST, "docker.io/evil/pwn:v1\n".to_owned()),
        ("harvester-release.yaml", SAMPLE_RELEASE.replace("v1.35.2", "v1.35.1")),
    ] {
        let (bench, root) = recorded().await;
        bench.repository.put(path, content.into());
        assert_refused(&bench, &root, &[path, "is refused", "recorded"]).await;
        assert_eq!(bench.memory_store.imports(), 0);
    }
}

#[tokio::test]
async fn s07_a_replayed_manifest_with_its_own_whole_release_is_refused() {
    let (bench, root) = recorded().await;
    let mut older = release_files(LAYER / 2);
    older.insert(MANIFEST.to_owned(), manifest_of(&older).into());
    for (path, content) in older {
        bench.repository.put(&path, content);
    }
    assert_refused(
        &bench,
        &root,
        &[MANIFEST, "is refused", root.as_str(), "another release"],
    )
    .await;
    assert_eq!(bench.memory_store.imports(), 0);
}

#[tokio::test]
async fn s07_what_a_node_has_saved_before_is_verified_too() {
    let (bench, root) = recorded().await;
    let place = bench.place(RKE2);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    let mut other = bench.files[RKE2].clone();
    other[0] ^= 1;
    fs::write(&place, other).unwrap();
    prepare(&bench, Some(&root)).await.unwrap();
    bench.assert_complete();
}

const SIZE: usize = 300_000;

async fn save(hostile: &Hostile, root: Option<&Sha256Sum>, to: &Path) -> program::Result<()> {
    let clock = Clock::system();
    let report = Reporter::new(clock.clone(), Arc::new(NoBoard));
    let ctx = StepContext {
        report: &report,
        deadline: clock.now().saturating_add(Duration::from_secs(60)).unwrap(),
        limit: Duration::from_hours(1),
    };
    let repository = Repository::new(&hostile.url, None, clock.clone(), PATIENCE)
        .unwrap()
        .pinned_to(root.cloned());
    repository.save(ROOTFS, to, ctx).await
}

#[tokio::test]
async fn s07_a_swapped_operating_system_is_refused_and_nothing_of_it_stays() {
    let mut files = BTreeMap::from([(ROOTFS.to_owned(), vec![1; SIZE])]);
    let text = manifest_of(&files);
    let root = manifest::sha256(text.as_bytes());
    files.insert(MANIFEST.to_owned(), text.into());
    let hostile = Hostile::start(files).await;
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join(ROOTFS);
    save(&hostile, Some(&root), &to).await.unwrap();
    assert_eq!(hex(&fs::read(&to).unwrap()), hex(&vec![1; SIZE]));

    hostile.put(ROOTFS, vec![2; SIZE]);
    save(&hostile, None, &to)
        .await
        .expect("without a record the attack succeeds");
    assert_eq!(fs::read(&to).unwrap()[0], 2);
    let error = save(&hostile, Some(&root), &to).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert!(error.to_string().contains("rootfs.squashfs is refused"), "{error}");
    assert_eq!(names(folder.path()), Vec::<String>::new(), "nothing of it stays");

    hostile.put(ROOTFS, vec![2; SIZE - 1]);
    let error = save(&hostile, Some(&root), &to).await.unwrap_err();
    assert!(error.to_string().contains("are recorded"), "{error}");
    // One byte in a download that broke off and was taken up again.
    hostile.put(ROOTFS, vec![1; SIZE]);
    hostile.faults(ROOTFS, [Damage]);
    save(&hostile, Some(&root), &to).await.unwrap_err();
    save(&hostile, Some(&root), &to).await.unwrap();
    assert_eq!(hex(&fs::read(&to).unwrap()), hex(&vec![1; SIZE]));
}
