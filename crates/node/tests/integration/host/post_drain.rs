//! `post-drain`.

use std::time::Duration;

use apiserver::{Fault, FaultPlan};
use node::{host::Ended, limits::Limits, post_drain::steps};

use crate::host::{
    fake_node::{NEW_OS, OLD_OS, RKE2, changes},
    programs::Cluster,
};

async fn drained() -> Cluster {
    let cluster = Cluster::new(3).await;
    cluster.kubelet_becomes(RKE2).await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_drained_node_gets_its_files_its_system_and_a_guard_that_reboots_it() {
    let cluster = drained().await;
    let before = cluster.node.files();
    cluster.run(steps).await.unwrap();
    insta::assert_snapshot!("post_drain_files", changes(&before, &cluster.node.files()));
    insta::assert_snapshot!("post_drain_calls", cluster.node.tools.take_calls().join("\n"));
    assert!(cluster.node.tools.mounts.lock().unwrap().is_empty());
    assert_eq!(
        *cluster.harness.board.termination_message.lock().unwrap(),
        "RebootArmed: b00t-1"
    );
}

#[tokio::test(start_paused = true)]
async fn a_second_run_touches_nothing_and_installs_nothing() {
    let cluster = drained().await;
    cluster.run(steps).await.unwrap();
    cluster.node.tools.take_calls();
    let before = cluster.node.identities();
    let version = cluster.harness.server.store().resource_version();
    cluster.run(steps).await.unwrap();
    assert_eq!(cluster.node.identities(), before);
    assert_eq!(
        cluster.harness.server.store().resource_version(),
        version,
        "nothing was written to the cluster"
    );
    // What is left are questions, and the guard, which starts again.
    assert_eq!(
        cluster.node.tools.take_calls(),
        [
            "host: nproc",
            "host: grub2-editenv /oem/grubenv list",
            "host: systemctl daemon-reload",
            "host: systemctl restart upgrade-reboot.service",
        ]
    );
    assert_eq!(*cluster.node.repository.saved.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn f03_an_image_that_is_none_is_not_installed_and_is_fetched_again() {
    let cluster = drained().await;
    *cluster.node.repository.image.lock().unwrap() = Some(vec![0; 4096]);
    let error = cluster.run(steps).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "rootfs.squashfs from the repository cannot be installed: it is no squashfs"
    );
    let calls = cluster.node.tools.take_calls();
    assert!(!calls.iter().any(|call| call.contains("elemental")), "{calls:#?}");
    *cluster.node.repository.image.lock().unwrap() = None;
    cluster.run(steps).await.unwrap();
    assert_eq!(*cluster.node.repository.saved.lock().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_runs_the_new_system_is_not_rebooted() {
    let cluster = drained().await;
    cluster.node.reboot_into(NEW_OS);
    cluster.run(steps).await.unwrap();
    assert_eq!(cluster.node.tools.take_calls(), ["host: nproc"]);
    assert!(cluster.node.read("run/upgrade-reboot.sh").is_none());
    assert_eq!(*cluster.node.repository.saved.lock().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_fell_back_to_the_old_system_gets_the_new_one_again() {
    let cluster = drained().await;
    cluster.run(steps).await.unwrap();
    cluster.node.tools.take_calls();
    cluster.node.reboot_into(OLD_OS);
    cluster.run(steps).await.unwrap();
    let calls = cluster.node.tools.take_calls();
    assert_eq!(
        calls.iter().filter(|call| call.contains("elemental upgrade")).count(),
        1,
        "{calls:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn rke2_is_waited_for_by_its_version() {
    let cluster = Cluster::new(3).await;
    let (ended, ()) = cluster
        .run_while(steps, async {
            cluster
                .until_waiting_for("its kubelet is v1.34.1+rke2r1 instead of v1.35.2+rke2r1")
                .await;
            assert!(
                cluster
                    .node
                    .read("etc/rancher/rke2/config.yaml.d/99-max-pods.yaml")
                    .is_some()
            );
            assert!(
                cluster
                    .node
                    .read("var/lib/rancher/rke2/agent/images/rke2-images.linux-amd64.txt")
                    .is_some()
            );
            cluster.kubelet_becomes(RKE2).await;
        })
        .await;
    ended.unwrap();
    assert!(
        cluster
            .node
            .read("var/lib/rancher/rke2/agent/images/rke2-images.linux-amd64.txt")
            .is_none()
    );
    assert!(
        cluster
            .node
            .read("var/lib/rancher/rke2/agent/images/users-own.tar")
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn an_rke2_that_never_comes_ends_the_program_with_a_name() {
    let cluster = Cluster::new(3).await;
    let limits = Limits {
        rke2: Duration::from_mins(20),
        ..Limits::default()
    };
    let error = node::post_drain::run(&cluster.begin(), &limits, &cluster.harness.reporter())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("step wait-for-rke2 did not end within 1200s: Rancher has not"),
        "{error}"
    );
    assert!(
        cluster
            .harness
            .board
            .termination_message
            .lock()
            .unwrap()
            .starts_with("wait-for-rke2: ")
    );
}

#[tokio::test(start_paused = true)]
async fn a_repository_or_an_api_server_that_is_away_for_a_while_is_waited_for() {
    let cluster = drained().await;
    *cluster.node.repository.broken.lock().unwrap() = true;
    let (ended, ()) = cluster
        .run_while(steps, async {
            cluster.until_waiting_for("503 Service Unavailable").await;
            let away = cluster.harness.clock.now() + Duration::from_mins(2);
            let clock = cluster.harness.clock.clone();
            cluster
                .harness
                .server
                .set_faults(FaultPlan::writes(|_| Fault::Reject(503)).with_reads(move |_| {
                    if clock.now() < away {
                        apiserver::ReadFault::Reject(503)
                    } else {
                        apiserver::ReadFault::None
                    }
                }));
            *cluster.node.repository.broken.lock().unwrap() = false;
            cluster.harness.clock.sleep(Duration::from_mins(4)).await;
            cluster.harness.server.set_faults(FaultPlan::none());
        })
        .await;
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn elemental_that_fails_says_why_and_leaves_no_reboot_and_no_mess() {
    let cluster = drained().await;
    cluster
        .node
        .tools
        .answer("/run/upgrade-toolkit/elemental upgrade", Ended::with_code(33));
    let error = cluster.run(steps).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("elemental failed to install Harvester v1.9.0 with code 33"),
        "{error}"
    );
    assert!(cluster.node.read("run/upgrade-reboot.sh").is_none());
    assert!(!cluster.node.root().join("run/upgrade-toolkit").exists());
    assert!(cluster.node.tools.mounts.lock().unwrap().is_empty());
    // The Job's next attempt finds the image and continues.
    cluster
        .node
        .tools
        .answer("/run/upgrade-toolkit/elemental upgrade", Ended::default());
    cluster.run(steps).await.unwrap();
    assert_eq!(*cluster.node.repository.saved.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_old_c_library_and_a_disk_of_many_paths_are_worked_around_and_restored() {
    let cluster = drained().await;
    let complaint = Ended {
        code: 1,
        stdout: String::new(),
        stderr: "elemental: /lib64/libc.so.6: version `GLIBC_2.38' not found\n".to_owned(),
    };
    cluster
        .node
        .tools
        .answer("/run/upgrade-toolkit/elemental version", complaint);
    cluster
        .node
        .tools
        .answer("blkid", Ended::well("/dev/mapper/mpatha-part3\n"));
    cluster.run(steps).await.unwrap();
    let calls = cluster.node.tools.take_calls().join("\n");
    for expected in [
        "host: mount -L COS_STATE /run/cos/state",
        "container: mount --bind /lib64 $ROOT/lib64",
        "container: umount $ROOT/lib64",
        "container: umount $ROOT/run/cos/state",
    ] {
        assert!(calls.contains(expected), "{expected} is missing in\n{calls}");
    }
    assert!(cluster.node.tools.mounts.lock().unwrap().is_empty());
}

/// A whole run, for comparison.
async fn undisturbed() -> (std::collections::BTreeMap<String, String>, Vec<String>) {
    let cluster = drained().await;
    cluster.run(steps).await.unwrap();
    (cluster.node.files(), cluster.taints().await)
}

#[tokio::test(start_paused = true)]
async fn killed_after_any_step_and_started_again_it_ends_the_same() {
    let expected = undisturbed().await;
    for done in 0..steps(&Limits::default()).len() {
        let cluster = drained().await;
        cluster.run_part(steps, done).await.unwrap();
        cluster.run(steps).await.unwrap();
        assert_eq!(
            (cluster.node.files(), cluster.taints().await),
            expected,
            "killed after {done} steps"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn killed_after_any_call_of_a_tool_and_started_again_it_ends_the_same() {
    let expected = undisturbed().await;
    for number in 1.. {
        let cluster = drained().await;
        let killed = cluster.run_until_call(steps, number).await;
        cluster.run(steps).await.unwrap();
        assert_eq!(
            (cluster.node.files(), cluster.taints().await),
            expected,
            "killed after call {number}"
        );
        if !killed {
            assert!(number > 15, "there are more calls than {number}");
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s13_what_others_put_into_tmp_is_neither_run_nor_written_through() {
    use std::{fs, os::unix::fs::symlink};
    let cluster = drained().await;
    let root = cluster.node.root();
    fs::create_dir_all(root.join("tmp")).unwrap();
    fs::write(root.join("etc/victim"), "of root").unwrap();
    fs::create_dir_all(root.join("etc/victims")).unwrap();
    fs::write(root.join("etc/victims/elemental"), "of another client").unwrap();
    // Every user on a node may write to /tmp. The names are those that were used there.
    symlink("/etc/victim", root.join("tmp/upgrade-reboot.sh")).unwrap();
    symlink("/etc/victims", root.join("tmp/upgrade-toolkit")).unwrap();
    cluster.run(steps).await.unwrap();
    assert_eq!(cluster.node.read("etc/victim").as_deref(), Some("of root"));
    assert_eq!(
        cluster.node.read("etc/victims/elemental").as_deref(),
        Some("of another client")
    );
    let calls = cluster.node.tools.take_calls();
    let in_tmp: Vec<&String> = calls.iter().filter(|call| call.contains("/tmp/")).collect();
    assert!(in_tmp.is_empty(), "{in_tmp:#?}");
}
