//! Every check finds what it is for and nothing else; a record survives its ConfigMaps; ten thousand VMs fit.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rstest::rstest;
use serde_json::{Value, json};
use snapshot::Snapshot;

use super::{
    CHECKS, Record, Target, compare, compare_with,
    stored::{StoredError, config_maps, record},
};
use crate::finding::{Report, Severity};

fn now() -> Timestamp {
    "2026-03-13T05:00:00Z".parse().unwrap()
}

/// A small cluster in which all is well; some of its objects are changed.
fn cluster(change: impl Fn(&str, &str, &mut Value) -> bool) -> Snapshot {
    let vm = |name: &str, shown: &str| json!({"metadata": {"name": name, "namespace": "default"}, "spec": {}, "status": {"printableStatus": shown}});
    let vmi = |name: &str| json!({"metadata": {"name": name, "namespace": "default"}, "spec": {}, "status": {"phase": "Running"}});
    let volume = |name: &str, robustness: &str| json!({"metadata": {"name": name, "namespace": "longhorn-system"}, "spec": {}, "status": {"robustness": robustness}});
    let node = |name: &str| {
        json!({"metadata": {"name": name, "labels": {"harvesterhci.io/managed": "true"}},
            "spec": {"unschedulable": false},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"osImage": "Harvester v1.8.0",
            "kubeletVersion": "v1.35.2+rke2r1", "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
            "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "systemUUID": ""}}})
    };
    let chart = json!({"metadata": {"name": "harvester", "namespace": "fleet-local"},
        "spec": {"version": "1.8.0", "paused": false}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let addon = json!({"metadata": {"name": "descheduler", "namespace": "kube-system"}, "spec": {"enabled": true}, "status": {}});
    let setting = json!({"metadata": {"name": "replica-replenishment-wait-interval", "namespace": "longhorn-system"}, "value": "600"});
    let kubevirt = json!({"metadata": {"name": "kubevirt", "namespace": "harvester-system"},
        "spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]}}, "status": {}});
    let rancher = json!({"metadata": {"name": "local", "namespace": "fleet-local"},
        "spec": {"rkeConfig": {"upgradeStrategy": {"controlPlaneConcurrency": "1"}}}, "status": {}});
    let pod = |waiting: Value| {
        json!({"metadata": {"name": "api-7f-x", "namespace": "default", "labels": {"pod-template-hash": "7f"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "api-7f", "uid": "r", "controller": true}]},
            "spec": {"containers": []}, "status": {"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true,
            "restartCount": 0, "state": waiting}]}})
    };
    let mut snapshot = Snapshot::empty(now());
    for (field, object) in [
        ("vms", vm("ran", "Running")),
        ("vms", vm("off", "Stopped")),
        ("vmis", vmi("ran")),
        ("volumes", volume("pvc-1", "healthy")),
        ("volumes", volume("pvc-2", "degraded")),
        ("volumes", volume("pvc-3", "unknown")),
        ("nodes", node("node-1")),
        ("nodes", node("node-2")),
        ("managed_charts", chart),
        ("addons", addon),
        ("longhorn_settings", setting),
        ("kubevirts", kubevirt),
        ("rancher_clusters", rancher),
        ("pods", pod(json!({"running": {}}))),
    ] {
        let mut object = object;
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        if change(field, &name, &mut object) {
            snapshot.add(field, object).unwrap();
        }
    }
    snapshot
}

fn target() -> Target {
    Target {
        os: Some("Harvester v1.8.0".to_owned()),
        kubernetes: Some("v1.35.2+rke2r1".to_owned()),
    }
}

fn changed(change: impl Fn(&str, &str, &mut Value) -> bool) -> Report {
    compare(
        &Record::of(&cluster(|_, _, _| true)),
        &Record::of(&cluster(change)),
        &target(),
    )
}

fn ids(report: &Report) -> Vec<&str> {
    report.findings.iter().map(|finding| finding.id.as_str()).collect()
}

#[test]
fn a_cluster_that_is_as_before_has_no_finding_and_every_check_looked() {
    let report = changed(|_, _, _| true);
    assert_eq!(ids(&report), [""; 0]);
    assert_eq!((report.checked, report.not_checked.len()), (CHECKS.len(), 0));
}

#[test]
fn vms_of_namespaces_that_a_snapshot_lacks_are_not_compared() {
    let before = Record::of(&cluster(|_, _, _| true));
    let mut after = cluster(|field, _, _| !["vms", "vmis"].contains(&field));
    let report = compare_with(&before, &after, &target());
    assert_eq!(ids(&report), ["F02"]);
    after.only_namespaces = Some(["longhorn-system".to_owned()].into());
    let report = compare_with(&before, &after, &target());
    assert_eq!(ids(&report), [""; 0]);
    let not: Vec<(&str, &str)> = report
        .not_checked
        .iter()
        .map(|not| (not.id.as_str(), not.why.as_str()))
        .collect();
    let why = "virtualmachines: not known in namespaces default";
    assert_eq!(not, [("F01", why), ("F02", why)]);
}

type Change = fn(&str, &str, &mut Value) -> bool;

#[rstest]
#[case("F01", "VirtualMachine default/ran", Severity::Error, "ran is Stopped", |field: &str, name: &str, object: &mut Value| {
    if (field, name) == ("vms", "ran") { object["status"]["printableStatus"] = json!("Stopped"); }
    field != "vmis"
})]
#[case("F02", "VirtualMachine default/off", Severity::Warning, "default/off", |_: &str, name: &str, _: &mut Value| name != "off")]
#[case("F03", "Volume longhorn-system/pvc-1", Severity::Error, "pvc-1 is faulted", |_: &str, name: &str, object: &mut Value| {
    if name == "pvc-1" { object["status"]["robustness"] = json!("faulted"); }
    true
})]
#[case("F03", "Volume longhorn-system/pvc-3", Severity::Warning, "pvc-3 is degraded", |_: &str, name: &str, object: &mut Value| {
    if name == "pvc-3" { object["status"]["robustness"] = json!("degraded"); }
    true
})]
#[case("F04", "Volume longhorn-system/pvc-2", Severity::Info, "pvc-2", |_: &str, name: &str, _: &mut Value| name != "pvc-2")]
#[case("F05", "Node node-2", Severity::Error, "node-2 runs Harvester v1.7.1", |_: &str, name: &str, object: &mut Value| {
    if name == "node-2" { object["status"]["nodeInfo"]["osImage"] = json!("Harvester v1.7.1"); }
    true
})]
#[case("F05", "Node node-1", Severity::Error, "node-1 has kubelet v1.34.0", |_: &str, name: &str, object: &mut Value| {
    if name == "node-1" { object["status"]["nodeInfo"]["kubeletVersion"] = json!("v1.34.0"); }
    true
})]
#[case("F06", "Node node-2", Severity::Error, "node-2 is cordoned", |_: &str, name: &str, object: &mut Value| {
    if name == "node-2" { object["spec"]["unschedulable"] = json!(true); }
    true
})]
#[case("F06", "Node node-1", Severity::Error, "node-1 is not ready", |_: &str, name: &str, object: &mut Value| {
    if name == "node-1" { object["status"]["conditions"][0]["status"] = json!("Unknown"); }
    true
})]
#[case("F07", "Node node-2", Severity::Warning, "node-2", |_: &str, name: &str, _: &mut Value| name != "node-2")]
#[case("F08", "Setting longhorn-system/replica-replenishment-wait-interval", Severity::Warning, "was 600 and is 1800", |field: &str, _: &str, object: &mut Value| {
    if field == "longhorn_settings" { object["value"] = json!("1800"); }
    true
})]
#[case("F08", "Cluster fleet-local/local", Severity::Warning, "and is nothing", |field: &str, _: &str, object: &mut Value| {
    if field == "rancher_clusters" { object["spec"]["rkeConfig"] = json!({}); }
    true
})]
#[case("F08", "KubeVirt harvester-system/kubevirt", Severity::Warning, "was LiveMigrate", |field: &str, _: &str, object: &mut Value| {
    if field == "kubevirts" { object["spec"] = json!({}); }
    true
})]
#[case("F09", "ManagedChart fleet-local/harvester", Severity::Error, "harvester is paused", |field: &str, _: &str, object: &mut Value| {
    if field == "managed_charts" { object["spec"]["paused"] = json!(true); }
    true
})]
#[case("F09", "ManagedChart fleet-local/harvester", Severity::Error, "harvester is not ready", |field: &str, _: &str, object: &mut Value| {
    if field == "managed_charts" { object["status"]["conditions"][0]["status"] = json!("False"); }
    true
})]
#[case("F10", "Addon kube-system/descheduler", Severity::Warning, "was enabled and is disabled", |field: &str, _: &str, object: &mut Value| {
    if field == "addons" { object["spec"]["enabled"] = json!(false); }
    true
})]
#[case("F11", "Workload default/api", Severity::Error, "default/api", |field: &str, _: &str, object: &mut Value| {
    if field == "pods" { object["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": "CrashLoopBackOff"}}); }
    true
})]
fn each_check_finds_what_it_is_for_and_no_other_does(
    #[case] id: &str,
    #[case] object: &str,
    #[case] severity: Severity,
    #[case] words: &str,
    #[case] change: Change,
) {
    let report = changed(change);
    assert_eq!(ids(&report), [id]);
    let finding = &report.findings[0];
    assert_eq!(
        (finding.severity, finding.objects[0].to_string().as_str()),
        (severity, object)
    );
    assert!(finding.message.contains(words), "{}", finding.message);
    assert!(!finding.remedy.is_empty() && finding.link.ends_with(&id.to_lowercase()));
}

