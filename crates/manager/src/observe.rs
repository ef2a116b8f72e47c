//! What the caches hold, as one plain value for one plan.

use std::{collections::BTreeMap, sync::Arc};

use api::{
    NodeState, UpgradePlan, annotations,
    foreign::{ForeignCondition, condition_is},
    labels, names,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Node, Pod, Secret, Service},
};
use kube::ResourceExt;
use plan::{
    announce::FailedRestore,
    chart,
    observed::{
        ChartSeen, ClusterSeen, Facts, ImageSeen, JobOutcome, JobSeen, MachinePlanSeen, NodeSeen, Observed, OtherPlan,
        RepoSeen, Settings, SucPlanSeen,
    },
    shared::Shared,
};

use crate::{hindrance, memory::Memory, objects, watched::Watched};

/// What is known about a plan and the cluster around it.
#[must_use]
pub fn observe(
    watched: &Watched,
    memory: &mut Memory,
    settings: &Settings,
    plan: &Arc<UpgradePlan>,
    facts: Facts,
    trouble: Option<String>,
) -> Observed {
    let name = plan.name_any();
    let emptying = plan
        .status
        .iter()
        .flat_map(|status| status.node_upgrade_statuses.values())
        .any(|node| node.state.as_deref() == Some(NodeState::PreDraining.as_str()));
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
            memory.nodes.get(&name, &watched.nodes, look)
        },
        iso_image: iso_image(watched, plan),
        repo: repo(watched, &name),
        suc_plans: suc_plans(watched, &name),
        jobs: {
            let look = |job: &Job| belongs_to(job, &name).then(|| job_seen(job)).flatten();
            memory.jobs.get(&name, &watched.jobs, look)
        },
        machine_plans: {
            let news = watched.secrets.news() + watched.machines.news();
            memory.machine_plans.get(&name, news, || machine_plans(watched))
        },
        cluster: cluster(watched),
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
        charts: charts(watched),
        restore_list: watched
            .config_maps
            .get(names::HARVESTER_NAMESPACE, &names::restore_config_map(&name))
            .and_then(|list| list.data.clone())
            .unwrap_or_default(),
        pods: {
            let look = |pod: &Pod| hindrance::pod_seen(pod, &name);
            memory.pods.get(&name, &watched.pods, look)
        },
        // Only read while a node is being emptied: there may be thousands of either.
        unhealthy_volumes: if emptying {
            let volumes = || hindrance::unhealthy_volumes(watched);
            memory.unhealthy_volumes.get(&name, watched.volumes.news(), volumes)
        } else {
            Shared::default()
        },
        vms_by_node: if emptying {
            let vms = || hindrance::vms_by_node(watched);
            memory.vms_by_node.get(&name, watched.instances.news(), vms)
        } else {
            Shared::default()
        },
        facts,
        trouble,
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
            saved_upgrade_strategy: other.annotation(annotations::SAVED_UPGRADE_STRATEGY).map(str::to_owned),
        })
        .collect()
}

/// The labels that system-upgrade-controller leaves on nodes for this plan.
fn leftovers(plan: &str) -> [String; 6] {
    let components = [
        labels::component::IMAGE_PRELOAD,
        labels::component::IMAGE_CHECK,
        labels::component::IMAGE_CLEANUP,
        labels::component::SKIP_MANIFESTS_APPLY,
        labels::component::SKIP_MANIFESTS_REMOVE,
        labels::component::HOLD_AGENT,
    ];
    components.map(|of| format!("{}{}", labels::SUC_NODE_PLAN_PREFIX, names::suc_plan(plan, of)))
}

/// What is seen of a node; `leftovers` are the labels that system-upgrade-controller leaves for this plan.
fn node_seen(node: &Node, leftovers: &[String]) -> NodeSeen {
    let status = node.status.as_ref();
    let info = status.and_then(|status| status.node_info.as_ref());
    let conditions = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let has_label = |key: &str| node.labels().contains_key(key);
    NodeSeen {
        managed: node.labels().get(labels::MANAGED).is_some_and(|value| value == "true"),
        witness: has_label(labels::WITNESS),
        ready: conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        os_image: info.map(|info| info.os_image.clone()).unwrap_or_default(),
        kubelet_version: info.map(|info| info.kubelet_version.clone()).unwrap_or_default(),
        boot_id: info.map(|info| info.boot_id.clone()).unwrap_or_default(),
        pending_os_image: node.annotations().get(annotations::PENDING_OS_IMAGE).cloned(),
        boot_id_before_upgrade: node.annotations().get(annotations::BOOT_ID_BEFORE_UPGRADE).cloned(),
        drain_taint: objects::node::is_draining(node),
        leftover_labels: leftovers.iter().filter(|label| has_label(label)).cloned().collect(),
    }
}

