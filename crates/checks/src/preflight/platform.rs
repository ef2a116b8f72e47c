//! What runs in the cluster and must answer while it is upgraded: KubeVirt, webhooks, controllers.

use std::collections::BTreeSet;

use api::{foreign::condition_is, labels, names, quoted::quoted};
use k8s_openapi::api::{
    admissionregistration::v1::WebhookClientConfig,
    apps::v1::{DaemonSet, Deployment},
    core::v1::ResourceQuota,
    policy::v1::PodDisruptionBudget,
};
use kube::ResourceExt;
use rules::{migration, quantity::amount};

use super::{
    Found, Question,
    found::{listed, together},
    full_name, missing,
};
use crate::finding::{Missing, ObjectRef, all_known, needed};

/// Deployments without which an upgrade stops: of these, those that exist must be available.
const CONTROLLERS: [(&str, &str); 14] = [
    (names::CATTLE_NAMESPACE, "rancher"),
    (names::CATTLE_NAMESPACE, "rancher-webhook"),
    ("cattle-fleet-system", "fleet-controller"),
    ("cattle-fleet-local-system", "fleet-agent"),
    ("cattle-capi-system", "capi-controller-manager"),
    ("cattle-provisioning-capi-system", "capi-controller-manager"),
    (names::HARVESTER_NAMESPACE, "harvester"),
    (names::HARVESTER_NAMESPACE, "harvester-webhook"),
    (names::HARVESTER_NAMESPACE, "virt-api"),
    (names::HARVESTER_NAMESPACE, "virt-controller"),
    (names::HARVESTER_NAMESPACE, "virt-operator"),
    (names::HARVESTER_NAMESPACE, "cdi-operator"),
    (names::LONGHORN_NAMESPACE, "csi-attacher"),
    (names::LONGHORN_NAMESPACE, "csi-provisioner"),
];
const SUC: &str = "system-upgrade-controller";
/// DaemonSets that every node needs before it is drained.
const AGENTS: [(&str, &str); 4] = [
    (names::HARVESTER_NAMESPACE, "virt-handler"),
    (names::LONGHORN_NAMESPACE, "longhorn-manager"),
    (names::LONGHORN_NAMESPACE, "longhorn-csi-plugin"),
    (names::KUBE_SYSTEM_NAMESPACE, "rke2-canal"),
];
/// From this share of a quota on there is hardly room for what an upgrade creates.
const NEARLY_FULL: f64 = 0.9;

pub(super) fn kubevirt_is_available(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let all = needed(&question.snapshot.kubevirts, "kubevirts")?;
    let found = all.iter().filter_map(|kubevirt| {
        let conditions = kubevirt.status.conditions.as_deref().unwrap_or_default();
        let available = condition_is(conditions, "Available");
        let degraded = condition_is(conditions, "Degraded") == Some(true);
        let phase = kubevirt.status.phase.as_deref().unwrap_or_default();
        if available != Some(false) && !degraded && (phase.is_empty() || phase == "Deployed") {
            return None;
        }
        let why = conditions
            .iter()
            .filter(|condition| matches!(condition.type_.as_str(), "Available" | "Degraded"))
            .find_map(|condition| condition.message.as_deref().filter(|message| !message.is_empty()));
        let why = why.map(|why| format!(": {}", quoted(why))).unwrap_or_default();
        Some(Found::of(
            kubevirt,
            format!("KubeVirt is not available (phase {}){why}", quoted(phase)),
        ))
    });
    Ok(found.collect())
}

fn is_available(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.as_ref();
    wanted == 0 || status.and_then(|status| status.available_replicas).unwrap_or(0) >= 1
}

fn named<'a>(deployments: &'a [Deployment], namespace: &str, name: &str) -> Option<&'a Deployment> {
    deployments.iter().find(|deployment| {
        deployment.metadata.namespace.as_deref() == Some(namespace) && deployment.metadata.name.as_deref() == Some(name)
    })
}

