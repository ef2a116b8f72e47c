//! Upgrades of Rancher that were begun before, by us or by another client, and those that were abandoned.

use serde_json::{Value, json};

use super::{harness::Harness, objects, rancher_world};

#[tokio::test(start_paused = true)]
async fn f08_a_rancher_that_an_earlier_attempt_upgraded_is_still_settled() {
    let harness = Harness::new().await;
    // The first attempt dies right after Helm has done its work.
    let (context, report) = harness.context();
    let calls = harness.calls.clone();
    let upgraded = async {
        loop {
            harness.clock.sleep(std::time::Duration::from_millis(100)).await;
            if calls.lock().unwrap().iter().any(|call| call.starts_with("upgrade ")) {
                break;
            }
        }
    };
    tokio::select! {
        biased;
        () = upgraded => {}
        done = crate::run(&context, &report) => panic!("{done:?}"),
    }
    harness.attempt().await.unwrap();
    let upgrades = harness
        .calls()
        .iter()
        .filter(|call| call.starts_with("upgrade "))
        .count();
    assert_eq!(upgrades, 1);
    let fleet = harness.get("fleet.cattle.io", "clusters", "fleet-local", "local");
    assert_eq!(fleet["spec"]["redeployAgentGeneration"], 3);
    let map = harness.get("", "configmaps", "cattle-fleet-system", "fleet-controller");
    assert!(map["data"]["config"].as_str().unwrap().contains("https://10.0.0.9"));
    let journal = harness.get("", "configmaps", "cattle-fleet-system", "upgrade-toolkit-rancher");
    assert_eq!(journal["data"]["settled"], "true");
}

#[tokio::test(start_paused = true)]
async fn a_rancher_that_was_at_its_version_all_along_is_left_alone() {
    let mut harness = Harness::new().await;
    harness.release = objects::RELEASE.replace("v2.14.0", "v2.13.0");
    leave_webhooks(&harness).await;
    harness.attempt().await.unwrap();
    assert!(harness.calls().is_empty(), "{:?}", harness.calls());
    assert_eq!(
        harness.get("", "configmaps", "cattle-fleet-system", "upgrade-toolkit-rancher"),
        Value::Null
    );
    let fleet = harness.get("fleet.cattle.io", "clusters", "fleet-local", "local");
    assert_eq!(fleet["spec"]["redeployAgentGeneration"], Value::Null);
    assert!(webhooks(&harness).is_empty());
}

/// A forged journal.
pub(super) fn journal(namespace: &str, data: &Value) -> Value {
    let mut whole = json!({"target": "v2.14.0", "apiServerURL": "https://evil.test", "apiServerCA": "ZXZpbA==", "settled": "false"});
    for (key, value) in data.as_object().unwrap() {
        whole[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": whole,
        "metadata": {"name": "upgrade-toolkit-rancher", "namespace": namespace,
            "labels": {"management.harvesterhci.io/upgrade-component": "cluster-upgrade"}}})
}

