//! What cannot be done is refused by name, before anything is changed; what does not come is given up at a deadline.

use api::annotations;
use serde_json::json;

use super::{
    harness::{Harness, PROGRAM},
    objects,
};

fn writes(harness: &Harness) -> usize {
    let history = harness.server.store().history();
    history
        .iter()
        .filter(|write| write.user == PROGRAM && write.changed)
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_release_that_lacks_something_changes_nothing() {
    let mut harness = Harness::new().await;
    harness.release = objects::RELEASE.replace("kubevirt: 1.7.0-150700.3\n", "");
    let error = harness.attempt().await.unwrap_err().to_string();
    assert_eq!(
        error,
        "harvester-release.yaml has no kubevirt: a cluster cannot be upgraded to this release"
    );
    assert_eq!(writes(&harness), 0);
}

#[tokio::test(start_paused = true)]
async fn force_skips_the_check_of_versions_and_nothing_else() {
    let mut harness = Harness::of(objects::cluster(), "v1.9.0").await;
    let error = harness.attempt().await.unwrap_err().to_string();
    assert_eq!(error, "v1.9.0 cannot be upgraded to v1.8.0: downgrading is prohibited");
    assert_eq!(writes(&harness), 0);
    let plan = objects::upgrade_plan("v1.9.0");
    harness.world().patch(&plan, json!({"spec": {"force": true}})).await;
    harness.attempt().await.unwrap();
    harness.release = "harvester: v1.8.0\nos: Harvester v1.8.0\nkubernetes: v1\n".to_owned();
    assert!(harness.attempt().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn f15_the_annotation_of_the_existing_toolkit_skips_the_check_of_versions_too() {
    let harness = Harness::of(objects::cluster(), "v1.9.0").await;
    let plan = objects::upgrade_plan("v1.9.0");
    let annotate = async |value: &str| {
        let patch = json!({"metadata": {"annotations": {annotations::SKIP_VERSION_CHECK: value}}});
        harness.world().patch(&plan, patch).await;
    };
    annotate("yes").await;
    assert!(harness.attempt().await.is_err());
    annotate("true").await;
    harness.attempt().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn f09_a_node_that_cannot_be_reached_is_named_at_the_deadline() {
    let mut objects = objects::cluster();
    let mut lost = objects::node(
        "lost",
        &json!({"harvesterhci.io/managed": "true", "node-role.harvesterhci.io/witness": ""}),
    );
    lost["status"]["conditions"][0]["status"] = json!("Unknown");
    objects.push(lost);
    let harness = Harness::of(objects, "v1.7.1").await;
    let started = harness.clock.now();
    let error = harness.attempt().await.unwrap_err().to_string();
    assert!(
        error.starts_with("step suspend-agents did not end within 1200s"),
        "{error}"
    );
    assert!(error.contains("node lost") && error.contains("not Ready"), "{error}");
    assert!(!error.contains("node-1") && !error.contains("stranger"), "{error}");
    assert!(harness.clock.now().duration_since(started).as_secs() < 1300);
}

#[tokio::test(start_paused = true)]
async fn a_plan_of_another_client_is_not_adopted() {
    let harness = Harness::new().await;
    let plan = json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
        "metadata": {"name": "up-skip-restart-rancher-system-agent", "namespace": "cattle-system"}, "spec": {"version": "v1", "upgrade": {"image": "theirs"}},
    });
    super::harness::create(&harness.client, &plan).await;
    let error = harness.attempt().await.unwrap_err().to_string();
    assert!(error.ends_with("does not belong to this UpgradePlan"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn s12_a_plan_with_our_name_and_label_that_we_do_not_own_is_neither_taken_over_nor_deleted() {
    let harness = Harness::new().await;
    let theirs = json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
        "metadata": {
            "name": "up-skip-restart-rancher-system-agent", "namespace": "cattle-system",
            "labels": {api::labels::UPGRADE_PLAN: "up"},
        },
        "spec": {"version": "v1", "prepare": {"image": "evil.test/pwn"}, "upgrade": {"image": "theirs"}},
    });
    super::harness::create(&harness.client, &theirs).await;
    let error = harness.attempt().await.unwrap_err().to_string();
    assert!(error.contains("does not belong to this UpgradePlan"), "{error}");
    let plans: kube::Api<api::foreign::suc::Plan> = kube::Api::namespaced(harness.client.clone(), "cattle-system");
    let found = plans.get("up-skip-restart-rancher-system-agent").await.unwrap();
    assert_eq!(
        found.spec.upgrade.and_then(|upgrade| upgrade.image).as_deref(),
        Some("theirs")
    );
}

#[tokio::test(start_paused = true)]
async fn without_manifests_of_cdi_nothing_is_changed_and_folder_and_remedy_are_named() {
    let harness = Harness::new().await;
    let folder = harness.folder.path().join("cdi");
    let refused = async |why: &str| {
        let error = harness.attempt().await.unwrap_err().to_string();
        assert!(error.starts_with("there are no usable manifests of CDI in "), "{error}");
        assert!(error.contains(&*folder.to_string_lossy()), "{error}");
        assert!(error.contains(why) && error.contains("--cdi"), "{error}");
        assert_eq!(writes(&harness), 0, "{why}");
    };
    std::fs::remove_dir_all(&folder).unwrap();
    refused("No such file or directory").await;
    std::fs::create_dir(&folder).unwrap();
    refused("no YAML files with objects").await;
    std::fs::write(folder.join("cdi.yaml"), "---\n").unwrap();
    refused("no YAML files with objects").await;
    std::fs::write(folder.join("cdi.yaml"), "kind: CustomResourceDefinition\n").unwrap();
    refused("without apiVersion, kind or name").await;
    std::fs::write(folder.join("cdi.yaml"), "a: [\n").unwrap();
    refused("is not YAML").await;
}
