//! The program runs as its account, with the roles that ship. Without any of their rules something is different, and every
//! verb on every name is asked for.

use api::accounts::CLUSTER_UPGRADE;
use serde_json::{Value, json};

use super::{
    harness::{Harness, PROGRAM},
    objects, rancher,
};
use testbed::rights::{self, Asked};

/// Clusters that need different rights.
const CLUSTERS: [&str; 4] = [
    "from v1.7",
    "from v1.8",
    "from v1.7, with nothing there",
    "begun by an older release",
];
/// Rights that this program needs and that show elsewhere.
const ELSEWHERE: [(&str, &str); 2] = [
    ("pods/status", "what is waited for: cli, simulation, rbac"),
    (
        "serviceaccounts/token",
        "Helm is played here: installer::program::tests",
    ),
];
/// What programs of older releases ask for, which end the upgrades that began with them:
/// `rancher::the_program_of_an_older_release_still_writes_its_journal_where_it_did`.
const OF_OLDER: [&str; 2] = [
    "harvester-system: create configmaps upgrade-toolkit-rancher",
    "harvester-system: patch configmaps upgrade-toolkit-rancher",
];
/// What is followed only where it is not as wanted at the first look. The same code follows others here.
const FOUND_READY: [&str; 13] = [
    "list addons",
    "watch addons",
    "watch customresourcedefinitions addons.harvesterhci.io",
    "watch bundles",
    "cattle-system: watch secrets",
    "cattle-system: watch deployments rancher",
    "cattle-fleet-system: watch configmaps fleet-controller",
    "cattle-fleet-system: watch pods",
    "cattle-fleet-system: watch secrets",
    "cattle-fleet-system: watch deployments fleet-controller",
    "cattle-fleet-local-system: watch pods",
    "fleet-local: watch clusters local",
    "longhorn-system: watch instancemanagers",
];

async fn cluster(which: &str) -> Harness {
    let mut objects = objects::cluster();
    match which {
        "from v1.7" => {
            let harness = Harness::of(objects, "v1.7.1").await;
            rancher::leave_webhooks(&harness).await;
            harness
        }
        "begun by an older release" => {
            let harness = Harness::of(objects, "v1.7.1").await;
            let left = json!({"apiServerURL": "https://10.0.0.9", "apiServerCA": "Y2E="});
            rancher::leave_unsettled(&harness, &rancher::journal("harvester-system", &left)).await;
            harness
        }
        "from v1.8" => {
            objects.push(json!({"apiVersion": "helm.cattle.io/v1", "kind": "HelmChartConfig",
                "metadata": {"name": "rke2-multus", "namespace": "kube-system"}, "spec": {"failurePolicy": "reinstall"}}));
            let mut harness = Harness::of(objects, "v1.8.2-rc1").await;
            harness.release = objects::RELEASE.replace("v1.8.0", "v1.8.2");
            harness
        }
        _ => {
            let is_left_out = |object: &Value| {
                object["kind"] == "Addon" || object["metadata"]["name"] == "longhorn-v2-data-engine-enabled"
            };
            objects.retain(|object| !is_left_out(object));
            let harness = Harness::of(objects, "v1.7.1").await;
            for name in [
                "kubeovn-operator",
                "vm-import-controller",
                "pcidevices-controller",
                "harvester-seeder",
                "descheduler",
                "nvidia-driver-toolkit",
            ] {
                let manifest = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "Addon", "metadata": {"name": name},
                    "spec": {"enabled": false, "chart": name, "repo": "http://charts", "version": "1.15.0", "valuesContent": ""}});
                std::fs::write(harness.addons().join(format!("{name}.yaml")), manifest.to_string()).unwrap();
            }
            harness
        }
    }
}

/// How an attempt ended, and what it changed.
async fn outcome(harness: &Harness) -> (Result<Vec<String>, String>, Vec<String>) {
    let ended = harness.attempt().await.map_err(|error| error.to_string());
    let history = harness.server.store().history();
    let ours = history.iter().filter(|write| write.user == PROGRAM && write.changed);
    let changed = ours.map(|write| format!("{} {} {}", write.verb.name(), write.resource, write.name));
    (ended, changed.collect())
}

#[tokio::test(start_paused = true)]
async fn s06_every_verb_on_every_name_that_the_roles_allow_is_requested() {
    let asked = Asked::default();
    for which in CLUSTERS {
        let harness = cluster(which).await;
        asked.listen(&harness.server, CLUSTER_UPGRADE);
        harness.attempt().await.unwrap();
        asked.take_writes(&harness.server, CLUSTER_UPGRADE);
    }
    let elsewhere = [ELSEWHERE.map(|known| known.0).as_slice(), &FOUND_READY, &OF_OLDER].concat();
    let never = asked.never(CLUSTER_UPGRADE, &elsewhere);
    assert!(never.is_empty(), "allowed and never asked for: {never:#?}");
}

#[tokio::test(start_paused = true)]
async fn s06_without_any_rule_of_its_roles_a_cluster_is_not_upgraded_as_it_should_be() {
    let mut whole = Vec::new();
    for which in CLUSTERS {
        whole.push(outcome(&cluster(which).await).await);
    }
    let mut unneeded = Vec::new();
    'rules: for (role, number) in rights::rules(CLUSTER_UPGRADE) {
        let text = rights::shown(&role, number);
        if ELSEWHERE.iter().any(|known| text.contains(known.0)) {
            continue;
        }
        for (which, expected) in CLUSTERS.into_iter().zip(&whole) {
            let harness = cluster(which).await;
            rights::take_away(&harness.server, &role, number).await;
            if outcome(&harness).await != *expected {
                continue 'rules;
            }
        }
        unneeded.push(text);
    }
    assert!(unneeded.is_empty(), "nothing breaks without: {unneeded:#?}");
}
