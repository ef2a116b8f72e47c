//! What the manager records before an upgrade, and what it says at the end: nothing where all is as before, and what is worse where
//! it is not. None of it holds an upgrade up.

use std::{collections::BTreeSet, time::Duration};

use api::{CheckSummary, Phase, UpgradePlan, names, owner};
use apiserver::{Fault, FaultPlan, Store};
use checks::{
    finding::Report,
    postflight::{Record, Target, compare, stored},
};
use cli::rehearsal::{Rehearsal, manager_user};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use rstest::rstest;
use serde_json::{Value, json};
use snapshot::Snapshot;

use crate::{
    doctor::play::{plan, start, take},
    perturbation::Perturbation,
    run::{Case, Ended, in_paused_time, run},
    timeline::versions,
    user::User,
    watched::Watched,
};

const LONG: Duration = Duration::from_secs(12 * 3600);

fn restoring() -> Case {
    let mut case = Case::three_nodes();
    case.scenario.shape.vms = 6;
    case.restore_vm = true;
    case
}

/// The ISO cannot be downloaded: an upgrade that begins and soon fails.
fn without_iso() -> Case {
    let mut case = Case::three_nodes();
    case.scenario.troubles.iso_failures = 100;
    case
}

async fn ended(rehearsal: &Watched, name: &str) -> UpgradePlan {
    let is_over = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty();
    let plan = rehearsal.follow(name, Some(LONG), is_over).await;
    (*plan.expect("the upgrade ends")).clone()
}

fn postflight(plan: &UpgradePlan) -> Option<&CheckSummary> {
    plan.status.as_ref()?.postflight.as_ref()
}

async fn compared(rehearsal: &Watched, name: &str) -> UpgradePlan {
    let is_compared = |plan: &UpgradePlan| postflight(plan).is_some();
    let plan = rehearsal
        .follow(name, Some(Duration::from_secs(3600)), is_compared)
        .await;
    (*plan.expect("the cluster is compared")).clone()
}

/// What `upgrade-toolkit postflight` says of a cluster.
fn report(snapshot: &Snapshot) -> Report {
    let plan = plan(snapshot).unwrap();
    let before = stored::record(&plan.metadata, snapshot.config_maps.as_ref().unwrap());
    let before = before.unwrap().expect("the plan has a record");
    compare(&before, &Record::of(snapshot), &Target::of(plan))
}

fn ids<'a>(ids: impl IntoIterator<Item = &'a String>) -> Vec<&'a str> {
    ids.into_iter().map(String::as_str).collect()
}

fn found(plan: &UpgradePlan) -> Vec<&str> {
    ids(postflight(plan).unwrap().findings.iter().map(|finding| &finding.id))
}

