//! A rehearsal shows the steps and the waits of the real programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{Component, JobType, Phase, foreign::fleet::Bundle, names};
use cli::rehearsal::{Rehearsal, beginning};
use clock::Clock;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use node::{
    host::system_agent::SUSPEND_STEPS,
    images::{cleanup, prepare},
    limits::Limits,
    post_drain, pre_drain, single_node, skip_manifests,
    vm::{detector, restore},
};
use program::step::Step;
use serde_json::{Value, json};
use world::{ProgramStep, Troubles, troubles::RepositoryTrouble};

use crate::{
    run::{Case, in_paused_time},
    status_history::follow,
    waiting::{HOUR, assert_seen, waits, with},
    watched::Watched,
};

fn steps_of<C>(steps: &[Step<C>]) -> Vec<&'static str> {
    steps.iter().map(|step| step.name).collect()
}

/// The steps that stop VMs run the detector, which has its own.
fn with_detector(steps: &[&'static str]) -> Vec<&'static str> {
    let mut all = Vec::new();
    for step in steps {
        all.push(*step);
        if ["stop-immovable-vms", "stop-vms"].contains(step) {
            all.extend(steps_of(detector::STEPS));
        }
    }
    all
}

/// The steps of each real program.
fn real() -> BTreeMap<&'static str, Vec<&'static str>> {
    let limits = Limits::default();
    BTreeMap::from([
        (Component::ImagePreload.as_str(), steps_of(prepare::STEPS)),
        (Component::ClusterUpgrade.as_str(), steps_of(cluster_upgrade::STEPS)),
        (Component::SkipManifestsApply.as_str(), steps_of(skip_manifests::STEPS)),
        (Component::SkipManifestsRemove.as_str(), steps_of(skip_manifests::STEPS)),
        (Component::ImageCleanup.as_str(), steps_of(cleanup::STEPS)),
        (
            JobType::PreDrain.as_str(),
            with_detector(&steps_of(&pre_drain::steps(&limits))),
        ),
        (JobType::PostDrain.as_str(), steps_of(&post_drain::steps(&limits))),
        (
            JobType::SingleNodeUpgrade.as_str(),
            with_detector(&steps_of(&single_node::steps(&limits))),
        ),
        (JobType::RestoreVm.as_str(), steps_of(restore::STEPS)),
        (Component::SuspendAgent.as_str(), steps_of(SUSPEND_STEPS)),
    ])
}

/// What became of a rehearsal.
struct StatusHistory {
    /// The steps of each pod, by the pod's name and its program.
    steps: BTreeMap<(String, String), Vec<&'static str>>,
    /// The termination messages of pods that failed.
    failed: BTreeSet<String>,
    /// Jobs that failed.
    failed_jobs: BTreeSet<String>,
    /// Events on the plan.
    events: BTreeSet<String>,
    phase: Option<Phase>,
}

/// The repository is another one from the moment on that images are preloaded.
fn rehearse_with_attack(trouble: RepositoryTrouble) -> StatusHistory {
    rehearse_until(Case::three_nodes(), Some(trouble))
}

fn rehearse(case: Case) -> StatusHistory {
    rehearse_until(case, None)
}

fn rehearse_until(case: Case, attack: Option<RepositoryTrouble>) -> StatusHistory {
    in_paused_time(async {
        let clock = Clock::simulated(beginning(), 1.0);
        let rehearsal = Watched::start(case.scenario, clock).await;
        let steps: Arc<Mutex<BTreeMap<_, Vec<_>>>> = Arc::default();
        let seen = steps.clone();
        rehearsal.observe_steps(move |history: &ProgramStep| {
            let key = (history.pod.clone(), history.program.clone());
            seen.lock().unwrap().entry(key).or_default().push(history.step.name);
        });
        let failed: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let failed_jobs: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let (words, jobs) = (failed.clone(), failed_jobs.clone());
        rehearsal.server.store().observe(move |change| {
            let status = &change.object["status"];
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            if change.resource.plural == "jobs" && conditions.any(|condition| condition["type"] == "Failed") {
                let name = text(&change.object["metadata"]["name"]).to_owned();
                jobs.lock().unwrap().insert(name);
            }
            if change.resource.plural == "pods" && status["phase"] == "Failed" {
                let ended = &status["containerStatuses"][0]["state"]["terminated"];
                words
                    .lock()
                    .unwrap()
                    .insert(ended["message"].as_str().unwrap_or_default().to_owned());
            }
        });
        let _manager = rehearsal.start_manager("manager-1");
        let plan = rehearsal
            .create_unchecked(rehearsal.plan(case.restore_vm, &[]))
            .await
            .unwrap();
        if let Some(attack) = attack {
            let preloads = |plan: &api::UpgradePlan| plan.phase() == Some(Phase::ImagePreloading);
            rehearsal.follow(&plan.name_any(), Some(HOUR), preloads).await;
            rehearsal.set_troubles(Troubles {
                repository: Some(attack),
                ..Troubles::default()
            });
        }
        let ended = |plan: &api::UpgradePlan| plan.phase().is_some_and(Phase::is_terminal);
        let plan = rehearsal.follow(&plan.name_any(), Some(24 * HOUR), ended).await;
        // VMs are started again when the plan no longer waits for them.
        rehearsal.clock.sleep(4 * HOUR).await;
        let events = rehearsal.objects("", "events");
        let events = events
            .iter()
            .map(|event| format!("{} {}", text(&event.data["reason"]), text(&event.data["message"])));
        StatusHistory {
            steps: steps.lock().unwrap().clone(),
            failed: failed.lock().unwrap().clone(),
            failed_jobs: failed_jobs.lock().unwrap().clone(),
            events: events.collect(),
            phase: plan.and_then(|plan| plan.phase()),
        }
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn restoring(nodes: usize) -> Case {
    let mut case = Case::three_nodes();
    case.scenario.shape.nodes = nodes;
    case.scenario.shape.vms = 10;
    case.restore_vm = true;
    case
}

/// All VMs of a case, by namespace and name.
fn all_vms(case: &Case) -> BTreeSet<String> {
    let objects = case.scenario.shape.objects();
    let vms = objects.iter().filter(|object| object["kind"] == "VirtualMachine");
    vms.map(|vm| {
        format!(
            "{}/{}",
            text(&vm["metadata"]["namespace"]),
            text(&vm["metadata"]["name"])
        )
    })
    .collect()
}

#[test]
fn every_program_goes_through_the_steps_of_the_real_one_in_their_order() {
    let real = real();
    let mut seen = BTreeSet::new();
    for nodes in [1, 3] {
        let history = rehearse(restoring(nodes));
        assert_eq!(history.phase, Some(Phase::Succeeded));
        for ((pod, program), steps) in history.steps {
            let wanted = real.get(program.as_str());
            assert_eq!(Some(&steps), wanted, "{program} in pod {pod}");
            seen.insert(program);
        }
    }
    let programs: BTreeSet<String> = real.keys().map(|program| (*program).to_owned()).collect();
    assert_eq!(seen, programs, "programs that ran, and programs that there are");
}

#[test]
fn while_images_are_preloaded_the_archive_and_how_far_it_is_are_shown() {
    let seen = waits(Case::three_nodes(), &[], HOUR);
    for wanted in [
        "ImagePreload: node node-1: \"importing harvester.tar.zst, archive 1 of 2: 0.0 MiB of 1501.8 MiB",
        "ImagePreload: node node-2: \"importing harvester.tar.zst, archive 1 of 2: 750.9 MiB of 1501.8 MiB",
        "ImagePreload: node node-3: \"saving rke2.tar.zst, archive 1 of 2: 0.0 MiB of 1501.8 MiB",
    ] {
        assert_seen(&seen, wanted);
    }
}

#[test]
fn a_preload_never_succeeds_on_an_empty_list() {
    let history = rehearse(with(Troubles {
        repository: Some(RepositoryTrouble::EmptyImageLists),
        ..Troubles::default()
    }));
    assert_eq!(history.phase, Some(Phase::Failed));
    let word = "read-image-lists: bundle/rancherd/images/agent.txt is empty: a list of images must name some";
    assert!(history.failed.contains(word), "{:#?}", history.failed);
}

#[test]
fn s07_an_iso_with_another_checksum_than_its_version_says_ends_the_upgrade_before_any_job_runs() {
    let history = rehearse(with(Troubles {
        repository: Some(RepositoryTrouble::AnotherIso),
        ..Troubles::default()
    }));
    assert_eq!(history.phase, Some(Phase::Failed));
    let words = format!("its SHA-512 is {}", "0".repeat(128));
    let is_reported = |event: &String| event.starts_with("UpgradeFailed") && event.contains(&words);
    assert!(history.events.iter().any(is_reported), "{:#?}", history.events);
    assert!(history.steps.is_empty(), "no program ran: {:?}", history.steps.keys());
}

#[test]
fn s07_a_server_that_answers_as_the_repository_after_its_digests_are_recorded_is_refused_on_every_node() {
    for (trouble, words) in [
        (
            RepositoryTrouble::SwappedRelease,
            "harvester-iso/harvester-release.yaml is refused",
        ),
        (RepositoryTrouble::ReplayedManifest, "harvester-iso.manifest is refused"),
    ] {
        let history = rehearse_with_attack(trouble);
        assert_eq!(history.phase, Some(Phase::Failed), "{trouble:?}");
        assert!(
            history.failed.iter().any(|word| word.contains(words)),
            "{:#?}",
            history.failed
        );
        let imported = history.steps.values().flatten().any(|step| *step == "import-common");
        assert!(!imported, "{trouble:?}: something was imported");
    }
}

#[test]
fn s07_an_impostor_who_answers_from_the_beginning_vouches_for_nothing() {
    let history = rehearse(with(Troubles {
        repository: Some(RepositoryTrouble::Impostor),
        ..Troubles::default()
    }));
    assert_eq!(
        history.phase, None,
        "it waits for the plan's own repository, and has not ended"
    );
    let is_reported = |event: &String| {
        event.starts_with("Stalled")
            && event.contains("harvester-iso.manifest")
            && event.contains("invalid peer certificate")
    };
    assert!(history.events.iter().any(is_reported), "{:#?}", history.events);
    assert!(history.steps.is_empty(), "no program ran: {:?}", history.steps.keys());
    let history = rehearse_with_attack(RepositoryTrouble::Impostor);
    assert_eq!(history.phase, Some(Phase::Failed));
    let words = "invalid peer certificate";
    assert!(
        history.failed.iter().any(|word| word.contains(words)),
        "{:#?}",
        history.failed
    );
    let imported = history.steps.values().flatten().any(|step| *step == "import-common");
    assert!(!imported, "something was imported");
}

#[test]
fn while_the_cluster_is_upgraded_what_is_waited_for_is_named() {
    let seen = waits(Case::three_nodes(), &[], 2 * HOUR);
    for wanted in [
        "NodeAgent: \"rancher-system-agent of node node-2 is not suspended yet: its Job is not done",
        "CAPICluster: \"Cluster fleet-local/local has been provisioned for less than 30 seconds",
        "HelmRelease: \"Helm release cattle-system/rancher is being upgraded to v2.14.0-alpha9",
        "ClusterRepo: \"ClusterRepo rancher-charts does not exist yet",
        "Rollout: \"Deployment cattle-fleet-local-system/fleet-agent is not rolled out: ",
        "Rollout: \"Deployment cattle-system/harvester-cluster-repo is not rolled out: ",
        "ManagedChart: \"ManagedChart fleet-local/harvester is not at 1.8.0: Fleet says 'WaitApplied(1) [Cluster fleet-local/local]'",
        "InstanceManager: \"Longhorn's v1 engine is not ready on node node-3: ",
        "Addon: \"Addon harvester-system/pcidevices-controller is not deployed yet; it says Addon",
        "HelmChartConfig: \"waiting until RKE2 has observed the change of HelmChartConfig kube-system/rke2-multus",
        "FleetConfig: \"waiting until Fleet has observed the restored address of ConfigMap cattle-fleet-system/fleet-controller",
    ] {
        assert_seen(&seen, wanted);
    }
}

#[test]
fn a_chart_that_does_not_get_ready_ends_the_cluster_upgrade_with_its_name() {
    let history = rehearse(with(Troubles {
        stuck_charts: ["harvester".to_owned()].into(),
        ..Troubles::default()
    }));
    assert_eq!(history.phase, Some(Phase::Failed));
    let word = "upgrade-harvester: step upgrade-harvester did not end within 2700s: ManagedChart fleet-local/harvester \
                is not at 1.8.0: Fleet says \"WaitApplied(1) [Cluster fleet-local/local]\"";
    assert!(history.failed.contains(word), "{:#?}", history.failed);
}

fn late_kubelet(late: Duration) -> Case {
    with(Troubles {
        late_kubelets: [("node-2".to_owned(), late)].into(),
        ..Troubles::default()
    })
}

const RKE2: &str =
    "Rancher has not upgraded RKE2 on node-2 yet: its kubelet is v1.34.3+rke2r1 instead of v1.35.2+rke2r1";

#[test]
fn while_post_drain_waits_for_rke2_it_says_so() {
    let seen = waits(late_kubelet(HOUR / 2), &[], 12 * HOUR);
    assert_seen(&seen, &format!("RKE2: \"{RKE2}"));
}

#[test]
fn an_rke2_that_never_comes_ends_post_drain_with_the_name_of_the_node() {
    let history = rehearse(late_kubelet(240 * HOUR));
    assert_eq!(history.phase, Some(Phase::Failed));
    let word = format!("wait-for-rke2: step wait-for-rke2 did not end within 10800s: {RKE2}");
    assert!(history.failed.contains(&word), "{:#?}", history.failed);
}

#[test]
fn a_vm_that_does_not_start_again_is_shown_and_then_its_job_fails_with_its_name() {
    let mut case = restoring(3);
    case.scenario.troubles.vms_that_do_not_start = all_vms(&case);
    let seen = waits(case.clone(), &[], 12 * HOUR);
    let vm = seen.iter().find_map(|text| {
        let text = text.strip_prefix("VMStart: \"VM ")?;
        text.strip_suffix(" is starting: ErrorUnschedulable\"")
    });
    let vm = vm.unwrap_or_else(|| panic!("no VM is waited for: {seen:#?}"));

    let history = rehearse(case);
    assert_eq!(history.phase, Some(Phase::Succeeded), "nothing waits for VMs");
    let word = format!("{vm} (it does not run 15 minutes after it was started: ErrorUnschedulable)");
    assert!(
        history.failed.iter().any(|failed| failed.contains(&word)),
        "{:#?}",
        history.failed
    );
    let event = format!("RestoreVMFailed Failed to restore VM {vm} on node ");
    assert!(
        history.events.iter().any(|history| history.starts_with(&event)),
        "{:#?}",
        history.events
    );
    let restores = || {
        history
            .failed_jobs
            .iter()
            .filter(|job| job.contains("-restore-vm-node-"))
    };
    assert!(restores().count() > 0, "{:#?}", history.failed_jobs);
    // Also of those that failed when the plan had ended.
    for job in restores() {
        let event = format!("RestoreVMJobFailed Job harvester-system/{job} could not start every VM of node ");
        let of_job = history.events.iter().filter(|history| history.starts_with(&event));
        assert_eq!(of_job.count(), 1, "{job}: {:#?}", history.events);
    }
}

/// Something that Fleet does not bring into step.
fn has_a_bundle_out_of_step(rehearsal: &Rehearsal) {
    let bundles: Api<Bundle> = Api::namespaced(rehearsal.server.client(), names::FLEET_NAMESPACE);
    tokio::spawn(async move {
        let name = "fleet-agent-local";
        bundles
            .create(&PostParams::default(), &Bundle::named(name))
            .await
            .unwrap();
        let unready = json!([{"type": "Ready", "status": "False", "message": "Modified(1)"}]);
        let patch = Patch::Merge(json!({"status": {"observedGeneration": 1, "conditions": unready}}));
        bundles
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    });
}

#[test]
fn fleet_is_waited_for_a_while_by_the_name_of_its_bundle_and_then_gone_on_without() {
    let case = Case {
        arranged: Some(has_a_bundle_out_of_step),
        ..Case::single_node()
    };
    let history = follow(&case, 12 * HOUR);
    let (_, wait) = history.first(
        "FleetBundle",
        "\"bundle fleet-agent-local is not ready: Fleet says 'Modified(1)'\"",
    );
    assert_eq!(wait.object.unwrap(), "Bundle fleet-local/fleet-agent-local");
    let (_, last) = history.statuses.last().unwrap();
    assert_eq!(last["status"]["currentPhase"], "Succeeded");
}
