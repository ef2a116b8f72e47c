//! Fleet's bundles: given a while to settle at the end. Those that do not are named; they stop nothing.

use std::time::Duration;

use api::{ProgramWait, foreign::fleet::Bundle};
use kube::{ResourceExt, runtime::watcher};
use rules::fleet::bundle_lacks;

use program::{
    error::Result,
    report::{Look, Waiting},
    step::StepContext,
};

use super::{context::Context, objects::Objects};

const PATIENCE: Duration = Duration::from_secs(100);

pub(super) async fn settle(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let bundles = Objects::<Bundle>::new(kube::Api::all(context.client.clone()), "");
    let mut left = Vec::new();
    let settled = bundles.watch(ctx, watcher::Config::default(), None, |bundles| {
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

fn waiting(bundle: &Bundle) -> Option<Waiting> {
    let lacks = bundle_lacks(bundle)?;
    let called = format!(
        "Bundle {}/{}",
        bundle.namespace().unwrap_or_default(),
        bundle.name_any()
    );
    Some(Waiting {
        what: ProgramWait::Bundle,
        message: format!("{called} is not Ready: {lacks}"),
        object: called,
    })
}
