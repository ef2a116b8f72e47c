//! Charts: bundles that Fleet does not get ready, Helm releases that hang, charts that stay paused.

use std::collections::BTreeMap;

use api::{
    Phase, ProgramWait, Wait,
    foreign::{fleet::Bundle, rancher::ManagedChart},
    names,
};
use jiff::{SignedDuration, Timestamp};
use rules::fleet::{bundle_lacks, chart_lacks};
use snapshot::SecretSummary;

use super::{
    Leads, Patient, Situation,
    found::{MOST, More, error, name, namespace, warning},
    patient::{condition, condition_since, phase_since, waits_since},
};
use crate::finding::{Finding, Missing, ObjectRef, needed};

/// The charts of a cluster are upgraded within this time.
const CHARTS: SignedDuration = SignedDuration::from_mins(20);
/// Fleet gets a bundle ready within this time.
const BUNDLE: SignedDuration = SignedDuration::from_mins(10);
/// Helm ends within this time: Fleet's own limit is ten minutes.
const HELM: SignedDuration = SignedDuration::from_mins(10);

/// A bundle that is not ready.
pub(super) const D15: Situation = Situation {
    id: "D15",
    symptom: "The plan stays in ClusterUpgrading for more than 20 minutes",
    cause: "Fleet does not get a bundle ready",
    remedy: "Repair what the message names. Then make Fleet apply the bundle again by a new forceSyncGeneration.",
    leads: &[
        Leads::Plan(Wait::ManagedChart),
        Leads::Plan(Wait::ClusterUpgradeJob),
        Leads::Program(ProgramWait::ManagedChart),
        Leads::Program(ProgramWait::Bundle),
        Leads::Program(ProgramWait::FleetBundle),
    ],
    look: bundle,
};

/// A release that hangs.
pub(super) const D16: Situation = Situation {
    id: "D16",
    symptom: "The plan stays in ClusterUpgrading for more than 20 minutes",
    cause: "The newest revision of a Helm release is pending: a helm command was killed",
    remedy: "Roll the release back, or delete the Secret of the pending revision.",
    leads: &[
        Leads::Program(ProgramWait::HelmRelease),
        Leads::Program(ProgramWait::Bundle),
        Leads::Program(ProgramWait::ManagedChart),
        Leads::Plan(Wait::ManagedChart),
        Leads::Plan(Wait::ClusterUpgradeJob),
    ],
    look: pending_release,
};

/// A chart that stays paused.
pub(super) const D45B: Situation = Situation {
    id: "D45b",
    symptom: "Charts do not change any more after an upgrade that was aborted",
    cause: "A ManagedChart is still paused, and no upgrade runs",
    remedy: "Resume the ManagedChart.",
    leads: &[Leads::Plan(Wait::PutBack)],
    look: paused_chart,
};

fn bundle(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let phases = [
        Phase::ImagePreloaded,
        Phase::ClusterUpgrading,
        Phase::ClusterUpgraded,
        Phase::NodeUpgrading,
    ];
    let Some(plan) = patient.active_in(&phases)? else {
        return Ok(Vec::new());
    };
    let in_phase = phase_since(plan).filter(|_| plan.phase() != Some(Phase::NodeUpgrading));
    let charts = needed(&patient.snapshot.managed_charts, "managedcharts.management.cattle.io")?;
    let bundles = needed(&patient.snapshot.bundles, "bundles.fleet.cattle.io")?;
    let waits = [
        Wait::ManagedChart.as_str(),
        ProgramWait::Bundle.as_str(),
        ProgramWait::FleetBundle.as_str(),
    ];
    let said = |object: &ObjectRef| {
        let object = object.to_string();
        waits.iter().find_map(|wait| waits_since(plan, wait, Some(&object)))
    };
    let mut findings = Vec::new();
    for bundle in bundles {
        let Some(why) = bundle_lacks(bundle) else {
            continue;
        };
        let object = ObjectRef::of(bundle);
        let unready = condition(bundle.status.conditions.as_ref(), "Ready", "False");
        let since = unready.and_then(condition_since);
        let is_long = patient.is_past(said(&object), BUNDLE)
            || (patient.is_past(in_phase, CHARTS) && (since.is_none() || patient.is_past(since, BUNDLE)));
        if is_long && findings.len() < MOST {
            findings.push(unready_bundle(bundle, &object, &why).since(said(&object).or(since).or(in_phase)));
        }
    }
    for chart in charts.iter().filter(|chart| !is_paused(chart)) {
        let Some(why) = chart_lacks(chart) else {
            continue;
        };
        let object = ObjectRef::of(chart);
        let unready = condition(chart.status.conditions.as_ref(), "Ready", "False");
        let since = unready.and_then(condition_since);
        let is_known = bundles
            .iter()
            .any(|bundle| name(bundle).strip_prefix("mcc-") == Some(name(chart)) && bundle_lacks(bundle).is_some());
        let is_long = patient.is_past(said(&object), BUNDLE)
            || (patient.is_past(in_phase, CHARTS) && (since.is_none() || patient.is_past(since, BUNDLE)));
        if is_long && !is_known && findings.len() < MOST {
            let message = format!("ManagedChart {} is not ready: {why}", name(chart));
            let finding = error(object.clone(), message)
                .since(said(&object).or(since).or(in_phase))
                .command(
                    "kubectl -n fleet-local get managedcharts.management.cattle.io {} -o yaml",
                    &[name(chart)],
                )
                .command(
                    "kubectl -n fleet-local get bundles.fleet.cattle.io mcc-{}",
                    &[name(chart)],
                );
            findings.push(finding);
        }
    }
    Ok(findings)
}