fn events(store: &Store, reason: &str) -> Vec<String> {
    let events = store.list("", "events", None);
    let of_reason = events.iter().filter(|event| event["reason"] == reason);
    of_reason
        .map(|event| event["message"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn maps(store: &Store) -> Vec<ConfigMap> {
    let maps = store.list("", "configmaps", Some(names::HARVESTER_NAMESPACE));
    maps.iter()
        .map(|map| serde_json::from_value((**map).clone()).unwrap())
        .collect()
}

/// Writes of the manager that are not renewals of its lease.
fn writes(rehearsal: &Rehearsal) -> usize {
    let history = rehearsal.server.store().history().into_iter();
    history
        .filter(|write| write.user == manager_user() && write.resource.plural != "leases")
        .count()
}

#[test]
fn a_healthy_upgrade_has_a_record_of_before_its_first_change_and_nothing_is_worse_at_its_end() {
    in_paused_time(async {
        let (rehearsal, name, _manager) = start(&restoring()).await;
        let before = Record::of(&take(&rehearsal).await);
        let plan = ended(&rehearsal, &name).await;
        assert_eq!(plan.phase(), Some(Phase::Succeeded));
        let plan_compared = compared(&rehearsal, &name).await;
        let summary = postflight(&plan_compared).unwrap();
        assert_eq!((summary.errors, summary.warnings), (0, 0), "{summary:#?}");

        let store = rehearsal.server.store();
        let map = names::record_config_map(&name);
        let maps = maps(store);
        let map = maps.iter().find(|found| found.name_any() == map).unwrap();
        assert!(owner::is_owned_by_plan(map, &plan.metadata));
        assert_eq!(map.immutable, Some(true));
        let stored = stored::record(&plan.metadata, &maps).unwrap().unwrap();
        // What the manager sees in its caches and short lists is what a whole snapshot has.
        let record = Record {
            taken_at: before.taken_at,
            ..stored
        };
        assert_eq!(record, before);
        let writes_before: Vec<String> = store
            .history()
            .into_iter()
            .filter(|write| {
                write.user == manager_user() && !["leases", "events"].contains(&write.resource.plural.as_str())
            })
            .take_while(|write| write.resource.plural != "configmaps")
            .map(|write| write.resource.plural)
            .collect();
        assert!(
            writes_before.iter().all(|plural| plural == "upgradeplans"),
            "{writes_before:?}"
        );

        let report = report(&take(&rehearsal).await);
        assert_eq!((report.findings, report.not_checked), (Vec::new(), Vec::new()));
        assert_eq!(events(store, "Postflight"), [""; 0]);
        let written = writes(&rehearsal);
        rehearsal.clock.sleep(Duration::from_secs(2 * 3600)).await;
        assert_eq!(writes(&rehearsal), written, "one comparison is enough");
    });
}

async fn merge(rehearsal: &Rehearsal, path: (&str, &str, &str, &str), patch: &Value) {
    let (group, kind, namespace, name) = path;
    let version = if group == "longhorn.io" { "v1beta2" } else { "v1beta1" };
    let resource = kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk(group, version, kind));
    let api: Api<kube::api::DynamicObject> = Api::namespaced_with(rehearsal.server.client(), namespace, &resource);
    let patch = Patch::Merge(patch);
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[test]
fn vms_that_do_not_start_again_are_reported_once_nothing_starts_them_any_more() {
    let mut case = restoring();
    let objects = case.scenario.shape.objects();
    let vms = objects.iter().filter(|object| object["kind"] == "VirtualMachine");
    let names: BTreeSet<String> = vms
        .map(|vm| format!("default/{}", vm["metadata"]["name"].as_str().unwrap()))
        .collect();
    case.scenario.troubles.vms_that_do_not_start = names;
    in_paused_time(async {
        let (rehearsal, name, _manager) = start(&case).await;
        let plan = ended(&rehearsal, &name).await;
        let end = plan.status.unwrap().phase_transition_timestamps.pop().unwrap();
        let end = end.phase_transition_timestamp.0;
        let store = rehearsal.server.store();
        // Jobs still try.
        rehearsal.clock.sleep(Duration::from_secs(300)).await;
        assert_eq!(events(store, "Postflight"), [""; 0]);
        let plan = compared(&rehearsal, &name).await;
        let at = postflight(&plan).unwrap().at.0;
        assert!(at > end + Duration::from_secs(300), "{at}");
        assert_eq!(found(&plan), ["F01"]);
        rehearsal.clock.sleep(Duration::from_secs(10)).await;
        let events = events(store, "Postflight");
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(
            events[0].contains("ran before the upgrade and do not now: default/"),
            "{events:?}"
        );
        let report = report(&take(&rehearsal).await);
        assert_eq!(ids(report.findings.iter().map(|finding| &finding.id)), ["F01"]);
    });
}

#[test]
fn a_setting_that_is_not_restored_is_reported_by_a_manager_that_starts_after_the_end() {
    in_paused_time(async {
        let (rehearsal, name, manager) = start(&restoring()).await;
        ended(&rehearsal, &name).await;
        let longhorn = names::LONGHORN_NAMESPACE;
        let setting = ("longhorn.io", "Setting", longhorn, names::REPLENISHMENT_SETTING);
        merge(&rehearsal, setting, &json!({"value": "1800"})).await;
        // A manager that starts after the end compares too.
        manager.abort();
        let _manager = rehearsal.start_manager("manager-2");
        let plan = compared(&rehearsal, &name).await;
        assert_eq!(found(&plan), ["F08"]);
        rehearsal.clock.sleep(Duration::from_secs(10)).await;
        let events = events(rehearsal.server.store(), "Postflight");
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(events[0].contains("was 600 and is 1800"), "{events:?}");
        let report = report(&take(&rehearsal).await);
        assert_eq!(ids(report.findings.iter().map(|finding| &finding.id)), ["F08"]);
    });
}

#[test]
fn volumes_are_given_half_an_hour_to_be_rebuilt_and_reported_then() {
    let mut case = restoring();
    case.scenario.durations.rebuild = Duration::from_mins(60);
    in_paused_time(async {
        let (rehearsal, name, _manager) = start(&case).await;
        let plan = ended(&rehearsal, &name).await;
        let end = plan.status.unwrap().phase_transition_timestamps.pop().unwrap();
        let end = end.phase_transition_timestamp.0;
        let plan = compared(&rehearsal, &name).await;
        assert_eq!(found(&plan), ["F03"]);
        let at = postflight(&plan).unwrap().at.0;
        assert!(at >= end + Duration::from_mins(30), "{at} is too soon after {end}");
        let report = report(&take(&rehearsal).await);
        assert_eq!(ids(report.findings.iter().map(|finding| &finding.id)), ["F03"]);
    });
}

/// The number of the write that stores the record.
fn storing(ended: &Ended) -> u64 {
    let at = ended
        .writes
        .iter()
        .position(|write| write.starts_with("create configmaps "));
    u64::try_from(at.expect("the record is stored")).unwrap() + 1
}

#[rstest]
#[case(Perturbation::Crash)]
#[case(Perturbation::CrashIntoThePast)]
#[case(Perturbation::LostReply)]
#[case(Perturbation::Unavailable)]
#[case(Perturbation::Overlap)]
fn around_the_record_a_manager_may_die_and_there_is_one_record_of_before(#[case] perturbation: Perturbation) {
    let plain = run(&without_iso());
    let number = storing(&plain);
    for number in [number - 1, number, number + 1] {
        let ended = run(&Case {
            perturbed: Some((number, perturbation)),
            ..without_iso()
        });
        let plan = ended.plan.clone().unwrap();
        assert_eq!(plan.phase(), Some(Phase::Failed));
        let record = stored::record(&plan.metadata, &maps(&ended.store)).unwrap();
        let record = record.unwrap_or_else(|| panic!("no record: {perturbation:?} of write {number}"));
        assert_eq!(record.left_out(), [""; 0]);
        let began = first_change(&ended.store);
        assert!(record.taken_at <= began, "{} is after {began}", record.taken_at);
        let created = |write: &&String| write.starts_with("create configmaps ") && write.ends_with(" 201");
        assert_eq!(ended.writes.iter().filter(created).count(), 1, "{:#?}", ended.writes);
        assert_eq!(
            ended.digest["events"], plain.digest["events"],
            "{perturbation:?} of write {number}"
        );
        assert!(plan.status.unwrap().preflight.is_some());
    }
}

/// When the ISO was first asked for.
fn first_change(store: &Store) -> Timestamp {
    let mut images = store.list("harvesterhci.io", "virtualmachineimages", None).into_iter();
    let image = images
        .find(|image| image["metadata"]["ownerReferences"].is_array())
        .unwrap();
    image["metadata"]["creationTimestamp"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

fn refuses_config_maps(rehearsal: &Rehearsal) {
    rehearsal.server.set_faults(FaultPlan::writes(|write| {
        let refused = write.who.user == manager_user() && write.resource.plural == "configmaps";
        if refused { Fault::Reject(403) } else { Fault::None }
    }));
}

#[test]
fn a_record_that_cannot_be_stored_keeps_nothing_from_starting_and_an_event_says_so() {
    let ended = run(&Case {
        arranged: Some(refuses_config_maps),
        ..without_iso()
    });
    let plan = ended.plan.unwrap();
    let status = plan.status.unwrap();
    let reached = |change: &api::PhaseTransition| change.phase == Phase::ISODownloading.as_str();
    assert!(status.phase_transition_timestamps.iter().any(reached));
    assert!(status.preflight.is_some() && status.postflight.is_none());
    let events = events(&ended.store, "NotRecorded");
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains("postflight --before"), "{events:?}");
}

#[test]
fn the_record_goes_with_its_plan() {
    let ended = run(&Case {
        user: vec![User::DeletesAt(Phase::RepoCreating)],
        ..Case::three_nodes()
    });
    assert!(ended.plan.is_none());
    assert!(storing(&ended) > 0);
    let left: Vec<String> = maps(&ended.store).iter().map(ResourceExt::name_any).collect();
    assert!(!left.iter().any(|name| name.ends_with("-record")), "{left:?}");
}

#[test]
fn another_try_keeps_the_record_of_before_the_first_one_and_is_compared_at_its_own_end() {
    let mut case = without_iso();
    case.user = vec![User::FixesAndRetries];
    let ended = run(&case);
    let plan = ended.plan.unwrap();
    assert_eq!(plan.phase(), Some(Phase::Succeeded));
    let created = |write: &&String| write.starts_with("create configmaps ");
    assert_eq!(ended.writes.iter().filter(created).count(), 1);
    let mut versions = versions(&ended.store, "upgradeplans").into_iter();
    let (_, succeeded) = versions
        .find(|(_, plan)| plan["status"]["currentPhase"] == Phase::Succeeded.as_str())
        .unwrap();
    assert_eq!(
        succeeded["status"]["postflight"],
        json!(null),
        "what the failed try was compared to is gone with it"
    );
    assert!(postflight(&plan).is_some(), "{:#?}", plan.status);
}

/// A user's schedule makes backups during the upgrade, which admission refuses unless the plan skips its checks.
fn schedules_backups(rehearsal: &Rehearsal) {
    let client = rehearsal.server.client();
    tokio::spawn(async move {
        let resource = kube::api::ApiResource::from_gvk_with_plural(
            &kube::api::GroupVersionKind::gvk("harvesterhci.io", "v1beta1", "ScheduleVMBackup"),
            "schedulevmbackups",
        );
        let api: Api<kube::api::DynamicObject> = Api::namespaced_with(client, "default", &resource);
        let schedule = kube::api::DynamicObject::new("nightly", &resource).data(json!({
            "spec": {"cron": "0 1 * * *", "retain": 8, "maxFailure": 4, "suspend": false,
                "vmbackup": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "lab-1"}, "type": "backup"}},
            "status": {"suspended": false},
        }));
        api.create(&Default::default(), &schedule).await.unwrap();
    });
}

#[test]
fn what_checks_find_that_block_nothing_is_in_events_and_in_the_status_and_the_upgrade_starts() {
    let ended = run(&Case {
        arranged: Some(schedules_backups),
        ..without_iso()
    });
    let plan = ended.plan.unwrap();
    let status = plan.status.unwrap();
    let reached = |change: &api::PhaseTransition| change.phase == Phase::ISODownloading.as_str();
    assert!(status.phase_transition_timestamps.iter().any(reached));
    let preflight = status.preflight.unwrap();
    let shown = ids(preflight.findings.iter().map(|finding| &finding.id));
    assert!(shown.contains(&"P09"), "{preflight:#?}");
    let events = events(&ended.store, "Preflight");
    assert_eq!(events.len(), preflight.findings.len(), "{events:#?}");
    assert!(
        events
            .iter()
            .any(|event| event.starts_with("P09: ") && event.contains("nightly")),
        "{events:#?}"
    );
}
