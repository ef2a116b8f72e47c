//! Preloading images on a node: takes its time, nobody else sees anything of it.

use super::{Call, Failure};

pub(super) async fn run(call: &Call<'_>) -> Result<(), Failure> {
    call.take(call.world.durations.preload).await;
    Ok(())
}
