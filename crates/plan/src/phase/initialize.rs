//! Initialize: records what the upgrade starts from, then checks that it may start.

use api::{VersionSnapshot, Wait};

use crate::{
    before,
    decision::Need,
    draft::{Draft, Outcome, Waits},
    image,
    observed::{Fetched, PreflightFacts},
    preflight,
};
use rules::version;

/// The oldest line of Harvester that an upgrade can start from. Nodes of the line before it have their network and host name
/// from wicked, and their upgrade would have to rewrite both for NetworkManager: no step does. What v1.7.0 lacks of v1.7.1
/// no step needs; the release says whether it can be upgraded (`minUpgradableVersion`).
const OLDEST_LINE: (u64, u64) = (1, 7);
/// What is waited for while the pre-flight checks cannot look.
const PREFLIGHT: (Wait, &str) = (Wait::Preflight, "Node (all), EndpointSlice default/kubernetes");

/// Records the Version, the running version and the shape of the cluster.
pub fn run(draft: &mut Draft<'_>) -> Outcome {
    let observed = draft.observed;
    if observed.plan.spec.image.is_none() {
        let name = observed.plan.spec.version.as_deref().unwrap_or_default();
        let Some(url) = observed.version.as_ref().and_then(|version| version.iso_url.clone()) else {
            let object = Some(format!("Version harvester-system/{name}"));
            let message = format!("Version harvester-system/{name} with an isoURL is missing");
            return draft.wait(Wait::Version, object, message).into();
        };
        let iso_checksum = observed
            .version
            .as_ref()
            .and_then(|version| version.iso_checksum.clone());
        *draft.record().version = Some(VersionSnapshot {
            iso_url: url,
            iso_checksum,
        });
    }
    let Some(running) = observed.server_version.clone().filter(|version| !version.is_empty()) else {
        let object = Some("Setting server-version".to_owned());
        let message = "Setting server-version has no value";
        return draft.wait(Wait::ServerVersion, object, message).into();
    };
    if let Some(line) = version::line(&running).filter(|line| *line < OLDEST_LINE) {
        // Not for `force` to skip: nodes would come back without a network.
        return Outcome::Fail(too_old(&running, line));
    }
    let single = match only_node(draft) {
        Ok(single) => single,
        Err(waits) => return Outcome::Wait(waits),
    };
    *draft.record().previous_version = Some(running);
    *draft.record().single_node = single;
    Outcome::Done
}

/// The only node of the cluster, `None` where there are several. Every Node counts: one that has just joined and that
/// Harvester does not manage yet is waited for, since Rancher would upgrade it with the others, and stopping all VMs is
/// for a cluster that has no other node at all.
fn only_node(draft: &mut Draft<'_>) -> Result<Option<String>, Waits> {
    let observed = draft.observed;
    if observed.nodes.is_empty() {
        return Err(draft.wait(Wait::Nodes, None, "the cluster has no Node").into());
    }
    let unmanaged = observed.nodes.iter().filter(|(_, node)| !node.managed);
    let mut waits: Option<Waits> = None;
    for (name, _) in unmanaged {
        let message = format!(
            "Node {name} lacks the label harvesterhci.io/managed=true: wait until Harvester has taken it in, or remove \
             the Node"
        );
        let noted = draft.wait(Wait::Nodes, Some(format!("Node {name}")), message);
        waits = Some(Waits::joined(waits, noted));
    }
    let mut names = observed.nodes.keys();
    let single = names.next().filter(|_| names.next().is_none()).cloned();
    waits.map_or(Ok(single), Err)
}

/// Why no upgrade starts from a version, and what to do.
fn too_old(running: &str, (major, minor): (u64, u64)) -> String {
    let (oldest_major, oldest_minor) = OLDEST_LINE;
    format!(
        "Harvester {running} (Setting server-version) is of the line v{major}.{minor}; upgrades start from \
         v{oldest_major}.{oldest_minor}.0 or newer: upgrade it to v{oldest_major}.{oldest_minor} by its own means, then ask for \
         another try (annotation {})",
        api::annotations::RETRY
    )
}

/// The pre-flight checks. What they find is final; that they could not look is not, at first.
pub fn leave(draft: &mut Draft<'_>) -> Outcome {
    let observed = draft.observed;
    if let Err(error) = preflight::skips_disk_space(&observed.plan) {
        return Outcome::Fail(error.to_string());
    }
    let fetched: &Fetched<PreflightFacts> = &observed.facts.preflight;
    let (what, object) = PREFLIGHT;
    if let Fetched::Failed { error, .. } = fetched
        && draft.is_overdue(what, object)
    {
        return Outcome::Fail(error.clone());
    }
    let waiting = (what, object.to_owned(), "disks and certificates are being checked");
    let facts = match draft.ask(Need::Preflight, fetched, waiting) {
        Ok(facts) => facts,
        Err(noted) => return noted.into(),
    };
    let checked = image::check_allowed(&observed.plan, &observed.settings);
    match checked.and_then(|()| preflight::check(&observed.plan, facts, draft.now)) {
        Ok(()) => before::look(draft),
        Err(error) => Outcome::Fail(error.to_string()),
    }
}
