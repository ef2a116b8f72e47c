//! What is written in whole upgrades, compared with the real definitions.
//!
//! Every write asks the API server to refuse fields that a definition does not name, so a single one would stop the
//! upgrade. Here they are counted, and looked at once more without the API server.

use std::{collections::BTreeSet, sync::Arc};

use api::{Component, JobType, Phase, labels};
use apiserver::Verb;
use cli::rehearsal::manager_user;
use rstest::rstest;
use serde_json::Value;
use testbed::Writes;
use world::{Troubles, troubles::RepositoryTrouble};

use crate::{
    failure::{failing_job, old_system},
    run::{Case, Ended, run},
    user::User,
};

/// What was refused because no object may be so, with who wrote it.
pub(crate) fn refused(store: &apiserver::Store) -> Vec<String> {
    let writes = store.history().into_iter();
    let refused = writes.filter(|write| [400, 422].contains(&write.code));
    let shown = refused.map(|write| {
        let why = write.refusal.unwrap_or_default();
        format!("{} {} {}: {why}", write.user, write.verb.name(), write.resource)
    });
    shown.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Adds what the manager wrote, or what all other clients did.
fn add(ended: &Ended, by_manager: bool, writes: &mut Writes) {
    for write in ended.store.history() {
        let writes_object = [Verb::Create, Verb::Update, Verb::Patch].contains(&write.verb);
        if writes_object && (write.user == manager_user()) == by_manager {
            writes.add(&write.resource.group, &write.resource.plural, &write.sent);
        }
    }
}

/// The steps of the cluster's upgrade that an upgrade which succeeded did not run.
fn left_out(ended: &Ended) -> Vec<&'static str> {
    let succeeded = |plan: &api::UpgradePlan| plan.phase() == Some(Phase::Succeeded);
    if !ended.plan.as_ref().is_some_and(succeeded) {
        return Vec::new();
    }
    let steps = cluster_upgrade::STEPS.iter().map(|step| step.name);
    steps.filter(|step| !ended.steps.contains(step)).collect()
}

fn case(troubles: Troubles) -> Case {
    let mut case = Case::three_nodes();
    case.scenario.troubles = troubles;
    case
}

fn deleted(phase: Phase) -> Case {
    Case {
        user: vec![User::DeletesAt(phase)],
        ..Case::three_nodes()
    }
}

fn tried_again(troubles: Troubles) -> Case {
    Case {
        user: vec![User::FixesAndRetries],
        ..case(troubles)
    }
}

/// The same on the only node of a cluster.
fn alone(mut case: Case) -> Case {
    case.scenario.shape.nodes = 1;
    case
}

fn failing_node_job() -> Troubles {
    failing_job(Component::NodeUpgrade, Some(JobType::SingleNodeUpgrade))
}

/// The preload is skipped, so that nodes are only asked whether they can run the toolkit's image.
fn skipping_preload(troubles: Troubles) -> Case {
    Case {
        user: vec![User::SkipsPreloadAt(Phase::Initializing)],
        ..case(troubles)
    }
}

fn another_iso() -> Troubles {
    Troubles {
        repository: Some(RepositoryTrouble::AnotherIso),
        ..Troubles::default()
    }
}

fn full_disk() -> Troubles {
    Troubles {
        full_disks: ["node-2".to_owned()].into(),
        ..Troubles::default()
    }
}

fn no_iso() -> Troubles {
    Troubles {
        iso_failures: 100,
        ..Troubles::default()
    }
}

/// VMs that are stopped and cannot be started again.
fn not_restoring() -> Case {
    let mut case = restoring();
    case.scenario.troubles = failing_job(Component::NodeUpgrade, Some(JobType::RestoreVm));
    case
}

/// What a case is about and did not happen: Jobs that were to fail and were never made, phases that were not reached.
fn missed(case: &Case, ended: &Ended) -> Vec<String> {
    let history = ended.store.history();
    let created = |component: Component, job_type: Option<JobType>| {
        history.iter().any(|write| {
            let labels = |object: &Arc<Value>| object["metadata"]["labels"].clone();
            let labels = write.object.as_ref().map(labels).unwrap_or_default();
            let is_job = write.verb == Verb::Create && write.resource.plural == "jobs";
            is_job
                && labels[labels::UPGRADE_COMPONENT] == component.as_str()
                && job_type.is_none_or(|job_type| labels[labels::JOB_TYPE] == job_type.as_str())
        })
    };
    let skips = case.user.iter().any(|user| matches!(user, User::SkipsPreloadAt(_)));
    let check = skips.then_some((Component::ImageCheck, None));
    let failing = case.scenario.troubles.jobs.iter();
    let failing = failing.map(|job| (job.component, job.job_type));
    let missed = failing.chain(check).filter(|(component, of)| !created(*component, *of));
    missed.map(|(component, of)| format!("{component} {of:?}")).collect()
}

fn from_image() -> Case {
    let mut case = Case::three_nodes();
    case.scenario.shape.image = Some("uploaded".to_owned());
    case
}

