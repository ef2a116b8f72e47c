//! Images, addons, facts, and silence.

use crate::support::*;
use serde_json::{Value, json};
use world::{Durations, Shape, Troubles, troubles::RepositoryTrouble};

const HARVESTER: &str = api::names::HARVESTER_NAMESPACE;
const IMAGE: &str = "harvesterhci.io/v1beta1/VirtualMachineImage";

fn image(retry: i64) -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": "iso", "namespace": HARVESTER},
        "spec": {
            "backend": "cdi", "displayName": "y.iso", "sourceType": "download", "url": "https://x/y.iso", "retry": retry,
        },
    })
}

#[tokio::test(start_paused = true)]
async fn an_image_is_imported_with_progress_after_failures_that_its_retries_cover() {
    let troubles = Troubles {
        iso_failures: 2,
        ..Default::default()
    };
    let cluster = test_cluster(Shape::default(), Durations::default(), troubles).await;
    cluster.create(IMAGE, image(3)).await;
    cluster
        .until(10, IMAGE, HARVESTER, "iso", |image| image["status"]["progress"] == 50)
        .await;
    let done = cluster
        .until(20, IMAGE, HARVESTER, "iso", |image| is(image, "Imported"))
        .await;
    assert_eq!(done["status"]["failed"], 2);
    assert!(
        cluster
            .get("v1/PersistentVolumeClaim", HARVESTER, "iso")
            .await
            .is_some()
    );
    cluster.delete(IMAGE, HARVESTER, "iso").await;
    cluster
        .until_gone(1, "v1/PersistentVolumeClaim", HARVESTER, "iso")
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_fails_too_often_says_so() {
    let troubles = Troubles {
        iso_failures: 9,
        ..Default::default()
    };
    let cluster = test_cluster(Shape::default(), Durations::default(), troubles).await;
    cluster.create(IMAGE, image(3)).await;
    let failed = cluster
        .until(60, IMAGE, HARVESTER, "iso", |image| is(image, "RetryLimitExceeded"))
        .await;
    assert_eq!(condition(&failed, "Imported")["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn an_addon_follows_its_switch() {
    let cluster = calm().await;
    let kind = "harvesterhci.io/v1beta1/Addon";
    cluster
        .patch(kind, "kube-system", "descheduler", json!({"spec": {"enabled": false}}))
        .await;
    cluster
        .until(5, kind, "kube-system", "descheduler", |addon| {
            addon["status"]["status"] == "AddonDisabled"
        })
        .await;
    cluster
        .patch(kind, "kube-system", "descheduler", json!({"spec": {"enabled": true}}))
        .await;
    cluster
        .until(5, kind, "kube-system", "descheduler", |addon| {
            addon["status"]["status"] == "AddonDeploySuccessful"
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn r46_charts_and_addons_have_nothing_in_their_status_but_what_the_real_ones_have() {
    let cluster = calm().await;
    let (chart, addon) = ("management.cattle.io/v3/ManagedChart", "harvesterhci.io/v1beta1/Addon");
    let newer = json!({"spec": {"version": "9.9.9"}});
    cluster
        .patch(chart, "fleet-local", "harvester-crd", newer.clone())
        .await;
    cluster.patch(addon, "kube-system", "descheduler", newer).await;
    // Both are being rolled out: the world must remember since when.
    for _ in 0..20 {
        cluster.clock.sleep(std::time::Duration::from_secs(30)).await;
        let charts = cluster.list(chart, "").await;
        let addons = cluster.list(addon, "").await;
        let mut writes = testbed::Writes::begin();
        for (group, plural, objects) in [
            ("management.cattle.io", "managedcharts", charts),
            ("harvesterhci.io", "addons", addons),
        ] {
            assert!(!objects.is_empty());
            for object in objects {
                for field in ["appliedVersion", "rollingOut", "rollingOutSince"] {
                    assert_eq!(object["status"][field], Value::Null, "{object}");
                }
                if let Some(writes) = &mut writes {
                    writes.add(group, plural, object.to_string().as_bytes());
                }
            }
        }
        assert_eq!(writes.map(|writes| writes.unknown()).unwrap_or_default(), [""; 0]);
    }
    let rolled_out = cluster.get(chart, "fleet-local", "harvester-crd").await.unwrap();
    assert_eq!(rolled_out["status"]["summary"]["ready"], 1, "{rolled_out}");
}

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_written() {
    let cluster = calm().await;
    cluster.minutes(5).await;
    let before = cluster.server.store().resource_version();
    cluster.minutes(6 * 60).await;
    assert_eq!(cluster.server.store().resource_version(), before);
}

#[tokio::test(start_paused = true)]
async fn facts_report_failures() {
    let troubles = Troubles {
        full_disks: ["node-2".to_owned()].into(),
        certificate_days: Some(3),
        repository: Some(RepositoryTrouble::Unreachable),
        ..Default::default()
    };
    let cluster = test_cluster(Shape::default(), Durations::default(), troubles).await;
    cluster.minutes(1).await;
    let used = |node: &str| {
        let (code, _, body) = cluster.facts.kubelet(node, "/stats/summary").unwrap();
        assert_eq!(code, 200);
        serde_json::from_slice::<Value>(&body).unwrap()["node"]["fs"]["usedBytes"]
            .as_u64()
            .unwrap()
    };
    assert!(used("node-2") > 2 * used("node-1"));
    assert!(cluster.facts.kubelet("nobody", "configz").is_none());
    let certificates = cluster.facts.api_certificates();
    assert_eq!(certificates.len(), 3);
    assert!(certificates[0].1.duration_since(cluster.clock.now()) < jiff::SignedDuration::from_hours(73));
    let request = http::Request::get("/api/v1/nodes/node-1/proxy/configz")
        .body(Vec::new())
        .unwrap();
    let answer: Value = cluster.client.request(request).await.unwrap();
    assert_eq!(answer["kubeletconfig"]["imageGCHighThresholdPercent"], 85);
}

#[test]
fn the_same_shape_gives_the_same_objects() {
    let shape = Shape {
        nodes: 7,
        witness: true,
        vms: 30,
        seed: 4,
        ..Default::default()
    };
    assert_eq!(shape.objects(), shape.objects());
    let other = Shape {
        seed: 5,
        ..shape.clone()
    };
    assert_ne!(shape.objects(), other.objects());
}
