//! Fleet's bundles: given a while to settle at the end. Those that do not are named; they stop nothing.

use std::time::Duration;

use api::foreign::{condition_is, fleet::Bundle};
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
        let unsettled = bundles.iter().filter(|bundle| !is_settled(bundle));
        left = unsettled.map(|bundle| waiting(bundle)).collect();
        Look::of(left.clone())
    });
    if !context.at_most(PATIENCE, settled).await? {
        for waiting in left {
            context.note(waiting.message);
        }
    }
    Ok(())
}

/// Whether Fleet has seen what a bundle is to be, and does not say that it is unready. Bundles of which nothing more is
/// known do not count.
#[must_use]
pub fn is_settled(bundle: &Bundle) -> bool {
    let conditions = bundle.status.conditions.as_deref().unwrap_or_default();
    is_observed(bundle) && condition_is(conditions, "Ready") != Some(false)
}

/// What Fleet says is of what the bundle is now. Right after a change it still speaks of before.
fn is_observed(bundle: &Bundle) -> bool {
    bundle.status.observed_generation.unwrap_or(0) >= bundle.metadata.generation.unwrap_or(0)
}

fn waiting(bundle: &Bundle) -> Waiting {
    let called = format!(
        "Bundle {}/{}",
        bundle.namespace().unwrap_or_default(),
        bundle.name_any()
    );
    let conditions = bundle.status.conditions.iter().flatten();
    let why = if is_observed(bundle) {
        conditions
            .filter(|condition| condition.type_ == "Ready")
            .find_map(|condition| condition.message.clone())
            .unwrap_or_default()
    } else {
        "Fleet has not seen its last change".to_owned()
    };
    Waiting {
        what: "Bundle",
        message: format!("{called} is not Ready: {why}"),
        object: called,
    }
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
        assert!(!is_settled(&bundle(3, Some(2), "True")));
        assert!(!is_settled(&bundle(1, None, "True")));
        assert!(
            waiting(&bundle(3, Some(2), "True"))
                .message
                .ends_with("has not seen its last change")
        );
        assert!(is_settled(&bundle(3, Some(3), "True")));
        assert!(!is_settled(&bundle(3, Some(3), "False")));
    }
}
