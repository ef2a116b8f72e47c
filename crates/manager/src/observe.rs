//! What the caches hold, as one plain value for one plan.

pub(crate) mod aftermath;
pub(crate) mod insights;
mod rancher;
mod repository;
mod size;

use std::{collections::BTreeMap, sync::Arc};

use api::{
    Component, Insight, JobType, NodeState, UpgradePlan, annotations, foreign::condition_is, labels, names, node,
    quoted,
};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Node, Pod},
};
use kube::ResourceExt;
use plan::{
    announce::FailedRestore,
    observed::{
        Facts, JobOutcome, Observed, ObservedImage, ObservedJob, ObservedMachinePlan, ObservedNode, ObservedPod,
        ObservedSucPlan, OtherPlan, Settings, StartedUpgrade,
    },
    shared::Shared,
};

use crate::{
    blockers,
    memo::Memos,
    ours::{self, JobOwners, PodOwners, Tie},
    watched::Watched,
};

/// What is known about a plan and the cluster around it.
#[must_use]
pub fn observe(
    watched: &Watched,
    memos: &mut Memos,
    settings: &Settings,
    plan: &Arc<UpgradePlan>,
    facts: Facts,
    trouble: Option<String>,
    insights: Vec<Insight>,
) -> Observed {
    let name = plan.name_any();
    let emptying = plan
        .status
        .iter()
        .flat_map(|status| status.node_upgrade_statuses.values())
        .any(|node| node.is(NodeState::PreDraining));
    let jobs = {
        let owners = JobOwners::of(watched, plan);
        let look = |job: &Job| match owners.tie(job) {
            Tie::Own => job_seen(job),
            Tie::LeftOver => job_seen(job).map(ObservedJob::left_over),
            Tie::None => None,
        };
        memos.jobs.get(&owners.key(), &[&watched.jobs, &watched.suc_jobs], look)
    };
    let machine_plans: Shared<Vec<ObservedMachinePlan>> = {
        let revision = watched.secrets.revision() + watched.machines.revision();
        memos
            .machine_plans
            .get(&name, revision, || rancher::machine_plans(watched))
    };
    let drains = machine_plans.iter().any(ObservedMachinePlan::is_in_drain);
    let owners = PodOwners::of(watched, plan, &jobs);
    let pods = {
        let look = |pod: &Pod| match owners.tie(pod) {
            Tie::Own => blockers::observe_pod(pod),
            Tie::LeftOver => blockers::observe_pod(pod).map(ObservedPod::silent),
            Tie::None => None,
        };
        memos.pods.get(&owners.key(), &[&watched.pods, &watched.suc_pods], look)
    };
    Observed {
        settings: settings.clone(),
        plan: plan.clone().into(),
        other_plans: other_plans(watched, plan),
        version: plan.spec.version.as_ref().and_then(|version| {
            watched
                .versions
                .get(names::HARVESTER_NAMESPACE, version)
                .map(|version| version.spec.clone())
        }),
        server_version: watched
            .settings
            .get("", names::SERVER_VERSION_SETTING)
            .map(|setting| setting.value.clone()),
        nodes: {
            let leftovers = leftovers(&name);
            let look = |node: &Node| Some(node_seen(node, &leftovers));
            memos.nodes.get(&name, &[&watched.nodes], look)
        },
        iso_image: iso_image(watched, plan),
        repo: repository::look(watched, plan),
        suc_plans: suc_plans(watched, plan),
        jobs,
        machine_plans,
        cluster: rancher::cluster(watched),
        replenishment_interval: watched
            .longhorn_settings
            .get(names::LONGHORN_NAMESPACE, names::REPLENISHMENT_SETTING)
            .map(|setting| setting.value.clone()),
        descheduler_enabled: watched
            .addons
            .get(names::KUBE_SYSTEM_NAMESPACE, names::DESCHEDULER_ADDON)
            .map(|addon| addon.spec.enabled == Some(true)),
        workload_update_methods: watched
            .kubevirts
            .get(names::HARVESTER_NAMESPACE, names::KUBEVIRT)
            .map(|kubevirt| {
                let strategy = kubevirt.spec.workload_update_strategy.as_ref();
                strategy
                    .and_then(|strategy| strategy.workload_update_methods.clone())
                    .unwrap_or_default()
            }),
        charts: rancher::charts(watched),
        restore_list: watched
            .config_maps
            .get(names::HARVESTER_NAMESPACE, &names::restore_config_map(&name))
            .filter(|list| ours::is_child(list.as_ref(), plan))
            .and_then(|list| list.data.clone())
            .unwrap_or_default(),
        pods,
        // Only read while a node is being emptied: there may be thousands of either.
        unhealthy_volumes: if emptying {
            let volumes = || blockers::unhealthy_volumes(watched);
            memos.unhealthy_volumes.get(&name, watched.volumes.revision(), volumes)
        } else {
            Shared::default()
        },
        vms_by_node: if emptying {
            let vms = || blockers::vms_by_node(watched);
            memos.vms_by_node.get(&name, watched.instances.revision(), vms)
        } else {
            Shared::default()
        },
        // Only read while Rancher drains.
        immovable_vms: if drains {
            let vms = || blockers::immovable_vms(watched);
            memos.immovable_vms.get(&name, watched.instances.revision(), vms)
        } else {
            Shared::default()
        },
        size: size::of(watched, memos, plan, &facts),
        recorded: aftermath::is_recorded(watched, plan),
        facts,
        trouble,
        insights,
    }
}

