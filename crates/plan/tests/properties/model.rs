//! A cluster as a plain value: decisions are applied to it, and the outside moves on step by step.

use std::collections::BTreeMap;

use api::{
    Component, JobType, Phase, UpgradePlan, UpgradePlanSpec, annotations, foreign::harvester::VersionSpec, names,
};
use jiff::Timestamp;
use plan::{
    Action, Child, Decision, Need, Observed, decide,
    decision::ChildKind,
    observed::{
        Facts, ObservedChart, ObservedCluster, ObservedImage, ObservedJob, ObservedMachinePlan, ObservedNode,
        ObservedRepo, ObservedSucPlan, Settings,
    },
    shared::Shared,
};
use serde_json::json;

pub(crate) const OS: &str = "Harvester v1.8.0";

/// A cluster and the time in it.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub observed: Observed,
    pub now: Timestamp,
    pub(crate) needs: Vec<Need>,
}

/// Harvester's charts, applied and ready.
fn charts() -> BTreeMap<String, ObservedChart> {
    let observed = ObservedChart {
        observed_generation: 7,
        ..ObservedChart::default()
    };
    names::MANAGED_CHARTS
        .map(|name| (name.to_owned(), observed.clone()))
        .into()
}

impl Model {
    pub(crate) fn new(nodes: usize) -> Self {
        let mut plan = UpgradePlan::new(
            "up",
            UpgradePlanSpec {
                version: Some("v1.8.0".into()),
                restore_vm: Some(true),
                ..Default::default()
            },
        );
        plan.metadata.uid = Some("uid".into());
        plan.metadata.generation = Some(1);
        let names: Vec<String> = (1..=nodes).map(|i| format!("node-{i}")).collect();
        let node = |name: &String| ObservedNode {
            managed: true,
            ready: true,
            os_image: "Harvester v1.7.1".into(),
            boot_id: format!("{name}-first"),
            ..ObservedNode::default()
        };
        let observed = Observed {
            settings: Settings::default(),
            plan: plan.into(),
            other_plans: Vec::new(),
            version: Some(VersionSpec {
                iso_url: Some("http://iso".into()),
                iso_checksum: Some("cd".repeat(64)),
                ..Default::default()
            }),
            server_version: Some("v1.7.1".into()),
            nodes: names.iter().map(|name| (name.clone(), node(name))).collect(),
            iso_image: None,
            repo: ObservedRepo::default(),
            suc_plans: BTreeMap::new(),
            jobs: Shared::default(),
            machine_plans: names
                .iter()
                .map(|name| ObservedMachinePlan {
                    secret: format!("{name}-plan"),
                    node: Some(name.clone()),
                    ..Default::default()
                })
                .collect(),
            cluster: Some(ObservedCluster {
                upgrade_strategy: Some(json!({"workerConcurrency": "10%"})),
                ..Default::default()
            }),
            replenishment_interval: Some("600".into()),
            descheduler_enabled: Some(true),
            workload_update_methods: Some(vec!["LiveMigrate".into()]),
            charts: charts(),
            pods: Shared::default(),
            unhealthy_volumes: Shared::default(),
            vms_by_node: Shared::default(),
            immovable_vms: Shared::default(),
            size: rules::estimate::Size {
                nodes,
                ..Default::default()
            },
            restore_list: BTreeMap::new(),
            facts: Facts::default(),
            trouble: None,
            insights: Vec::new(),
            recorded: false,
        };
        Self {
            observed,
            now: "2026-03-13T03:57:09Z".parse().unwrap(),
            needs: Vec::new(),
        }
    }

    pub(crate) fn phase(&self) -> Option<Phase> {
        self.observed.plan.phase()
    }

    pub(crate) fn decide(&self) -> Decision {
        decide(self.now, &self.observed)
    }

