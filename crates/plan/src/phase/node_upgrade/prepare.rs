//! What must be true before the first node is changed. Each change is recorded before it is made.

use api::{NodePlan, NodeState, Wait, annotations};
use serde_json::Value;

use super::{
    super::suc_plan::{self, Wanted},
    gate,
};
use crate::{
    decision::Action,
    draft::{Draft, Outcome, Waits},
    node::Stage,
    undo::wait_for_change,
};

/// While nodes reboot, Longhorn waits this long before it rebuilds replicas elsewhere.
const EXTENDED_INTERVAL_SECONDS: u64 = 1800;

/// One preparation.
type Rule = fn(&mut Draft<'_>) -> Outcome;
/// Where there are several nodes, all of these; where there is one, the first.
const RULES: [Rule; 4] = [descheduler, replenishment_interval, upgrade_strategy, skip_manifests];

/// Prepares everything.
pub(super) fn prepare(draft: &mut Draft<'_>) -> Outcome {
    for name in suc_plan::managed_nodes(draft) {
        // Also nodes whose images could not be loaded, in a try that does without loading them.
        if draft.progress(&name).stage() <= Stage::Preloaded {
            draft.reach(&name, NodeState::ImagePreloaded, None, None);
        }
    }
    let rules = if draft.status().single_node.is_some() {
        &RULES[..1]
    } else {
        &RULES[..]
    };
    let mut waits: Option<Waits> = None;
    for rule in rules {
        match rule(draft) {
            Outcome::Done => {}
            Outcome::Wait(more) => waits = Some(Waits::joined(waits, more)),
            Outcome::Fail(message) => return Outcome::Fail(message),
        }
    }
    waits.map_or(Outcome::Done, Outcome::Wait)
}

/// The descheduler must not evict pods during the upgrade.
fn descheduler(draft: &mut Draft<'_>) -> Outcome {
    if draft.observed.descheduler_enabled != Some(true) {
        return Outcome::Done;
    }
    draft.note(annotations::DESCHEDULER_WAS_ENABLED, Some("true".to_owned()));
    draft.act(Action::EnableDescheduler { enabled: false });
    wait_for_change(draft, "Addon kube-system/descheduler")
}

/// A node that only reboots must not make Longhorn copy all its replicas. A longer interval of the user's is kept.
fn replenishment_interval(draft: &mut Draft<'_>) -> Outcome {
    let Some(value) = draft.observed.replenishment_interval.clone() else {
        return Outcome::Done;
    };
    if value
        .parse::<u64>()
        .is_ok_and(|seconds| seconds >= EXTENDED_INTERVAL_SECONDS)
    {
        return Outcome::Done;
    }
    if draft.noted(annotations::SAVED_REPLENISHMENT_INTERVAL).is_none() {
        draft.note(annotations::SAVED_REPLENISHMENT_INTERVAL, Some(value));
    }
    draft.act(Action::SetReplenishmentInterval {
        value: EXTENDED_INTERVAL_SECONDS.to_string(),
    });
    wait_for_change(draft, "Setting longhorn-system/replica-replenishment-wait-interval")
}

/// Only the record: the strategy is replaced together with the version.
fn upgrade_strategy(draft: &mut Draft<'_>) -> Outcome {
    let observed = draft.observed;
    let Some(cluster) = &observed.cluster else {
        let object = Some("Cluster fleet-local/local".to_owned());
        return draft
            .wait(Wait::Cluster, object, "the Rancher cluster is missing")
            .into();
    };
    let strategy = cluster.upgrade_strategy.clone().unwrap_or_default();
    // The record of an earlier attempt counts while our hooks are in place; users may have changed restored values since.
    if draft.noted(annotations::SAVED_UPGRADE_STRATEGY).is_some() && gate::is_ours(&strategy) {
        return Outcome::Done;
    }
    let target = draft
        .status()
        .release_metadata
        .as_ref()
        .and_then(|release| release.kubernetes.clone());
    if gate::is_ours(&strategy) {
        // A failed plan has left its gate closed. What was there before it is on the cluster's record, and on that of the
        // plan if a user has changed the cluster's.
        let plans = observed.other_plans.iter().rev();
        let saved = cluster.saved_upgrade_strategy.clone();
        let saved = saved.or_else(|| plans.into_iter().find_map(|other| other.saved_upgrade_strategy.clone()));
        draft.note(
            annotations::SAVED_UPGRADE_STRATEGY,
            Some(saved.unwrap_or_else(|| Value::Null.to_string())),
        );
        if cluster.kubernetes_version == target {
            draft.note(annotations::TAKEN_OVER, Some("true".to_owned()));
        }
    } else {
        draft.note(annotations::SAVED_UPGRADE_STRATEGY, Some(strategy.to_string()));
        if gate::is_done_by_another(draft) {
            draft.note(annotations::TAKEN_OVER, Some("true".to_owned()));
        }
    }
    Outcome::Done
}

/// RKE2 must not apply its bundled Multus manifest while nodes run different versions.
fn skip_manifests(draft: &mut Draft<'_>) -> Outcome {
    draft.note(annotations::SKIP_MANIFESTS_APPLIED, Some("true".to_owned()));
    let nodes = suc_plan::managed_nodes(draft);
    suc_plan::complete(
        draft,
        Wanted {
            plan: NodePlan::SkipManifestsApply,
            concurrency: suc_plan::all_at_once(&nodes),
            images: Vec::new(),
            states: None,
            what: Wait::SkipManifestsApply,
            message: "waiting for skip-manifest apply plan to complete",
        },
    )
}
