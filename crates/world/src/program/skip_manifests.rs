//! Telling RKE2 on a node to skip a bundled manifest, or not to: a file nobody else sees.

use crate::error::Result;

use super::Call;

pub(super) async fn run(call: &Call<'_>) -> Result<()> {
    call.take(call.world.durations.skip_manifests).await;
    Ok(())
}