/// Some steps of the cluster's upgrade are for clusters that run v1.8.
fn newer() -> Case {
    let mut case = Case::three_nodes();
    case.scenario.shape.from = "v1.8.0".to_owned();
    case.scenario.shape.to = "v1.9.0".to_owned();
    case
}

fn restoring() -> Case {
    let mut case = Case::three_nodes();
    case.restore_vm = true;
    case.scenario.shape.vms = 12;
    case
}

#[rstest]
#[case::several_nodes(&[Case::three_nodes(), restoring()])]
#[case::from_v1_8(&[newer()])]
#[case::one_node(&[Case::single_node(), alone(restoring()), alone(newer()), alone(from_image())])]
#[case::one_node_tried_again(&[
    alone(tried_again(failing_job(Component::ImagePreload, None))),
    alone(tried_again(failing_job(Component::ClusterUpgrade, None))),
    alone(tried_again(failing_node_job())),
    alone(tried_again(failing_job(Component::ImageCleanup, None))),
])]
#[case::one_node_failed(&[
    alone(case(no_iso())),
    alone(case(failing_job(Component::ImagePreload, None))),
    alone(case(failing_job(Component::ClusterUpgrade, None))),
    alone(case(failing_node_job())),
    alone(case(old_system())),
    alone(case(failing_job(Component::ImageCleanup, None))),
])]
#[case::one_node_deleted(&[
    alone(deleted(Phase::ISODownloading)), alone(deleted(Phase::ImagePreloading)), alone(deleted(Phase::ClusterUpgrading)),
    alone(deleted(Phase::NodeUpgrading)), alone(deleted(Phase::CleaningUp)),
])]
#[case::an_image_instead_of_a_version(&[from_image()])]
#[case::paused(&[Case::paused()])]
#[case::preload_skipped(&[
    skipping_preload(Troubles::default()),
    skipping_preload(failing_job(Component::ImageCheck, None)),
])]
#[case::tried_again_from_the_beginning(&[
    tried_again(full_disk()), tried_again(no_iso()), tried_again(another_iso()),
    tried_again(failing_job(Component::SuspendAgent, None)),
    tried_again(failing_job(Component::SkipManifestsApply, None)),
])]
#[case::failed_on_its_way(&[
    case(another_iso()),
    case(failing_job(Component::SuspendAgent, None)),
    case(failing_job(Component::SkipManifestsApply, None)),
    case(failing_job(Component::SkipManifestsRemove, None)),
    not_restoring(), alone(not_restoring()),
])]
#[case::tried_again(&[
    tried_again(failing_job(Component::ImagePreload, None)),
    tried_again(failing_job(Component::ClusterUpgrade, None)),
    tried_again(failing_job(Component::NodeUpgrade, Some(JobType::PreDrain))),
    tried_again(failing_job(Component::ImageCleanup, None)),
    tried_again(failing_job(Component::NodeUpgrade, Some(JobType::PostDrain))),
])]
#[case::failed(&[
    case(no_iso()),
    case(full_disk()),
    case(failing_job(Component::ImagePreload, None)),
    case(failing_job(Component::ClusterUpgrade, None)),
    case(failing_job(Component::NodeUpgrade, Some(JobType::PreDrain))),
    case(failing_job(Component::NodeUpgrade, Some(JobType::PostDrain))),
    case(old_system()),
    case(failing_job(Component::ImageCleanup, None)),
])]
#[case::deleted(&[
    deleted(Phase::Initializing), deleted(Phase::ISODownloading), deleted(Phase::RepoCreating),
    deleted(Phase::MetadataPopulating), deleted(Phase::ImagePreloading), deleted(Phase::ClusterUpgrading), deleted(Phase::NodeUpgrading),
    deleted(Phase::CleaningUp),
])]
// Seen failing with R-01, `env` for `envs` in the builder of Plans: the API server refuses it, and so does the second look.
fn r01_whole_upgrades_write_no_field_that_the_real_definitions_do_not_have(#[case] cases: &[Case]) {
    let (mut of_manager, mut of_others) = (Writes::begin(), Writes::begin());
    let (mut refused, mut left) = (BTreeSet::new(), BTreeSet::new());
    for case in cases {
        let ended = run(case);
        assert_eq!(missed(case, &ended), [""; 0], "{:?}", case.scenario.troubles);
        for (writes, by_manager) in [(&mut of_manager, true), (&mut of_others, false)] {
            if let Some(writes) = writes {
                add(&ended, by_manager, writes);
            }
        }
        left.extend(left_out(&ended));
        refused.extend(ended.refused);
    }
    assert_eq!(left, BTreeSet::new(), "steps that no write of was looked at");
    assert!(refused.is_empty(), "{refused:#?}");
    for (who, writes) in [("the manager", of_manager), ("the programs and the world", of_others)] {
        let Some(writes) = writes else { continue };
        println!("{} upgrades: {who} made {}", cases.len(), writes.summary());
        assert_eq!(writes.unknown(), [""; 0], "{who}");
        assert!(
            who == "the manager" || !writes.kinds().is_empty(),
            "the world writes foreign kinds in every upgrade"
        );
    }
}