fn uid_of_plan(harness: &Harness) -> String {
    let plan = harness.get("management.harvesterhci.io", "upgradeplans", "", "up");
    plan["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Where Fleet's agents call, and whether the agent was deployed again.
fn fleet(harness: &Harness) -> (bool, bool) {
    let map = harness.get("", "configmaps", "cattle-fleet-system", "fleet-controller");
    let config = map["data"]["config"].as_str().unwrap().to_owned();
    assert!(!config.contains("evil") && !config.contains("ZXZpbA=="), "{config}");
    let cluster = harness.get("fleet.cattle.io", "clusters", "fleet-local", "local");
    let is_anew = cluster["spec"]["redeployAgentGeneration"] == 3;
    (config.contains("https://10.0.0.9"), is_anew)
}

/// Who may change every ConfigMap of harvester-system says where Fleet's agent, an administrator, shall call; or that
/// nothing is left to do.
#[tokio::test(start_paused = true)]
async fn s01_a_journal_that_another_client_wrote_is_not_trusted() {
    for (namespace, settled, has_uid) in [
        ("harvester-system", "false", true),
        ("harvester-system", "true", true),
        ("harvester-system", "false", false),
        ("cattle-fleet-system", "false", false),
        ("cattle-fleet-system", "true", false),
    ] {
        let harness = Harness::new().await;
        let uid = if has_uid { uid_of_plan(&harness) } else { String::new() };
        let data = json!({"settled": settled, "planUID": uid, "agentGeneration": "1", "agentCreatedBefore": ""});
        super::harness::create(&harness.client, &journal(namespace, &data)).await;
        harness.attempt().await.unwrap();
        assert_eq!(
            fleet(&harness),
            (true, true),
            "{namespace} settled={settled} uid={has_uid}"
        );
        let kept = harness.get("", "configmaps", "cattle-fleet-system", "upgrade-toolkit-rancher");
        assert_eq!(kept["data"]["planUID"], uid_of_plan(&harness));
        assert_eq!(kept["data"]["apiServerURL"], "https://10.0.0.9");
        assert_eq!(kept["data"]["settled"], "true");
    }
}

/// A release that brings the same Rancher: it is not upgraded, so nothing that the old place says can be true.
#[tokio::test(start_paused = true)]
async fn s01_a_journal_in_the_old_place_is_not_trusted_of_a_rancher_that_the_plan_did_not_upgrade() {
    for namespace in ["harvester-system", "cattle-fleet-system"] {
        let mut harness = Harness::new().await;
        harness.release = objects::RELEASE.replace("v2.14.0", "v2.13.0");
        // The release of Rancher is older than the plan, as it would be.
        let data = json!({"target": "v2.13.0"});
        super::harness::create(&harness.client, &journal(namespace, &data)).await;
        harness.attempt().await.unwrap();
        assert_eq!(fleet(&harness), (true, false), "{namespace}");
    }
}

/// Helm has done its work for a plan that is gone, or under a release that kept its journal elsewhere.
pub(super) async fn leave_unsettled(harness: &Harness, journal: &Value) {
    leave(harness, journal, "deployed", "Upgrade complete").await;
}

/// What an upgrade of Rancher has left that ended so.
async fn leave(harness: &Harness, journal: &Value, status: &str, description: &str) {
    harness.clock.sleep(std::time::Duration::from_secs(1)).await;
    let metadata = json!({"name": "rancher", "version": "2.14.0", "appVersion": "v2.14.0"});
    let values = json!({"image": {"tag": "v2.14.0"}});
    let world = harness.world();
    rancher_world::release(
        &world,
        "cattle-system",
        "rancher",
        &metadata,
        &values,
        status,
        description,
    )
    .await;
    super::harness::create(&harness.client, journal).await;
}

/// Helm's time was up, and the new Rancher ran all the same: its chart of Fleet has another address by now. Another plan,
/// or another try under a newer release, restores the one that was there before.
#[tokio::test(start_paused = true)]
async fn the_address_of_fleet_outlives_an_upgrade_of_rancher_that_failed_for_another_plan() {
    let left = json!({"apiServerURL": "https://10.0.0.9", "apiServerCA": "Y2E="});
    let of_another = json!({"apiServerURL": "https://10.0.0.9", "apiServerCA": "Y2E=", "planUID": "another"});
    for (namespace, data) in [("harvester-system", left), ("cattle-fleet-system", of_another)] {
        let harness = Harness::new().await;
        leave(
            &harness,
            &journal(namespace, &data),
            "failed",
            "timed out waiting for the condition",
        )
        .await;
        let map = harness.get("", "configmaps", "cattle-fleet-system", "fleet-controller");
        let config = map["data"]["config"]
            .as_str()
            .unwrap()
            .replace("https://10.0.0.9", "https://new.test");
        let maps = super::harness::address(&harness.client, "v1", "ConfigMap", "cattle-fleet-system");
        let patch = kube::api::Patch::Merge(json!({"data": {"config": config}}));
        let how = kube::api::PatchParams::default();
        maps.patch("fleet-controller", &how, &patch).await.unwrap();
        harness.attempt().await.unwrap();
        assert_eq!(fleet(&harness), (true, true), "{namespace}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_an_older_release_began_is_settled_by_the_journal_of_that_release() {
    let left = json!({"apiServerURL": "https://10.0.0.9", "apiServerCA": "Y2E="});
    let of_another = json!({"apiServerURL": "https://10.0.0.9", "apiServerCA": "Y2E=", "planUID": "gone"});
    for (namespace, data) in [("harvester-system", left), ("cattle-fleet-system", of_another)] {
        let harness = Harness::new().await;
        leave_unsettled(&harness, &journal(namespace, &data)).await;
        harness.attempt().await.unwrap();
        assert_eq!(fleet(&harness), (true, true), "{namespace}");
        let kept = harness.get("", "configmaps", "cattle-fleet-system", "upgrade-toolkit-rancher");
        assert_eq!(kept["data"]["planUID"], uid_of_plan(&harness));
        assert_eq!(kept["data"]["settled"], "true");
    }
}

#[tokio::test(start_paused = true)]
async fn the_program_of_an_older_release_still_writes_its_journal_where_it_did() {
    let harness = Harness::new().await;
    let (context, _) = harness.context();
    let maps = super::harness::address(&context.client, "v1", "ConfigMap", "harvester-system");
    for settled in ["false", "true"] {
        let whole = kube::api::Patch::Apply(journal("harvester-system", &json!({ "settled": settled })));
        let how = kube::api::PatchParams::apply("upgrade-toolkit").force();
        let written = maps.patch("upgrade-toolkit-rancher", &how, &whole);
        assert_eq!(written.await.unwrap().data["data"]["settled"], settled);
    }
}

/// What Cluster API of Harvester v1.7 leaves behind. No server answers these webhooks any more.
pub(super) async fn leave_webhooks(harness: &Harness) {
    for (kind, name) in [
        ("MutatingWebhookConfiguration", "mutating-webhook-configuration"),
        ("ValidatingWebhookConfiguration", "validating-webhook-configuration"),
    ] {
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": []});
        super::harness::create(&harness.client, &object).await;
    }
}

fn webhooks(harness: &Harness) -> Vec<Value> {
    let plurals = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let found = plurals.map(|plural| harness.world().list("admissionregistration.k8s.io", plural));
    found.concat()
}

#[tokio::test(start_paused = true)]
async fn r03_webhooks_of_an_older_cluster_api_are_gone_before_rancher_is_upgraded() {
    let harness = Harness::new().await;
    leave_webhooks(&harness).await;
    let (context, report) = harness.context();
    let upgraded = async {
        while !harness.calls().iter().any(|call| call.starts_with("upgrade ")) {
            harness.clock.sleep(std::time::Duration::from_millis(100)).await;
        }
        webhooks(&harness)
    };
    let left = tokio::select! {
        biased;
        left = upgraded => left,
        done = crate::run(&context, &report) => panic!("{done:?}"),
    };
    assert_eq!(left, Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_upgrade_of_rancher_is_rolled_back_and_done_again() {
    let harness = Harness::new().await;
    let metadata = json!({"name": "rancher", "version": "2.14.0", "appVersion": "v2.14.0"});
    let values = json!({"image": {"tag": "v2.14.0"}});
    // Helm was killed a moment ago: in five minutes it counts as abandoned.
    rancher_world::release(
        &harness.world(),
        "cattle-system",
        "rancher",
        &metadata,
        &values,
        "pending-upgrade",
        "Preparing upgrade",
    )
    .await;
    let started = harness.clock.now();
    harness.attempt().await.unwrap();
    let calls: Vec<String> = harness
        .calls()
        .into_iter()
        .filter(|call| !call.starts_with("prepare"))
        .collect();
    assert_eq!(
        calls,
        [
            "roll back cattle-system/rancher to 1",
            "upgrade cattle-system/rancher to \"v2.14.0\""
        ]
    );
    assert!(harness.clock.now().duration_since(started).as_secs() >= 300);
    let history = rancher_world::history(&harness.world(), "cattle-system", "rancher");
    let statuses: Vec<&str> = history.iter().map(|release| release.info.status.as_str()).collect();
    assert_eq!(statuses, ["superseded", "pending-upgrade", "superseded", "deployed"]);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_chart_of_rancher_is_rolled_back_once() {
    let harness = Harness::new().await;
    let metadata = json!({"name": "fleet", "version": "108.0.0+up0.14.0", "appVersion": "0.14.0"});
    rancher_world::release(
        &harness.world(),
        "cattle-fleet-system",
        "fleet",
        &metadata,
        &json!({}),
        "pending-upgrade",
        "",
    )
    .await;
    harness.attempt().await.unwrap();
    let calls: Vec<String> = harness
        .calls()
        .into_iter()
        .filter(|call| call.starts_with("roll"))
        .collect();
    assert_eq!(calls, ["roll back cattle-fleet-system/fleet to 1"]);
    assert!(harness.shown.lock().unwrap().contains("HelmRelease"));
    let history = rancher_world::history(&harness.world(), "cattle-fleet-system", "fleet");
    assert_eq!(history.last().unwrap().chart.metadata.version, "108.0.0+up0.14.0");
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_notes_its_import_late_is_not_waited_for_for_ever() {
    let harness = Harness::new().await;
    let world = harness.world();
    let note_late = async {
        loop {
            harness.clock.sleep(std::time::Duration::from_millis(100)).await;
            let fleet = harness.get("fleet.cattle.io", "clusters", "fleet-local", "local");
            if fleet["status"]["agentDeployedGeneration"] == 3 {
                let late = harness.clock.now_in_seconds() + jiff::SignedDuration::from_mins(1);
                let imported = json!({"type": "Imported", "status": "True", "lastUpdateTime": late.to_string()});
                let conditions = json!([imported, {"type": "Ready", "status": "True"}]);
                return world.patch_status(&fleet, json!({ "conditions": conditions })).await;
            }
        }
    };
    let (done, ()) = tokio::join!(harness.attempt(), note_late);
    let notes = done.unwrap();
    assert!(
        notes.iter().any(|note| note.contains("its import is complete")),
        "{notes:?}"
    );
    assert!(harness.shown.lock().unwrap().contains("FleetAgent"));
}
