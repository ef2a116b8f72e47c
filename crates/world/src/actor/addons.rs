//! Harvester's addons: turned on or off, or given another version, they follow after a while.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::json;

use crate::{
    context::{Context, after},
    error::Result,
    inbox::{Inbox, Key, Kind},
};

/// Status of an addon that runs.
pub(crate) const DEPLOYED: &str = "AddonDeploySuccessful";
/// Status of an addon that is brought to another version.
const UPDATING: &str = "AddonUpdating";
/// Status of an addon that does not.
pub(crate) const DISABLED: &str = "AddonDisabled";

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.addons.subscribe(&inbox);
    let mut known = BTreeMap::new();
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = sync(&world, &inbox, &mut known, &key).await;
        inbox.settle("addons", (kind, key), outcome);
    }
}

/// What is known of an addon. A controller that restarts takes one that runs for one of its version, and gives one that
/// moves the full time again.
#[derive(Default)]
struct Known {
    /// The version that runs.
    applied: Option<String>,
    /// When it began to move.
    since: Option<Timestamp>,
}

async fn sync(world: &Context, inbox: &Inbox, known: &mut BTreeMap<Key, Known>, key: &Key) -> Result<()> {
    let Some(addon) = world
        .addons
        .at(key)
        .filter(|addon| addon.metadata.deletion_timestamp.is_none())
    else {
        known.remove(key);
        return Ok(());
    };
    let status = addon.status.status.as_deref().unwrap_or_default();
    let known = known.entry(key.clone()).or_insert_with(|| Known {
        applied: (status == DEPLOYED).then(|| addon.spec.version.clone()).flatten(),
        since: None,
    });
    let moved = addon.spec.version != known.applied;
    let (on_the_way, wanted) = match addon.spec.enabled {
        Some(true) if moved && [DEPLOYED, UPDATING].contains(&status) => (UPDATING, DEPLOYED),
        Some(true) => ("AddonEnabling", DEPLOYED),
        _ => ("AddonDisabling", DISABLED),
    };
    if status == wanted && !(moved && wanted == DEPLOYED) {
        known.since = None;
        return Ok(());
    }
    let now = world.clock.now();
    let due = after(*known.since.get_or_insert(now), world.durations.addon);
    if world.clock.now() < due {
        inbox.later(Kind::Addon, key.clone(), due);
        if status != on_the_way {
            world.addons.patch_status(key, &json!({"status": on_the_way})).await?;
        }
        return Ok(());
    }
    known.since = None;
    known.applied = addon.spec.version.clone();
    world
        .addons
        .patch_status(key, &json!({"status": wanted}))
        .await
        .map(drop)
}
