//! At each station of an upgrade: what is waited for, which object, since when, until when, and the one line of it.

use std::{sync::Mutex, time::Duration};

use api::{Component, labels, names};
use apiserver::{Fault, FaultPlan};
use cli::rehearsal::Rehearsal;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rstest::rstest;
use serde_json::{Value, json};
use world::troubles::RepositoryTrouble;

use crate::{
    run::Case,
    status_history::{HOUR, StatusHistory, follow},
    timeline::holds,
    user::User,
    weaknesses::lists_endpoints_late,
};

/// A station: the word, what the message begins with, the object (`<plan>` stands for the plan's name), and for how many
/// minutes it may take; 0 for what only a person ends.
type ExpectedWait<'a> = (&'a str, &'a str, &'a str, i64);

/// The wait is reported as expected.
fn check(history: &StatusHistory, (what, message, object, minutes): ExpectedWait<'_>) {
    let (at, wait) = history.first(what, message);
    assert_eq!(
        wait.object.unwrap_or_default(),
        object.replace("<plan>", &history.plan),
        "{what}"
    );
    let age = at.duration_since(wait.since.0);
    assert!(
        (0..=1).contains(&age.as_secs()),
        "{what}: reported at {at}, since {:?}",
        wait.since
    );
    let limit = wait
        .deadline
        .map(|deadline| deadline.0.duration_since(wait.since.0).as_mins());
    assert_eq!(limit.unwrap_or_default(), minutes, "{what}");
}

/// The stations of an upgrade that goes well. Stale images are removed from one node after another, ten minutes each.
#[rustfmt::skip]
const STATIONS: [ExpectedWait<'_>; 16] = [
    ("Preflight", "disks and certificates are being checked", "Node (all), EndpointSlice default/kubernetes", 10),
    ("ISOImport", "image hvst-upgrade-", "VirtualMachineImage harvester-system/<plan>-iso", 30),
    ("Repository", "upgrade-repo deployment not ready", "Deployment harvester-system/<plan>-repo", 10),
    ("ReleaseManifest", "the digests of the release are being read", "https://<plan>-repo.harvester-system/harvester-iso.manifest", 10),
    ("ReleaseMetadata", "release metadata is being read", "https://<plan>-repo.harvester-system/harvester-iso/harvester-release.yaml", 10),
    ("ImagePreload", "images are being loaded onto the nodes", "Plan cattle-system/<plan>-image-preload", 60),
    ("ClusterUpgradeJob", "cluster components are being upgraded", "Job harvester-system/<plan>-cluster-upgrade", 45),
    ("SkipManifestsApply", "waiting for skip-manifest apply plan to complete", "Plan cattle-system/<plan>-apply-skip-rke2-manifests", 10),
    ("RancherNextNode", "waiting for Rancher to continue with the next node (0 of 3 done)", "Cluster fleet-local/local", 20),
    ("PreDrainJob", "node node-2: VMs are being moved away", "Job harvester-system/<plan>-node-upgrade-pre-drain-node-2", 30),
    ("PreDrainJob", "node node-1: VMs are being moved away", "Job harvester-system/<plan>-node-upgrade-pre-drain-node-1", 30),
    ("RancherUpdate", "node node-1: Rancher drains it and updates RKE2", "Node node-1", 20),
    ("PostDrainJob", "node node-1: the operating system is being installed", "Job harvester-system/<plan>-node-upgrade-post-drain-node-1", 30),
    ("Reboot", "node node-1: it reboots into the new operating system", "Node node-1", 20),
    ("ImageCleanup", "stale images are being removed from the nodes", "Plan cattle-system/<plan>-image-cleanup", 30),
    ("SkipManifestsRemove", "waiting for skip-manifest remove plan to complete", "Plan cattle-system/<plan>-remove-skip-rke2-manifests", 10),
];

#[test]
fn each_station_says_what_is_waited_for_which_object_since_when_and_until_when() {
    let mut case = Case::unhurried();
    case.scenario.shape.vms = 6;
    let history = follow(&case, 12 * HOUR);
    for station in STATIONS {
        check(&history, station);
    }
}

