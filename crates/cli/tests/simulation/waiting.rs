//! At every moment an upgrade says what it waits for.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{Component, JobType, Phase, UpgradePlan};
use cli::rehearsal::beginning;
use clock::Clock;
use kube::ResourceExt;
use rstest::rstest;
use world::{
    Troubles,
    troubles::{JobFailure, JobTrouble, RebootTrouble, RepositoryTrouble},
};

use crate::run::{Case, in_paused_time};
use crate::watched::Watched;

/// Every message of `waitingFor` that shows within a time, with its word.
pub(crate) fn waits(case: Case, pause: &[&str], limit: Duration) -> BTreeSet<String> {
    in_paused_time(async {
        let clock = Clock::simulated(beginning(), 1.0);
        let rehearsal = Watched::start(case.scenario, clock).await;
        let _manager = rehearsal.start_manager("manager-1");
        let pause: Vec<String> = pause.iter().map(|name| (*name).to_owned()).collect();
        let plan = rehearsal
            .create_unchecked(rehearsal.plan(case.restore_vm, &pause))
            .await
            .unwrap();
        let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let look = |plan: &UpgradePlan| {
            let status = plan.status.clone().unwrap_or_default();
            for wait in &status.waiting_for {
                seen.lock()
                    .unwrap()
                    .insert(format!("{}: {}", wait.what, wait.message.clone().unwrap_or_default()));
                assert!(wait.since.0 >= beginning());
            }
            let degraded = plan
                .condition("Degraded")
                .filter(|condition| condition.status == "True");
            if let Some(degraded) = degraded {
                seen.lock()
                    .unwrap()
                    .insert(format!("Degraded {}: {}", degraded.reason, degraded.message));
            }
            plan.phase().is_some_and(Phase::is_terminal)
        };
        rehearsal.follow(&plan.name_any(), Some(limit), look).await;
        Arc::try_unwrap(seen)
            .map(|seen| seen.into_inner().unwrap())
            .unwrap_or_default()
    })
}

pub(crate) fn with(troubles: Troubles) -> Case {
    let mut case = Case::three_nodes();
    case.scenario.troubles = troubles;
    case
}

fn job(component: Component, job_type: Option<JobType>, failure: JobFailure) -> Troubles {
    Troubles {
        jobs: vec![JobTrouble {
            component,
            job_type,
            node: None,
            failure,
        }],
        ..Troubles::default()
    }
}

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn assert_seen(seen: &BTreeSet<String>, wanted: &str) {
    assert!(
        seen.iter().any(|text| text.starts_with(wanted)),
        "no {wanted:?} in {seen:#?}"
    );
}

#[test]
fn every_wait_of_an_upgrade_that_goes_well_has_a_name() {
    let mut case = Case::unhurried();
    case.scenario.shape.vms = 6;
    let seen = waits(case, &[], 12 * HOUR);
    for wanted in [
        "Preflight: disks and certificates are being checked",
        "ISOImport: image ",
        "Repository: upgrade-repo deployment not ready",
        "ImagePreload: images are being loaded onto the nodes",
        "ClusterUpgradeJob: cluster components are being upgraded",
        "SkipManifestsApply: waiting for skip-manifest apply plan to complete",
        "RancherNextNode: waiting for Rancher to continue with the next node (0 of 3 done)",
        "LonghornVolume: ",
        "PreDrainJob: node node-2: VMs are being moved away",
        "VMEvacuation: ",
        "RancherUpdate: node node-1: Rancher drains it and updates RKE2",
        "PostDrainJob: node node-1: the operating system is being installed",
        "Reboot: node node-1: it reboots into the new operating system",
        "RancherCompletion: waiting for Rancher to complete node upgrades: secret ",
        "ImageCleanup: stale images are being removed from the nodes",
    ] {
        assert_seen(&seen, wanted);
    }
    assert!(!seen.iter().any(|text| text.starts_with("Degraded")), "{seen:#?}");
}

#[rstest]
#[case::repo(Troubles { repository: Some(RepositoryTrouble::NeverReady), ..Troubles::default() },
    "Degraded Stalled: upgrade-repo deployment not ready")]
#[case::metadata(Troubles { repository: Some(RepositoryTrouble::Unreachable), ..Troubles::default() },
    "ReleaseManifest: failed to read https://")]
#[case::image(
    job(Component::ImagePreload, None, JobFailure::ImagePullBackOff),
    "ToolkitImage: node node-2 does not have the image rancher/harvester-upgrade-toolkit:"
)]
#[case::stalled_image(
    job(Component::ImagePreload, None, JobFailure::ImagePullBackOff),
    "Degraded Stalled: node node-1 does not have the image "
)]
#[case::cluster(
    job(Component::ClusterUpgrade, None, JobFailure::Hangs),
    "Degraded Stalled: cluster components are being upgraded"
)]
#[case::pre_drain(
    job(Component::NodeUpgrade, Some(JobType::PreDrain), JobFailure::Hangs),
    "Degraded Stalled: node node-1: "
)]
#[case::drain(Troubles { blocked_drains: ["node-1".to_owned()].into(), ..Troubles::default() },
    "Degraded Stalled: node node-1: Rancher drains it and updates RKE2; pod default/stubborn-node-1 is kept by PodDisruptionBudget stubborn-node-1; Rancher says: ")]
#[case::reboot(Troubles { reboots: [("node-1".to_owned(), RebootTrouble::NeverReturns)].into(), ..Troubles::default() },
    "Degraded Stalled: node node-1: it reboots into the new operating system")]
fn what_hinders_an_upgrade_is_named_and_past_its_deadline_it_is_stalled(
    #[case] troubles: Troubles,
    #[case] wanted: &str,
) {
    assert_seen(&waits(with(troubles), &[], 6 * HOUR), wanted);
}

#[test]
fn a_known_situation_explains_a_stalled_upgrade_in_its_condition() {
    let troubles = Troubles {
        reboots: [("node-1".to_owned(), RebootTrouble::NeverReturns)].into(),
        ..Troubles::default()
    };
    let seen = waits(with(troubles), &[], 6 * HOUR);
    let explained = |text: &String| text.starts_with("Degraded Stalled: ") && text.contains("; explained by D37: ");
    assert!(seen.iter().any(explained), "{seen:#?}");
}

#[test]
fn a_paused_node_is_named() {
    let seen = waits(Case::three_nodes(), &["node-1", "node-3"], 6 * HOUR);
    assert_seen(&seen, "Paused: node upgrade paused: node-1");
    assert_seen(
        &seen,
        "BehindPaused: 2 more wait behind node-1: Rancher upgrades one node after the other",
    );
    assert!(
        !seen.iter().any(|text| text.starts_with("Degraded")),
        "holding a node is not trouble: {seen:#?}"
    );
}
