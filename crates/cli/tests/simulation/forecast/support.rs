//! Snapshots of clusters of odd shapes, and their forecasts.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use checks::finding::ObjectRef;
use cli::rehearsal::{
    Scenario, beginning,
    follow::View,
    forecast::{Asked, forecast},
};
use clock::Clock;
use kube::ResourceExt;
use serde_json::{Value, json};
use snapshot::{Snapshot, kinds::KubeletDisk};
use view::forecast::{Blocker, BlockerKind, Forecast};
use world::Shape;

use crate::{
    doctor::edit::{Edit, only},
    run::in_paused_time,
    watched::Watched,
};

pub(super) const GIB: u64 = 1 << 30;

/// A settled cluster of a shape, and what its world has made of it within a minute.
pub(super) fn seen(shape: &Shape) -> Snapshot {
    in_paused_time(async {
        let rehearsal = start(shape).await;
        snapshot::live::take(&rehearsal.server.client(), rehearsal.clock.now()).await
    })
}

pub(super) async fn start(shape: &Shape) -> Watched {
    let scenario = Scenario {
        shape: shape.clone(),
        ..Scenario::default()
    };
    let clock = Clock::simulated(beginning(), 1.0);
    let rehearsal = Watched::start(scenario, clock).await;
    rehearsal.clock.sleep(Duration::from_secs(60)).await;
    rehearsal
}

pub(super) fn foretell(snapshot: &Snapshot) -> Forecast {
    foretell_with(snapshot, true)
}

pub(super) fn foretell_with(snapshot: &Snapshot, restore_vm: bool) -> Forecast {
    let asked = Asked {
        snapshot: snapshot.clone(),
        from: None,
        to: None,
        seed: 1,
        restore_vm,
    };
    let view = View::Lines {
        before: None,
        to_stderr: true,
    };
    let clock = Clock::simulated(beginning(), 1.0);
    in_paused_time(forecast(&asked, clock, Arc::new(Mutex::new(view)))).unwrap()
}

/// Five nodes, of which the third is a witness, with all that can block a node.
pub(super) fn odd() -> Snapshot {
    let shape = Shape {
        nodes: 5,
        witness: true,
        vms: 8,
        ..Shape::default()
    };
    let mut edit = Edit(seen(&shape));
    // The volume of db-2 has one copy, on node-2.
    let volume = volume_of(&edit.0, "db-2-disk-0");
    edit = edit.change(
        "volumes",
        only(&volume, |volume| volume["spec"]["numberOfReplicas"] = json!(1)),
    );
    let kept = format!("{volume}-r-0");
    edit = edit.change(
        "engines",
        only(&format!("{volume}-e-0"), |engine| {
            engine["status"]["replicaModeMap"] = json!({kept.as_str(): "RW"});
        }),
    );
    // build-8 needs nearly all of a node, and something takes a part of each other one.
    edit = edit.change(
        "pods",
        only("virt-launcher-build-8-0", |pod| {
            pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2", "memory": "56Gi"}});
        }),
    );
    for node in ["node-1", "node-2", "node-4"] {
        edit = edit.with(
            "pods",
            pod("kube-system", &format!("agent-{node}"), node, &json!({}), "10Gi"),
        );
    }
    // A workload of one pod that may not be evicted.
    edit = edit.with(
        "pods",
        pod("default", "shop-0", "node-4", &json!({"app": "shop"}), "1Gi"),
    );
    edit = edit.with(
        "budgets",
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "shop", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "shop"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }),
    );
    let mut snapshot = edit.0;
    let full = KubeletDisk {
        capacity_bytes: 200 * GIB,
        used_bytes: 190 * GIB,
        image_gc_high_threshold_percent: 85.0,
    };
    snapshot.kubelet_disks.insert("node-1".to_owned(), Ok(full));
    snapshot.sort();
    snapshot
}

pub(super) fn pod(namespace: &str, name: &str, node: &str, labels: &Value, memory: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": {"memory": memory}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

pub(super) fn volume_of(snapshot: &Snapshot, claim: &str) -> String {
    let volumes = snapshot.volumes.as_ref().unwrap().iter();
    let mut own = volumes.filter(|volume| {
        let status = volume.status.kubernetes_status.as_ref();
        status.and_then(|status| status.pvc_name.as_deref()) == Some(claim)
    });
    own.next().unwrap().name_any()
}

/// The blocker of a kind about an object.
pub(super) fn blocker<'a>(found: &'a Forecast, kind: BlockerKind, object: &ObjectRef) -> &'a Blocker {
    let mut blockers = found.blockers.iter();
    let named = blockers.find(|blocker| blocker.kind == kind && blocker.objects.first() == Some(object));
    named.unwrap_or_else(|| panic!("no {kind:?} about {object} among {:#?}", found.blockers))
}