#[test]
fn rancher_is_waited_for_by_the_name_of_its_secret() {
    let history = follow(&Case::three_nodes(), 12 * HOUR);
    let begin = "waiting for Rancher to complete node upgrades: secret ";
    let (_, wait) = history.first("RancherCompletion", begin);
    let message = wait.message.unwrap();
    let secret = message[begin.len()..].split(' ').next().unwrap();
    assert!(
        message.ends_with("still has rke.cattle.io/post-drain annotation"),
        "{message}"
    );
    check(
        &history,
        ("RancherCompletion", begin, &format!("Secret fleet-local/{secret}"), 20),
    );
}

#[test]
fn a_repository_that_no_client_can_reach_is_reported_with_the_address_and_the_error() {
    let mut case = Case::three_nodes();
    case.scenario.troubles.repository = Some(RepositoryTrouble::Unreachable);
    let history = follow(&case, HOUR);
    // Its manifest is what is read first.
    let (_, wait) = history.first("ReleaseManifest", "failed to read https://");
    let url = format!("https://{}-repo.harvester-system/harvester-iso.manifest", history.plan);
    let message = wait.message.unwrap();
    assert!(
        message.starts_with(&format!("failed to read {url}: ")) && message.ends_with("connection refused"),
        "{message}"
    );
    assert_eq!(wait.object, Some(url), "the same wait as before the first error");
    let waited = wait.deadline.unwrap().0.duration_since(wait.since.0);
    assert_eq!(waited.as_mins(), 10);
}

#[test]
fn endpoints_that_are_not_ready_are_distinguished_from_pods_that_are_not_ready() {
    let case = Case {
        arranged: Some(lists_endpoints_late),
        ..Case::three_nodes()
    };
    let object = "Service harvester-system/<plan>-repo";
    check(
        &follow(&case, HOUR),
        ("Repository", "upgrade-repo svc/ep not ready", object, 10),
    );
}

/// Longhorn takes the setting that an upgrade changes, and for a minute does not take it back.
fn takes_its_setting_back_late(rehearsal: &Rehearsal) {
    let (clock, refused) = (rehearsal.clock.clone(), Mutex::new((0, None)));
    rehearsal.server.set_faults(FaultPlan::writes(move |write| {
        if write.name != names::REPLENISHMENT_SETTING {
            return Fault::None;
        }
        let (writes, since) = &mut *refused.lock().unwrap();
        *writes += 1;
        if *writes == 1 {
            return Fault::None;
        }
        let since = *since.get_or_insert(clock.now());
        if clock.now().duration_since(since).as_secs() < 60 {
            Fault::Reject(503)
        } else {
            Fault::None
        }
    }));
}

#[test]
fn what_is_still_to_be_restored_is_reported_with_its_deadline() {
    let case = Case {
        arranged: Some(takes_its_setting_back_late),
        ..Case::three_nodes()
    };
    let history = follow(&case, 12 * HOUR);
    check(
        &history,
        ("PutBack", "being restored or removed: Setting longhorn-system/", "", 5),
    );
    let (_, last) = history.statuses.last().unwrap();
    assert_eq!(last["status"]["currentPhase"], "Succeeded");
}

#[test]
fn a_paused_node_is_reported_without_a_deadline_and_with_those_behind_it() {
    let case = Case {
        pause: vec!["node-1".to_owned()],
        user: vec![User::LetsGo],
        ..Case::three_nodes()
    };
    let history = follow(&case, 12 * HOUR);
    check(&history, ("Paused", "node upgrade paused: node-1", "Node node-1", 0));
    let behind = "2 more wait behind node-1: Rancher upgrades one node after the other";
    check(&history, ("BehindPaused", behind, "Cluster fleet-local/local", 0));
}

/// How a pod looks that cannot start.
type Stuck = fn() -> Value;

fn unschedulable() -> Value {
    let message = "0/3 nodes are available: 3 Insufficient memory.";
    json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
    ]})
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"phase": "Pending", "containerStatuses": [{
        "name": "upgrade", "image": "a", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": message}},
    }]})
}

fn misconfigured() -> Value {
    waiting("CreateContainerConfigError", "secret \"harvester\" not found")
}