pub(super) fn suc_is_available(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let deployments = needed(&question.snapshot.deployments, "deployments")?;
    let Some(controller) = named(deployments, names::CATTLE_NAMESPACE, SUC) else {
        return Err(missing(
            "deployments",
            &format!("there is no {}/{SUC}", names::CATTLE_NAMESPACE),
        ));
    };
    let wants_none = controller.spec.as_ref().and_then(|spec| spec.replicas) == Some(0);
    if is_available(controller) && !wants_none {
        return Ok(Vec::new());
    }
    let found = Found::of(
        controller,
        format!("{SUC} does not run: no images would be loaded onto nodes"),
    );
    Ok(vec![found.command(format!(
        "kubectl rollout restart deployment/{SUC} -n {}",
        names::CATTLE_NAMESPACE
    ))])
}

pub(super) fn controllers_are_available(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let deployments = needed(&question.snapshot.deployments, "deployments")?;
    let known = CONTROLLERS
        .iter()
        .filter_map(|(namespace, name)| named(deployments, namespace, name));
    let down: Vec<&Deployment> = known.filter(|deployment| !is_available(deployment)).collect();
    Ok(together("controllers are not available", &down))
}

pub(super) fn agents_run_everywhere(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let sets = needed(&question.snapshot.daemon_sets, "daemonsets")?;
    let found = sets.iter().filter_map(|set: &DaemonSet| {
        let place = (set.metadata.namespace.as_deref()?, set.metadata.name.as_deref()?);
        let status = set.status.as_ref()?;
        let (ready, wanted) = (status.number_ready, status.desired_number_scheduled);
        (AGENTS.contains(&place) && ready < wanted)
            .then(|| Found::of(set, format!("{} runs on {ready} of {wanted} nodes", full_name(set))))
    });
    Ok(found.collect())
}

/// Services with an endpoint that is ready.
fn answering<'a>(question: &Question<'a>) -> Result<BTreeSet<(&'a str, &'a str)>, Missing> {
    let slices = needed(&question.snapshot.endpoint_slices, "endpointslices")?;
    let ready = slices.iter().filter(|slice| {
        let mut endpoints = slice.endpoints.iter();
        // Absent means ready.
        endpoints.any(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false))
    });
    Ok(ready
        .filter_map(|slice| {
            let service = slice.labels().get(labels::SERVICE_NAME)?;
            Some((slice.metadata.namespace.as_deref()?, service.as_str()))
        })
        .collect())
}

/// A webhook that must answer and cannot makes the API server refuse what an upgrade writes.
pub(super) fn webhooks_answer(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let validating = needed(
        &question.snapshot.validating_webhooks,
        "validatingwebhookconfigurations",
    )?;
    let mutating = needed(&question.snapshot.mutating_webhooks, "mutatingwebhookconfigurations")?;
    let answering = answering(question)?;
    let knows = |namespace: &str| question.snapshot.knows_namespace(namespace);
    let is_dead = |policy: Option<&str>, client: &WebhookClientConfig| {
        let service = client.service.as_ref();
        policy != Some("Ignore")
            && service.is_some_and(|service| {
                knows(&service.namespace) && !answering.contains(&(service.namespace.as_str(), service.name.as_str()))
            })
    };
    let of_validating = validating.iter().flat_map(|one| one.webhooks.iter().flatten());
    let of_mutating = mutating.iter().flat_map(|one| one.webhooks.iter().flatten());
    let clients = of_validating.map(|hook| &hook.client_config);
    let clients = clients.chain(of_mutating.map(|hook| &hook.client_config));
    let namespaces = clients.filter_map(|client| Some(client.service.as_ref()?.namespace.clone()));
    let unknown: BTreeSet<String> = namespaces.filter(|namespace| !knows(namespace)).collect();
    let mut found = Vec::new();
    for configuration in validating {
        let webhooks = configuration.webhooks.iter().flatten();
        let dead = webhooks.filter(|webhook| is_dead(webhook.failure_policy.as_deref(), &webhook.client_config));
        let dead: Vec<String> = dead.map(|webhook| webhook.name.clone()).collect();
        found.extend(no_endpoint(dead).map(|text| Found::of(configuration, text)));
    }
    for configuration in mutating {
        let webhooks = configuration.webhooks.iter().flatten();
        let dead = webhooks.filter(|webhook| is_dead(webhook.failure_policy.as_deref(), &webhook.client_config));
        let dead: Vec<String> = dead.map(|webhook| webhook.name.clone()).collect();
        found.extend(no_endpoint(dead).map(|text| Found::of(configuration, text)));
    }
    all_known(found, &unknown, "endpointslices")
}

