//! Volumes that were healthy and are not, and volumes that are gone. A detached volume is neither.

use super::{Check, Difference, Pair, commands, listed, object, record::known};
use crate::finding::{Missing, Severity};

pub(super) const F03: Check = Check {
    id: "F03",
    title: "A volume was healthy before the upgrade and is not",
    remedy: "Wait until Longhorn has rebuilt its replicas. A volume that stays degraded lacks a disk with room for a replica; a \
             faulted volume has no healthy replica: salvage it in Longhorn or restore it from a backup.",
    compare: unhealthy,
};

pub(super) const F04: Check = Check {
    id: "F04",
    title: "A volume that was there is gone",
    remedy: "If a user deleted it during the upgrade, nothing is to do. Else restore it from a backup.",
    compare: gone,
};

const NAMESPACE: &str = api::names::LONGHORN_NAMESPACE;

fn unhealthy(pair: &Pair<'_>) -> Result<Option<Difference>, Missing> {
    let before = known(&pair.before.volumes, "volumes", "before")?;
    let after = known(&pair.after.volumes, "volumes", "after")?;
    let was_well = before
        .iter()
        .filter(|(_, robustness)| !["degraded", "faulted"].contains(&robustness.as_str()));
    let found: Vec<(&String, &String)> = was_well
        .filter_map(|(name, _)| Some((name, after.get(name)?)))
        .filter(|(_, robustness)| ["degraded", "faulted"].contains(&robustness.as_str()))
        .collect();
    if found.is_empty() {
        return Ok(None);
    }
    let faulted = found.iter().any(|(_, robustness)| *robustness == "faulted");
    let details: Vec<String> = found
        .iter()
        .map(|(name, robustness)| format!("{name} is {robustness}"))
        .collect();
    Ok(Some(Difference {
        severity: if faulted { Severity::Error } else { Severity::Warning },
        objects: found
            .iter()
            .map(|(name, _)| object("Volume", &format!("{NAMESPACE}/{name}")))
            .collect(),
        message: format!(
            "volumes that were healthy before the upgrade are not now: {}",
            listed(&details)
        ),
        commands: commands(found.iter().map(|(name, _)| name.as_str()), |_, name| {
            format!("kubectl -n {NAMESPACE} describe volumes.longhorn.io {name}")
        }),
    }))
}

fn gone(pair: &Pair<'_>) -> Result<Option<Difference>, Missing> {
    let before = known(&pair.before.volumes, "volumes", "before")?;
    let after = known(&pair.after.volumes, "volumes", "after")?;
    let found: Vec<String> = before
        .keys()
        .filter(|name| !after.contains_key(*name))
        .cloned()
        .collect();
    Ok((!found.is_empty()).then(|| Difference {
        severity: Severity::Info,
        objects: found
            .iter()
            .map(|name| object("Volume", &format!("{NAMESPACE}/{name}")))
            .collect(),
        message: format!(
            "volumes that were there before the upgrade are not now: {}",
            listed(&found)
        ),
        commands: Vec::new(),
    }))
}
