//! Removing stale images from a node: takes time, without a visible effect.

use futures::FutureExt;
use node::images::cleanup;
use program::{Result, report::Reporter};

use super::{
    Call,
    walk::{Line, walk},
};

pub(super) const LINES: &[Line] = &[("clean-images", |call, _| {
    call.take(call.world.durations.cleanup).map(Ok).boxed()
})];

pub(super) async fn run(call: &Call, report: &Reporter) -> Result<()> {
    walk(call, cleanup::STEPS, &[LINES], report).await
}
