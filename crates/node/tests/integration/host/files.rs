//! Files that users may have their own version of, and those that are not there.

use node::host::Ended;

use crate::host::{fake_node::RKE2, programs::Cluster};

const RESERVED: &str = "etc/rancher/rke2/config.yaml.d/99-z00-harvester-reserved-resources.yaml";
const MAX_PODS: &str = "etc/rancher/rke2/config.yaml.d/99-max-pods.yaml";
const CDI: &str = "etc/rancher/rke2/config.yaml.d/91-harvester-cdi.yaml";
const TRAEFIK: &str = "etc/rancher/rke2/config.yaml.d/99-traefik.yaml";

async fn drained() -> Cluster {
    let cluster = Cluster::new(3).await;
    cluster.kubelet_becomes(RKE2).await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_reservation_of_ours_follows_the_number_of_processors() {
    let cluster = drained().await;
    // As written, for 16 processors, by the existing toolkit.
    cluster.node.write(
        RESERVED,
        "kubelet-arg+:\n  - \"system-reserved=cpu=408m\"\n  - \"kube-reserved=cpu=612m\"\n",
    );
    cluster.run(node::post_drain::steps).await.unwrap();
    let text = cluster.node.read(RESERVED).unwrap();
    assert_eq!(
        text,
        "kubelet-arg+:\n- \"system-reserved=cpu=392m\"\n- \"kube-reserved=cpu=588m\"\n"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_user_chose_stays() {
    let cluster = drained().await;
    let own = [
        (
            RESERVED,
            "kubelet-arg+:\n- \"system-reserved=cpu=2\"\n- \"kube-reserved=cpu=2\"\n",
        ),
        (MAX_PODS, "kubelet-arg:\n- \"max-pods=400\"\n"),
        (CDI, "nonroot-devices: false\n"),
        (TRAEFIK, "ingress-controller: ingress-nginx\n"),
    ];
    for (path, text) in own {
        cluster.node.write(path, text);
    }
    let before = cluster.node.identities();
    cluster.run(node::pre_drain::steps).await.unwrap();
    cluster.run(node::post_drain::steps).await.unwrap();
    let after = cluster.node.identities();
    for (path, text) in own {
        assert_eq!(cluster.node.read(path).unwrap(), text);
        assert_eq!(after[path], before[path], "{path} was not even written");
    }
}

#[tokio::test(start_paused = true)]
async fn fewer_pods_reserve_less() {
    let cluster = drained().await;
    cluster.node.write(MAX_PODS, "kubelet-arg:\n- \"max-pods=100\"\n");
    cluster.run(node::post_drain::steps).await.unwrap();
    let text = cluster.node.read(RESERVED).unwrap();
    assert_eq!(
        text,
        "kubelet-arg+:\n- \"system-reserved=cpu=72m\"\n- \"kube-reserved=cpu=108m\"\n"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_with_external_storage_keeps_multipath() {
    let cluster = drained().await;
    cluster
        .node
        .write("oem/harvester.config", "os:\n  externalstorage:\n    enabled: true\n");
    cluster.node.write("oem/grubenv", "third_party_kernel_args=quiet\n");
    cluster.run(node::post_drain::steps).await.unwrap();
    assert_eq!(
        cluster.node.read("oem/grubenv").unwrap(),
        "third_party_kernel_args=quiet ifname=eno1:52:54:00:00:00:01 ifname=ens2:52:54:00:00:00:02\n"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_without_the_optional_files_is_upgraded_too() {
    let cluster = drained().await;
    for path in [
        "etc/ssh/sshd_config.d/sftp.conf",
        "run/initramfs/cos-state/state.yaml",
        "run/initramfs/cos-state/cOS/passive.img",
        "oem/harvester.config",
    ] {
        std::fs::remove_file(cluster.node.root().join(path)).unwrap();
    }
    std::fs::remove_file(cluster.node.elemental()).unwrap();
    cluster.run(node::pre_drain::steps).await.unwrap();
    cluster.run(node::post_drain::steps).await.unwrap();
    assert!(cluster.node.read("etc/ssh/sshd_config.d/sftp.conf").is_none());
    let calls = cluster.node.tools.take_calls();
    assert!(
        calls
            .iter()
            .all(|call| !call.contains("remount") && !call.contains("fallocate")),
        "{calls:#?}"
    );
    assert!(
        calls.iter().any(|call| call.starts_with("host: elemental upgrade")),
        "{calls:#?}"
    );
    let environment = cluster.node.read("oem/grubenv").unwrap();
    assert!(
        !environment.contains("multipath"),
        "nothing says that it may be turned off: {environment}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_for_a_while_is_tried_again_and_named() {
    let cluster = drained().await;
    let failing = Ended {
        code: 1,
        stdout: String::new(),
        stderr: "Failed to connect to bus\n".to_owned(),
    };
    cluster.node.tools.answer("systemctl daemon-reload", failing);
    let (ended, ()) = cluster
        .run_while(node::pre_drain::steps, async {
            cluster
                .until_waiting_for("systemctl daemon-reload ended with code 1: Failed to connect to bus")
                .await;
            cluster.node.tools.answer("systemctl daemon-reload", Ended::default());
        })
        .await;
    ended.unwrap();
}
