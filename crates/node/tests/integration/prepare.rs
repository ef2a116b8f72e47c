//! What `prepare` brings, checks and says, and when it ends.

use crate::support;
use std::{
    os::unix::fs::symlink,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{
    PATIENCE,
    archive::{AGENT, COMMON, COMMON_LIST, RKE2},
    bench::Bench,
    hostile::ServerFault::{CutAfter, Status},
    memory_store::{MemoryStore, Refusing, Watched},
    plan,
};
use clock::Clock;
use node::images::{
    Prepare, Repository,
    eligibility::PlanFacts,
    prepare::{PlanSource, STEPS},
};
use program::{board::NoBoard, report::Reporter, step};
use rstest::rstest;

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
    assert_eq!(bench.memory_store.imports(), 2, "those of the first run");
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
    assert_eq!(bench.memory_store.imports(), 0);
}

#[tokio::test]
async fn f02_a_list_that_fails_for_a_while_is_requested_again() {
    let bench = Bench::new().await;
    bench
        .repository
        .faults(COMMON_LIST, [Status(500), CutAfter(5), Status(502)]);
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
    let store = Box::new(Watched {
        memory_store: bench.memory_store.clone(),
        board: bench.board.clone(),
    });
    let (url, root) = (&bench.repository.url, bench.root.path());
    let (_, done) = support::prepare(url, store, root, plan(), bench.board.clone()).await;
    done.unwrap();
    let shown = bench.board.0.lock().unwrap().0.clone();
    let common = shown
        .iter()
        .find(|item| item.object.as_ref().is_some_and(|object| object.contains(COMMON)));
    let common = common.expect("the archive is shown");
    assert_eq!(common.what, "ImagePreload");
    let message = common.message.as_deref().unwrap();
    assert!(
        message.starts_with("importing ")
            && message.contains(", archive 1 of ")
            && message.contains(": 0.0 MiB of 0.5 MiB"),
        "{message}"
    );
    assert!(common.deadline.is_some());
}

#[tokio::test(start_paused = true)]
async fn f06_a_repository_that_never_answers_ends_the_program_in_time() {
    let clock = Clock::simulated("2026-03-13T03:57:09Z".parse().unwrap(), 1.0);
    // No server listens on this port: it was free just before.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let repository = Repository::new(&format!("http://{free}/harvester-iso"), None, clock.clone(), PATIENCE).unwrap();
    let root = tempfile::tempdir().unwrap();
    let program = Prepare::new(
        repository,
        Box::new(MemoryStore::default()),
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

/// Runs `prepare` with a store; hours pass in moments.
async fn prepare_into(bench: &Bench, store: Refusing) -> program::Result<()> {
    let clock = Clock::simulated("2026-03-13T03:57:09Z".parse().unwrap(), 100.0);
    let repository = Repository::new(&bench.repository.url, None, clock.clone(), PATIENCE).unwrap();
    let program = Prepare::new(
        repository,
        Box::new(store),
        bench.root.path(),
        PlanSource::Known(plan()),
    );
    step::run_all(&program, STEPS, &Reporter::new(clock, Arc::new(bench.board.clone()))).await
}

#[tokio::test]
async fn f18_a_containerd_that_restarts_again_and_again_is_waited_for() {
    let bench = Bench::new().await;
    let store = Refusing {
        memory_store: bench.memory_store.clone(),
        refusals: Arc::new(Mutex::new(5)),
        is_away_for: 2,
        ..Refusing::default()
    };
    prepare_into(&bench, store).await.unwrap();
    bench.assert_complete();
    let shown = bench.board.0.lock().unwrap().0.clone();
    assert!(shown.iter().any(|item| item.what == "Retry"), "people see why");
}

#[tokio::test]
async fn an_archive_that_a_running_containerd_refuses_is_given_up() {
    let bench = Bench::new().await;
    let refusals = Arc::new(Mutex::new(100));
    let store = Refusing {
        memory_store: bench.memory_store.clone(),
        refusals: refusals.clone(),
        ..Refusing::default()
    };
    let complaint = prepare_into(&bench, store).await.unwrap_err().to_string();
    assert!(
        complaint.contains("ctr was stopped; gave up after 3 tries"),
        "{complaint}"
    );
    assert_eq!(*refusals.lock().unwrap(), 97);
}

#[tokio::test]
async fn f12_files_go_where_links_of_the_node_lead_and_never_out_of_it() {
    let bench = Bench::new().await;
    let outside = tempfile::tempdir().unwrap();
    // Where the link leads on the node. The same path of this machine is in a folder of this test: a program that follows the
    // link out of the node does no harm, and is seen.
    let data = outside.path().join("rancher");
    let at = |path: &Path| bench.root.path().join(path.strip_prefix("/").unwrap_or(path));
    std::fs::create_dir_all(at(Path::new("var/lib"))).unwrap();
    let images = at(&data).join("rke2/agent/images");
    std::fs::create_dir_all(&images).unwrap();
    std::fs::create_dir_all(&data).unwrap();
    symlink(&data, at(Path::new("var/lib/rancher"))).unwrap();
    // A file that is a link out of the node is replaced, not followed; what it leads to has the right content.
    let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let elsewhere = outside.path().join(name(RKE2));
    std::fs::write(&elsewhere, &bench.files[RKE2]).unwrap();
    let link = images.join(name(RKE2));
    symlink(&elsewhere, &link).unwrap();
    bench.prepare().await.1.unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_file());
    assert!(std::fs::read(&link).unwrap() == bench.files[RKE2]);
    assert!(at(&data).join("agent/images").join(name(AGENT)).is_file());
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0, "nothing left the node");
}

/// A cluster that answers everything with the same.
fn cluster(status: u16, body: &serde_json::Value) -> kube::Client {
    let body = body.to_string();
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let answer = http::Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .body(kube::client::Body::from(body.clone().into_bytes()));
        std::future::ready(Ok::<_, std::convert::Infallible>(answer.unwrap()))
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn the_plan_in_the_cluster_says_whether_its_release_may_be_brought() {
    let bench = Bench::new().await;
    let plan_of = |previous: &str, force: bool| {
        serde_json::json!({
            "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "metadata": {"name": "up"},
            "spec": {"version": "v1.8.0", "force": force},
            "status": {"previousVersion": previous, "releaseMetadata": {"harvester": "v1.8.0"}},
        })
    };
    let gone = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
        "reason": "NotFound", "message": "upgradeplans.management.harvesterhci.io \"up\" not found"});
    let cases = [
        (200, plan_of("v1.7.1", false), None),
        (
            200,
            plan_of("v1.6.0", false),
            Some("Harvester v1.6.0 cannot be upgraded to v1.8.0"),
        ),
        (200, plan_of("v1.6.0", true), None),
        (404, gone, Some("failed to read UpgradePlan up")),
    ];
    for (status, answer, why) in cases {
        let clock = Clock::system();
        let plans = PlanSource::Cluster {
            plans: Box::new(kube::Api::all(cluster(status, &answer))),
            name: "up".to_owned(),
        };
        let repository = Repository::new(&bench.repository.url, None, clock.clone(), PATIENCE).unwrap();
        let program = Prepare::new(
            repository,
            Box::new(bench.memory_store.clone()),
            bench.root.path(),
            plans,
        );
        let done = step::run_all(&program, STEPS, &Reporter::new(clock, Arc::new(NoBoard))).await;
        match (done, why) {
            (Ok(()), None) => {}
            (Err(error), Some(why)) => assert!(error.to_string().contains(why), "{error}"),
            (done, why) => panic!("{done:?} instead of {why:?}"),
        }
    }
}
