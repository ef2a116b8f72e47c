//! Whole upgrades: what is true afterwards, what was waited for, and what a second run does.

use api::annotations::{ADDON_DEFAULTS, CHART_UPGRADED_BY, REFRESHED_FOR};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{
    harness::{Harness, PROGRAM, address},
    objects::{self, SEEDER_VALUES},
    rancher_world,
};

const CHARTS: (&str, &str, &str) = ("management.cattle.io", "managedcharts", "fleet-local");

fn chart(harness: &Harness, name: &str) -> Value {
    harness.get(CHARTS.0, CHARTS.1, CHARTS.2, name)
}

fn addon(harness: &Harness, namespace: &str, name: &str) -> Value {
    harness.get("harvesterhci.io", "addons", namespace, name)
}

fn rancher_setting(harness: &Harness, name: &str) -> Value {
    harness.get("management.cattle.io", "settings", "", name)
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_upgraded() {
    let harness = Harness::new().await;
    let notes = harness.attempt().await.unwrap();

    // Charts, with what users and the manager have put into them.
    for (name, version) in [
        ("harvester", "1.8.0"),
        ("harvester-crd", "1.8.0"),
        ("rancher-monitoring-crd", "108.0.2+up77.9.1"),
        ("rancher-logging-crd", "108.0.1+up4.10.0"),
    ] {
        let chart = chart(&harness, name);
        assert_eq!(chart["spec"]["version"], version, "{name}");
        assert_eq!(chart["spec"]["paused"], false, "{name}");
        assert_eq!(chart["spec"]["timeoutSeconds"], 601, "{name}");
        assert_eq!(chart["spec"]["values"]["kept"]["by"], "users", "{name}");
        assert_eq!(chart["spec"]["diff"]["comparePatches"][0]["kind"], "KubeVirt");
        assert_eq!(chart["metadata"]["annotations"][CHART_UPGRADED_BY], "up");
    }
    let drain = &chart(&harness, "harvester")["spec"]["values"]["longhorn"]["defaultSettings"]["nodeDrainPolicy"];
    assert_eq!(drain, "allow-if-replica-is-stopped");

    // Rancher, once, with its values carried over.
    assert_eq!(
        harness.calls(),
        [
            "prepare v2.14.0",
            "prepare v2.14.0",
            "upgrade cattle-system/rancher to \"v2.14.0\""
        ]
    );
    let history = rancher_world::history(&harness.world(), "cattle-system", "rancher");
    assert_eq!(history.len(), 2);
    assert_eq!(history[1].config["hostname"], "h");
    assert_eq!(history[1].config["rancherImageTag"], Value::Null);
    assert_eq!(rancher_setting(&harness, "chart-default-branch"), Value::Null);

    // Fleet: agents call the address they called before.
    let map = harness.get("", "configmaps", "cattle-fleet-system", "fleet-controller");
    let config: Value = serde_json::from_str(map["data"]["config"].as_str().unwrap()).unwrap();
    assert_eq!(
        config,
        json!({
            "apiServerURL": "https://10.0.0.9", "apiServerCA": "Y2E=",
            "agentImage": "rancher/fleet-agent:v0.14.0", "agentTLSMode": "system-store",
        })
    );
    let fleet = harness.get("fleet.cattle.io", "clusters", "fleet-local", "local");
    assert_eq!(fleet["spec"]["redeployAgentGeneration"], 3);

    // The rest, in the order of the steps.
    let multus = harness.get("helm.cattle.io", "helmchartconfigs", "kube-system", "rke2-multus");
    assert_eq!(multus["spec"]["failurePolicy"], "abort");
    let overcommit = harness.get("harvesterhci.io", "settings", "", "overcommit-config");
    assert_eq!(overcommit["value"], "{\"cpu\":1600}");
    assert_eq!(
        harness.get(
            "upgrade.cattle.io",
            "plans",
            "cattle-system",
            "up-skip-restart-rancher-system-agent"
        ),
        Value::Null
    );
    let local = harness.get("provisioning.cattle.io", "clusters", "fleet-local", "local");
    assert_eq!(
        local["metadata"]["labels"]["provisioning.cattle.io/management-cluster-name"],
        "local"
    );
    assert_eq!(local["status"]["fleetWorkspaceName"], "fleet-local");
    assert_eq!(local["spec"]["rkeConfig"]["machineGlobalConfig"]["kept"], true);
    let repo = harness.get("apps", "deployments", "cattle-system", "harvester-cluster-repo");
    let image = &repo["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "rancher/harvester-cluster-repo:v1.8.0");
    let charts = harness.get("catalog.cattle.io", "clusterrepos", "", "harvester-charts");
    assert_eq!(
        charts["metadata"]["annotations"][REFRESHED_FOR],
        "up/rancher/harvester-cluster-repo:v1.8.0"
    );
    let definition = harness.get(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "",
        "logs.cdi.kubevirt.io",
    );
    assert_eq!(definition["spec"]["names"]["kind"], "Log");
    assert!(!harness.get("", "secrets", "cattle-system", "stv-aggregation").is_null());

    // Of another line of versions, and not ours to write.
    assert_eq!(
        rancher_setting(&harness, "tls-internal-cn-allowed-services"),
        Value::Null
    );
    assert_eq!(
        harness.get("helm.cattle.io", "helmchartconfigs", "kube-system", "rke2-traefik"),
        Value::Null
    );
    assert_eq!(
        harness.get("harvesterhci.io", "settings", "", "server-version")["value"],
        "v1.7.1"
    );

    // Kube-OVN's manifest is not there: named, and nothing else.
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].starts_with("addon kubeovn-operator is not upgraded: its manifest"),
        "{notes:?}"
    );

    let shown = harness.shown.lock().unwrap().clone();
    for what in [
        "Repository",
        "Plan",
        "NodeAgent",
        "CAPICluster",
        "RancherVersion",
        "ClusterRepo",
        "FleetAgent",
        "ManagedChart",
        "KubeVirtVersion",
        "LonghornManager",
        "Addon",
    ] {
        assert!(shown.contains(what), "{what} was never waited for: {shown:?}");
    }
    assert!(
        shown
            .iter()
            .any(|word| word.starts_with("termination message: done; addon kubeovn-operator")),
        "{shown:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn addons_follow_and_users_keep_their_values() {
    let harness = Harness::new().await;
    harness.attempt().await.unwrap();
    let seeder = addon(&harness, "harvester-system", "harvester-seeder");
    assert_eq!(seeder["spec"]["version"], "1.8.0");
    assert_eq!(
        seeder["spec"]["valuesContent"],
        SEEDER_VALUES.replace("v1.7.1", "v1.8.0")
    );
    assert_eq!(
        seeder["metadata"]["annotations"][ADDON_DEFAULTS],
        "image:\n  tag: v1.8.0\nloglevel: info\n"
    );
    assert_eq!(seeder["spec"]["enabled"], false);
    let descheduler = addon(&harness, "kube-system", "descheduler");
    assert_eq!(descheduler["spec"]["valuesContent"], "loglevel: debug # mine\n");
    assert_eq!(descheduler["status"]["status"], "AddonDeploySuccessful");
    let monitoring = addon(&harness, "cattle-monitoring-system", "rancher-monitoring");
    let values = monitoring["spec"]["valuesContent"].as_str().unwrap();
    assert!(values.starts_with("prometheus:\n  retention: 9d # ours\n"), "{values}");
    assert!(values.contains("rancherMonitoring:\n  enabled: false\n"), "{values}");
    let logging = addon(&harness, "cattle-logging-system", "rancher-logging");
    assert!(
        logging["spec"]["valuesContent"]
            .as_str()
            .unwrap()
            .contains("image: rancher/harvester-eventrouter:v0.4.0")
    );
    assert_eq!(logging["spec"]["version"], "108.0.1+up4.10.0");
}

#[tokio::test(start_paused = true)]
async fn r35_a_default_of_the_release_that_runs_is_not_taken_for_the_users() {
    let harness = Harness::new().await;
    let before = harness.addons().join("v1.7");
    std::fs::create_dir(&before).unwrap();
    let manifest = "apiVersion: harvesterhci.io/v1beta1\nkind: Addon\nmetadata:\n  name: descheduler\nspec:\n  \
        valuesContent: |\n    loglevel: debug\n";
    std::fs::write(before.join("descheduler.yaml"), manifest).unwrap();
    harness.attempt().await.unwrap();
    let descheduler = addon(&harness, "kube-system", "descheduler");
    let values = descheduler["spec"]["valuesContent"].as_str().unwrap();
    assert!(values.starts_with("loglevel: info"), "{values}");
}

#[tokio::test(start_paused = true)]
async fn f20_addons_that_do_not_exist_are_installed_or_passed_over() {
    let mut objects = objects::cluster();
    objects.retain(|object| object["kind"] != "Addon");
    let harness = Harness::of(objects, "v1.7.1").await;
    let manifest = "apiVersion: harvesterhci.io/v1beta1\nkind: Addon\nmetadata:\n  name: kubeovn-operator\n  \
        namespace: kube-system\nspec:\n  enabled: false\n  chart: kubeovn-operator\n  repo: http://charts\n  version: 1.15.0\n  valuesContent: ''\n";
    std::fs::write(harness.addons().join("kubeovn-operator.yaml"), manifest).unwrap();
    std::fs::remove_file(harness.addons().join("descheduler.yaml")).unwrap();
    let notes = harness.attempt().await.unwrap();
    let nvidia = addon(&harness, "harvester-system", "nvidia-driver-toolkit");
    assert_eq!(nvidia["spec"]["enabled"], false);
    assert_eq!(nvidia["spec"]["valuesContent"], "driverLocation: https://placeholder\n");
    assert_eq!(
        addon(&harness, "kube-system", "kubeovn-operator")["spec"]["version"],
        "1.15.0"
    );
    let definitions = chart(&harness, "kubeovn-operator-crd");
    assert_eq!(definitions["spec"]["version"], "1.15.0");
    assert_eq!(
        definitions["spec"]["targets"][0]["clusterSelector"]["matchExpressions"][0]["operator"],
        "DoesNotExist"
    );
    for missing in [
        "rancher-monitoring does not exist",
        "rancher-logging does not exist",
        "addon descheduler is not upgraded",
    ] {
        assert!(notes.iter().any(|note| note.contains(missing)), "{missing}: {notes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_run_changes_nothing() {
    let harness = Harness::new().await;
    harness.attempt().await.unwrap();
    let before = harness.server.store().history().len();
    harness.attempt().await.unwrap();
    let history = harness.server.store().history();
    let ours = history[before..]
        .iter()
        .filter(|write| write.user == PROGRAM && write.changed);
    let ours: Vec<String> = ours
        .map(|write| format!("{} {} {}", write.verb.name(), write.resource, write.name))
        .collect();
    // Only the Plan for the agents of the nodes: it is made and deleted again, and every node has it already.
    assert!(
        ours.iter()
            .all(|write| write.contains("up-skip-restart-rancher-system-agent")),
        "{ours:?}"
    );
    assert_eq!(harness.calls().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn v1_8_sources_get_their_own_steps() {
    let mut harness = Harness::of(objects::cluster(), "v1.8.2-rc1").await;
    harness.release = objects::RELEASE.replace("v1.8.0", "v1.8.2");
    harness.attempt().await.unwrap();
    let names = rancher_setting(&harness, "tls-internal-cn-allowed-services");
    assert_eq!(names["value"], "kube-system/ingress-expose,kube-system/rke2-traefik");
    let local = harness.get("management.cattle.io", "clusters", "", "local");
    assert_eq!(
        local["metadata"]["annotations"]["provisioning.cattle.io/administrated"],
        "true"
    );
    let traefik = harness.get("helm.cattle.io", "helmchartconfigs", "kube-system", "rke2-traefik");
    assert!(
        traefik["spec"]["valuesContent"]
            .as_str()
            .unwrap()
            .contains("readTimeout=30m")
    );
    assert_eq!(
        harness.get("harvesterhci.io", "settings", "", "overcommit-config")["value"],
        ""
    );
}

#[tokio::test(start_paused = true)]
async fn a_multus_config_of_users_keeps_its_values() {
    let mut objects = objects::cluster();
    objects.push(json!({
        "apiVersion": "helm.cattle.io/v1", "kind": "HelmChartConfig",
        "metadata": {"name": "rke2-multus", "namespace": "kube-system"}, "spec": {"valuesContent": "a: 1", "failurePolicy": "reinstall"},
    }));
    let harness = Harness::of(objects, "v1.7.1").await;
    harness.attempt().await.unwrap();
    let multus = harness.get("helm.cattle.io", "helmchartconfigs", "kube-system", "rke2-multus");
    assert_eq!(
        multus["spec"],
        json!({"valuesContent": "a: 1", "failurePolicy": "abort"})
    );
}

#[tokio::test(start_paused = true)]
async fn what_does_not_settle_in_time_and_need_not_is_only_named() {
    let harness = Harness::new().await;
    let bundles = address(&harness.client, "fleet.cattle.io/v1alpha1", "Bundle", "fleet-local");
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "message": "Modified(1)"}]}});
    bundles
        .patch_status("mcc-harvester", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    let notes = harness.attempt().await.unwrap();
    assert!(
        notes.contains(&"Bundle fleet-local/mcc-harvester is not Ready: Fleet says \"Modified(1)\"".to_owned()),
        "{notes:?}"
    );
}
