//! Removing stale images from a node: takes its time, nobody else sees anything of it.

use super::{Call, Failure};

pub(super) async fn run(call: &Call<'_>) -> Result<(), Failure> {
    call.take(call.world.durations.cleanup).await;
    Ok(())
}
