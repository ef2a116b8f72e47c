//! Nodes that are not on the new system, nodes that are not as usable as before, and nodes that are gone.

use super::{Check, Difference, Pair, listed, object, record::known};
use crate::finding::{Missing, Severity};

pub(super) const F05: Check = Check {
    id: "F05",
    title: "A node does not run the new system",
    remedy: "Look at the state of the node in the UpgradePlan. A node that joined during the upgrade is upgraded by the next one; \
             a node that booted its old system has to boot the new one: see docs/recover.md.",
    compare: old_system,
};

pub(super) const F06: Check = Check {
    id: "F06",
    title: "A node was ready and schedulable before the upgrade and is not",
    remedy: "If the node is cordoned and nothing is done with it, uncordon it. If it is not ready, look at its kubelet.",
    compare: unusable,
};

pub(super) const F07: Check = Check {
    id: "F07",
    title: "A node that was there is gone",
    remedy: "If a user removed it during the upgrade, nothing is to do. Else look at the machine, and add it again.",
    compare: gone,
};

fn old_system(pair: &Pair<'_>) -> Result<Option<Difference>, Missing> {
    let after = known(&pair.after.nodes, "nodes", "after")?;
    let (Some(os), kubernetes) = (&pair.target.os, &pair.target.kubernetes) else {
        return Err(Missing {
            kind: "release".to_owned(),
            why: "the upgrade has not come to its nodes".into(),
        });
    };
    let mut found = Vec::new();
    for (name, node) in after.iter().filter(|(_, node)| node.managed) {
        if node.os != *os {
            found.push((name, format!("{name} runs {}", node.os)));
        } else if kubernetes.as_ref().is_some_and(|version| node.kubelet != *version) {
            found.push((name, format!("{name} has kubelet {}", node.kubelet)));
        }
    }
    let details: Vec<String> = found.iter().map(|(_, detail)| detail.clone()).collect();
    Ok((!found.is_empty()).then(|| Difference {
        severity: Severity::Error,
        objects: found.iter().map(|(name, _)| object("Node", name)).collect(),
        message: format!("nodes do not run {os}: {}", listed(&details)),
        commands: vec!["kubectl get nodes -o wide".to_owned()],
    }))
}

fn unusable(pair: &Pair<'_>) -> Result<Option<Difference>, Missing> {
    let before = known(&pair.before.nodes, "nodes", "before")?;
    let after = known(&pair.after.nodes, "nodes", "after")?;
    let mut found = Vec::new();
    let mut commands = Vec::new();
    for (name, was) in before {
        let Some(is) = after.get(name) else { continue };
        if was.ready && !is.ready {
            found.push((name, format!("{name} is not ready")));
        } else if was.schedulable && !is.schedulable {
            found.push((name, format!("{name} is cordoned")));
            commands.push(format!("kubectl uncordon {name}"));
        }
    }
    let details: Vec<String> = found.iter().map(|(_, detail)| detail.clone()).collect();
    commands.truncate(super::DETAILS);
    Ok((!found.is_empty()).then(|| Difference {
        severity: Severity::Error,
        objects: found.iter().map(|(name, _)| object("Node", name)).collect(),
        message: format!(
            "nodes that were usable before the upgrade are not now: {}",
            listed(&details)
        ),
        commands,
    }))
}

fn gone(pair: &Pair<'_>) -> Result<Option<Difference>, Missing> {
    let before = known(&pair.before.nodes, "nodes", "before")?;
    let after = known(&pair.after.nodes, "nodes", "after")?;
    let found: Vec<String> = before
        .keys()
        .filter(|name| !after.contains_key(*name))
        .cloned()
        .collect();
    Ok((!found.is_empty()).then(|| Difference {
        severity: Severity::Warning,
        objects: found.iter().map(|name| object("Node", name)).collect(),
        message: format!(
            "nodes that were there before the upgrade are not now: {}",
            listed(&found)
        ),
        commands: Vec::new(),
    }))
}