fn iso_image(watched: &Watched, plan: &UpgradePlan) -> Option<ImageSeen> {
    let name = plan
        .spec
        .image
        .clone()
        .unwrap_or_else(|| names::iso_image(&plan.name_any()));
    let image = watched
        .images
        .get(names::HARVESTER_NAMESPACE, &name)
        .filter(|image| !is_deleting(image.as_ref()))?;
    let conditions = image.status.conditions.as_deref().unwrap_or_default();
    let given_up = condition_is(conditions, "RetryLimitExceeded") == Some(true);
    Some(ImageSeen {
        name,
        ours: plan.spec.image.is_none(),
        imported: if given_up {
            Some(false)
        } else {
            condition_is(conditions, "Imported")
        },
    })
}

fn repo(watched: &Watched, plan: &str) -> RepoSeen {
    let name = names::repo(plan);
    let deployment = watched.deployments.get(names::HARVESTER_NAMESPACE, &name);
    let service = watched.services.get(names::HARVESTER_NAMESPACE, &name);
    RepoSeen {
        deployment_ready: deployment
            .filter(|found| !is_deleting(found.as_ref()))
            .map(|found| deployment_is_ready(&found)),
        service_ready: service
            .filter(|found| !is_deleting(found.as_ref()))
            .map(|found| service_is_ready(watched, &found)),
    }
}

fn deployment_is_ready(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let available = deployment
        .status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .unwrap_or_default();
    wanted.is_some_and(|wanted| available >= wanted)
}

/// A Service is ready when it has an address and an endpoint that says of itself that it is ready.
fn service_is_ready(watched: &Watched, service: &Service) -> bool {
    let has_address = service
        .spec
        .as_ref()
        .and_then(|spec| spec.cluster_ip.as_deref())
        .is_some_and(|address| !address.is_empty());
    let name = service.name_any();
    has_address
        && watched.endpoint_slices.list().iter().any(|slice| {
            slice.labels().get(labels::SERVICE_NAME) == Some(&name)
                && slice
                    .endpoints
                    .iter()
                    .any(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true))
        })
}

fn suc_plans(watched: &Watched, plan: &str) -> BTreeMap<String, SucPlanSeen> {
    let ours = watched
        .suc_plans
        .list()
        .into_iter()
        .filter(|found| belongs_to(found.as_ref(), plan));
    ours.filter_map(|found| {
        let component = found.labels().get(labels::UPGRADE_COMPONENT)?.clone();
        let conditions = found.status.conditions.as_deref().unwrap_or_default();
        let complete = conditions.iter().find(|condition| condition.type_ == "Complete");
        let seen = SucPlanSeen {
            uid: found.uid(),
            complete: condition_is(conditions, "Complete") == Some(true),
            job_failed: complete.is_some_and(|condition| condition.reason.as_deref() == Some("JobFailed")),
        };
        Some((component, seen))
    })
    .collect()
}

fn job_seen(job: &Job) -> Option<JobSeen> {
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
            reason: failed.reason.clone().unwrap_or_default(),
            message: failed.message.clone().unwrap_or_default(),
        }
    } else {
        JobOutcome::Running
    };
    let status = job.status.as_ref();
    let made_by = job.owner_references().iter().find(|owner| owner.kind == "Plan");
    Some(JobSeen {
        uid: job.uid(),
        owner: made_by.map(|owner| owner.uid.clone()),
        failed_pods: status
            .and_then(|status| status.failed)
            .and_then(|failed| failed.try_into().ok())
            .unwrap_or_default(),
        namespace: job.namespace().unwrap_or_default(),
        component: label(labels::UPGRADE_COMPONENT)?,
        job_type: label(labels::JOB_TYPE),
        node: label(labels::NODE).or_else(|| label(labels::SUC_NODE)),
        suspended: job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true),
        outcome,
    })
}

