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

/// Whether a bundle is not known to be unready. Bundles that nothing is known of do not count.
#[must_use]
pub fn is_settled(bundle: &Bundle) -> bool {
    let conditions = bundle.status.conditions.as_deref().unwrap_or_default();
    condition_is(conditions, "Ready") != Some(false)
}

fn waiting(bundle: &Bundle) -> Waiting {
    let called = format!(
        "Bundle {}/{}",
        bundle.namespace().unwrap_or_default(),
        bundle.name_any()
    );
    let conditions = bundle.status.conditions.iter().flatten();
    let why = conditions
        .filter(|condition| condition.type_ == "Ready")
        .find_map(|condition| condition.message.clone())
        .unwrap_or_default();
    Waiting {
        what: "Bundle",
        message: format!("{called} is not Ready: {why}"),
        object: called,
    }
}