fn other_plans(watched: &Watched, plan: &UpgradePlan) -> Vec<OtherPlan> {
    let others = watched
        .plans
        .list()
        .into_iter()
        .filter(|other| other.metadata.uid != plan.metadata.uid);
    others
        .map(|other| OtherPlan {
            name: other.name_any(),
            uid: other.uid().unwrap_or_default(),
            created: other.creation_timestamp().map(|time| time.0),
            active: plan::decide::is_active(&other),
            saved_upgrade_strategy: other.note(annotations::SAVED_UPGRADE_STRATEGY).map(str::to_owned),
            begun: StartedUpgrade::of(&other),
        })
        .collect()
}

/// What Plans of system-upgrade-controller do for an upgrade.
pub(crate) const SUC_COMPONENTS: [Component; 6] = [
    Component::ImagePreload,
    Component::ImageCheck,
    Component::ImageCleanup,
    Component::SkipManifestsApply,
    Component::SkipManifestsRemove,
    Component::SuspendAgent,
];

/// The labels that system-upgrade-controller leaves on nodes for this plan.
fn leftovers(plan: &str) -> [String; 6] {
    SUC_COMPONENTS.map(|of| format!("{}{}", labels::SUC_NODE_PLAN_PREFIX, names::suc_plan(plan, of)))
}

/// What is seen of a node; `leftovers` are the labels that system-upgrade-controller leaves for this plan.
fn node_seen(node: &Node, leftovers: &[String]) -> ObservedNode {
    let status = node.status.as_ref();
    let info = status.and_then(|status| status.node_info.as_ref());
    let has_label = |key: &str| node.labels().contains_key(key);
    ObservedNode {
        managed: node::is_managed(node),
        witness: node::is_witness(node),
        ready: node::is_ready(node),
        os_image: info
            .map(|info| quoted::plain(&info.os_image, quoted::LONGEST_NAME))
            .unwrap_or_default(),
        kubelet_version: info.map(|info| info.kubelet_version.clone()).unwrap_or_default(),
        boot_id: info.map(|info| info.boot_id.clone()).unwrap_or_default(),
        pending_os_image: node.annotations().get(annotations::PENDING_OS_IMAGE).cloned(),
        boot_id_before_upgrade: node.annotations().get(annotations::BOOT_ID_BEFORE_UPGRADE).cloned(),
        drain_taint: node::has_drain_taint(node),
        leftover_labels: leftovers.iter().filter(|label| has_label(label)).cloned().collect(),
    }
}

fn iso_image(watched: &Watched, plan: &UpgradePlan) -> Option<ObservedImage> {
    let name = plan
        .spec
        .image
        .clone()
        .unwrap_or_else(|| names::iso_image(&plan.name_any()));
    let image = watched
        .images
        .get(names::HARVESTER_NAMESPACE, &name)
        .filter(|image| !is_deleting(image.as_ref()))
        // One that the plan names is the user's; one that it makes must be its own.
        .filter(|image| plan.spec.image.is_some() || ours::is_child(image.as_ref(), plan))?;
    let conditions = image.status.conditions.as_deref().unwrap_or_default();
    let given_up = condition_is(conditions, "RetryLimitExceeded") == Some(true);
    Some(ObservedImage {
        name,
        ours: plan.spec.image.is_none(),
        imported: if given_up {
            Some(false)
        } else {
            condition_is(conditions, "Imported")
        },
        checksum: image.spec.checksum.clone().filter(|sum| !sum.is_empty()),
    })
}

