//! Workloads that do not start or do not roll out, and webhooks that block the API.

use std::collections::{BTreeSet, HashMap};

use api::{Phase, ProgramWait, Wait, labels, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    admissionregistration::v1::WebhookClientConfig, apps::v1::Deployment, core::v1::Pod, discovery::v1::EndpointSlice,
};

use super::{
    Leads, Patient, Situation,
    found::{MOST, More, created, error, found, label, name, namespace},
    migration::unscheduled,
};
use crate::finding::{Finding, Missing, ObjectRef, Severity, all_known, needed};

/// A pod starts within this time.
const START: SignedDuration = SignedDuration::from_mins(2);
/// A Deployment is available again within this time.
const ROLLOUT: SignedDuration = SignedDuration::from_mins(10);
/// The pods of a webhook are ready again within this time.
const WEBHOOK: SignedDuration = SignedDuration::from_mins(5);

/// Why a container does not start.
const CANNOT_START: [&str; 6] = [
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
];

/// A Job's pod.
pub(super) const D17: Situation = Situation {
    id: "D17",
    symptom: "A Job of the upgrade does not begin",
    cause: "Its pod cannot start: the image, its configuration, or no node takes it",
    remedy: "Load or repair the image, or free the node that the pod needs.",
    leads: &[
        Leads::Plan(Wait::Pod),
        Leads::Plan(Wait::ToolkitImage),
        Leads::Plan(Wait::ClusterUpgradeJob),
        Leads::Plan(Wait::PreDrainJob),
        Leads::Plan(Wait::PostDrainJob),
        Leads::Plan(Wait::SingleNodeJob),
        Leads::Plan(Wait::ImagePreload),
        Leads::Plan(Wait::ImageCleanup),
    ],
    look: cannot_start,
};

/// Rancher.
pub(super) const D18: Situation = Situation {
    id: "D18",
    symptom: "The plan stays in ClusterUpgrading for more than 20 minutes",
    cause: "Rancher, its webhook or Cluster API's controller is not rolled out",
    remedy: "Read the logs of its pods, and restart the Deployment.",
    leads: &[
        Leads::Program(ProgramWait::Rollout),
        Leads::Program(ProgramWait::RancherVersion),
        Leads::Program(ProgramWait::CapiCluster),
        Leads::Plan(Wait::ClusterUpgradeJob),
    ],
    look: rancher,
};

/// A webhook.
pub(super) const D19: Situation = Situation {
    id: "D19",
    symptom: "Writes to the API fail with `failed calling webhook`",
    cause: "A webhook that must answer has no ready endpoint",
    remedy: "Restart the Deployment behind the webhook.",
    leads: &[
        Leads::Program(ProgramWait::Retry),
        Leads::Plan(Wait::ClusterUpgradeJob),
        Leads::Plan(Wait::Setting),
    ],
    look: webhook,
};

/// What keeps a pod from starting, in words of the kubelet or the scheduler.
pub(super) fn why_not_started(patient: &Patient<'_>, pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = [&status.init_container_statuses, &status.container_statuses];
    let mut waiting = containers
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|container| container.state.as_ref()?.waiting.as_ref());
    let stuck = waiting.find(|waiting| CANNOT_START.contains(&waiting.reason.as_deref().unwrap_or_default()));
    if let Some(stuck) = stuck {
        let reason = stuck.reason.as_deref().unwrap_or_default();
        let message = stuck.message.as_deref().unwrap_or_default();
        return Some(api::quoted::quoted(format!("{reason} {message}").trim()));
    }
    unscheduled(patient, pod)
}

fn cannot_start(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.subject()? else {
        return Ok(Vec::new());
    };
    let of_jobs = patient.pods()?.iter().filter(|pod| {
        label(*pod, labels::UPGRADE_PLAN) == Some(name(plan))
            && label(*pod, labels::UPGRADE_COMPONENT) != Some(api::Component::Repo.as_str())
            && !api::pod::has_ended(pod)
    });
    let mut findings = Vec::new();
    for pod in of_jobs.filter(|pod| patient.is_past(created(*pod), START)) {
        let Some(why) = why_not_started(patient, pod) else {
            continue;
        };
        if findings.len() == MOST {
            break;
        }
        let message = format!("Pod {} of the upgrade cannot start: {why}", name(pod));
        let finding = error(ObjectRef::of(pod), message)
            .since(created(pod))
            .command("kubectl -n {} describe pod {}", &[namespace(pod), name(pod)]);
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        findings.push(match node {
            Some(node) => finding.also(super::found::node_ref(node)),
            None => finding,
        });
    }
    Ok(findings)
}

/// Since when a Deployment is not as it should be, and why.
pub(super) fn not_rolled_out(deployment: &Deployment) -> Option<(String, Option<Timestamp>)> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    let is_bad = |type_: &str| {
        conditions
            .iter()
            .find(|condition| condition.type_ == type_ && condition.status == "False")
    };
    let condition = is_bad("Available").or_else(|| is_bad("Progressing"))?;
    let said = condition.message.as_deref().or(condition.reason.as_deref());
    let since = condition.last_transition_time.as_ref().map(|time| time.0);
    Some((api::quoted::quoted(said.unwrap_or("no reason given")), since))
}

