//! Makes RKE2 on a node skip a bundled manifest, or apply it again: a file without other visible effects.

use futures::FutureExt;
use node::skip_manifests;
use program::{Result, report::Reporter};

use super::{
    Call,
    walk::{Line, walk},
};

pub(super) const LINES: &[Line] = &[("skip-manifests", |call, _| {
    async {
        // Without manifests there is nothing to do, and that is no error.
        if call.variable("MANIFESTS").is_some() {
            call.take(call.world.durations.skip_manifests).await;
        }
        Ok(())
    }
    .boxed()
})];

pub(super) async fn run(call: &Call, report: &Reporter) -> Result<()> {
    walk(call, skip_manifests::STEPS, &[LINES], report).await
}
