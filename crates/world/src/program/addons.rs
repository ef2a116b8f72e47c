//! Addons in a cluster upgrade: brought to the release's versions, and waited for when they ran.

use api::foreign::harvester::Addon;
use node::{
    Result,
    cluster::{
        addons::{self, Change, Deployment, LOGGING, MONITORING, PATIENCE, STEADY, TICK},
        called,
    },
    step::Pace,
};

use crate::release::ADDON;

use super::Call;

/// Brings an addon to the version of the release; one that is not there would be installed turned off.
pub(super) async fn upgrade(call: &Call, pace: Pace<'_>, namespace: &str, name: &str) -> Result<()> {
    let current = call.world.addons.get(namespace, name);
    match current {
        Some(current) => change(call, pace, (namespace, name), &current, &Change::to(ADDON)).await,
        None => Ok(()),
    }
}

pub(super) async fn upgrade_monitoring(call: &Call, pace: Pace<'_>) -> Result<()> {
    let version = &call.release()?.0.monitoring_chart;
    edit(call, pace, MONITORING, version, addons::monitoring_values).await
}

pub(super) async fn upgrade_logging(call: &Call, pace: Pace<'_>) -> Result<()> {
    let release = &call.release()?.0;
    let router = release.logging_chart_harvester_event_router.clone().unwrap_or_default();
    let version = release.logging_chart.as_deref().unwrap_or_default();
    edit(call, pace, LOGGING, version, |values| {
        addons::logging_values(values, &router)
    })
    .await
}

async fn edit(
    call: &Call,
    pace: Pace<'_>,
    (namespace, name): (&str, &str),
    version: &str,
    edit: impl Fn(&mut serde_json::Value),
) -> Result<()> {
    let Some(current) = call.world.addons.get(namespace, name) else {
        return Ok(());
    };
    // Values that cannot be read stay as they are.
    let wanted = addons::edited(&current, version, edit).unwrap_or_else(|_| Change::to(version));
    change(call, pace, (namespace, name), &current, &wanted).await
}

/// Changes an addon, and waits a while when it ran before.
async fn change(
    call: &Call,
    pace: Pace<'_>,
    (namespace, name): (&str, &str),
    current: &Addon,
    wanted: &Change<'_>,
) -> Result<()> {
    let world = &call.world;
    let patch = wanted.patch(current);
    if let Some(patch) = &patch {
        let key = (namespace.to_owned(), name.to_owned());
        world.addons.patch(&key, patch).await?;
    }
    if !addons::wait_for(current, patch.is_some()) {
        return Ok(());
    }
    call.a_moment().await;
    let inbox = world.inbox();
    world.addons.subscribe(&inbox);
    // Where addons take no time, there is nothing to be steady about.
    let steady = STEADY.min(world.durations.addon);
    let mut deployment = Deployment::of(&called::<Addon>(namespace, name), steady);
    let look = || deployment.look(world.clock.now(), world.addons.get(namespace, name).as_deref());
    let ticking = async {
        loop {
            world.clock.sleep(TICK).await;
            inbox.bell().notify_one();
        }
    };
    tokio::select! {
        biased;
        done = pace.until(inbox.bell(), look) => done,
        () = ticking => Ok(()),
        () = world.clock.sleep(PATIENCE) => Ok(()),
    }
}
