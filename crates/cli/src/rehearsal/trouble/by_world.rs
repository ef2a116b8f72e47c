//! Troubles that the simulated cluster plays by itself: fields of the world's [`Troubles`].

use std::time::Duration;

use api::{NodeState, Phase};
use world::{
    Troubles,
    troubles::{JobFailure, JobTrouble, MigrationTrouble, RebootTrouble, RepositoryTrouble},
};

use super::{Chosen, JOBS, Lift, Moment, Object, Play, Row, Shows, choice};

/// More often than anything is tried.
const ALWAYS: u32 = 1_000;
/// Rancher is done with a node long before.
const LATE: Duration = Duration::from_mins(20);

/// What most rows have in common.
const ROW: Row = Row {
    name: "",
    object: Object::None,
    default: "",
    begins: Moment::Start,
    last: Some(Phase::NodeUpgrading),
    nodes: 1,
    happens: "",
    shows: Shows::Succeeds,
    remedy: "",
    lift: Lift::Never,
    play: Play::Manager,
};

const SHUT_DOWN: &str =
    r#"Shut the VM down: kubectl -n NAMESPACE patch vm VM --type merge -p '{"spec":{"runStrategy":"Halted"}}'."#;
const NOT_NEEDED: &str = "Not needed.";

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "certificate-ends",
        object: Object::Days,
        default: "5",
        last: None,
        happens: "The certificates of the API server end in DAYS days. The checks before the upgrade fail the plan.",
        shows: Shows::Fails("Please rotate RKE2 certificates"),
        remedy: "Retry the plan: the rehearsal then has new certificates.",
        lift: Lift::Retry,
        play: Play::World(|troubles, chosen| troubles.certificate_days = chosen.days()),
        ..ROW
    },
    Row {
        name: "disk-full",
        object: Object::Node,
        default: "node-3",
        last: None,
        nodes: 3,
        happens: "The disk of NODE is nearly full. The checks before the upgrade fail the plan.",
        shows: Shows::Fails("will reach"),
        remedy: "Retry the plan: the rehearsal then has room on the disk.",
        lift: Lift::Retry,
        play: Play::World(|troubles, chosen| troubles.full_disks.extend(chosen.objects())),
        ..ROW
    },
    Row {
        name: "scratch-pending",
        last: None,
        happens: "The scratch claim of the importer stays pending, and the import of the ISO stays at 0 %.",
        shows: Shows::Doctor(&["D32"], "PersistentVolumeClaim harvester-system/prime-"),
        remedy: "Delete the claim, which stands for repairing the storage class here: kubectl -n harvester-system delete pvc CLAIM.",
        lift: Lift::Touch(&["persistentvolumeclaims"]),
        play: Play::World(|troubles, _| troubles.scratch_pending = true),
        ..ROW
    },
    Row {
        name: "iso-import-fails",
        last: Some(Phase::ISODownloading),
        happens: "The import of the ISO fails until the plan fails.",
        shows: Shows::Doctor(&["D33"], "VirtualMachineImage harvester-system/"),
        remedy: "Retry the plan, or create another: the rehearsal then can read the URL.",
        lift: Lift::Retry,
        play: Play::World(|troubles, _| troubles.iso_failures = ALWAYS),
        ..ROW
    },
    Row {
        name: "repository-never-ready",
        last: Some(Phase::RepoCreating),
        happens: "The pods of the repository do not become ready.",
        shows: Shows::Doctor(&["D34"], "Deployment harvester-system/"),
        remedy: "Delete the pod, or restart the Deployment: kubectl -n harvester-system rollout restart deployment/NAME.",
        lift: Lift::Touch(&["pods", "deployments"]),
        play: Play::World(|troubles, _| troubles.repository = Some(RepositoryTrouble::NeverReady)),
        ..ROW
    },
    Row {
        name: "repository-unreachable",
        last: Some(Phase::MetadataPopulating),
        happens: "The repository is ready, but does not answer.",
        shows: Shows::Waits("ReleaseManifest"),
        remedy: "Restart the Deployment of the repository: kubectl -n harvester-system rollout restart deployment/NAME.",
        lift: Lift::Touch(&["pods", "deployments", "services"]),
        play: Play::World(|troubles, _| troubles.repository = Some(RepositoryTrouble::Unreachable)),
        ..ROW
    },
    Row {
        name: "repository-another-iso",
        last: Some(Phase::RepoCreating),
        happens: "The repository serves another ISO than the Version names. The plan fails.",
        shows: Shows::Fails("checksum"),
        remedy: "Retry the plan: the rehearsal then has the right ISO.",
        lift: Lift::Retry,
        play: Play::World(|troubles, _| troubles.repository = Some(RepositoryTrouble::AnotherIso)),
        ..ROW
    },
    Row {
        name: "repository-impostor",
        last: Some(Phase::RepoCreating),
        happens: "Another server answers for the repository, without the key of its certificate.",
        shows: Shows::Waits("ReleaseManifest"),
        remedy: "Restart the Deployment of the repository: kubectl -n harvester-system rollout restart deployment/NAME.",
        lift: Lift::Touch(&["pods", "deployments", "services"]),
        play: Play::World(|troubles, _| troubles.repository = Some(RepositoryTrouble::Impostor)),
        ..ROW
    },
    Row {
        name: "repository-swapped-release",
        last: Some(Phase::RepoCreating),
        happens: "Another server serves other versions than those of the ISO.",
        shows: Shows::Waits("ReleaseMetadata"),
        remedy: "Restart the Deployment of the repository: kubectl -n harvester-system rollout restart deployment/NAME.",
        lift: Lift::Touch(&["pods", "deployments", "services"]),
        play: Play::World(|troubles, _| troubles.repository = Some(RepositoryTrouble::SwappedRelease)),
        ..ROW
    },
    Row {
        name: "repository-replayed-manifest",
        last: Some(Phase::RepoCreating),
        happens: "Another server serves the manifest of another release. The plan fails.",
        shows: Shows::Fails("harvester-iso.manifest"),
        remedy: "Retry the plan: the rehearsal then has the right manifest.",
        lift: Lift::Retry,
        play: Play::World(|troubles, _| troubles.repository = Some(RepositoryTrouble::ReplayedManifest)),
        ..ROW
    },
    Row {
        name: "repository-empty-image-lists",
        last: Some(Phase::ImagePreloading),
        happens: "The lists of the archives of images are empty. The preload fails the plan.",
        shows: Shows::Fails("image-preload plan job(s) failed"),
        remedy: "Retry the plan: the rehearsal then has the lists.",
        lift: Lift::Retry,
        play: Play::World(|troubles, _| troubles.repository = Some(RepositoryTrouble::EmptyImageLists)),
        ..ROW
    },
    Row {
        name: "repository-no-image-lists",
        last: Some(Phase::NodeUpgrading),
        happens: "The repository has no lists of images. No image is removed at the end, and an event says so.",
        remedy: NOT_NEEDED,
        play: Play::World(|troubles, _| troubles.repository = Some(RepositoryTrouble::NoImageLists)),
        ..ROW
    },
    Row {
        name: "image-pull-fails",
        object: Object::Job,
        default: "cluster-upgrade",
        happens: "The pod of JOB does not get its image.",
        shows: Shows::Doctor(&["D17"], "Pod "),
        remedy: "Delete the pod: the next one gets its image.",
        lift: Lift::Touch(&["pods"]),
        play: Play::World(|troubles, chosen| jobs(troubles, chosen, JobFailure::ImagePullBackOff)),
        ..ROW
    },
    Row {
        name: "job-hangs",
        object: Object::Job,
        default: "image-preload",
        happens: "JOB does not end before its deadline.",
        shows: Shows::Doctor(&["D29"], "UpgradePlan "),
        remedy: "Retry the plan: the Job then ends.",
        lift: Lift::Retry,
        play: Play::World(|troubles, chosen| jobs(troubles, chosen, JobFailure::Hangs)),
        ..ROW
    },
    Row {
        name: "job-fails",
        object: Object::Job,
        default: "cluster-upgrade",
        happens: "Each pod of JOB fails. The plan fails, except for restore-vm.",
        shows: Shows::Fails("cluster-upgrade job failed"),
        remedy: "Retry the plan: the Job then succeeds.",
        lift: Lift::Retry,
        play: Play::World(|troubles, chosen| jobs(troubles, chosen, JobFailure::Fails(ALWAYS))),
        ..ROW
    },
    Row {
        name: "job-killed",
        object: Object::Step,
        default: "upgrade-harvester",
        happens: "Each pod of a Job is killed when STEP of its program begins. The plan fails.",
        shows: Shows::Fails("cluster-upgrade job failed"),
        remedy: "Retry the plan: the Job then continues where the last pod was killed.",
        lift: Lift::Retry,
        play: Play::World(|troubles, chosen| {
            let killed = choice::steps().into_iter().filter(|(name, ..)| chosen.is(name));
            let killed = killed.map(|(name, component, job_type)| JobTrouble {
                component,
                job_type,
                node: None,
                failure: JobFailure::DiesAt(name),
            });
            troubles.jobs.extend(killed);
        }),
        ..ROW
    },
    Row {
        name: "chart-stuck",
        object: Object::Chart,
        default: "harvester",
        last: Some(Phase::ClusterUpgrading),
        happens: "Fleet does not get CHART ready.",
        shows: Shows::Doctor(&["D15"], ""),
        remedy: "Make Fleet apply the bundle again: raise its spec.forceSyncGeneration, as doctor says.",
        lift: Lift::Touch(&["bundles", "managedcharts"]),
        play: Play::World(|troubles, chosen| troubles.stuck_charts.extend(chosen.objects())),
        ..ROW
    },
    Row {
        name: "drain-blocked",
        object: Object::Node,
        default: "node-1",
        last: None,
        nodes: 2,
        happens: "A PodDisruptionBudget does not allow the eviction of pod stubborn-NODE from NODE.",
        shows: Shows::Doctor(&["D02"], "PodDisruptionBudget default/stubborn-"),
        remedy: "Delete the pod or its PodDisruptionBudget in namespace default.",
        play: Play::World(|troubles, chosen| troubles.blocked_drains.extend(chosen.objects())),
        ..ROW
    },
    Row {
        name: "migration-fails",
        object: Object::MigratableVm,
        nodes: 2,
        happens: "Each live migration of VM fails.",
        shows: Shows::Doctor(&["D09"], "VirtualMachineInstance "),
        remedy: SHUT_DOWN,
        play: Play::World(|troubles, chosen| migrations(troubles, chosen, MigrationTrouble::Fails(ALWAYS))),
        ..ROW
    },
    Row {
        name: "migration-stuck",
        object: Object::MigratableVm,
        nodes: 2,
        happens: "The live migration of VM does not end.",
        shows: Shows::Doctor(&["D10"], "VirtualMachineInstance "),
        remedy: SHUT_DOWN,
        play: Play::World(|troubles, chosen| migrations(troubles, chosen, MigrationTrouble::Stuck)),
        ..ROW
    },
    Row {
        name: "drain-taint-removed",
        nodes: 2,
        happens: "An older Harvester removes the taint kubevirt.io/drain from nodes that are Ready. VMs still leave.",
        remedy: NOT_NEEDED,
        play: Play::World(|troubles, _| troubles.drain_taint_is_taken_away = true),
        ..ROW
    },
    Row {
        name: "machine-plan-failed",
        object: Object::Node,
        nodes: 3,
        happens: "The last machine plan of NODE failed, so Rancher begins it while another such node is in progress. The upgrade still takes one after another.",
        remedy: NOT_NEEDED,
        play: Play::World(|troubles, chosen| troubles.failed_machine_plans.extend(chosen.objects())),
        ..ROW
    },
    Row {
        name: "probes-fail",
        object: Object::Node,
        default: "node-1",
        nodes: 2,
        happens: "The probes of NODE fail, so Rancher does not continue.",
        shows: Shows::Doctor(&["D23", "D22"], "Cluster fleet-local/local"),
        remedy: "Restart the Deployment of Rancher, which stands for rotated certificates here: kubectl -n cattle-system rollout restart deployment/rancher.",
        lift: Lift::Touch(&["deployments"]),
        play: Play::World(|troubles, chosen| troubles.unhealthy_machines.extend(chosen.objects())),
        ..ROW
    },
    Row {
        name: "kubelet-late",
        object: Object::Node,
        default: "node-2",
        nodes: 2,
        happens: "The new kubelet of NODE reports 20 minutes late.",
        remedy: NOT_NEEDED,
        play: Play::World(|troubles, chosen| {
            troubles.late_kubelets.extend(chosen.objects().map(|node| (node, LATE)));
        }),
        ..ROW
    },
    Row {
        name: "power-loss",
        object: Object::Node,
        default: "node-1",
        happens: "NODE loses power while its operating system is installed. The next pod of the Job installs it again.",
        remedy: NOT_NEEDED,
        play: Play::World(|troubles, chosen| reboots(troubles, chosen, RebootTrouble::DuringInstallation)),
        ..ROW
    },
    Row {
        name: "reboot-never-returns",
        object: Object::Node,
        default: "node-1",
        happens: "NODE does not come back from its reboot.",
        shows: Shows::Doctor(&["D37"], "Node "),
        remedy: "Switch the node on: kubectl annotate node NODE power=on stands for it here.",
        lift: Lift::Touch(&["nodes"]),
        play: Play::World(|troubles, chosen| reboots(troubles, chosen, RebootTrouble::NeverReturns)),
        ..ROW
    },
    Row {
        name: "old-system",
        object: Object::Node,
        default: "node-1",
        happens: "NODE comes back from its reboot with the old operating system. The plan fails.",
        shows: Shows::Doctor(&["D38"], "Node "),
        remedy: "Retry the plan: the system is installed again.",
        lift: Lift::Retry,
        play: Play::World(|troubles, chosen| reboots(troubles, chosen, RebootTrouble::OldSystem)),
        ..ROW
    },
    Row {
        name: "vm-does-not-start",
        object: Object::StoppedVm,
        happens: "VM, which was shut down for the upgrade, does not start again.",
        shows: Shows::Doctor(&["D41"], "VirtualMachine "),
        remedy: r#"Start the VM: kubectl -n NAMESPACE patch vm VM --type merge -p '{"spec":{"runStrategy":"Always"}}'."#,
        lift: Lift::Touch(&["virtualmachines"]),
        play: Play::World(|troubles, chosen| troubles.vms_that_do_not_start.extend(chosen.objects())),
        ..ROW
    },
    Row {
        name: "pods-do-not-end",
        object: Object::Node,
        default: "node-1",
        begins: Moment::Node(NodeState::PreDraining),
        nodes: 2,
        happens: "The kubelet of NODE does not end pods that are deleted, so the drain does not end.",
        shows: Shows::Waits("RancherUpdate"),
        remedy: "Restart the kubelet: kubectl annotate node NODE kubelet=restarted stands for it here.",
        lift: Lift::Touch(&["nodes"]),
        play: Play::World(|troubles, chosen| troubles.stuck_kubelets.extend(chosen.objects())),
        ..ROW
    },
    Row {
        name: "look-alikes",
        last: None,
        happens: "An attacker creates look-alikes of all objects of the plan. The upgrade does not believe them.",
        remedy: NOT_NEEDED,
        play: Play::World(|troubles, _| troubles.saboteur = true),
        ..ROW
    },
];

fn jobs(troubles: &mut Troubles, chosen: &Chosen, failure: JobFailure) {
    let named = JOBS.iter().filter(|(name, ..)| chosen.is(name));
    troubles.jobs.extend(named.map(|(_, component, job_type)| JobTrouble {
        component: *component,
        job_type: *job_type,
        node: None,
        failure,
    }));
}

fn migrations(troubles: &mut Troubles, chosen: &Chosen, trouble: MigrationTrouble) {
    troubles.migrations.extend(chosen.objects().map(|vm| (vm, trouble)));
}

fn reboots(troubles: &mut Troubles, chosen: &Chosen, trouble: RebootTrouble) {
    troubles.reboots.extend(chosen.objects().map(|node| (node, trouble)));
}