/// The Jobs of a plan that should have started VMs again and failed.
#[must_use]
pub fn failed_restores(watched: &Watched, plan: &UpgradePlan) -> Vec<FailedRestore> {
    let jobs = watched.jobs.list();
    let of_plan = jobs
        .iter()
        .filter(|job| job.labels().get(labels::UPGRADE_PLAN) == Some(&plan.name_any()));
    of_plan.filter_map(|job| failed_restore(job)).collect()
}

fn failed_restore(job: &Job) -> Option<FailedRestore> {
    let seen = job_seen(job).filter(|seen| seen.job_type.as_deref() == Some(labels::job_type::RESTORE_VM))?;
    let JobOutcome::Failed { message, .. } = seen.outcome else {
        return None;
    };
    let mut conditions = job.status.as_ref()?.conditions.iter().flatten();
    let failed = conditions.find(|condition| condition.type_ == "Failed")?;
    Some(FailedRestore {
        job: job.name_any(),
        node: seen.node.unwrap_or_default(),
        why: message,
        at: failed.last_transition_time.as_ref()?.0,
    })
}

fn machine_plans(watched: &Watched) -> Vec<MachinePlanSeen> {
    let secrets = watched.secrets.list();
    let ours = secrets
        .iter()
        .filter(|secret| secret.type_.as_deref() == Some(annotations::MACHINE_PLAN_SECRET_TYPE));
    ours.map(|secret| machine_plan(watched, secret)).collect()
}

fn machine_plan(watched: &Watched, secret: &Secret) -> MachinePlanSeen {
    let annotation = |key: &str| secret.annotations().get(key).cloned();
    let machine = secret.labels().get(labels::MACHINE_NAME);
    let machine = machine.and_then(|name| watched.machines.get(names::FLEET_NAMESPACE, name));
    MachinePlanSeen {
        secret: secret.name_any(),
        node: machine.and_then(|machine| machine.status.node_ref.as_ref()?.name.clone()),
        pre_drain: annotation(annotations::RKE_PRE_DRAIN),
        pre_hook: annotation(annotations::PRE_HOOK),
        post_drain: annotation(annotations::RKE_POST_DRAIN),
        post_hook: annotation(annotations::POST_HOOK),
    }
}

fn cluster(watched: &Watched) -> Option<ClusterSeen> {
    let cluster = watched.clusters.get(names::FLEET_NAMESPACE, names::LOCAL_CLUSTER)?;
    let rke = cluster.spec.rke_config.clone().unwrap_or_default();
    Some(ClusterSeen {
        kubernetes_version: cluster.spec.kubernetes_version.clone(),
        provision_generation: rke.provision_generation.unwrap_or_default(),
        upgrade_strategy: rke.upgrade_strategy,
        saved_upgrade_strategy: cluster.annotations().get(annotations::SAVED_UPGRADE_STRATEGY).cloned(),
        // `status.ready` never goes back to false.
        ready: condition_is(cluster.status.conditions.as_deref().unwrap_or_default(), "Updated") == Some(true),
        message: rancher_says(cluster.status.conditions.as_deref().unwrap_or_default()),
    })
}

/// What Rancher says about what it is doing: the message of the first condition that does not hold yet.
fn rancher_says(conditions: &[ForeignCondition]) -> Option<String> {
    let open = conditions
        .iter()
        .filter(|condition| condition.status.as_deref() != Some("True"));
    open.filter_map(|condition| condition.message.clone())
        .find(|message| !message.is_empty())
}

/// Harvester's charts that there are.
fn charts(watched: &Watched) -> BTreeMap<String, ChartSeen> {
    let found = names::MANAGED_CHARTS.into_iter().filter_map(|name| {
        let chart = watched.managed_charts.get(names::FLEET_NAMESPACE, name)?;
        Some((name.to_owned(), chart::seen(&chart)))
    });
    found.collect()
}

fn belongs_to<K: kube::Resource>(object: &K, plan: &str) -> bool {
    !is_deleting(object)
        && object
            .labels()
            .get(labels::UPGRADE_PLAN)
            .is_some_and(|name| name == plan)
}

fn is_deleting<K: kube::Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}