#[test]
fn what_was_wrong_before_is_no_finding() {
    let broken: Change = |field, name, object| {
        match field {
            "pods" => {
                object["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": "CrashLoopBackOff"}})
            }
            "managed_charts" => object["status"]["conditions"][0]["status"] = json!("False"),
            "nodes" if name == "node-2" => object["spec"]["unschedulable"] = json!(true),
            "vms" => object["status"]["printableStatus"] = json!("Stopped"),
            _ => {}
        }
        field != "vmis"
    };
    let before = Record::of(&cluster(broken));
    assert_eq!(ids(&compare(&before, &before, &target())), [""; 0]);
}

#[test]
fn checks_that_cannot_look_say_what_is_missing_and_the_others_look() {
    let mut after = cluster(|_, _, _| true);
    after.set_unknown("vms", "forbidden");
    let report = compare(
        &Record::of(&cluster(|_, _, _| true)),
        &Record::of(&after),
        &Target::default(),
    );
    let missing: Vec<(&str, &str)> = report
        .not_checked
        .iter()
        .map(|one| (one.id.as_str(), one.why.as_str()))
        .collect();
    assert_eq!(
        missing,
        [
            ("F01", "virtualmachines after the upgrade: forbidden"),
            ("F02", "virtualmachines after the upgrade: forbidden"),
            ("F05", "release: the upgrade has not come to its nodes"),
        ]
    );
    assert_eq!(report.checked, CHECKS.len() - 3);
}

