//! `prepare` against a repository that misbehaves: cut connections, errors, short, damaged and changed files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use clock::Clock;
use node::{
    Error,
    board::NoBoard,
    images::{
        Prepare, Repository, Summary,
        eligibility::PlanFacts,
        prepare::{AGENT_FOLDER, PlanSource, RKE2_FOLDER, STEPS},
    },
    report::Reporter,
    step,
};
use rstest::rstest;
use support::{
    PATIENCE, Shown,
    archive::{self, AGENT, COMMON, COMMON_IMAGES, COMMON_LIST, RKE2, add_checksums, release_files},
    hostile::{
        Hostile,
        Trick::{Becomes, CutAfter, Damage, Status},
    },
    plan,
    shelf::Shelf,
};
use tempfile::TempDir;

const LAYER: usize = 200_000;

/// A node with nothing on it, and a repository.
struct Bench {
    repository: Hostile,
    files: BTreeMap<String, Vec<u8>>,
    shelf: Shelf,
    root: TempDir,
    board: Shown,
}

impl Bench {
    async fn new() -> Self {
        Self::with(release_files(LAYER)).await
    }

    async fn with(files: BTreeMap<String, Vec<u8>>) -> Self {
        Self {
            repository: Hostile::start(files.clone()).await,
            files,
            shelf: Shelf::default(),
            root: tempfile::tempdir().unwrap(),
            board: Shown::default(),
        }
    }

    async fn prepare(&self) -> (Summary, node::Result<()>) {
        self.prepare_for(plan()).await
    }

    async fn prepare_for(&self, plan: PlanFacts) -> (Summary, node::Result<()>) {
        let store = Box::new(self.shelf.clone());
        support::prepare(&self.repository.url, store, self.root.path(), plan, self.board.clone()).await
    }

    async fn complaint(&self) -> String {
        let (_, done) = self.prepare().await;
        let error = done.unwrap_err();
        assert!(matches!(error, Error::Lasting(_)), "{error:?}");
        error.to_string()
    }

