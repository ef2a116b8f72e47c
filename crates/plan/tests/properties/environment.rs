//! What the outside of a [`Model`] can do next, and what happens when it does.

use api::{
    CheckSummary, JobType, ReleaseDigests, ReleaseMetadata, RepositoryAccess, names, release_digests::NEEDED_FILES,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plan::{
    Need, Observed,
    observed::{
        Before, Fetched, ImageLists, JobOutcome, KeptPods, KubeletFacts, NewImages, ObservedMachinePlan, PreflightFacts,
    },
};

use crate::model::{Model, OS};

impl Model {
    /// All things that the outside could do next, by name.
    pub(crate) fn possible(&self) -> Vec<Step> {
        let observed = &self.observed;
        let mut steps: Vec<Step> = self.needs.iter().map(|need| Step::Answer(*need)).collect();
        if observed
            .iso_image
            .as_ref()
            .is_some_and(|image| image.imported.is_none())
        {
            steps.push(Step::Import);
        }
        if observed.repo.deployment_ready == Some(false) {
            steps.push(Step::DeployRepo);
        } else if observed.repo.deployment_ready == Some(true) && observed.repo.service_ready == Some(false) {
            steps.push(Step::ServeRepo);
        }
        for (name, job) in &observed.jobs {
            if job.outcome == JobOutcome::Running && !job.suspended {
                steps.push(Step::FinishJob(name.clone()));
            }
        }
        steps.extend(self.rancher_step().map(Step::Rancher));
        steps.extend(
            observed
                .nodes
                .iter()
                .filter(|(name, _)| self.reboots(name))
                .map(|(name, _)| Step::Reboot(name.clone())),
        );
        steps
    }

    /// The node that Rancher is at, or would start with.
    fn rancher_step(&self) -> Option<String> {
        let cluster = self.observed.cluster.as_ref()?;
        if cluster.provision_generation == 0 {
            return None;
        }
        let plans = &self.observed.machine_plans;
        let waits = |plan: &ObservedMachinePlan| plan.pre_drain != plan.pre_hook || plan.post_drain != plan.post_hook;
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
            let job = self.observed.jobs.get(&names::node_job("up", step, node));
            job.is_some_and(|job| job.outcome == JobOutcome::Complete)
        };
        let installed = done(JobType::PostDrain) || done(JobType::SingleNodeUpgrade);
        installed && self.observed.nodes.get(node).is_some_and(|node| node.os_image != OS)
    }

    /// The outside does something.
    pub(crate) fn happen(&mut self, step: &Step) {
        self.now += SignedDuration::from_secs(7);
        let observed = &mut self.observed;
        match step {
            Step::Answer(need) => {
                answer(observed, *need, self.now);
                self.needs.retain(|asked| asked != need);
            }
            Step::Import => {
                if let Some(image) = &mut observed.iso_image {
                    image.imported = Some(true);
                }
            }
            Step::DeployRepo => observed.repo.deployment_ready = Some(true),
            Step::ServeRepo => observed.repo.service_ready = Some(true),
            Step::FinishJob(name) => finish_job(observed, name),
            Step::Rancher(node) => rancher(observed, node),
            Step::Reboot(node) => {
                if let Some(node) = observed.nodes.get_mut(node) {
                    node.os_image = OS.into();
                    node.boot_id.push_str("-again");
                }
            }
        }
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

fn answer(observed: &mut Observed, need: Need, now: Timestamp) {
    let end: Timestamp = "2027-03-13T00:00:00Z".parse().unwrap();
    let kubelet = KubeletFacts {
        capacity_bytes: 1 << 40,
        used_bytes: 1 << 30,
        image_gc_high_threshold_percent: 85.0,
    };
    match need {
        Need::Preflight => {
            observed.facts.preflight = Fetched::Got(PreflightFacts {
                kubelets: observed.nodes.keys().map(|node| (node.clone(), kubelet)).collect(),
                api_servers: vec!["10.0.0.1:6443".into()],
                certificates: [("10.0.0.1:6443".into(), end)].into(),
                v1_upgrades: Vec::new(),
            });
        }
        Need::Before => {
            observed.facts.before = Fetched::Got(Before {
                preflight: CheckSummary {
                    at: Time(now),
                    errors: 0,
                    not_checked: None,
                    warnings: 0,
                    findings: Vec::new(),
                },
                not_stored: None,
            });
        }
        Need::Release => {
            observed.facts.release = Fetched::Got(ReleaseMetadata {
                harvester: Some("v1.8.0".into()),
                os: Some(OS.into()),
                kubernetes: Some("v1.35.2+rke2r1".into()),
                min_upgradable_version: Some("v1.7.0".into()),
                ..Default::default()
            });
        }
        Need::Manifest => {
            observed.facts.digests = Fetched::Got(ReleaseDigests {
                manifest: "ab".repeat(32),
                iso_sha512: "cd".repeat(64),
                iso_size: 7 << 30,
                files: NEEDED_FILES.map(|path| (path.to_owned(), "ef".repeat(32))).into(),
                ..Default::default()
            });
        }
        Need::RepoCertificate => {
            // Each is another one.
            let certificate = format!("certificate of {now}");
            observed.facts.repo_certificate = Fetched::Got(RepositoryAccess {
                secret: names::repo_secret("up", &certificate),
                certificate,
                in_use: false,
            });
        }
        Need::NewImages => observed.facts.new_images = Fetched::Got(NewImages::default()),
        Need::KeptPods => {
            observed.facts.kept_pods = Fetched::Got(KeptPods {
                at: now,
                ..KeptPods::default()
            });
        }
        Need::ImageLists => {
            let (previous, current) = (Some(vec!["old:1".into()]), Some(vec!["new:1".into()]));
            observed.facts.image_lists = Fetched::Got(ImageLists { previous, current });
        }
    }
}

fn finish_job(observed: &mut Observed, name: &str) {
    let Some(job) = observed.jobs.get_mut(name) else { return };
    job.outcome = JobOutcome::Complete;
    let component = job.component;
    if observed.suc_plans.contains_key(&component) {
        let mut of_plan = observed.jobs.values().filter(|job| job.component == component);
        let complete = of_plan.all(|job| job.outcome == JobOutcome::Complete);
        if let Some(plan) = observed.suc_plans.get_mut(&component) {
            plan.complete = complete;
        }
    }
}

/// Rancher's next move on a node: ask before, ask after, be done.
fn rancher(observed: &mut Observed, node: &str) {
    let Some(plan) = observed
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