/// Makes pods of a component look so for as long as the world takes to start them.
fn look_stuck(rehearsal: &Rehearsal, component: Component, status: Stuck) {
    let (client, seen) = (rehearsal.server.client(), tokio::runtime::Handle::current());
    rehearsal.server.store().observe(move |change| {
        let (object, client) = (change.object.clone(), client.clone());
        let ours = object["metadata"]["labels"][labels::UPGRADE_COMPONENT] == component.as_str();
        if change.resource.plural != "pods" || !ours || change.previous.is_some() {
            return;
        }
        seen.spawn(async move {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            let pods: Api<Pod> = Api::namespaced(client, text("namespace"));
            let patch = Patch::Merge(json!({"status": status()}));
            pods.patch_status(text("name"), &PatchParams::default(), &patch)
                .await
                .unwrap();
        });
    });
}

fn crashing() -> Value {
    waiting("CrashLoopBackOff", "back-off 5m0s restarting failed container")
}

fn unschedulable_preload(rehearsal: &Rehearsal) {
    look_stuck(rehearsal, Component::ImagePreload, unschedulable);
}

fn misconfigured_preload(rehearsal: &Rehearsal) {
    look_stuck(rehearsal, Component::ImagePreload, misconfigured);
}

fn unschedulable_cluster_job(rehearsal: &Rehearsal) {
    look_stuck(rehearsal, Component::ClusterUpgrade, unschedulable);
}

fn misconfigured_cluster_job(rehearsal: &Rehearsal) {
    look_stuck(rehearsal, Component::ClusterUpgrade, misconfigured);
}

fn crashing_repository(rehearsal: &Rehearsal) {
    look_stuck(rehearsal, Component::Repo, crashing);
}

const CRASHES: &str = "CrashLoopBackOff: \"back-off 5m0s restarting failed container\"";
const CONFIG: &str = "CreateContainerConfigError: \"secret 'harvester' not found\"";
const NO_ROOM: &str = "Unschedulable: \"0/3 nodes are available: 3 Insufficient memory.\"";

#[rstest]
#[case::crashing_repository(crashing_repository, names::HARVESTER_NAMESPACE, CRASHES)]
#[case::unschedulable_preload(unschedulable_preload, "cattle-system", NO_ROOM)]
#[case::misconfigured_preload(misconfigured_preload, "cattle-system", CONFIG)]
#[case::unschedulable_cluster_job(unschedulable_cluster_job, names::HARVESTER_NAMESPACE, NO_ROOM)]
#[case::misconfigured_cluster_job(misconfigured_cluster_job, names::HARVESTER_NAMESPACE, CONFIG)]
fn a_pod_that_does_not_come_up_is_reported_with_the_reason_and_past_its_deadline_as_stalled(
    #[case] arranged: fn(&Rehearsal),
    #[case] namespace: &str,
    #[case] reason: &str,
) {
    let mut case = Case {
        arranged: Some(arranged),
        ..Case::three_nodes()
    };
    // Every pod takes so long to start; those that are reported as stuck are past their five minutes by then.
    case.scenario.durations.pod_start = Duration::from_secs(8 * 60);
    let history = follow(&case, 3 * HOUR);
    let (_, wait) = history.first("Pod", &format!("pod {namespace}/"));
    let object = wait.object.unwrap();
    let pod = object.strip_prefix("Pod ").unwrap();
    assert_eq!(wait.message.unwrap(), format!("pod {pod} cannot start: {reason}"));
    let deadline = wait.deadline.unwrap().0;
    assert_eq!(deadline.duration_since(wait.since.0).as_mins(), 5);
    let mut degraded = history
        .statuses
        .iter()
        .filter_map(|(at, version)| Some((*at, holds(version, "Degraded")?)));
    let stalled = degraded.find(|(_, message)| message.contains(reason));
    let (at, message) = stalled.expect("past its deadline it is stalled");
    assert_eq!(at, deadline, "{message}");
    let over = history.statuses.last().unwrap();
    assert_eq!(holds(&over.1, "Degraded"), None, "and it is over when the pod starts");
}
