//! What an upgrade makes of the components of a cluster, by the program that does it in a real one.

use api::{Phase, names};
use cli::rehearsal::{Rehearsal, beginning};
use clock::Clock;
use cluster_upgrade::helm_release;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    run::{Case, in_paused_time},
    status_history::HOUR,
    watched::Watched,
};

/// The revisions of a Helm release: version of the chart and status.
fn revisions(rehearsal: &Rehearsal, namespace: &str, name: &str) -> Vec<(String, String)> {
    let secrets = rehearsal.objects("", "secrets");
    let of_release = secrets.iter().filter(|secret| {
        secret.namespace().as_deref() == Some(namespace) && secret.labels().get("name").is_some_and(|of| of == name)
    });
    let secrets: Vec<_> = of_release
        .map(|secret| serde_json::from_value(serde_json::to_value(secret).unwrap()).unwrap())
        .collect();
    let history = helm_release::history(&secrets).into_iter();
    history
        .map(|revision| (revision.chart.metadata.version, revision.info.status))
        .collect()
}

fn two(old: &str, new: &str) -> Vec<(String, String)> {
    let is = |version: &str, status: &str| (version.to_owned(), status.to_owned());
    vec![is(old, "superseded"), is(new, "deployed")]
}

#[test]
fn rancher_fleet_longhorn_and_addons_are_those_of_the_release() {
    in_paused_time(async {
        let clock = Clock::simulated(beginning(), 1.0);
        let rehearsal = Watched::start(Case::three_nodes().scenario, clock).await;
        let _manager = rehearsal.start_manager("manager-1");
        let plan = rehearsal.create_unchecked(rehearsal.plan(false, &[])).await.unwrap();
        let ended = |plan: &api::UpgradePlan| plan.phase().is_some_and(Phase::is_terminal);
        let plan = rehearsal
            .follow(&plan.name_any(), Some(24 * HOUR), ended)
            .await
            .unwrap();
        assert_eq!(plan.phase(), Some(Phase::Succeeded));

        let store = rehearsal.server.store();
        let one = |group: &str, plural: &str, namespace: &str, name: &str| -> Value {
            let found = store.get(group, plural, namespace, name);
            found.map(|object| (*object).clone()).unwrap_or_default()
        };
        let setting = |name: &str| one("management.cattle.io", "settings", "", name);
        assert_eq!(setting("server-version")["value"], "v2.14.0-alpha9");
        assert_eq!(setting("chart-default-branch"), Value::Null, "it kept the old charts");
        assert_eq!(
            revisions(&rehearsal, names::CATTLE_NAMESPACE, "rancher"),
            two("2.13.1", "2.14.0-alpha9")
        );
        assert_eq!(
            revisions(&rehearsal, "cattle-fleet-system", "fleet"),
            two("108.0.1+up0.14.1", "109.0.0+up0.15.0-alpha.8")
        );
        assert_eq!(
            revisions(&rehearsal, names::HARVESTER_NAMESPACE, "harvester"),
            two("1.7.1", "1.8.0")
        );
        // The address that Fleet's agents call survives a Rancher that forgets it.
        let config = &one("", "configmaps", "cattle-fleet-system", "fleet-controller")["data"]["config"];
        let config: Value = serde_json::from_str(config.as_str().unwrap()).unwrap();
        assert_eq!(config["apiServerURL"], "https://192.168.0.131");
        assert_eq!(config["agentTLSMode"], "system-store");

        let managers = rehearsal.objects("longhorn.io", "instancemanagers");
        assert_eq!(managers.len(), 3);
        assert!(
            managers
                .iter()
                .all(|one| one.data["status"]["currentState"] == "running")
        );
        let multus = one("helm.cattle.io", "helmchartconfigs", "kube-system", "rke2-multus");
        assert_eq!(multus["spec"]["failurePolicy"], "abort");
        let overcommit = one("harvesterhci.io", "settings", "", "overcommit-config");
        assert_eq!(overcommit["value"], overcommit["default"]);

        let addon = |namespace: &str, name: &str| one("harvesterhci.io", "addons", namespace, name)["spec"].clone();
        assert_eq!(addon("kube-system", "descheduler")["version"], "1.1.0");
        let new = addon("harvester-system", "nvidia-driver-toolkit");
        assert_eq!((&new["version"], &new["enabled"]), (&json!("1.1.0"), &json!(false)));
        let chart = one(
            "management.cattle.io",
            "managedcharts",
            "fleet-local",
            "kubeovn-operator-crd",
        );
        assert_eq!(chart["spec"]["version"], "1.1.0");
    });
}
