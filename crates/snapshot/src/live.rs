//! A snapshot of the cluster itself. Only lists and gets; what may not be read is named.

use std::time::Duration;

use futures::{StreamExt, stream};
use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use serde_json::Value;

use crate::{
    Kind, NoAnswer, Place, Snapshot,
    kinds::{KubeletDisk, Which},
    listed::Listed,
};

/// The longest time that one answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Objects per page.
const PAGE: usize = 500;
/// Kinds and kubelets that are asked at once.
const AT_ONCE: usize = 6;
/// Versions of Cluster API that our types can be read from, newest first.
const CAPI_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// What a kubelet removes images above when it does not say.
const DEFAULT_THRESHOLD_PERCENT: f64 = 85.0;

/// Lists every kind, with the rights of the client, and asks kubelets about their disks through the API server.
pub async fn take(client: &Client, now: Timestamp) -> Snapshot {
    let mut snapshot = Snapshot::unknown(now, "not read");
    let lists = stream::iter(Snapshot::kinds())
        .map(|kind| async move { (kind, list(client, kind).await) })
        .buffered(AT_ONCE);
    futures::pin_mut!(lists);
    while let Some((kind, listed)) = lists.next().await {
        match listed {
            Ok(objects) => {
                snapshot.set_listed(kind.field);
                for object in objects {
                    if let Err(error) = snapshot.add(kind.field, object) {
                        snapshot.set_unknown(kind.field, &format!("{} could not be read: {error}", kind.plural));
                        break;
                    }
                }
            }
            Err(why) => snapshot.set_unknown(kind.field, &why.to_string()),
        }
    }
    snapshot.sort();
    let nodes: Vec<String> = snapshot
        .nodes
        .iter()
        .flat_map(|nodes| nodes.iter())
        .filter_map(name)
        .collect();
    let disks = stream::iter(nodes)
        .map(|node| async move {
            let disk = disk(client, &node).await;
            (node, disk)
        })
        .buffered(AT_ONCE);
    snapshot.kubelet_disks = disks.collect().await;
    snapshot
}

fn name(node: &Node) -> Option<String> {
    node.metadata.name.clone()
}

/// All objects of a kind. A cluster that does not know the kind has none.
async fn list(client: &Client, kind: Kind) -> Listed<Value> {
    if kind.group != "cluster.x-k8s.io" {
        return list_version(client, kind, kind.version)
            .await
            .map(Option::unwrap_or_default);
    }
    for version in CAPI_VERSIONS {
        if let Some(objects) = list_version(client, kind, version).await? {
            return Ok(objects);
        }
    }
    Ok(Vec::new())
}

/// All objects of a kind in one version of it; nothing when it is not served.
async fn list_version(client: &Client, kind: Kind, version: &str) -> Result<Option<Vec<Value>>, NoAnswer> {
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let page = match get(client, &path(kind, version, &token)).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => return Err(no_answer(&error)),
        };
        let Value::Object(mut page) = page else {
            return Err("the API server answered with something that is not a list".into());
        };
        token = page
            .get("metadata")
            .and_then(|metadata| metadata.get("continue"))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if let Some(Value::Array(items)) = page.remove("items") {
            found.extend(items);
        }
        if token.is_empty() {
            return Ok(Some(found));
        }
    }
}

fn path(kind: Kind, version: &str, token: &str) -> String {
    let base = if kind.group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{}/{version}", kind.group)
    };
    let namespace = match kind.place {
        Place::Everywhere => String::new(),
        Place::In(namespace) => format!("/namespaces/{namespace}"),
    };
    let mut query = format!("limit={PAGE}");
    match kind.which {
        Which::All => {}
        Which::Labels(selector) => query.push_str(&format!("&labelSelector={}", encoded(selector))),
        Which::Fields(selector) => query.push_str(&format!("&fieldSelector={}", encoded(selector))),
    }
    if !token.is_empty() {
        query.push_str(&format!("&continue={}", encoded(token)));
    }
    format!("{base}{namespace}/{}?{query}", kind.plural)
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// What a kubelet says about its disk, through the API server.
async fn disk(client: &Client, node: &str) -> Result<KubeletDisk, NoAnswer> {
    let proxy = format!("/api/v1/nodes/{}/proxy", encoded(node));
    let stats = get(client, &format!("{proxy}/stats/summary?only_cpu_and_memory=false"))
        .await
        .map_err(|error| no_answer(&error))?;
    let bytes = |field: &str| {
        stats["node"]["fs"][field]
            .as_u64()
            .ok_or_else(|| NoAnswer::from(format!("its kubelet does not say {field} of its disk")))
    };
    // A kubelet that does not show its configuration has the usual one.
    let configuration = get(client, &format!("{proxy}/configz")).await.unwrap_or_default();
    let threshold = configuration["kubeletconfig"]["imageGCHighThresholdPercent"].as_f64();
    Ok(KubeletDisk {
        capacity_bytes: bytes("capacityBytes")?,
        used_bytes: bytes("usedBytes")?,
        image_gc_high_threshold_percent: threshold.unwrap_or(DEFAULT_THRESHOLD_PERCENT),
    })
}

async fn get(client: &Client, path: &str) -> kube::Result<Value> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    let answer = tokio::time::timeout(PATIENCE, client.request(request)).await;
    answer.unwrap_or_else(|_| {
        let late = format!("no answer within {} seconds", PATIENCE.as_secs());
        Err(kube::Error::Service(late.into()))
    })
}

/// The API server's own message, if there is one.
fn no_answer(error: &kube::Error) -> NoAnswer {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.as_str().into(),
        // What went wrong below says more than that something did.
        kube::Error::Service(error) => error.to_string().into(),
        error => error.to_string().into(),
    }
}
