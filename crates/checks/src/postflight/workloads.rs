//! Charts that Fleet had applied and has not, and pods that crash and did not.

use super::{Check, Difference, Pair, listed, object, record::known};
use crate::finding::{Missing, Severity};

pub(super) const F09: Check = Check {
    id: "F09",
    title: "A ManagedChart was ready before the upgrade and is paused or not ready",
    remedy: "Look at the conditions of the ManagedChart and of its Bundle. A chart that is still paused after the upgrade is resumed \
             with spec.paused: false.",
    compare: charts,
};

pub(super) const F11: Check = Check {
    id: "F11",
    title: "A workload has pods that crash and did not before the upgrade",
    remedy: "Look at the logs of the last run of the pod.",
    compare: crashing,
};

fn charts(pair: &Pair<'_>) -> Result<Option<Difference>, Missing> {
    let before = known(&pair.before.charts, "managedcharts", "before")?;
    let after = known(&pair.after.charts, "managedcharts", "after")?;
    let mut found = Vec::new();
    for (name, was) in before {
        let Some(is) = after.get(name) else { continue };
        if is.paused && !was.paused {
            found.push((name, format!("{name} is paused")));
        } else if was.ready && !is.ready {
            found.push((name, format!("{name} is not ready")));
        }
    }
    let details: Vec<String> = found.iter().map(|(_, detail)| detail.clone()).collect();
    Ok((!found.is_empty()).then(|| Difference {
        severity: Severity::Error,
        objects: found
            .iter()
            .map(|(name, _)| object("ManagedChart", &format!("{}/{name}", api::names::FLEET_NAMESPACE)))
            .collect(),
        message: format!("charts are not as before the upgrade: {}", listed(&details)),
        commands: vec![format!(
            "kubectl -n {} get managedcharts.management.cattle.io",
            api::names::FLEET_NAMESPACE
        )],
    }))
}

fn crashing(pair: &Pair<'_>) -> Result<Option<Difference>, Missing> {
    let before = known(&pair.before.crashing, "pods", "before")?;
    let after = known(&pair.after.crashing, "pods", "after")?;
    let found: Vec<String> = after.difference(before).cloned().collect();
    Ok((!found.is_empty()).then(|| Difference {
        severity: Severity::Error,
        objects: found.iter().map(|name| object("Workload", name)).collect(),
        message: format!("pods crash that did not before the upgrade: {}", listed(&found)),
        commands: vec!["kubectl get pods -A | grep CrashLoopBackOff".to_owned()],
    }))
}
