//! Downloads from a repository that misbehaves: cut connections, errors, short, damaged and changed files.

use std::fs;

use crate::support::{
    archive::{self, AGENT, COMMON, COMMON_IMAGES, RKE2, add_checksums, release_files},
    bench::{Bench, LAYER, names},
    hostile::ServerFault::{Becomes, CutAfter, Damage, Status},
};
use node::images::prepare::AGENT_FOLDER;
use rstest::rstest;

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
    bench.repository.faults(COMMON, cuts.clone()).faults(AGENT, cuts);
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
        .faults(COMMON, [CutAfter(100_000), CutAfter(150_000)])
        .faults(RKE2, [CutAfter(90_000)]);
    bench.repository.faults(AGENT, [CutAfter(90_000)]);
    bench.prepare().await.1.unwrap();
    bench.assert_complete();
}

#[tokio::test]
async fn f03_a_download_that_never_ends_is_an_error_and_leaves_no_file_under_its_name() {
    let bench = Bench::new().await;
    bench
        .repository
        .always(AGENT, CutAfter(0))
        .faults(AGENT, [CutAfter(70_000)]);
    let complaint = bench.complaint().await;
    assert!(complaint.contains("broke off after 70000 of"), "{complaint}");
    assert!(complaint.contains("gave up after 4 tries"), "{complaint}");
    assert_eq!(bench.saved(AGENT), None);
    let termination_message = bench.board.0.lock().unwrap().1.clone();
    assert!(termination_message.starts_with("save-agent: "), "{termination_message}");

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
        .faults(AGENT, [CutAfter(70_000)]);
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
    let names = bench.memory_store.names();
    assert!(path != COMMON || names.is_empty(), "{names:?}");
}

#[tokio::test]
async fn f04_damage_on_the_way_is_seen_by_checksum_and_made_good() {
    let mut files = release_files(LAYER);
    add_checksums(&mut files);
    let bench = Bench::with(files).await;
    bench
        .repository
        .faults(COMMON, [Damage])
        .faults(RKE2, [Damage])
        .faults(AGENT, [Damage]);
    bench.prepare().await.1.unwrap();
    bench.assert_complete();
}

#[tokio::test]
async fn f04_an_archive_with_another_checksum_or_size_than_promised_is_refused() {
    let mut files = release_files(LAYER);
    add_checksums(&mut files);
    let other = archive::archive(&COMMON_IMAGES, LAYER + 4096);
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
    assert!(bench.memory_store.names().is_empty(), "nothing of it was taken in");
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
    bench.repository.faults(AGENT, [CutAfter(70_000), Becomes(new.clone())]);
    bench.prepare().await.1.unwrap();
    bench.files.insert(AGENT.to_owned(), new);
    bench.assert_complete();
}
