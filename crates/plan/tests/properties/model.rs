//! A cluster as a plain value: decisions are applied to it, and the outside moves on step by step.

use std::collections::BTreeMap;

use api::{
    Phase, ReleaseMetadata, UpgradePlan, UpgradePlanSpec, annotations,
    foreign::harvester::VersionSpec,
    labels::{component, job_type},
    names,
};
use jiff::{SignedDuration, Timestamp};
use plan::{
    Action, Child, Decision, Need, Observed, decide,
    decision::ChildKind,
    observed::{
        ClusterSeen, Facts, Fetched, ImageLists, ImageSeen, JobOutcome, JobSeen, KubeletFacts, MachinePlanSeen,
        NewImages, NodeSeen, PreflightFacts, RepoSeen, Settings, SucPlanSeen,
    },
    shared::Shared,
};
use serde_json::json;

pub(crate) const OS: &str = "Harvester v1.8.0";

/// A cluster and the time in it.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub seen: Observed,
    pub now: Timestamp,
    needs: Vec<Need>,
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
        let node = |name: &String| NodeSeen {
            managed: true,
            ready: true,
            os_image: "Harvester v1.7.1".into(),
            boot_id: format!("{name}-first"),
            ..NodeSeen::default()
        };
        let seen = Observed {
            settings: Settings::default(),
            plan: plan.into(),
            other_plans: Vec::new(),
            version: Some(VersionSpec {
                iso_url: Some("http://iso".into()),
                ..Default::default()
            }),
            server_version: Some("v1.7.1".into()),
            nodes: names.iter().map(|name| (name.clone(), node(name))).collect(),
            iso_image: None,
            repo: RepoSeen::default(),
            suc_plans: BTreeMap::new(),
            jobs: Shared::default(),
            machine_plans: names
                .iter()
                .map(|name| MachinePlanSeen {
                    secret: format!("{name}-plan"),
                    node: Some(name.clone()),
                    ..Default::default()
                })
                .collect(),
            cluster: Some(ClusterSeen {
                upgrade_strategy: Some(json!({"workerConcurrency": "10%"})),
                ..Default::default()
            }),
            replenishment_interval: Some("600".into()),
            descheduler_enabled: Some(true),
            workload_update_methods: Some(vec!["LiveMigrate".into()]),
            chart_ignores_methods: Some(false),
            pods: Shared::default(),
            unhealthy_volumes: Shared::default(),
            vms_by_node: Shared::default(),
            restore_list: BTreeMap::new(),
            facts: Facts::default(),
            trouble: None,
        };
        Self {
            seen,
            now: "2026-03-13T03:57:09Z".parse().unwrap(),
            needs: Vec::new(),
        }
    }

    pub(crate) fn phase(&self) -> Option<Phase> {
        self.seen.plan.phase()
    }

    pub(crate) fn decide(&self) -> Decision {
        decide(self.now, &self.seen)
    }

    /// Carries a decision out, in its order.
    pub(crate) fn apply(&mut self, decision: &Decision) {
        let known = self.seen.plan.metadata.annotations.get_or_insert_default();
        for (key, value) in &decision.annotations {
            match value {
                Some(value) => known.insert(key.clone(), value.clone()),
                None => known.remove(key),
            };
        }
        self.seen.plan.metadata.finalizers = decision.finalizer.then(|| vec![annotations::FINALIZER.to_owned()]);
        self.seen.plan.status = Some(decision.status.clone());
        decision.actions.iter().for_each(|action| self.act(action));
        self.needs.clone_from(&decision.needs);
    }

    fn act(&mut self, action: &Action) {
        let seen = &mut self.seen;
        match action.clone() {
            Action::Create(child) => self.create(child),
            Action::DeleteJob { name, .. } => {
                seen.jobs.remove(&name);
            }
            Action::ResumeJob { name } => {
                if let Some(job) = seen.jobs.get_mut(&name) {
                    job.suspended = false;
                }
            }
            Action::Delete {
                kind,
                component,
                job_type,
            } => match kind {
                ChildKind::Image => seen.iso_image = None,
                ChildKind::Deployment => seen.repo.deployment_ready = None,
                ChildKind::Service => seen.repo.service_ready = None,
                ChildKind::SucPlan => {
                    seen.suc_plans.remove(&component);
                    seen.jobs.retain(|_, job| job.component != component);
                }
                ChildKind::Job => seen
                    .jobs
                    .retain(|_, job| job.component != component || job.job_type != job_type),
            },
            Action::AnnotateNode { node, annotations } => {
                let Some(node) = seen.nodes.get_mut(&node) else { return };
                for (key, value) in annotations {
                    match key.as_str() {
                        annotations::PENDING_OS_IMAGE => node.pending_os_image = value,
                        annotations::BOOT_ID_BEFORE_UPGRADE => node.boot_id_before_upgrade = value,
                        other => panic!("nobody knows {other}"),
                    }
                }
            }
            Action::UnlabelNode { node, .. } => {
                if let Some(node) = seen.nodes.get_mut(&node) {
                    node.leftover_labels.clear();
                }
            }
            Action::AnswerHook { secret, hook, token } => {
                let Some(plan) = seen.machine_plans.iter_mut().find(|plan| plan.secret == secret) else {
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
            } => {
                let Some(cluster) = &mut seen.cluster else { return };
                assert_eq!(
                    cluster.provision_generation, from,
                    "bumped from a generation that is gone"
                );
                cluster.provision_generation = to;
                cluster.kubernetes_version = Some(kubernetes_version);
                cluster.upgrade_strategy = Some(json!({"ours": true}));
            }
            Action::RestoreUpgradeStrategy { strategy } => {
                if let Some(cluster) = &mut seen.cluster {
                    cluster.upgrade_strategy = Some(strategy);
                }
            }
            Action::SetReplenishmentInterval { value } => seen.replenishment_interval = Some(value),
            Action::EnableDescheduler { enabled } => seen.descheduler_enabled = Some(enabled),
            Action::SetWorkloadUpdateMethods { methods } => seen.workload_update_methods = Some(methods),
            Action::IgnoreWorkloadUpdateMethods { ignore } => seen.chart_ignores_methods = Some(ignore),
        }
    }

    fn create(&mut self, child: Child) {
        let seen = &mut self.seen;
        let job = |component: &str, step: Option<&str>, node: Option<&str>, suspended: bool| JobSeen {
            namespace: names::HARVESTER_NAMESPACE.to_owned(),
            component: component.to_owned(),
            job_type: step.map(str::to_owned),
            node: node.map(str::to_owned),
            suspended,
            outcome: JobOutcome::Running,
        };
        match child {
            Child::IsoImage { .. } => {
                seen.iso_image = Some(ImageSeen {
                    name: names::iso_image("up"),
                    ours: true,
                    imported: None,
                });
            }
            Child::RepoDeployment { .. } => seen.repo.deployment_ready = Some(false),
            Child::RepoService => seen.repo.service_ready = Some(false),
            Child::SucPlan { component, .. } => {
                for node in seen.nodes.keys() {
                    seen.jobs.insert(
                        format!("apply-{component}-{node}"),
                        job(&component, None, Some(node), false),
                    );
                }
                seen.suc_plans.insert(component, SucPlanSeen::default());
            }
            Child::ClusterJob => {
                seen.jobs.insert(
                    names::cluster_job("up"),
                    job(component::CLUSTER_UPGRADE, None, None, false),
                );
            }
            Child::NodeJob {
                job_type,
                node,
                suspend,
            } => {
                let name = names::node_job("up", &job_type, &node);
                assert!(!seen.jobs.contains_key(&name), "{name} is created twice");
                seen.jobs.insert(
                    name,
                    job(component::NODE_UPGRADE, Some(&job_type), Some(&node), suspend),
                );
            }
            Child::RestoreJob { node } => {
                let name = names::node_job("up", job_type::RESTORE_VM, &node);
                seen.jobs.insert(
                    name,
                    job(component::NODE_UPGRADE, Some(job_type::RESTORE_VM), Some(&node), false),
                );
            }
        }
    }

    /// All things that the outside could do next, by name.
    pub(crate) fn possible(&self) -> Vec<Step> {
        let seen = &self.seen;
        let mut steps: Vec<Step> = self.needs.iter().map(|need| Step::Answer(*need)).collect();
        if seen.iso_image.as_ref().is_some_and(|image| image.imported.is_none()) {
            steps.push(Step::Import);
        }
        if seen.repo.deployment_ready == Some(false) {
            steps.push(Step::DeployRepo);
        } else if seen.repo.deployment_ready == Some(true) && seen.repo.service_ready == Some(false) {
            steps.push(Step::ServeRepo);
        }
        for (name, job) in &seen.jobs {
            if job.outcome == JobOutcome::Running && !job.suspended {
                steps.push(Step::FinishJob(name.clone()));
            }
        }
        steps.extend(self.rancher_step().map(Step::Rancher));
        steps.extend(
            seen.nodes
                .iter()
                .filter(|(name, _)| self.reboots(name))
                .map(|(name, _)| Step::Reboot(name.clone())),
        );
        steps
    }

    /// The node that Rancher is at, or would start with.
    fn rancher_step(&self) -> Option<String> {
        let cluster = self.seen.cluster.as_ref()?;
        if cluster.provision_generation == 0 {
            return None;
        }
        let plans = &self.seen.machine_plans;
        let waits = |plan: &MachinePlanSeen| plan.pre_drain != plan.pre_hook || plan.post_drain != plan.post_hook;
        let at = plans.iter().find(|plan| plan.pre_drain.is_some());
        match at {
            Some(plan) if waits(plan) => None,
            Some(plan) => plan.node.clone(),
            None => plans
                .iter()
                .find(|plan| plan.post_hook.is_none())
                .and_then(|plan| plan.node.clone()),
        }
    }

    fn reboots(&self, node: &str) -> bool {
        let done = |step| {
            let job = self.seen.jobs.get(&names::node_job("up", step, node));
            job.is_some_and(|job| job.outcome == JobOutcome::Complete)
        };
        let installed = done(job_type::POST_DRAIN) || done(job_type::SINGLE_NODE_UPGRADE);
        installed && self.seen.nodes.get(node).is_some_and(|node| node.os_image != OS)
    }

    /// The outside does something.
    pub(crate) fn happen(&mut self, step: &Step) {
        self.now += SignedDuration::from_secs(7);
        let seen = &mut self.seen;
        match step {
            Step::Answer(need) => {
                answer(seen, *need);
                self.needs.retain(|asked| asked != need);
            }
            Step::Import => {
                if let Some(image) = &mut seen.iso_image {
                    image.imported = Some(true);
                }
            }
            Step::DeployRepo => seen.repo.deployment_ready = Some(true),
            Step::ServeRepo => seen.repo.service_ready = Some(true),
            Step::FinishJob(name) => finish_job(seen, name),
            Step::Rancher(node) => rancher(seen, node),
            Step::Reboot(node) => {
                if let Some(node) = seen.nodes.get_mut(node) {
                    node.os_image = OS.into();
                    node.boot_id.push_str("-again");
                }
            }
        }
    }

    /// Nodes on which something that disturbs VMs is under way.
    pub(crate) fn disrupted(&self) -> Vec<&String> {
        let status = self.seen.plan.status.as_ref();
        let nodes = status.into_iter().flat_map(|status| &status.node_upgrade_statuses);
        let disturbing = [
            "PreDraining",
            "PreDrained",
            "PostDraining",
            "WaitingReboot",
            "SingleNodeUpgrading",
        ];
        nodes
            .filter(|(_, node)| node.state.as_deref().is_some_and(|s| disturbing.contains(&s)))
            .map(|(n, _)| n)
            .collect()
    }
}

