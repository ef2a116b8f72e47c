//! Telling RKE2 on a node to skip a bundled manifest, or not to: a file nobody else sees.

use futures::FutureExt;
use node::{Result, report::Reporter, skip_manifests};

use super::{
    Call,
    walk::{Line, walk},
};

pub(super) const LINES: &[Line] = &[("skip-manifests", |call, _| {
    call.take(call.world.durations.skip_manifests).map(Ok).boxed()
})];

pub(super) async fn run(call: &Call, report: &Reporter) -> Result<()> {
    walk(call, skip_manifests::STEPS, &[LINES], report).await
}
