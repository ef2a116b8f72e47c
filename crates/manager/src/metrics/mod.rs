//! The metrics of the manager.
//!
//! Gauges are read off the plans at every scrape, so they are never behind; counters and histograms count what this
//! process saw happen. Names, meanings and labels are in [`Metrics::new`] and nowhere else.

pub mod layer;
mod plan_metrics;
pub mod server;
mod vms;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use api::UpgradePlan;
use jiff::Timestamp;
use kube::ResourceExt;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder, core::Collector,
};

use crate::watched::Watched;

use plan_metrics::PlanMetrics;

/// How long phases and nodes take: from seconds to a day.
const BUCKETS: [f64; 12] = [
    1.0, 10.0, 60.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0,
];

/// All metrics. Clones are the same.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    phase: IntGaugeVec,
    node_state: IntGaugeVec,
    waiting: GaugeVec,
    stalled: IntGaugeVec,
    insight: IntGaugeVec,
    leading: IntGauge,
    certificate_ends: IntGauge,
    phase_seconds: HistogramVec,
    node_seconds: Histogram,
    plan_writes: IntCounterVec,
    requests: IntCounterVec,
    migrated: IntCounter,
    shut_down: IntCounter,
    restored: IntCounter,
    observed: Mutex<Seen>,
}

/// What was counted already.
#[derive(Default)]
struct Seen {
    /// By uid of a plan: how much of its history, and which of its nodes.
    plans: Option<BTreeMap<String, Counted>>,
    /// Where VMs were, and the change count of that time.
    vms: Option<(u64, BTreeMap<String, String>)>,
}

