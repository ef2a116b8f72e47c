//! The image of the operating system comes from a repository that misbehaves.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use crate::support::{
    PATIENCE,
    hostile::{
        Hostile,
        ServerFault::{CutAfter, Status},
    },
};
use clock::Clock;
use node::{images::Repository, node_run::Repository as _};
use program::{board::NoBoard, report::Reporter, step::StepContext};

const IMAGE: &str = "rootfs.squashfs";

fn content(byte: u8) -> Vec<u8> {
    (0..300_000_u32)
        .map(|number| byte.wrapping_add(number.to_le_bytes()[0]))
        .collect()
}

async fn repository() -> Hostile {
    Hostile::start(BTreeMap::from([(IMAGE.to_owned(), content(1))])).await
}

async fn save(hostile: &Hostile, to: &Path) -> program::Result<()> {
    let clock = Clock::system();
    let report = Reporter::new(clock.clone(), Arc::new(NoBoard));
    let deadline = clock.now().saturating_add(Duration::from_secs(60)).unwrap();
    let ctx = StepContext {
        report: &report,
        deadline,
        limit: Duration::from_hours(1),
    };
    Repository::new(&hostile.url, None, clock.clone(), PATIENCE)
        .unwrap()
        .save(IMAGE, to, ctx)
        .await
}

#[tokio::test]
async fn it_continues_where_the_connection_was_cut_and_is_not_fetched_twice() {
    let hostile = repository().await;
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("upgrade_tmp").join(IMAGE);
    hostile.faults(IMAGE, [CutAfter(0), CutAfter(100_000), Status(503), CutAfter(50_000)]);
    save(&hostile, &to).await.unwrap();
    assert_eq!(fs::read(&to).unwrap(), content(1));
    let sent = hostile.sent();
    assert!(sent < 310_000, "{sent} bytes for 300000");
    save(&hostile, &to).await.unwrap();
    assert!(hostile.sent() - sent < 1_000, "it was there");
}

#[tokio::test]
async fn a_program_that_was_killed_continues_and_until_then_there_is_no_file_of_that_name() {
    let hostile = repository().await;
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join(IMAGE);
    hostile.always(IMAGE, CutAfter(0)).faults(IMAGE, [CutAfter(200_000)]);
    let error = save(&hostile, &to).await.unwrap_err();
    assert!(
        error.to_string().contains("broke off after 200000 of 300000 bytes"),
        "{error}"
    );
    assert!(!to.exists());
    hostile.behave();
    let before = hostile.sent();
    save(&hostile, &to).await.unwrap();
    assert_eq!(fs::read(&to).unwrap(), content(1));
    assert!(hostile.sent() - before < 110_000, "only the rest was fetched");
}

#[tokio::test]
async fn after_a_power_failure_only_what_was_synced_is_trusted() {
    let hostile = repository().await;
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join(IMAGE);
    hostile.always(IMAGE, CutAfter(0)).faults(IMAGE, [CutAfter(200_000)]);
    save(&hostile, &to).await.unwrap_err();
    // The length of the file survived, its last pages and the note about them did not.
    let (partial, note) = (
        directory.path().join(".rootfs.squashfs.partial"),
        directory.path().join(".rootfs.squashfs.version"),
    );
    let mut lost = fs::read(&partial).unwrap();
    assert_eq!(lost.len(), 200_000);
    lost[120_000..].fill(0);
    fs::write(&partial, lost).unwrap();
    fs::write(&note, fs::read_to_string(&note).unwrap().replace("200000", "120000")).unwrap();
    hostile.behave();
    let before = hostile.sent();
    save(&hostile, &to).await.unwrap();
    assert_eq!(fs::read(&to).unwrap(), content(1));
    assert!(
        (180_000..190_000).contains(&(hostile.sent() - before)),
        "what was certain is not fetched again"
    );
    // An invalid record: everything is downloaded again.
    fs::write(&note, "{").unwrap();
    save(&hostile, &to).await.unwrap();
    assert_eq!(fs::read(&to).unwrap(), content(1));
}

#[tokio::test]
async fn another_image_of_the_same_size_replaces_it() {
    let hostile = repository().await;
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join(IMAGE);
    save(&hostile, &to).await.unwrap();
    hostile.put(IMAGE, content(2));
    save(&hostile, &to).await.unwrap();
    assert_eq!(fs::read(&to).unwrap(), content(2));
}

#[tokio::test]
async fn an_image_that_is_not_there_is_named() {
    let hostile = repository().await;
    hostile.remove(IMAGE);
    let directory = tempfile::tempdir().unwrap();
    let error = save(&hostile, &directory.path().join(IMAGE)).await.unwrap_err();
    assert!(
        error.to_string().contains("rootfs.squashfs") && !error.is_transient(),
        "{error}"
    );
}
