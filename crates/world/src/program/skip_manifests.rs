//! Telling RKE2 on a node to skip a bundled manifest, or not to: a file nobody else sees.

use super::{Call, Failure};

pub(super) async fn run(call: &Call<'_>) -> Result<(), Failure> {
    call.take(call.world.durations.skip_manifests).await;
    Ok(())
}