fn unready_bundle(bundle: &Bundle, object: &ObjectRef, why: &str) -> Finding {
    let display = bundle
        .status
        .other
        .get("display")
        .and_then(|display| display.get("state")?.as_str());
    let state = display.map(|state| format!(" ({})", api::quoted::plain(state, api::quoted::LONGEST_NAME)));
    let message = format!(
        "Bundle {} is not ready{}: {why}",
        name(bundle),
        state.unwrap_or_default()
    );
    let generation = bundle.metadata.generation.unwrap_or(0) + 1;
    let patch = format!(
        r#"kubectl -n {{}} patch bundles.fleet.cattle.io {{}} --type merge -p '{{"spec":{{"forceSyncGeneration":{generation}}}}}'"#
    );
    error(object.clone(), message)
        .command(
            "kubectl -n {} get bundles.fleet.cattle.io {} -o yaml",
            &[namespace(bundle), name(bundle)],
        )
        .command(&patch, &[namespace(bundle), name(bundle)])
}

/// When a release was changed last: Helm's label has seconds.
fn modified(release: &SecretSummary) -> Option<Timestamp> {
    let label = release.label("modifiedAt").and_then(|seconds| seconds.parse().ok());
    let labelled = label.and_then(|seconds| Timestamp::from_second(seconds).ok());
    labelled.or_else(|| release.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

fn pending_release(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    if patient.subject()?.is_none() {
        return Ok(Vec::new());
    }
    let releases = needed(&patient.snapshot.helm_releases, "Helm's secrets")?;
    let mut newest: BTreeMap<(&str, &str), (i64, &SecretSummary)> = BTreeMap::new();
    for release in releases {
        let namespace = release.metadata.namespace.as_deref().unwrap_or_default();
        let revision = release
            .label("version")
            .and_then(|revision| revision.parse().ok())
            .unwrap_or(0);
        let entry = newest
            .entry((namespace, release.label("name").unwrap_or_default()))
            .or_insert((revision, release));
        if revision > entry.0 {
            *entry = (revision, release);
        }
    }
    let mut findings = Vec::new();
    for ((namespace, chart), (revision, release)) in newest {
        let status = release.label("status").unwrap_or_default();
        let since = modified(release);
        if !status.starts_with("pending-") || !patient.is_past(since, HELM) || findings.len() == MOST {
            continue;
        }
        let secret = release.metadata.name.as_deref().unwrap_or_default();
        let message = format!(
            "Revision {revision} of Helm release {namespace}/{chart} is {}",
            api::quoted::quoted(status)
        );
        findings.push(
            error(ObjectRef::new("Secret", Some(namespace), secret), message)
                .since(since)
                .command("helm -n {} history {}", &[namespace, chart])
                .command("helm -n {} rollback {}", &[namespace, chart]),
        );
    }
    Ok(findings)
}

fn is_paused(chart: &ManagedChart) -> bool {
    chart.spec.paused == Some(true)
}

fn paused_chart(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let is_cleaned = |plan: &api::UpgradePlan| {
        let finalizers = plan.metadata.finalizers.iter().flatten();
        !finalizers
            .into_iter()
            .any(|finalizer| finalizer == api::annotations::FINALIZER)
    };
    // One that is not cleaned up yet resumes them itself.
    let plans = needed(&patient.snapshot.plans, "upgradeplans")?;
    if patient.active()?.is_some()
        || !plans
            .iter()
            .all(|plan| plan.phase() != Some(Phase::Failed) || is_cleaned(plan))
    {
        return Ok(Vec::new());
    }
    let v1 = patient.snapshot.v1_upgrades.as_deref().unwrap_or_default();
    if v1
        .iter()
        .any(|upgrade| condition(upgrade.status.conditions.as_ref(), "Completed", "Unknown").is_some())
    {
        return Ok(Vec::new());
    }
    let charts = needed(&patient.snapshot.managed_charts, "managedcharts.management.cattle.io")?;
    let paused = charts
        .iter()
        .filter(|chart| is_paused(chart) && names::MANAGED_CHARTS.contains(&name(*chart)));
    let found = paused.map(|chart| {
        let patch = r#"kubectl -n fleet-local patch managedcharts.management.cattle.io {} --type merge -p '{"spec":{"paused":false}}'"#;
        warning(
            ObjectRef::of(chart),
            format!("ManagedChart {} is paused, and no upgrade runs", name(chart)),
        )
        .command(patch, &[name(chart)])
    });
    Ok(found.collect())
}