    /// Carries a decision out, in its order.
    pub(crate) fn apply(&mut self, decision: &Decision) {
        self.apply_metadata(decision);
        self.observed.plan.status = Some(decision.status.clone());
        decision.actions.iter().for_each(|action| self.act(action));
        self.needs.clone_from(&decision.needs);
    }

    /// Carries out what comes first of a decision, as if the manager had died then.
    pub(crate) fn apply_metadata(&mut self, decision: &Decision) {
        let known = self.observed.plan.metadata.annotations.get_or_insert_default();
        for (key, value) in &decision.annotations {
            match value {
                Some(value) => known.insert(key.clone(), value.clone()),
                None => known.remove(key),
            };
        }
        self.observed.plan.metadata.finalizers = decision.finalizer.then(|| vec![annotations::FINALIZER.to_owned()]);
    }

    fn act(&mut self, action: &Action) {
        let observed = &mut self.observed;
        match action.clone() {
            Action::Create(child) => self.create(child),
            Action::DeleteJob { name, .. } => {
                observed.jobs.remove(&name);
            }
            Action::StoreRecord => observed.recorded = true,
            Action::ResumeJob { name } => {
                if let Some(job) = observed.jobs.get_mut(&name) {
                    job.suspended = false;
                }
            }
            Action::Delete {
                kind,
                component,
                job_type,
            } => match kind {
                ChildKind::Image => observed.iso_image = None,
                ChildKind::Deployment => (observed.repo.deployment_ready, observed.repo.secret) = (None, None),
                ChildKind::Service => observed.repo.service_ready = None,
                ChildKind::SucPlan => {
                    observed.suc_plans.remove(&component);
                    observed.jobs.retain(|_, job| job.component != component);
                }
                ChildKind::Job => observed
                    .jobs
                    .retain(|_, job| job.component != component || job.job_type != job_type),
            },
            Action::AnnotateNode { node, annotations } => {
                let Some(node) = observed.nodes.get_mut(&node) else {
                    return;
                };
                for (key, value) in annotations {
                    match key.as_str() {
                        annotations::PENDING_OS_IMAGE => node.pending_os_image = value,
                        annotations::BOOT_ID_BEFORE_UPGRADE => node.boot_id_before_upgrade = value,
                        other => panic!("unknown {other}"),
                    }
                }
            }
            Action::UnlabelNode { node, .. } => {
                if let Some(node) = observed.nodes.get_mut(&node) {
                    node.leftover_labels.clear();
                }
            }
            Action::UntaintNode { node } => {
                if let Some(node) = observed.nodes.get_mut(&node) {
                    node.drain_taint = false;
                }
            }
            Action::AnswerHook { secret, hook, token } => {
                let Some(plan) = observed.machine_plans.iter_mut().find(|plan| plan.secret == secret) else {
                    return;
                };
                if hook == annotations::PRE_HOOK {
                    plan.pre_hook = Some(token)
                } else {
                    plan.post_hook = Some(token)
                }
            }
            Action::ProvisionCluster {
                kubernetes_version,
                from,
                to,
                saved_strategy,
                os,
            } => {
                let Some(cluster) = &mut observed.cluster else { return };
                assert_eq!(
                    cluster.provision_generation, from,
                    "bumped from a generation that is gone"
                );
                cluster.provision_generation = to;
                cluster.kubernetes_version = Some(kubernetes_version);
                cluster.upgrade_strategy = Some(json!({"ours": true}));
                cluster.saved_upgrade_strategy = Some(saved_strategy);
                cluster.gated_release = Some(os);
            }
            Action::RestoreUpgradeStrategy { strategy } => {
                if let Some(cluster) = &mut observed.cluster {
                    cluster.upgrade_strategy = Some(strategy);
                    cluster.saved_upgrade_strategy = None;
                    cluster.gated_release = None;
                }
            }
            Action::SetReplenishmentInterval { value } => observed.replenishment_interval = Some(value),
            Action::EnableDescheduler { enabled } => observed.descheduler_enabled = Some(enabled),
            Action::SetChartMethods {
                methods,
                resume,
                record,
            } => {
                let Some(chart) = observed.charts.get_mut(names::HARVESTER_CHART) else {
                    return;
                };
                chart.methods = methods.clone();
                chart.record = record;
                chart.paused &= !resume;
                // Fleet follows at once.
                chart.observed_generation += 1;
                let default = vec!["LiveMigrate".to_owned()];
                observed.workload_update_methods = Some(serde_json::from_value(methods).unwrap_or(default));
            }
            Action::PauseChart { name } => {
                if let Some(chart) = observed.charts.get_mut(&name) {
                    chart.paused = true;
                }
            }
            Action::ResumeChart { name } => {
                if let Some(chart) = observed.charts.get_mut(&name) {
                    chart.paused = false;
                    chart.paused_by = None;
                }
            }
            Action::SetWorkloadUpdateMethods { methods } => observed.workload_update_methods = Some(methods),
            Action::StopIgnoringWorkloadUpdateMethods => {
                if let Some(chart) = observed.charts.get_mut(names::HARVESTER_CHART) {
                    chart.ignores_methods = false;
                }
            }
        }
    }

