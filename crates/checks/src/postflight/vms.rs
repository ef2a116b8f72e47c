//! VMs that ran and do not, and VMs that are gone.

use super::{
    Check, Difference, Pair, commands, listed, object,
    record::{Power, known},
};
use crate::finding::{Missing, Severity};

pub(super) const F01: Check = Check {
    id: "F01",
    title: "A VM ran before the upgrade and does not run",
    remedy: "Start the VM. If it does not start, its events and those of its virt-launcher pod say why.",
    compare: stopped,
};

pub(super) const F02: Check = Check {
    id: "F02",
    title: "A VM that was there is gone",
    remedy: "If a user deleted it during the upgrade, nothing is to do. Else restore it from a backup.",
    compare: gone,
};

fn stopped(pair: &Pair<'_>) -> Result<Option<Difference>, Missing> {
    let before = known(&pair.before.vms, "virtualmachines", "before")?;
    let after = known(&pair.after.vms, "virtualmachines", "after")?;
    let ran = before.iter().filter(|(_, power)| **power == Power::On);
    let found: Vec<(&String, &String)> = ran
        .filter_map(|(name, _)| match after.get(name)? {
            Power::On => None,
            Power::Off(shown) => Some((name, shown)),
        })
        .collect();
    if found.is_empty() {
        return Ok(None);
    }
    let details: Vec<String> = found.iter().map(|(name, shown)| format!("{name} is {shown}")).collect();
    Ok(Some(Difference {
        severity: Severity::Error,
        objects: found.iter().map(|(name, _)| object("VirtualMachine", name)).collect(),
        message: format!(
            "{} ran before the upgrade and do not now: {}",
            counted(found.len()),
            listed(&details)
        ),
        commands: commands(found.iter().map(|(name, _)| name.as_str()), |namespace, name| {
            format!("virtctl -n {namespace} start {name}")
        }),
    }))
}

fn gone(pair: &Pair<'_>) -> Result<Option<Difference>, Missing> {
    let before = known(&pair.before.vms, "virtualmachines", "before")?;
    let after = known(&pair.after.vms, "virtualmachines", "after")?;
    let found: Vec<String> = before
        .keys()
        .filter(|name| !after.contains_key(*name))
        .cloned()
        .collect();
    Ok((!found.is_empty()).then(|| Difference {
        severity: Severity::Warning,
        objects: found.iter().map(|name| object("VirtualMachine", name)).collect(),
        message: format!(
            "{} were there before the upgrade and are not now: {}",
            counted(found.len()),
            listed(&found)
        ),
        commands: Vec::new(),
    }))
}

fn counted(vms: usize) -> String {
    if vms == 1 {
        "1 VM".to_owned()
    } else {
        format!("{vms} VMs")
    }
}