/// Something that the outside does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Answer(Need),
    Import,
    DeployRepo,
    ServeRepo,
    FinishJob(String),
    Rancher(String),
    Reboot(String),
}

fn answer(seen: &mut Observed, need: Need) {
    let end: Timestamp = "2027-03-13T00:00:00Z".parse().unwrap();
    let kubelet = KubeletFacts {
        capacity_bytes: 1 << 40,
        used_bytes: 1 << 30,
        image_gc_high_threshold_percent: 85.0,
    };
    match need {
        Need::Preflight => {
            seen.facts.preflight = Fetched::Got(PreflightFacts {
                kubelets: seen.nodes.keys().map(|node| (node.clone(), kubelet)).collect(),
                api_servers: vec!["10.0.0.1:6443".into()],
                certificates: [("10.0.0.1:6443".into(), end)].into(),
            });
        }
        Need::Release => {
            seen.facts.release = Fetched::Got(ReleaseMetadata {
                harvester: Some("v1.8.0".into()),
                os: Some(OS.into()),
                kubernetes: Some("v1.35.2+rke2r1".into()),
                min_upgradable_version: Some("v1.7.0".into()),
                ..Default::default()
            });
        }
        Need::NewImages => seen.facts.new_images = Fetched::Got(NewImages::default()),
        Need::ImageLists => {
            let (previous, current) = (Some(vec!["old:1".into()]), Some(vec!["new:1".into()]));
            seen.facts.image_lists = Fetched::Got(ImageLists { previous, current });
        }
    }
}

fn finish_job(seen: &mut Observed, name: &str) {
    let Some(job) = seen.jobs.get_mut(name) else { return };
    job.outcome = JobOutcome::Complete;
    let component = job.component.clone();
    if seen.suc_plans.contains_key(&component) {
        let mut of_plan = seen.jobs.values().filter(|job| job.component == component);
        let complete = of_plan.all(|job| job.outcome == JobOutcome::Complete);
        if let Some(plan) = seen.suc_plans.get_mut(&component) {
            plan.complete = complete;
        }
    }
}

/// Rancher's next move on a node: ask before, ask after, be done.
fn rancher(seen: &mut Observed, node: &str) {
    let Some(plan) = seen
        .machine_plans
        .iter_mut()
        .find(|plan| plan.node.as_deref() == Some(node))
    else {
        return;
    };
    if plan.pre_drain.is_none() {
        plan.pre_drain = Some(format!("{node}-pre"));
    } else if plan.post_drain.is_none() {
        plan.post_drain = Some(format!("{node}-post"));
    } else {
        plan.pre_drain = None;
        plan.post_drain = None;
    }
}