#[derive(Default)]
struct Counted {
    changes: usize,
    nodes: BTreeSet<String>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    made: Result<C, prometheus::Error>,
) -> Result<C, prometheus::Error> {
    let collector = made?;
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

impl Metrics {
    /// All metrics, at nothing.
    ///
    /// # Errors
    /// Never: names are constants.
    pub fn new(version: &str) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let r = &registry;
        let opts = |name: &str, help: &str| Opts::new(format!("upgrade_toolkit_{name}"), help);
        let gauges =
            |name: &str, help: &str, labels: &[&str]| registered(r, IntGaugeVec::new(opts(name, help), labels));
        let counter = |name: &str, help: &str| registered(r, IntCounter::with_opts(opts(name, help)));
        let counters =
            |name: &str, help: &str, labels: &[&str]| registered(r, IntCounterVec::new(opts(name, help), labels));
        let histogram = |name: &str, help: &str| {
            HistogramOpts::new(format!("upgrade_toolkit_{name}"), help).buckets(BUCKETS.to_vec())
        };
        gauges("build_info", "Always 1; the labels say what runs.", &["version"])?
            .with_label_values(&[version])
            .set(1);
        let inner = Inner {
            phase: gauges(
                "plan_phase",
                "Always 1, for the phase that a plan is in.",
                &["plan", "phase"],
            )?,
            node_state: gauges(
                "node_state",
                "Always 1, for the state that a node of a plan is in.",
                &["plan", "node", "state"],
            )?,
            waiting: registered(
                r,
                GaugeVec::new(
                    opts("waiting_seconds", "How long a plan has been waiting."),
                    &["plan", "what", "object"],
                ),
            )?,
            stalled: gauges(
                "plan_stalled",
                "Whether something that a plan waits for is past its deadline.",
                &["plan"],
            )?,
            insight: registered(
                r,
                IntGaugeVec::new(
                    Opts::new(
                        "upgrade_insight",
                        "Always 1, for a known situation that explains why a plan is stalled.",
                    ),
                    &["plan", "id", "severity"],
                ),
            )?,
            leading: registered(
                r,
                IntGauge::with_opts(opts("leader", "Whether this manager is the leader.")),
            )?,
            certificate_ends: registered(
                r,
                IntGauge::with_opts(opts(
                    "webhook_certificate_expiry_timestamp_seconds",
                    "When the certificate of the webhooks ends; 0 when there is none.",
                )),
            )?,
            phase_seconds: registered(
                r,
                HistogramVec::new(
                    histogram("phase_duration_seconds", "How long a phase took."),
                    &["phase"],
                ),
            )?,
            node_seconds: registered(
                r,
                Histogram::with_opts(histogram(
                    "node_duration_seconds",
                    "How long the upgrade of a node took.",
                )),
            )?,
            plan_writes: counters("plan_writes_total", "Writes to plans, by how they ended.", &["result"])?,
            requests: counters("api_requests_total", "Requests to the API server.", &["verb", "code"])?,
            migrated: counter(
                "vms_migrated_total",
                "VMs that left a node under upgrade for another one.",
            )?,
            shut_down: counter("vms_shut_down_total", "VMs that ended on a node under upgrade.")?,
            restored: counter(
                "vms_restored_total",
                "VMs that run again after they were shut down for the upgrade.",
            )?,
            observed: Mutex::default(),
            registry,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// A plan was written, or not.
    pub fn plan_written<T>(&self, result: &Result<T, kube::Error>) {
        let word = match result {
            Ok(_) => "ok",
            Err(kube::Error::Api(status)) if status.code == 409 => "conflict",
            Err(_) => "error",
        };
        self.0.plan_writes.with_label_values(&[word]).inc();
    }

    /// A request was answered.
    pub fn requested(&self, verb: &str, code: &str) {
        self.0.requests.with_label_values(&[verb, code]).inc();
    }

    /// This manager works, or no longer.
    pub fn leads(&self, leading: bool) {
        self.0.leading.set(leading.into());
    }

    /// The webhooks present a certificate that ends then.
    pub fn certificate(&self, ends: Timestamp) {
        self.0.certificate_ends.set(ends.as_second());
    }

    /// Counts what has happened since the last look. What a manager finds when it starts was counted by another one.
    pub fn look(&self, plans: &[Arc<UpgradePlan>], watched: &Watched) {
        let mut observed = self.0.observed.lock().unwrap_or_else(PoisonError::into_inner);
        let first = observed.plans.is_none();
        let counted = observed.plans.get_or_insert_default();
        counted.retain(|uid, _| plans.iter().any(|plan| plan.uid().as_deref() == Some(uid)));
        for plan in plans {
            let known = counted.entry(plan.uid().unwrap_or_default()).or_default();
            for (phase, seconds) in plan_metrics::phases_since(plan, &mut known.changes) {
                if !first {
                    self.0.phase_seconds.with_label_values(&[&phase]).observe(seconds);
                }
            }
            for seconds in plan_metrics::nodes_since(plan, &mut known.nodes) {
                if !first {
                    self.0.node_seconds.observe(seconds);
                }
            }
        }
        let revision = watched.instances.revision();
        if observed.vms.as_ref().is_some_and(|(at, _)| *at == revision) {
            return;
        }
        let now = vms::places(&watched.instances.list());
        if let Some((_, before)) = &observed.vms {
            let moves = vms::moves(before, &now, &vms::under_upgrade(plans), &vms::listed(watched));
            self.0.migrated.inc_by(moves.migrated);
            self.0.shut_down.inc_by(moves.shut_down);
            self.0.restored.inc_by(moves.restored);
        }
        observed.vms = Some((revision, now));
    }

    /// Everything, as text.
    ///
    /// # Errors
    /// Never: all metrics have names.
    pub fn render(&self, plans: &[Arc<UpgradePlan>], now: Timestamp) -> Result<String, prometheus::Error> {
        let inner = &*self.0;
        inner.phase.reset();
        inner.node_state.reset();
        inner.waiting.reset();
        inner.stalled.reset();
        inner.insight.reset();
        for plan in plans {
            let PlanMetrics {
                name,
                phase,
                nodes,
                waiting,
                stalled,
                insights,
            } = PlanMetrics::of(plan, now);
            inner.phase.with_label_values(&[&name, &phase]).set(1);
            inner.stalled.with_label_values(&[&name]).set(stalled.into());
            for (id, severity) in insights {
                inner.insight.with_label_values(&[&name, &id, &severity]).set(1);
            }
            for (node, state) in nodes {
                inner.node_state.with_label_values(&[&name, &node, &state]).set(1);
            }
            for (what, object, seconds) in waiting {
                inner.waiting.with_label_values(&[&name, &what, &object]).set(seconds);
            }
        }
        TextEncoder::new().encode_to_string(&inner.registry.gather())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(status: &serde_json::Value) -> Arc<UpgradePlan> {
        let plan = json!({"metadata": {"name": "up", "uid": "u"}, "spec": {"version": "v1.8.0"}, "status": status});
        Arc::new(serde_json::from_value(plan).unwrap())
    }

    fn change(phase: &str, at: &str) -> serde_json::Value {
        json!({"phase": phase, "phaseTransitionTimestamp": at})
    }

    fn text(metrics: &Metrics, plans: &[Arc<UpgradePlan>]) -> String {
        metrics.render(plans, "2026-03-13T04:00:00Z".parse().unwrap()).unwrap()
    }

    #[test]
    fn a_scrape_shows_phase_nodes_and_waits_and_forgets_what_was() {
        let metrics = Metrics::new("v1").unwrap();
        let waits = json!([{"what": "Reboot", "object": "Node node-1", "since": "2026-03-13T03:59:00Z"}]);
        let upgrading = plan(&json!({
            "currentPhase": "NodeUpgrading", "waitingFor": waits,
            "nodeUpgradeStatuses": {"node-1": {"state": "WaitingReboot"}},
            "insights": [{"id": "D37", "severity": "error", "message": "it is down", "remedy": "look at its console"}],
            "conditions": [{"type": "Degraded", "status": "True", "reason": "Stalled", "message": "",
                            "lastTransitionTime": "2026-03-13T03:59:00Z"}],
        }));
        let observed = text(&metrics, &[upgrading]);
        for line in [
            "upgrade_toolkit_build_info{version=\"v1\"} 1",
            "upgrade_toolkit_plan_phase{phase=\"NodeUpgrading\",plan=\"up\"} 1",
            "upgrade_toolkit_node_state{node=\"node-1\",plan=\"up\",state=\"WaitingReboot\"} 1",
            "upgrade_toolkit_waiting_seconds{object=\"Node node-1\",plan=\"up\",what=\"Reboot\"} 60",
            "upgrade_toolkit_plan_stalled{plan=\"up\"} 1",
            "upgrade_insight{id=\"D37\",plan=\"up\",severity=\"error\"} 1",
        ] {
            assert!(observed.lines().any(|one| one == line), "{line} is not in\n{observed}");
        }
        let later = text(&metrics, &[plan(&json!({"currentPhase": "Succeeded"}))]);
        assert!(
            !later.contains("NodeUpgrading")
                && !later.contains("WaitingReboot")
                && !later.contains("Reboot\"")
                && !later.contains("D37")
        );
    }

    #[test]
    fn a_phase_is_counted_once_and_only_by_the_manager_that_saw_it() {
        let begun = vec![change("ISODownloading", "2026-03-13T04:00:00Z")];
        let mut ended = begun.clone();
        ended.push(change("ISODownloaded", "2026-03-13T04:04:44Z"));
        let at = |changes: &[serde_json::Value]| vec![plan(&json!({"phaseTransitionTimestamps": changes}))];
        let counts = |metrics: &Metrics| {
            let observed = text(metrics, &[]);
            let line = "upgrade_toolkit_phase_duration_seconds_sum{phase=\"ISODownload\"} ";
            observed
                .lines()
                .find_map(|one| one.strip_prefix(line).map(str::to_owned))
        };
        let watched = Watched::default();
        let metrics = Metrics::new("v1").unwrap();
        metrics.look(&at(&begun), &watched);
        metrics.look(&at(&ended), &watched);
        metrics.look(&at(&ended), &watched);
        assert_eq!(counts(&metrics).as_deref(), Some("284"));
        let next = Metrics::new("v1").unwrap();
        next.look(&at(&ended), &watched);
        assert_eq!(counts(&next), None, "another manager counted it");
    }
}
