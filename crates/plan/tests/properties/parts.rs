//! The small values that decisions are made of: each word and each constant that others rely on.

use api::{
    Component, JobType, NodePlan, Phase, PhaseTransition, ReleaseMetadata, UpgradePlan, UpgradePlanStatus, names,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plan::{
    Action, Child,
    decision::ChildKind,
    observed::{
        Accounts, JobOutcome, ObservedJob, ObservedMachinePlan, ObservedPod, RepoServer, Settings, StartedUpgrade,
        TerminationMessage, key, name_of,
    },
};
use rstest::rstest;

#[test]
fn only_what_takes_the_upgrade_further_waits_for_what_stands_before_it() {
    let further = [
        Action::Create(Child::ClusterJob),
        Action::ResumeJob { name: "j".to_owned() },
        Action::AnswerHook {
            secret: "s".to_owned(),
            hook: "h".to_owned(),
            token: "t".to_owned(),
        },
        Action::ProvisionCluster {
            kubernetes_version: "v1".to_owned(),
            from: 0,
            to: 1,
            saved_strategy: "null".to_owned(),
            os: "os".to_owned(),
        },
    ];
    assert!(further.iter().all(Action::needs_those_before));
    let alone = [
        Action::UntaintNode { node: "n".to_owned() },
        Action::EnableDescheduler { enabled: true },
        Action::Delete {
            kind: ChildKind::Job,
            component: Component::Repo,
            job_type: None,
        },
    ];
    assert!(!alone.iter().any(Action::needs_those_before));
}

#[test]
fn kinds_have_the_names_that_people_know() {
    let kinds = [
        ChildKind::Image,
        ChildKind::Deployment,
        ChildKind::Service,
        ChildKind::SucPlan,
        ChildKind::Job,
    ];
    assert_eq!(
        kinds.map(ChildKind::name),
        ["VirtualMachineImage", "Deployment", "Service", "Plan", "Job"]
    );
}

#[test]
fn what_has_no_pods_of_ours_runs_no_programs() {
    let node = || "node-1".to_owned();
    let children = [
        (Child::RepoService, false),
        (Child::RepoSecret { name: "s".to_owned() }, false),
        (
            Child::IsoImage {
                url: "u".to_owned(),
                checksum: String::new(),
            },
            false,
        ),
        (Child::ClusterJob, true),
        (Child::RestoreJob { node: node() }, true),
        (
            Child::NodeJob {
                job_type: JobType::PreDrain,
                node: node(),
                suspend: false,
            },
            true,
        ),
        (
            Child::SucPlan {
                plan: NodePlan::ImagePreload,
                concurrency: 1,
                images: Vec::new(),
            },
            true,
        ),
    ];
    for (child, expected) in children {
        assert_eq!(child.runs_programs(), expected, "{child:?}");
    }
}

#[test]
fn a_pod_that_is_silenced_keeps_who_it_is_and_says_nothing() {
    let spoken = ObservedPod {
        name: "p".to_owned(),
        component: Component::NodeUpgrade,
        job_type: Some(JobType::PostDrain),
        node: Some("node-1".to_owned()),
        owner: Some("u".to_owned()),
        problem: Some("ErrImagePull".to_owned()),
        missing_image: Some("i".to_owned()),
        said: vec![api::WaitingFor {
            what: "w".to_owned(),
            object: None,
            message: None,
            since: Time(Timestamp::UNIX_EPOCH),
            deadline: None,
        }],
        termination_message: Some(TerminationMessage {
            at: Timestamp::UNIX_EPOCH,
            text: "t".to_owned(),
        }),
        no_reboot: true,
        armed_in: Some("boot".to_owned()),
        works: true,
    };
    let silent = ObservedPod {
        name: "p".to_owned(),
        component: Component::NodeUpgrade,
        job_type: Some(JobType::PostDrain),
        node: Some("node-1".to_owned()),
        owner: Some("u".to_owned()),
        works: true,
        ..ObservedPod::of(Component::NodeUpgrade)
    };
    assert_eq!(spoken.silent(), silent);
}

#[test]
fn a_job_that_is_left_over_may_run_and_says_nothing() {
    let job = ObservedJob {
        uid: Some("u".to_owned()),
        owner: Some("o".to_owned()),
        suspended: true,
        failed_pods: 2,
        deleting: true,
        outcome: JobOutcome::Complete,
        ..ObservedJob::of(Component::NodeUpgrade)
    };
    let expected = ObservedJob {
        uid: Some("u".to_owned()),
        owner: Some("o".to_owned()),
        left_over: true,
        deleting: true,
        ..ObservedJob::of(Component::NodeUpgrade)
    };
    assert_eq!(job.left_over(), expected);
}

#[rstest]
#[case("", "a", "a")]
#[case("harvester-system", "a", "a")]
#[case("cattle-system", "a", "cattle-system/a")]
fn objects_go_by_their_name_and_elsewhere_by_their_namespace_too(
    #[case] namespace: &str,
    #[case] name: &str,
    #[case] expected: &str,
) {
    assert_eq!(key(namespace, name), expected);
    assert_eq!(name_of(expected), name);
}

#[test]
fn servers_of_the_repository_go_by_their_names() {
    assert_eq!(RepoServer::parse("toolkit"), Some(RepoServer::Toolkit));
    assert_eq!(RepoServer::parse("nginx"), Some(RepoServer::Nginx));
    assert_eq!(RepoServer::parse("apache"), None);
    let settings = Settings::default();
    assert_eq!(settings.repo_server, RepoServer::Toolkit);
    assert!(settings.own_image.to_string().starts_with(names::TOOLKIT_IMAGE));
    assert!(settings.own_image.tag.is_some_and(|tag| tag.starts_with('v')));
}

#[rstest]
#[case(None, None, false)]
#[case(Some(""), Some(""), false)]
#[case(Some("t"), None, true)]
#[case(None, Some("t"), true)]
fn a_node_is_in_drain_while_rancher_asks(
    #[case] pre: Option<&str>,
    #[case] post: Option<&str>,
    #[case] expected: bool,
) {
    let plan = ObservedMachinePlan {
        pre_drain: pre.map(str::to_owned),
        post_drain: post.map(str::to_owned),
        ..ObservedMachinePlan::default()
    };
    assert_eq!(plan.is_in_drain(), expected);
}

#[test]
fn accounts_that_ship_are_distinguished_from_those_of_users() {
    let shipped = Accounts::default();
    assert_eq!(shipped.node_upgrade(), "upgrade-toolkit-node-upgrade");
    assert_eq!(shipped.vm_restore(), "upgrade-toolkit-vm-restore");
    assert_eq!(
        shipped.rancher_installer().as_deref(),
        Some("upgrade-toolkit-rancher-installer")
    );
    let (jobs, plans) = (names::HARVESTER_NAMESPACE, names::CATTLE_NAMESPACE);
    for (namespace, name, expected) in [
        (jobs, "upgrade-toolkit-cluster-upgrade", true),
        (jobs, "upgrade-toolkit-node-plans", false),
        (jobs, "cluster-upgrade", false),
        (jobs, "upgrade-toolkit-other", false),
        (plans, "upgrade-toolkit-node-plans", true),
        (plans, "node-plans", false),
        ("default", "upgrade-toolkit-node-plans", false),
        ("default", "upgrade-toolkit-cluster-upgrade", false),
    ] {
        assert_eq!(shipped.ships(namespace, name), expected, "{namespace}/{name}");
    }
    let own_plans = Accounts {
        plans: Some("mine".to_owned()),
        ..Accounts::default()
    };
    assert!(!own_plans.ships(plans, "upgrade-toolkit-node-plans"));
    assert!(own_plans.ships(jobs, "upgrade-toolkit-vm-restore"));
}

fn plan_with(history: &[(Phase, i64)], release: Option<ReleaseMetadata>) -> UpgradePlan {
    let mut plan = UpgradePlan::new("up", Default::default());
    let changes = history.iter().map(|(phase, second)| PhaseTransition {
        phase: phase.to_string(),
        phase_transition_timestamp: Time(Timestamp::from_second(*second).unwrap()),
        message: None,
    });
    plan.status = Some(UpgradePlanStatus {
        phase_transition_timestamps: changes.collect(),
        release_metadata: release,
        ..UpgradePlanStatus::default()
    });
    plan
}

#[test]
fn a_plan_has_begun_with_the_cluster_when_it_last_entered_that_phase() {
    use Phase::*;
    let moment = |second: i64| Timestamp::from_second(second).unwrap();
    assert_eq!(StartedUpgrade::of(&UpgradePlan::new("up", Default::default())), None);
    assert_eq!(StartedUpgrade::of(&plan_with(&[(ImagePreloading, 1)], None)), None);
    let release = ReleaseMetadata {
        harvester: Some("v1.8.0".to_owned()),
        os: Some("Harvester v1.8.0".to_owned()),
        ..ReleaseMetadata::default()
    };
    let begun = |history: &[(Phase, i64)]| StartedUpgrade::of(&plan_with(history, Some(release.clone()))).unwrap();
    let twice = begun(&[
        (ClusterUpgrading, 1),
        (NodeUpgraded, 2),
        (Failed, 3),
        (ClusterUpgrading, 4),
    ]);
    assert_eq!(
        (twice.at, twice.nodes_done_at),
        (moment(4), None),
        "nodes were done in the try before"
    );
    assert_eq!(
        (twice.harvester.as_str(), twice.os.as_str()),
        ("v1.8.0", "Harvester v1.8.0")
    );
    let done = begun(&[(ClusterUpgrading, 4), (NodeUpgraded, 4)]);
    assert_eq!(done.nodes_done_at, Some(moment(4)));
}
