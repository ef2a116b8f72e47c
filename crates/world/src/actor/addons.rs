//! Harvester's addons: turned on or off, or given another version, they follow after a while.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::json;

use crate::{
    context::{Context, after, annotation},
    error::Result,
    inbox::{Inbox, Key, Kind},
};

use super::fleet::APPLIED;

/// Status of an addon that runs.
pub(crate) const DEPLOYED: &str = "AddonDeploySuccessful";
/// Status of an addon that is brought to another version.
const UPDATING: &str = "AddonUpdating";
/// Status of an addon that does not.
pub(crate) const DISABLED: &str = "AddonDisabled";

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.addons.subscribe(&inbox);
    // When an addon began to move. A controller that starts anew gives it the full time again.
    let mut since = BTreeMap::new();
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = sync(&world, &inbox, &mut since, &key).await;
        inbox.settle("addons", (kind, key), outcome);
    }
}

async fn sync(world: &Context, inbox: &Inbox, since: &mut BTreeMap<Key, Timestamp>, key: &Key) -> Result<()> {
    let Some(addon) = world
        .addons
        .at(key)
        .filter(|addon| addon.metadata.deletion_timestamp.is_none())
    else {
        since.remove(key);
        return Ok(());
    };
    let status = addon.status.status.as_deref().unwrap_or_default();
    let applied = annotation(&addon.metadata, APPLIED);
    let moved = addon.spec.version.as_deref() != applied;
    let (on_the_way, wanted) = match addon.spec.enabled {
        Some(true) if moved && [DEPLOYED, UPDATING].contains(&status) => (UPDATING, DEPLOYED),
        Some(true) => ("AddonEnabling", DEPLOYED),
        _ => ("AddonDisabling", DISABLED),
    };
    if status == wanted && !(moved && wanted == DEPLOYED) {
        since.remove(key);
        return Ok(());
    }
    let due = after(
        *since.entry(key.clone()).or_insert_with(|| world.clock.now()),
        world.durations.addon,
    );
    if world.clock.now() < due {
        inbox.later(Kind::Addon, key.clone(), due);
        if status != on_the_way {
            world.addons.patch_status(key, &json!({"status": on_the_way})).await?;
        }
        return Ok(());
    }
    since.remove(key);
    let memory = json!({"metadata": {"annotations": {APPLIED: addon.spec.version}}});
    world.addons.patch(key, &memory).await?;
    world
        .addons
        .patch_status(key, &json!({"status": wanted}))
        .await
        .map(drop)
}
