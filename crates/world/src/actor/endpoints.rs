//! Services: a cluster address, and an EndpointSlice that lists the pods which serve.

use std::sync::Arc;

use api::labels;
use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::{Value, json};

use crate::{
    context::{Context, controlled_by, digest, owner},
    error::Result,
    inbox::{Key, Kind},
    watched::key_of,
};

use super::deployments::serves;

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.services.subscribe(&inbox);
    world.deployments.subscribe(&inbox);
    loop {
        let (kind, key) = inbox.next().await;
        if kind == Kind::Deployment {
            // A Deployment's status moves when one of its pods begins or stops to serve.
            for service in world
                .services
                .select(|service| service.metadata.namespace.as_ref() == Some(&key.0))
            {
                inbox.now(Kind::Service, key_of(service.as_ref()));
            }
            continue;
        }
        let outcome = sync(&world, &key).await;
        inbox.settle("endpoints", (kind, key), outcome);
    }
}

async fn sync(world: &Context, key: &Key) -> Result<()> {
    let Some(service) = world
        .services
        .at(key)
        .filter(|found| found.metadata.deletion_timestamp.is_none())
    else {
        return Ok(());
    };
    let Some(spec) = &service.spec else { return Ok(()) };
    let Some(selector) = spec.selector.as_ref().filter(|selector| !selector.is_empty()) else {
        return Ok(());
    };
    if spec.cluster_ip.as_deref().unwrap_or_default().is_empty() {
        let address = cluster_ip(&service);
        world
            .services
            .patch(key, &json!({"spec": {"clusterIP": address, "clusterIPs": [address]}}))
            .await?;
    }
    let selected = |pod: &Pod| {
        pod.metadata.namespace.as_deref() == Some(&key.0)
            && owner(&pod.metadata, "ReplicaSet").is_some()
            && selector
                .iter()
                .all(|(name, value)| crate::context::label(&pod.metadata, name) == Some(value))
    };
    let endpoints: Vec<Value> = world
        .pods
        .select(selected)
        .iter()
        .map(|pod| endpoint(world, pod))
        .collect();
    let ports = spec.ports.iter().flatten();
    let ports: Vec<Value> = ports
        .map(|port| json!({"name": port.name.clone().unwrap_or_default(), "port": port.port, "protocol": "TCP"}))
        .collect();
    let slice_key = (key.0.clone(), format!("{}-{}", key.1, digest(&key.1, 5)));
    let Some(slice) = world.endpoint_slices.at(&slice_key) else {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": slice_key.1, "namespace": key.0, "labels": {labels::SERVICE_NAME: key.1},
                "ownerReferences": controlled_by(service.as_ref()),
            },
            "endpoints": endpoints, "ports": ports,
        });
        return world.endpoint_slices.create(&slice).await.map(drop);
    };
    if serde_json::to_value(&slice.endpoints)? != json!(endpoints) {
        world
            .endpoint_slices
            .patch(&slice_key, &json!({"endpoints": endpoints}))
            .await?;
    }
    Ok(())
}

fn endpoint(world: &Context, pod: &Pod) -> Value {
    let address = pod
        .status
        .as_ref()
        .and_then(|status| status.pod_ip.clone())
        .unwrap_or_else(|| "0.0.0.0".to_owned());
    let ready = serves(world, pod);
    let mut endpoint = json!({
        "addresses": [address], "conditions": {"ready": ready, "serving": ready},
        "targetRef": {"kind": "Pod", "namespace": pod.metadata.namespace, "name": pod.metadata.name},
    });
    if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) {
        endpoint["nodeName"] = json!(node);
    }
    endpoint
}

fn cluster_ip(service: &Service) -> String {
    let id = digest(service.metadata.uid.as_deref().unwrap_or_default(), 4);
    let byte = |at: usize| u8::from_str_radix(id.get(at..at + 2).unwrap_or("1"), 16).unwrap_or(1);
    format!("10.53.{}.{}", byte(0), byte(2).max(2))
}
