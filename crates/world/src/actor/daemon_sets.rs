//! The DaemonSet controller, as far as others wait for it: how many nodes have the newest pod ready. The pods themselves
//! are left out.

use std::{collections::BTreeMap, sync::Arc};

use api::node::is_ready;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::PodSpec};
use serde_json::json;

use crate::{
    context::Context,
    error::Result,
    inbox::{Key, Kind},
    schedule,
    watched::key_of,
};

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.daemon_sets.subscribe(&inbox);
    world.nodes.subscribe(&inbox);
    let mut up = BTreeMap::new();
    loop {
        let (kind, key) = inbox.next().await;
        if kind == Kind::Node {
            let is_up = world.is_up(&key.1);
            // Only a node that went down or came back changes which pods are ready.
            if up.insert(key.1, is_up) != Some(is_up) {
                for set in world.daemon_sets.list() {
                    inbox.now(Kind::DaemonSet, key_of(set.as_ref()));
                }
            }
            continue;
        }
        let outcome = sync(&world, &key).await;
        inbox.settle("daemon sets", (kind, key), outcome);
    }
}

async fn sync(world: &Context, key: &Key) -> Result<()> {
    let Some(set) = world.daemon_sets.at(key) else {
        return Ok(());
    };
    let no_spec = PodSpec::default();
    let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let nodes = world
        .nodes
        .select(|node| schedule::may_run_daemon(node, spec.unwrap_or(&no_spec)));
    let ready = nodes.iter().filter(|node| is_ready(node)).count();
    if status_is_current(&set, nodes.len(), ready) {
        return Ok(());
    }
    let status = json!({
        "observedGeneration": set.metadata.generation, "numberMisscheduled": 0,
        "desiredNumberScheduled": nodes.len(), "currentNumberScheduled": nodes.len(),
        "updatedNumberScheduled": nodes.len(), "numberReady": ready, "numberAvailable": ready,
    });
    world.daemon_sets.patch_status(key, &status).await.map(drop)
}

fn status_is_current(set: &DaemonSet, wanted: usize, ready: usize) -> bool {
    let status = set.status.as_ref();
    let count = |number: Option<i32>| number.and_then(|number| usize::try_from(number).ok());
    status.and_then(|status| status.observed_generation) == set.metadata.generation
        && count(status.map(|status| status.desired_number_scheduled)) == Some(wanted)
        && count(status.map(|status| status.number_ready)) == Some(ready)
}
