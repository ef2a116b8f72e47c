//! Pods of users that a controller of theirs makes again when they are gone: on a node that takes them, under their name. The
//! controllers themselves (StatefulSets, Deployments of users) are left out.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::pod::has_ended;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::{
    context::{Context, after, annotation},
    error::Result,
    inbox::{Inbox, Key, Kind},
    schedule,
};

/// On a pod: it is made again when it is gone.
pub(crate) const CONTROLLED: &str = "world.upgrade-toolkit/controlled";
/// How soon a pod that fits on no node is tried again.
const PAUSE: Duration = Duration::from_secs(30);

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.pods.subscribe(&inbox);
    let mut known: BTreeMap<Key, Arc<Pod>> = BTreeMap::new();
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = match world.pods.at(&key) {
            Some(pod) if annotation(&pod.metadata, CONTROLLED).is_some() && !has_ended(&pod) => {
                known.insert(key.clone(), pod);
                Ok(())
            }
            Some(_) => Ok(()),
            None => match known.get(&key).cloned() {
                Some(pod) => make_again(&world, &inbox, &key, &pod).await,
                None => Ok(()),
            },
        };
        inbox.settle("workloads", (kind, key), outcome);
    }
}

async fn make_again(world: &Context, inbox: &Inbox, key: &Key, pod: &Pod) -> Result<()> {
    let mut spec = pod.spec.clone().unwrap_or_default();
    spec.node_name = None;
    let Some(node) = schedule::pick(world, &spec, |_| 0) else {
        inbox.later(Kind::Pod, key.clone(), after(world.clock.now(), PAUSE));
        return Ok(());
    };
    spec.node_name = Some(node);
    let again: Value = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": key.1, "namespace": key.0,
            "labels": pod.metadata.labels, "annotations": pod.metadata.annotations,
        },
        "spec": spec,
    });
    world.pods.create(&again).await.map(drop)
}