fn plan(uid: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some("up".to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectMeta::default()
    }
}

/// A large cluster, with names as Harvester gives them.
fn large(vms: usize) -> Record {
    let mut record = Record::of(&cluster(|_, _, _| true));
    let digest = |index: usize| (index as u64 ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let power = |index: usize| {
        if index.is_multiple_of(7) {
            super::record::Power::Off("Stopped".to_owned())
        } else {
            super::record::Power::On
        }
    };
    record.vms = Ok((0..vms)
        .map(|index| (format!("project-{}/vm-{:x}", index % 40, digest(index)), power(index)))
        .collect());
    let claim = |index: usize| format!("pvc-{:016x}-{:016x}", digest(index), digest(index + 1_000_000));
    record.volumes = Ok((0..2 * vms).map(|index| (claim(index), "healthy".to_owned())).collect());
    record
}

#[test]
fn a_record_of_ten_thousand_vms_fits_one_config_map_and_is_read_back() {
    let record_of_many = large(10_000);
    let maps = config_maps(&plan("u1"), &record_of_many).unwrap();
    let bytes = serde_json::to_string(&maps).unwrap().len();
    println!(
        "10,000 VMs and 20,000 volumes: {bytes} bytes in {} ConfigMaps",
        maps.len()
    );
    assert_eq!(maps.len(), 1);
    assert!(bytes < 900 * 1024, "{bytes}");
    assert_eq!(record(&plan("u1"), &maps).unwrap(), Some(record_of_many));
}

#[test]
fn a_larger_record_has_several_config_maps_each_below_the_limit_and_a_lost_one_is_noticed() {
    let record_of_many = large(60_000);
    let mut maps = config_maps(&plan("u1"), &record_of_many).unwrap();
    assert!(maps.len() > 1);
    for map in &maps {
        let bytes = serde_json::to_string(map).unwrap().len();
        assert!(bytes < 1024 * 1024, "{bytes}");
    }
    assert_eq!(record(&plan("u1"), &maps).unwrap(), Some(record_of_many));
    // Parts of an attempt that broke off count for nothing.
    let others = config_maps(&plan("u1"), &large(50_000)).unwrap();
    assert_eq!(record(&plan("u1"), &others[..1]).unwrap(), None);
    assert!(
        maps.last().unwrap().metadata.name.as_deref() == Some("up-record"),
        "it is created last"
    );
    maps.remove(0);
    assert!(matches!(record(&plan("u1"), &maps), Err(StoredError::NoPart(_))));
}

#[test]
fn config_maps_that_the_plan_does_not_own_count_for_nothing() {
    let maps = config_maps(&plan("another"), &large(3)).unwrap();
    assert_eq!(record(&plan("u1"), &maps).unwrap(), None);
    assert_eq!(record(&plan("u1"), &[]).unwrap(), None);
    let mut damaged = config_maps(&plan("u1"), &large(3)).unwrap();
    damaged[0]
        .data
        .as_mut()
        .unwrap()
        .insert("record".to_owned(), "bm90IGEgcmVjb3Jk".to_owned());
    assert!(record(&plan("u1"), &damaged).is_err());
}
