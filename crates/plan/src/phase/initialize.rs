//! Initialize: records what the upgrade starts from, then checks that it may start.

use api::VersionSnapshot;

use crate::{
    decision::Need,
    draft::{Draft, Outcome},
    observed::{Fetched, PreflightFacts},
    preflight, version,
};

/// The oldest Harvester that this upgrade can start from.
const OLDEST_RUNNING: &str = "v1.7.1";
/// What is waited for while the pre-flight checks cannot look.
const PREFLIGHT: (&str, &str) = ("Preflight", "Node (all), EndpointSlice default/kubernetes");

/// Records the Version, the running version and the shape of the cluster.
pub fn run(draft: &mut Draft<'_>) -> Outcome {
    let seen = draft.seen;
    let limit = seen.settings.deadlines.prerequisite;
    if seen.plan.spec.image.is_none() {
        let name = seen.plan.spec.version.as_deref().unwrap_or_default();
        let Some(url) = seen.version.as_ref().and_then(|version| version.iso_url.clone()) else {
            let object = Some(format!("Version harvester-system/{name}"));
            draft.wait(
                "Version",
                object,
                format!("Version harvester-system/{name} with an isoURL is missing"),
                limit,
            );
            return Outcome::Wait;
        };
        let iso_checksum = seen.version.as_ref().and_then(|version| version.iso_checksum.clone());
        *draft.record().version = Some(VersionSnapshot {
            iso_url: url,
            iso_checksum,
        });
    }
    let Some(running) = seen.server_version.clone().filter(|version| !version.is_empty()) else {
        let object = Some("Setting server-version".to_owned());
        draft.wait("ServerVersion", object, "Setting server-version has no value", limit);
        return Outcome::Wait;
    };
    if version::is_older(&running, OLDEST_RUNNING) {
        // Older releases lack what the phases rely on. Waiting, not failing: the plan goes on once Harvester is updated.
        let message = format!("Harvester {running} is too old: upgrade it to {OLDEST_RUNNING} by its own means first");
        draft.wait(
            "ServerVersion",
            Some("Setting server-version".to_owned()),
            &message,
            limit,
        );
        draft.degrade(message);
        return Outcome::Wait;
    }
    let Some(single) = only_node(draft) else {
        return Outcome::Wait;
    };
    *draft.record().previous_version = Some(running);
    *draft.record().single_node = single;
    Outcome::Done
}

/// The only node of the cluster, `None` where there are several. Every Node counts: one that has just joined and that
/// Harvester does not manage yet is waited for, since Rancher would upgrade it with the others, and stopping all VMs is
/// for a cluster that has no other node at all.
fn only_node(draft: &mut Draft<'_>) -> Option<Option<String>> {
    let seen = draft.seen;
    let limit = seen.settings.deadlines.prerequisite;
    if seen.nodes.is_empty() {
        draft.wait("Nodes", None, "the cluster has no Node", limit);
        return None;
    }
    let unmanaged: Vec<&String> = seen
        .nodes
        .iter()
        .filter(|(_, node)| !node.managed)
        .map(|(name, _)| name)
        .collect();
    for name in &unmanaged {
        let message = format!(
            "Node {name} lacks the label harvesterhci.io/managed=true: wait until Harvester has taken it in, or remove \
             the Node"
        );
        draft.wait("Nodes", Some(format!("Node {name}")), message, limit);
    }
    let mut names = seen.nodes.keys();
    let single = names.next().filter(|_| names.next().is_none()).cloned();
    unmanaged.is_empty().then_some(single)
}

/// The pre-flight checks. What they find is final; that they could not look is not, at first.
pub fn leave(draft: &mut Draft<'_>) -> Outcome {
    let seen = draft.seen;
    if let Err(message) = preflight::skips_disk_space(&seen.plan) {
        return Outcome::Fail(message);
    }
    let fetched: &Fetched<PreflightFacts> = &seen.facts.preflight;
    let limit = seen.settings.deadlines.preflight;
    let (what, object) = PREFLIGHT;
    if let Fetched::Failed { error, .. } = fetched
        && draft.is_overdue(what, object, limit)
    {
        return Outcome::Fail(error.clone());
    }
    let waiting = (what, object.to_owned(), "disks and certificates are being checked");
    let Some(facts) = draft.ask(Need::Preflight, fetched, waiting, limit) else {
        return Outcome::Wait;
    };
    match preflight::check(&seen.plan, facts, draft.now) {
        Ok(()) => Outcome::Done,
        Err(message) => Outcome::Fail(message),
    }
}
