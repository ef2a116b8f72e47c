//! Removing stale images from a node: takes its time, nobody else sees anything of it.

use crate::error::Result;

use super::Call;

pub(super) async fn run(call: &Call<'_>) -> Result<()> {
    call.take(call.world.durations.cleanup).await;
    Ok(())
}