fn no_endpoint(webhooks: Vec<String>) -> Option<String> {
    (!webhooks.is_empty()).then(|| {
        format!(
            "no endpoint is ready for webhooks that must answer: {}",
            listed(webhooks)
        )
    })
}

/// Budgets of Longhorn and of VMs are handled during a drain; others end a drain's progress.
pub(super) fn budgets_allow_drains(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let budgets = needed(&question.snapshot.budgets, "poddisruptionbudgets")?;
    if migration::hosts(needed(&question.snapshot.nodes, "nodes")?).len() < 2 {
        return Ok(Vec::new());
    }
    let blocking: Vec<&PodDisruptionBudget> = budgets
        .iter()
        .filter(|budget| budget.metadata.namespace.as_deref() != Some(names::LONGHORN_NAMESPACE))
        .filter(|budget| {
            let mut owners = budget.metadata.owner_references.iter().flatten();
            !owners.any(|owner| owner.kind.starts_with("VirtualMachineInstance"))
                && !budget.name_any().starts_with("kubevirt-")
        })
        .filter(|budget| {
            let status = budget.status.as_ref();
            status.is_some_and(|status| status.disruptions_allowed == 0 && status.expected_pods > 0)
        })
        .collect();
    Ok(together(
        "disruption budgets allow no eviction, so drains would wait",
        &blocking,
    ))
}

pub(super) fn quotas_have_room(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let quotas = needed(&question.snapshot.quotas, "resourcequotas")?;
    let ours = [names::HARVESTER_NAMESPACE, names::CATTLE_NAMESPACE];
    let found = quotas.iter().filter_map(|quota: &ResourceQuota| {
        let namespace = quota.metadata.namespace.as_deref().unwrap_or_default();
        let status = quota.status.as_ref()?;
        let used = status.used.as_ref()?;
        let full: Vec<String> = status
            .hard
            .iter()
            .flatten()
            .filter_map(|(resource, hard)| {
                let (used, all) = (used.get(resource)?, amount(hard)?);
                (amount(used)? >= all * NEARLY_FULL).then(|| format!("{resource} {} of {}", used.0, hard.0))
            })
            .collect();
        (ours.contains(&namespace) && !full.is_empty()).then(|| {
            Found::of(
                quota,
                format!("quota {} is nearly used up: {}", full_name(quota), full.join(", ")),
            )
        })
    });
    Ok(found.collect())
}

/// The pod of a claim waits for its volume: what an upgrade starts on that node would wait as well.
pub(super) fn claims_are_bound(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let claims = needed(&question.snapshot.claims, "persistentvolumeclaims")?;
    let system = |namespace: &str| namespace.starts_with("cattle-") || namespace.ends_with("-system");
    let unbound = claims.iter().filter(|claim| {
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Pending" | "Lost")) && system(claim.metadata.namespace.as_deref().unwrap_or_default())
    });
    let objects: Vec<_> = unbound.collect();
    let refs: Vec<ObjectRef> = objects.iter().map(|claim| ObjectRef::of(*claim)).collect();
    if refs.is_empty() {
        return Ok(Vec::new());
    }
    let names = objects.iter().map(|claim| full_name(*claim)).collect();
    Ok(vec![
        Found::new(format!("claims of the system have no volume: {}", listed(names))).about(refs),
    ])
}