fn suc_plans(watched: &Watched, plan: &UpgradePlan) -> BTreeMap<Component, ObservedSucPlan> {
    let ours = watched
        .suc_plans
        .list()
        .into_iter()
        // And be it one that is being deleted: it may run still.
        .filter(|found| ours::is_child(found.as_ref(), plan));
    ours.filter_map(|found| {
        let component = Component::of(&found.metadata)?;
        // Each has one name, so that no other can replace it.
        (found.name_any() == names::suc_plan(&plan.name_any(), component)).then_some(())?;
        let conditions = found.status.conditions.as_deref().unwrap_or_default();
        let complete = conditions.iter().find(|condition| condition.type_ == "Complete");
        let observed = ObservedSucPlan {
            uid: found.uid(),
            complete: condition_is(conditions, "Complete") == Some(true),
            job_failed: complete.is_some_and(|condition| condition.reason.as_deref() == Some("JobFailed")),
            deleting: is_deleting(found.as_ref()),
        };
        Some((component, observed))
    })
    .collect()
}

fn job_seen(job: &Job) -> Option<ObservedJob> {
    let label = |key: &str| job.labels().get(key).cloned();
    let conditions = job
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let condition = |type_: &str| conditions.iter().find(|c| c.type_ == type_ && c.status == "True");
    let outcome = if condition("Complete").is_some() {
        JobOutcome::Complete
    } else if let Some(failed) = condition("Failed") {
        JobOutcome::Failed {
            reason: quoted::plain(failed.reason.as_deref().unwrap_or_default(), quoted::LONGEST_NAME),
            message: quoted::plain(failed.message.as_deref().unwrap_or_default(), quoted::LONGEST_MESSAGE),
        }
    } else {
        JobOutcome::Running
    };
    let status = job.status.as_ref();
    let made_by = job.owner_references().iter().find(|owner| owner.kind == "Plan");
    let namespace = job.namespace().unwrap_or_default();
    Some(ObservedJob {
        uid: job.uid(),
        owner: made_by.map(|owner| owner.uid.clone()),
        failed_pods: status
            .and_then(|status| status.failed)
            .and_then(|failed| failed.try_into().ok())
            .unwrap_or_default(),
        component: Component::of(&job.metadata)?,
        // Steps of nodes are Jobs of ours; what system-upgrade-controller runs is none.
        job_type: JobType::of(&job.metadata).filter(|_| namespace == names::HARVESTER_NAMESPACE),
        namespace,
        left_over: false,
        node: label(labels::NODE).or_else(|| label(labels::SUC_NODE)),
        suspended: job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true),
        deleting: is_deleting(job),
        outcome,
    })
}

/// The Jobs of a plan that should have started VMs again and failed.
#[must_use]
pub fn failed_restores(watched: &Watched, plan: &UpgradePlan) -> Vec<FailedRestore> {
    let jobs = watched.jobs.list();
    let of_plan = jobs.iter().filter(|job| ours::is_child(job.as_ref(), plan));
    of_plan.filter_map(|job| failed_restore(job)).collect()
}

fn failed_restore(job: &Job) -> Option<FailedRestore> {
    let observed = job_seen(job).filter(|observed| observed.job_type == Some(JobType::RestoreVm))?;
    let JobOutcome::Failed { message, .. } = observed.outcome else {
        return None;
    };
    let mut conditions = job.status.as_ref()?.conditions.iter().flatten();
    let failed = conditions.find(|condition| condition.type_ == "Failed")?;
    Some(FailedRestore {
        job: job.name_any(),
        node: observed.node.unwrap_or_default(),
        why: message,
        at: failed.last_transition_time.as_ref()?.0,
    })
}

/// The plan owns an object that is there to stay.
fn is_present_child<K: kube::Resource>(object: &K, plan: &UpgradePlan) -> bool {
    !is_deleting(object) && ours::is_child(object, plan)
}

fn is_deleting<K: kube::Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}
