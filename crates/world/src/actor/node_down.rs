//! Harvester's node-down controller as it was before July 2026: it takes `kubevirt.io/drain` away from every node that is Ready,
//! since it knows no UpgradePlan. Only if the troubles enable it.

use std::sync::Arc;

use api::node::is_ready;
use rules::drain_taint;

use crate::{context::Context, error::Result, inbox::Key};

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.nodes.subscribe(&inbox);
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = if world.troubles().drain_taint_is_taken_away {
            untaint(&world, &key).await
        } else {
            Ok(())
        };
        inbox.settle("node-down", (kind, key), outcome);
    }
}

async fn untaint(world: &Context, key: &Key) -> Result<()> {
    let node = world.nodes.at(key).filter(|node| is_ready(node));
    match node.and_then(|node| drain_taint::patch(&node, false)) {
        Some(patch) => world.nodes.patch(key, &patch).await.map(drop),
        None => Ok(()),
    }
}