fn rancher(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    const WATCHED: [(&str, &str); 4] = [
        (names::CATTLE_NAMESPACE, "rancher"),
        (names::CATTLE_NAMESPACE, "rancher-webhook"),
        ("cattle-capi-system", "capi-controller-manager"),
        ("cattle-provisioning-capi-system", "capi-controller-manager"),
    ];
    if patient
        .active()?
        .is_none_or(|plan| plan.phase().is_none_or(|phase| phase < Phase::ClusterUpgrading))
    {
        return Ok(Vec::new());
    }
    let deployments = needed(&patient.snapshot.deployments, "deployments")?;
    let watched = deployments
        .iter()
        .filter(|deployment| WATCHED.contains(&(namespace(*deployment), name(*deployment))));
    let found = watched.filter_map(|deployment| {
        let (why, since) = not_rolled_out(deployment)?;
        patient.is_past(since, ROLLOUT).then(|| {
            let message = format!("Deployment {} is not rolled out: {why}", name(deployment));
            let arguments = [namespace(deployment), name(deployment)];
            error(ObjectRef::of(deployment), message)
                .since(since)
                .command("kubectl -n {} logs deployment/{} --tail=50", &arguments)
                .command("kubectl -n {} rollout restart deployment/{}", &arguments)
        })
    });
    Ok(found.collect())
}

/// The Services with at least one ready endpoint, and those with one that is not: since when its pod is not.
struct Endpoints<'a> {
    slices: HashMap<(&'a str, &'a str), Vec<&'a EndpointSlice>>,
}

impl<'a> Endpoints<'a> {
    fn of(slices: &'a [EndpointSlice]) -> Self {
        let mut by_service: HashMap<(&str, &str), Vec<&EndpointSlice>> = HashMap::new();
        for slice in slices {
            if let Some(service) = label(slice, labels::SERVICE_NAME) {
                by_service.entry((namespace(slice), service)).or_default().push(slice);
            }
        }
        Self { slices: by_service }
    }

    fn has_ready(&self, service: (&str, &str)) -> bool {
        self.slices
            .get(&service)
            .into_iter()
            .flatten()
            .any(|slice| has_ready(slice))
    }

    /// The pods behind a Service.
    fn pods(&self, service: (&str, &str)) -> Vec<&'a str> {
        let endpoints = self
            .slices
            .get(&service)
            .into_iter()
            .flatten()
            .flat_map(|slice| &slice.endpoints);
        let targets = endpoints.filter_map(|endpoint| endpoint.target_ref.as_ref()?.name.as_deref());
        targets.collect()
    }
}

/// An endpoint of the slice is ready. One that does not say is.
pub(super) fn has_ready(slice: &EndpointSlice) -> bool {
    slice.endpoints.iter().any(|endpoint| {
        endpoint
            .conditions
            .as_ref()
            .is_none_or(|conditions| conditions.ready != Some(false))
    })
}

fn webhook(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    // While a node is down, webhooks may be down with it.
    let is_running = patient.active()?.is_some();
    if !patient.all_nodes_ready()? {
        return Ok(Vec::new());
    }
    let endpoints = Endpoints::of(needed(&patient.snapshot.endpoint_slices, "endpointslices")?);
    let validating = needed(&patient.snapshot.validating_webhooks, "validatingwebhookconfigurations")?;
    let mutating = needed(&patient.snapshot.mutating_webhooks, "mutatingwebhookconfigurations")?;
    let must_answer = |policy: Option<&String>| policy.is_none_or(|policy| policy == "Fail");
    let mut services: Vec<(ObjectRef, &WebhookClientConfig)> = Vec::new();
    for configuration in validating {
        let hooks = configuration.webhooks.iter().flatten();
        let hooks = hooks.filter(|hook| must_answer(hook.failure_policy.as_ref()));
        services.extend(hooks.map(|hook| (ObjectRef::of(configuration), &hook.client_config)));
    }
    for configuration in mutating {
        let hooks = configuration.webhooks.iter().flatten();
        let hooks = hooks.filter(|hook| must_answer(hook.failure_policy.as_ref()));
        services.extend(hooks.map(|hook| (ObjectRef::of(configuration), &hook.client_config)));
    }
    let mut seen: Vec<(&str, &str)> = Vec::new();
    let (mut findings, mut unknown) = (Vec::new(), BTreeSet::new());
    for (configuration, config) in services {
        let Some(service) = config.service.as_ref() else {
            continue;
        };
        let key = (service.namespace.as_str(), service.name.as_str());
        if seen.contains(&key) || endpoints.has_ready(key) {
            continue;
        }
        seen.push(key);
        if !patient.snapshot.knows_namespace(key.0) {
            unknown.insert(key.0.to_owned());
            continue;
        }
        let since = unready_since(patient, key.0, &endpoints.pods(key))?;
        if since.is_some() && !patient.is_past(since, WEBHOOK) {
            continue;
        }
        let severity = if is_running { Severity::Error } else { Severity::Warning };
        let message = format!(
            "Service {}/{} of a webhook has no ready endpoint, so that writes fail",
            key.0, key.1
        );
        findings.push(
            found(severity, configuration, message)
                .also(ObjectRef::new("Service", Some(key.0), key.1))
                .since(since)
                .command("kubectl -n {} get pods,endpointslices", &[key.0])
                .command("kubectl -n {} rollout restart deployment", &[key.0]),
        );
    }
    findings.truncate(MOST);
    all_known(findings, &unknown, "endpointslices")
}

/// Since when the last of these pods is not ready.
fn unready_since(patient: &Patient<'_>, of: &str, pods: &[&str]) -> Result<Option<Timestamp>, Missing> {
    let found = patient
        .pods()?
        .iter()
        .filter(|pod| namespace(*pod) == of && pods.contains(&name(*pod)));
    let since = found.filter_map(|pod| {
        let conditions = pod.status.as_ref()?.conditions.as_ref()?;
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
        Some(ready.last_transition_time.as_ref()?.0)
    });
    Ok(since.max())
}
