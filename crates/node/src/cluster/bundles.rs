//! Fleet's bundles: given a while to settle at the end. Those that do not are named; they stop nothing.

use std::time::Duration;

use api::foreign::fleet::Bundle;
use kube::{ResourceExt, runtime::watcher};

use crate::{
    error::Result,
    report::{Look, Waiting},
    step::Pace,
};

use super::{context::Context, objects::Objects};

const PATIENCE: Duration = Duration::from_secs(100);

pub(super) async fn settle(context: &Context, pace: Pace<'_>) -> Result<()> {
    let bundles = Objects::<Bundle>::new(kube::Api::all(context.client.clone()), "");
    let mut left = Vec::new();
    let settled = bundles.watch(pace, watcher::Config::default(), None, |bundles| {
        left = bundles.iter().filter_map(|bundle| waiting(bundle)).collect();
        Look::of(left.clone())
    });
    if !context.at_most(PATIENCE, settled).await? {
        for waiting in left {
            context.note(waiting.message);
        }
    }
    Ok(())
}

/// What keeps a bundle from being settled: Fleet has not seen what it is now, or says that it is unready. A bundle of which
/// nothing more is known is settled.
#[must_use]
pub fn lacks(bundle: &Bundle) -> Option<&str> {
    // Right after a change Fleet still speaks of before.
    if bundle.status.observed_generation.unwrap_or(0) < bundle.metadata.generation.unwrap_or(0) {
        return Some("Fleet has not seen its last change");
    }
    let conditions = bundle.status.conditions.iter().flatten();
    let mut unready = conditions.filter(|condition| condition.type_ == "Ready");
    let condition = unready.find(|condition| condition.status.as_deref() == Some("False"))?;
    Some(condition.message.as_deref().unwrap_or("no reason given"))
}

fn waiting(bundle: &Bundle) -> Option<Waiting> {
    let lacks = lacks(bundle)?;
    let called = format!(
        "Bundle {}/{}",
        bundle.namespace().unwrap_or_default(),
        bundle.name_any()
    );
    Some(Waiting {
        what: "Bundle",
        message: format!("{called} is not Ready: {lacks}"),
        object: called,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn r38_a_bundle_whose_last_change_fleet_has_not_seen_is_not_settled() {
        let bundle = |generation: i64, observed: Option<i64>, ready: &str| -> Bundle {
            serde_json::from_value(json!({
                "metadata": {"name": "mcc-harvester", "namespace": "fleet-local", "generation": generation},
                "status": {"observedGeneration": observed, "conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };
        let unseen = Some("Fleet has not seen its last change");
        assert_eq!(lacks(&bundle(3, Some(2), "True")), unseen);
        assert_eq!(lacks(&bundle(1, None, "True")), unseen);
        assert_eq!(lacks(&bundle(3, Some(3), "True")), None);
        assert_eq!(lacks(&bundle(3, Some(3), "False")), Some("no reason given"));
    }
}
