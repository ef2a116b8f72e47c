//! Settings and addons that the upgrade changed on its way and that are not as before.

use api::quoted::{LONGEST_NAME, plain};

use super::{Check, Difference, Pair, listed, object, record::known};
use crate::finding::{Missing, ObjectRef, Severity};

pub(super) const F08: Check = Check {
    id: "F08",
    title: "A setting that upgrades change is not restored",
    remedy: "If the upgrade has not ended, it restores the setting at its end. Else set it to its former value.",
    compare: changed,
};

pub(super) const F10: Check = Check {
    id: "F10",
    title: "An addon is enabled or disabled otherwise than before",
    remedy: "If the upgrade has not ended, it enables the addon again at its end. Else set spec.enabled of the addon as before.",
    compare: addons,
};

fn changed(pair: &Pair<'_>) -> Result<Option<Difference>, Missing> {
    let mut found = Vec::new();
    for (name, before) in &pair.before.settings {
        let before = known(before, name, "before")?;
        let Some(after) = pair.after.settings.get(name) else {
            continue;
        };
        let after = known(after, name, "after")?;
        if before != after {
            let shown = |value: &str| {
                if value.is_empty() {
                    "nothing".to_owned()
                } else {
                    plain(value, LONGEST_NAME)
                }
            };
            found.push((name, format!("{name} was {} and is {}", shown(before), shown(after))));
        }
    }
    let details: Vec<String> = found.iter().map(|(_, detail)| detail.clone()).collect();
    Ok((!found.is_empty()).then(|| Difference {
        severity: Severity::Warning,
        objects: found.iter().map(|(name, _)| by_name(name)).collect(),
        message: format!("settings are not as before the upgrade: {}", listed(&details)),
        commands: Vec::new(),
    }))
}

/// A setting is named by its kind, its object and its field.
fn by_name(name: &str) -> ObjectRef {
    let mut words = name.split(' ');
    let kind = words.next().unwrap_or_default();
    object(kind, words.next().unwrap_or_default())
}

fn addons(pair: &Pair<'_>) -> Result<Option<Difference>, Missing> {
    let before = known(&pair.before.addons, "addons", "before")?;
    let after = known(&pair.after.addons, "addons", "after")?;
    let differing = before
        .iter()
        .filter(|(name, enabled)| after.get(*name).is_some_and(|is| is != *enabled));
    let found: Vec<(&String, &bool)> = differing.collect();
    let word = |enabled: bool| if enabled { "enabled" } else { "disabled" };
    let details: Vec<String> = found
        .iter()
        .map(|(name, was)| format!("{name} was {} and is {}", word(**was), word(!**was)))
        .collect();
    Ok((!found.is_empty()).then(|| Difference {
        severity: Severity::Warning,
        objects: found.iter().map(|(name, _)| object("Addon", name)).collect(),
        message: format!("addons are not as before the upgrade: {}", listed(&details)),
        commands: Vec::new(),
    }))
}