    fn saved(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.place(path)).ok()
    }

    fn place(&self, path: &str) -> std::path::PathBuf {
        let folder = if path == AGENT { AGENT_FOLDER } else { RKE2_FOLDER };
        self.root.path().join(folder).join(path.rsplit('/').next().unwrap())
    }

    fn assert_complete(&self) {
        let all: Vec<String> = [&COMMON_IMAGES[..], &archive::RKE2_IMAGES]
            .concat()
            .iter()
            .map(|name| (*name).to_owned())
            .collect();
        let mut all = all;
        all.sort();
        assert_eq!(self.shelf.names(), all);
        for path in [RKE2, AGENT] {
            assert!(
                self.saved(path).as_ref() == Some(&self.files[path]),
                "{path} is not what it should be"
            );
        }
        let left: Vec<_> = [RKE2_FOLDER, AGENT_FOLDER]
            .iter()
            .flat_map(|folder| names(&self.root.path().join(folder)))
            .collect();
        assert!(!left.iter().any(|name| name.ends_with(".partial")), "{left:?}");
        assert_eq!(left.len(), 4, "a list and an archive each: {left:?}");
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[tokio::test]
async fn everything_is_brought_once_and_a_second_run_brings_nothing() {
    let bench = Bench::new().await;
    let (summary, done) = bench.prepare().await;
    done.unwrap();
    bench.assert_complete();
    assert_eq!(summary.imported, [COMMON, RKE2]);
    assert_eq!(summary.written.len(), 4);
    assert_eq!(bench.board.0.lock().unwrap().1, "done");

    bench.repository.requests();
    let sent = bench.repository.sent();
    let (summary, done) = bench.prepare().await;
    done.unwrap();
    assert_eq!((summary.imported.len(), summary.skipped.len()), (0, 2));
    assert_eq!((summary.written.len(), summary.kept.len()), (0, 4));
    assert_eq!(bench.shelf.imports(), 2, "those of the first run");
    let archives: Vec<String> = bench
        .repository
        .requests()
        .into_iter()
        .filter(|request| request.contains(".tar.zst"))
        .collect();
    assert!(
        archives.iter().all(|request| request.starts_with("HEAD")),
        "{archives:?}"
    );
    assert!(bench.repository.sent() - sent < 10_000);
}

#[rstest]
#[case(false)]
#[case(true)]
#[tokio::test]
async fn f03_a_download_goes_on_where_its_connection_was_cut(#[case] has_no_tags: bool) {
    let bench = Bench::new().await;
    if has_no_tags {
        bench.repository.have_no_tags();
    }
    let cuts = [
        CutAfter(0),
        CutAfter(100_000),
        Status(503),
        CutAfter(1),
        CutAfter(50_000),
        Status(500),
    ];
    bench.repository.tricks(COMMON, cuts.clone()).tricks(AGENT, cuts);
    let (_, done) = bench.prepare().await;
    done.unwrap();
    bench.assert_complete();
    let requests = bench.repository.requests();
    let tag = format!("\"{}\"", &archive::hex(&bench.files[COMMON])[..16]);
    let condition = if has_no_tags { String::new() } else { format!(" {tag}") };
    assert!(
        requests.contains(&format!("GET {COMMON} bytes=100001-{condition}")),
        "{requests:#?}"
    );
    // RKE2's archive is read twice, to import and to save; the bytes of the others came once.
    let promised: usize = bench.files.values().map(Vec::len).sum::<usize>() + bench.files[RKE2].len();
    let sent = bench.repository.sent();
    assert!(sent < promised as u64 + 10_000, "{sent} bytes for {promised}");
}

#[tokio::test]
async fn a_server_without_ranges_sends_everything_again_and_what_was_known_is_passed_over() {
    let bench = Bench::new().await;
    bench.repository.ignore_ranges();
    bench
        .repository
        .tricks(COMMON, [CutAfter(100_000), CutAfter(150_000)])
        .tricks(RKE2, [CutAfter(90_000)]);
    bench.repository.tricks(AGENT, [CutAfter(90_000)]);
    bench.prepare().await.1.unwrap();
    bench.assert_complete();
}

#[tokio::test]
async fn f03_a_download_that_never_ends_is_an_error_and_leaves_no_file_under_its_name() {
    let bench = Bench::new().await;
    bench
        .repository
        .always(AGENT, CutAfter(0))
        .tricks(AGENT, [CutAfter(70_000)]);
    let complaint = bench.complaint().await;
    assert!(complaint.contains("broke off after 70000 of"), "{complaint}");
    assert!(complaint.contains("gave up after 4 tries"), "{complaint}");
    assert_eq!(bench.saved(AGENT), None);
    let last_word = bench.board.0.lock().unwrap().1.clone();
    assert!(last_word.starts_with("save-agent: "), "{last_word}");

    // The next run takes up what came.
    bench.repository.behave();
    bench.repository.requests();
    bench.prepare().await.1.unwrap();
    bench.assert_complete();
    let requests = bench.repository.requests();
    let resumed = format!("GET {AGENT} bytes=70000-");
    assert!(
        requests.iter().any(|request| request.starts_with(&resumed)),
        "{requests:#?}"
    );
}

#[tokio::test]
async fn what_was_left_of_a_damaged_or_another_version_is_not_taken_up() {
    let bench = Bench::new().await;
    bench
        .repository
        .always(AGENT, CutAfter(0))
        .tricks(AGENT, [CutAfter(70_000)]);
    bench.complaint().await;
    let folder = bench.root.path().join(AGENT_FOLDER);
    let left = names(&folder)
        .into_iter()
        .find(|name| name.ends_with(".partial"))
        .unwrap();
    fs::write(folder.join(&left), vec![7; 70_000]).unwrap();
    fs::write(
        folder.join(left.replace(".tar.zst.", ".tar.zst.0")),
        "of another version",
    )
    .unwrap();
    bench.repository.behave();
    bench.prepare().await.1.unwrap();
    bench.assert_complete();
}

#[rstest]
#[case::not_there(None, "404")]
#[case::empty(Some(""), "is empty")]
#[case::a_page(Some("<html>Welcome</html>"), "is not a list of images")]
#[tokio::test]
async fn f02_a_list_that_says_nothing_ends_the_preload_with_its_name(#[case] content: Option<&str>, #[case] why: &str) {
    let bench = Bench::new().await;
    match content {
        None => bench.repository.remove(COMMON_LIST),
        Some(text) => bench.repository.put(COMMON_LIST, text.into()),
    }
    let complaint = bench.complaint().await;
    assert!(
        complaint.contains(COMMON_LIST) && complaint.contains(why),
        "{complaint}"
    );
    assert_eq!(bench.shelf.imports(), 0);
}

#[tokio::test]
async fn f02_a_list_that_fails_for_a_while_is_asked_for_again() {
    let bench = Bench::new().await;
    bench
        .repository
        .tricks(COMMON_LIST, [Status(500), CutAfter(5), Status(502)]);
    bench.prepare().await.1.unwrap();
    bench.assert_complete();
}

#[tokio::test]
async fn f02_images_that_an_archive_lacks_are_all_named() {
    let bench = Bench::new().await;
    let list = "docker.io/rancher/not-in-it:v1\ndocker.io/rancher/pause:3.6\ndocker.io/rancher/nor-this:v2\n";
    bench.repository.put(COMMON_LIST, list.into());
    let complaint = bench.complaint().await;
    assert_eq!(
        complaint,
        "2 of 4 images are missing: docker.io/rancher/nor-this:v2, docker.io/rancher/not-in-it:v1"
    );
}

#[tokio::test]
async fn an_archive_that_is_not_there_is_an_error_at_once() {
    let bench = Bench::new().await;
    bench.repository.remove(RKE2);
    let complaint = bench.complaint().await;
    assert!(complaint.contains(RKE2) && complaint.contains("404"), "{complaint}");
}

#[rstest]
#[case(COMMON)]
#[case(AGENT)]
#[tokio::test]
async fn f04_a_damaged_archive_is_tried_again_and_then_refused(#[case] path: &str) {
    let mut files = release_files(LAYER);
    // Half of an archive, as a build that was interrupted leaves it: nothing says how long it should be.
    let whole = files[path].clone();
    files.insert(path.to_owned(), whole[..whole.len() / 2].to_vec());
    let bench = Bench::with(files).await;
    let complaint = bench.complaint().await;
    assert!(
        complaint.contains(path) && complaint.contains("incomplete frame"),
        "{complaint}"
    );
    assert!(complaint.contains("gave up after 3 tries"), "{complaint}");
    assert_eq!(bench.saved(path), None);
    let names = bench.shelf.names();
    assert!(path != COMMON || names.is_empty(), "{names:?}");
}

#[tokio::test]
async fn f04_damage_on_the_way_is_seen_by_checksum_and_made_good() {
    let mut files = release_files(LAYER);
    add_checksums(&mut files);
    let bench = Bench::with(files).await;
    bench
        .repository
        .tricks(COMMON, [Damage])
        .tricks(RKE2, [Damage])
        .tricks(AGENT, [Damage]);
    bench.prepare().await.1.unwrap();
    bench.assert_complete();
}

#[tokio::test]
async fn f04_an_archive_with_another_checksum_or_size_than_promised_is_refused() {
    let mut files = release_files(LAYER);
    add_checksums(&mut files);
    let other = archive::archive(&COMMON_IMAGES, LAYER + 1);
    let bench = Bench::with(files.clone()).await;
    bench.repository.put(COMMON, other);
    let complaint = bench.complaint().await;
    assert!(
        complaint.contains("are promised in bundle/metadata.yaml"),
        "{complaint}"
    );

    let sum = archive::hex(&files[COMMON]);
    let metadata = String::from_utf8(files["bundle/metadata.yaml"].clone()).unwrap();
    files.insert(
        "bundle/metadata.yaml".to_owned(),
        metadata.replace(&sum, &"0".repeat(64)).into(),
    );
    let bench = Bench::with(files).await;
    let complaint = bench.complaint().await;
    assert!(complaint.contains(&format!("the SHA-256 is {sum}")), "{complaint}");
    assert!(bench.shelf.names().is_empty(), "nothing of it was taken in");
}

#[tokio::test]
async fn f03_half_a_file_from_an_earlier_run_is_replaced_and_a_whole_one_kept() {
    let bench = Bench::new().await;
    for (path, length) in [(RKE2, 1000), (AGENT, bench.files[AGENT].len())] {
        fs::create_dir_all(bench.place(path).parent().unwrap()).unwrap();
        fs::write(bench.place(path), &bench.files[path][..length]).unwrap();
    }
    let (summary, done) = bench.prepare().await;
    done.unwrap();
    bench.assert_complete();
    assert_eq!(summary.kept, [AGENT.rsplit('/').next().unwrap()]);
}

#[tokio::test]
async fn a_damaged_file_of_the_right_size_is_replaced_where_checksums_are_known() {
    let mut files = release_files(LAYER);
    add_checksums(&mut files);
    let bench = Bench::with(files).await;
    fs::create_dir_all(bench.place(AGENT).parent().unwrap()).unwrap();
    fs::write(bench.place(AGENT), vec![7; bench.files[AGENT].len()]).unwrap();
    bench.prepare().await.1.unwrap();
    bench.assert_complete();
}

#[tokio::test]
async fn a_file_that_changes_on_the_way_is_read_from_its_beginning() {
    let mut bench = Bench::new().await;
    let new = archive::archive(&archive::AGENT_IMAGES, LAYER + 512);
    bench.repository.tricks(AGENT, [CutAfter(70_000), Becomes(new.clone())]);
    bench.prepare().await.1.unwrap();
    bench.files.insert(AGENT.to_owned(), new);
    bench.assert_complete();
}

#[tokio::test]
async fn a_version_that_may_not_be_upgraded_ends_it_before_anything_is_brought() {
    let bench = Bench::new().await;
    let old = PlanFacts {
        previous_version: Some("v1.6.1".to_owned()),
        ..plan()
    };
    let (_, done) = bench.prepare_for(old.clone()).await;
    let complaint = done.unwrap_err().to_string();
    assert!(
        complaint.contains("current version does not meet minimum upgrade requirement"),
        "{complaint}"
    );
    assert!(
        !bench
            .repository
            .requests()
            .iter()
            .any(|request| request.contains("images"))
    );
    let forced = PlanFacts { force: true, ..old };
    bench.prepare_for(forced).await.1.unwrap();
}

#[tokio::test]
async fn people_see_which_archive_is_brought_and_how_much_of_it() {
    let bench = Bench::new().await;
    bench.prepare().await.1.unwrap();
    let shown = bench.board.0.lock().unwrap().0.clone();
    let common = shown
        .iter()
        .find(|item| item.object.as_ref().is_some_and(|object| object.contains(COMMON)));
    let common = common.expect("the archive is shown");
    assert_eq!(common.what, "ImagePreload");
    let message = common.message.as_deref().unwrap();
    assert!(
        message.starts_with("importing archive 1 of 1: 0.0 MiB of 0.5 MiB"),
        "{message}"
    );
    assert!(common.deadline.is_some());
}

#[tokio::test(start_paused = true)]
async fn f06_a_repository_that_never_answers_ends_the_program_in_time() {
    let clock = Clock::simulated("2026-03-13T03:57:09Z".parse().unwrap(), 1.0);
    // Nobody listens on this port: it was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let repository = Repository::new(&format!("http://{free}/harvester-iso"), clock.clone(), PATIENCE);
    let root = tempfile::tempdir().unwrap();
    let program = Prepare::new(
        repository,
        Box::new(Shelf::default()),
        root.path(),
        PlanSource::Known(plan()),
    );
    let done = step::run_all(&program, STEPS, &Reporter::new(clock.clone(), Arc::new(NoBoard))).await;
    let complaint = done.unwrap_err().to_string();
    assert!(
        complaint.starts_with("step wait-for-repository did not end within 900s: failed to reach"),
        "{complaint}"
    );
    assert_eq!(clock.elapsed().as_secs(), Duration::from_secs(900).as_secs());
}
