//! `doctor`: each situation is found where it is, and not where it only looks like it.

mod cluster;
mod drain;
mod migration;
mod nodes;
mod rancher;
mod storage;
mod system;

use std::collections::BTreeSet;

use api::UpgradePlan;
use checks::{
    doctor::{SITUATIONS, examine, explain, for_plan},
    finding::Severity,
};
use rstest::rstest;
use serde_json::json;
use snapshot::Snapshot;

use cluster::{Cluster, NOW};

/// A situation: where it is found, with the object that it is about, and where it is not.
pub(crate) struct Case {
    id: &'static str,
    object: &'static str,
    found: Cluster,
    near: Vec<(&'static str, Cluster)>,
}

fn cases() -> Vec<Case> {
    let groups: [fn() -> Vec<Case>; 6] = [
        drain::cases,
        storage::cases,
        migration::cases,
        rancher::cases,
        nodes::cases,
        system::cases,
    ];
    groups.iter().flat_map(|cases| cases()).collect()
}

#[test]
fn every_situation_has_a_case_in_which_it_is_found_and_one_in_which_it_is_not() {
    let cases = cases();
    let covered: BTreeSet<&str> = cases
        .iter()
        .filter(|case| !case.near.is_empty())
        .map(|case| case.id)
        .collect();
    let all: BTreeSet<&str> = SITUATIONS.iter().map(|situation| situation.id).collect();
    assert_eq!(all.len(), 48, "an id is there twice");
    assert_eq!(covered, all);
}

#[test]
fn each_situation_is_found_with_its_object_a_remedy_commands_and_a_link() {
    let mut faults = Vec::new();
    for case in cases() {
        let report = examine(&case.found.0);
        let Some(finding) = report.findings.iter().find(|finding| {
            finding.id == case.id
                && finding
                    .objects
                    .first()
                    .is_some_and(|object| object.to_string() == case.object)
        }) else {
            faults.push(format!(
                "{} {}: not found in {:#?}",
                case.id, case.object, report.findings
            ));
            continue;
        };
        if finding.remedy.is_empty() || finding.commands.is_empty() || finding.message.is_empty() {
            faults.push(format!("{}: {finding:#?}", case.id));
        }
        if finding.link != format!("docs/doctor.md#{}", case.id.to_lowercase()) {
            faults.push(format!("{}: {}", case.id, finding.link));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_situation_is_found_where_it_only_looks_like_it() {
    let mut faults = Vec::new();
    for case in cases() {
        for (why, cluster) in &case.near {
            let report = examine(&cluster.0);
            let mut found = report.findings.iter().filter(|finding| finding.id == case.id);
            if let Some(finding) = found.next() {
                faults.push(format!("{} although {why}: {finding:#?}", case.id));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_cluster_without_a_plan_and_without_trouble_has_no_finding() {
    let report = examine(&Cluster::idle().0);
    assert_eq!(report.findings, []);
    assert_eq!((report.checked, report.not_checked.len()), (48, 0));
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_checked() {
    let mut snapshot = Cluster::node_in("PreDrained").0;
    snapshot.set_unknown("machine_plans", "secrets is forbidden");
    let report = examine(&snapshot);
    let named: Vec<&str> = report.not_checked.iter().map(|not| not.id.as_str()).collect();
    assert!(named.contains(&"D24") && named.contains(&"D26"), "{named:?}");
    assert!(
        report.not_checked.iter().all(|not| not.why.contains("forbidden")),
        "{:?}",
        report.not_checked
    );
    assert_eq!(report.checked + named.len(), 48);
    let nothing = examine(&Snapshot::unknown(NOW.parse().unwrap(), "no route to host"));
    assert_eq!((nothing.checked, nothing.not_checked.len()), (0, 48));
}

#[test]
fn the_worst_comes_first() {
    let report = examine(&cases().into_iter().find(|case| case.id == "D45").unwrap().found.0);
    let severities: Vec<Severity> = report.findings.iter().map(|finding| finding.severity).collect();
    assert!(severities.is_sorted());
}

#[test]
fn what_a_plan_waits_for_leads_to_the_finding_that_explains_it() {
    let case = cases().into_iter().find(|case| case.id == "D02").unwrap();
    let report = examine(&case.found.0);
    let plan = case.found.0.plans.as_ref().unwrap()[0].clone();
    assert_eq!(for_plan(&report, &plan).map(|finding| finding.id.as_str()), Some("D02"));

    let with_waits = |waits: serde_json::Value| -> UpgradePlan {
        serde_json::from_value(json!({"metadata": {"name": "up"}, "spec": {}, "status": {"waitingFor": waits}}))
            .unwrap()
    };
    let elsewhere = with_waits(json!([{"what": "ISOImport", "since": NOW}]));
    assert_eq!(for_plan(&report, &elsewhere), None);
    assert_eq!(for_plan(&report, &with_waits(json!([]))), None);
}

#[test]
fn of_several_findings_the_one_about_the_object_that_is_waited_for_explains_a_plan() {
    let attached = |name: &str| {
        let mut volume = cluster::volume(json!({"currentNodeID": "node-1"}));
        volume["metadata"]["name"] = json!(name);
        volume
    };
    let cluster = Cluster::node_in("PreDraining")
        .with("volumes", attached("pvc-a"))
        .with("volumes", attached("pvc-b"));
    let report = examine(&cluster.0);
    let waits = json!([{"what": "StaleAttachment", "object": "Volume longhorn-system/pvc-b", "since": NOW}]);
    let plan: UpgradePlan =
        serde_json::from_value(json!({"metadata": {"name": "up"}, "spec": {}, "status": {"waitingFor": waits}}))
            .unwrap();
    let finding = for_plan(&report, &plan).unwrap();
    assert_eq!(
        (finding.id.as_str(), finding.objects[0].name.as_str()),
        ("D07", "pvc-b")
    );
}

#[test]
fn what_is_not_known_of_a_namespace_is_not_checked() {
    let cluster = Cluster::node_since("PreDraining", cluster::LONG_AGO).only(&["default"]);
    let claim = json!({"namespace": "dev", "pvcName": "disk"});
    let cluster = cluster.with("volumes", json!({
        "metadata": {"name": "pvc-1", "namespace": "longhorn-system"}, "spec": {},
        "status": {"state": "attached", "robustness": "healthy", "currentNodeID": "node-1", "kubernetesStatus": claim},
    }));
    let report = examine(&cluster.0);
    let not = report.not_checked.iter().find(|not| not.id == "D07").unwrap();
    assert_eq!(not.why, "pods: not known in namespaces dev");
}

#[rstest]
#[case::failed("Failed", "Progressing", "False", "has failed")]
#[case::stalled("ClusterUpgrading", "Degraded", "True", "does not continue")]
fn a_plan_that_no_situation_explains_is_found_with_its_own_words(
    #[case] phase: &str,
    #[case] type_: &str,
    #[case] status: &str,
    #[case] expected: &str,
) {
    let said = cluster::condition(type_, status, cluster::LONG_AGO, "the disk of node-3 will reach 91 %");
    let cluster = Cluster::in_phase(phase, json!({"conditions": [said]}));
    assert_eq!(examine(&cluster.0).count(Severity::Error), 0);
    let report = explain(&cluster.0);
    let found = &report.findings[0];
    assert_eq!((found.id.as_str(), found.severity), ("D00", Severity::Error));
    assert!(
        found.message.contains(expected) && found.message.contains("node-3 will reach 91 %"),
        "{}",
        found.message
    );
    assert!(!found.remedy.is_empty() && found.commands.len() == 2);
    assert_eq!(
        explain(&Cluster::in_phase(phase, json!({})).0).count(Severity::Error),
        usize::from(phase == "Failed")
    );
}

#[test]
fn wait_names_lead_somewhere_and_are_written_once() {
    for situation in SITUATIONS {
        let names: Vec<&str> = situation.leads.iter().map(|leads| leads.name()).collect();
        assert!(
            !names.is_empty() || situation.id == "D46",
            "{} is led to by no wait",
            situation.id
        );
        for text in [situation.symptom, situation.cause, situation.remedy] {
            assert!(!text.is_empty() && !text.contains('|'), "{}: {text:?}", situation.id);
        }
        assert!(situation.remedy.ends_with('.'), "{}", situation.id);
    }
}