    fn create(&mut self, child: Child) {
        let observed = &mut self.observed;
        let job = |component: Component, step: Option<JobType>, node: Option<&str>, suspended: bool| ObservedJob {
            namespace: names::HARVESTER_NAMESPACE.to_owned(),
            component,
            job_type: step,
            node: node.map(str::to_owned),
            uid: None,
            suspended,
            ..ObservedJob::of(Component::NodeUpgrade)
        };
        match child {
            Child::IsoImage { .. } => {
                observed.iso_image = Some(ObservedImage {
                    name: names::iso_image("up"),
                    ours: true,
                    imported: None,
                    checksum: None,
                });
            }
            Child::RepoSecret { .. } => {}
            Child::RepoDeployment { secret, .. } => {
                observed.repo.deployment_ready = Some(false);
                observed.repo.secret = Some(secret);
                observed.repo.serves_manifest = true;
            }
            Child::RepoService => observed.repo.service_ready = Some(false),
            Child::SucPlan { plan, .. } => {
                let component = plan.component();
                for node in observed.nodes.keys() {
                    observed.jobs.insert(
                        format!("apply-{component}-{node}"),
                        job(component, None, Some(node), false),
                    );
                }
                observed.suc_plans.insert(component, ObservedSucPlan::default());
            }
            Child::ClusterJob => {
                observed.jobs.insert(
                    names::cluster_job("up"),
                    job(Component::ClusterUpgrade, None, None, false),
                );
            }
            Child::NodeJob {
                job_type,
                node,
                suspend,
            } => {
                let name = names::node_job("up", job_type, &node);
                assert!(!observed.jobs.contains_key(&name), "{name} is created twice");
                observed
                    .jobs
                    .insert(name, job(Component::NodeUpgrade, Some(job_type), Some(&node), suspend));
            }
            Child::RestoreJob { node } => {
                let name = names::node_job("up", JobType::RestoreVm, &node);
                observed.jobs.insert(
                    name,
                    job(Component::NodeUpgrade, Some(JobType::RestoreVm), Some(&node), false),
                );
            }
        }
    }

    /// Nodes on which something that disturbs VMs is under way.
    pub(crate) fn disrupted(&self) -> Vec<&String> {
        let status = self.observed.plan.status.as_ref();
        let nodes = status.into_iter().flat_map(|status| &status.node_upgrade_statuses);
        let disturbing = [
            "PreDraining",
            "PreDrained",
            "PostDraining",
            "WaitingReboot",
            "SingleNodeUpgrading",
        ];
        nodes
            .filter(|(_, node)| node.state().is_some_and(|s| disturbing.contains(&s)))
            .map(|(n, _)| n)
            .collect()
    }
}
