//! What kubelets say about their disks.

use std::{collections::BTreeMap, error::Error};

use futures::{StreamExt, stream};
use plan::observed::KubeletFacts;
use serde::Deserialize;

use super::error::Unanswered;
use crate::external_probes::{ExternalProbes, Kubelet, KubeletError, KubeletFile};

/// How many kubelets are asked at once.
const KUBELETS_AT_ONCE: usize = 16;
/// What a kubelet does when its configuration does not say.
const DEFAULT_GC_THRESHOLD_PERCENT: f64 = 85.0;

#[derive(Deserialize)]
struct Summary {
    node: SummaryNode,
}

#[derive(Deserialize)]
struct SummaryNode {
    fs: Option<FileSystem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileSystem {
    capacity_bytes: Option<u64>,
    used_bytes: Option<u64>,
}

#[derive(Deserialize)]
struct Configz {
    kubeletconfig: KubeletConfig,
}

#[derive(Deserialize)]
struct KubeletConfig {
    #[serde(rename = "imageGCHighThresholdPercent")]
    image_gc_high_threshold_percent: Option<f64>,
}

/// What all of them say, by node.
pub(super) async fn ask(
    probes: &dyn ExternalProbes,
    nodes: Vec<Kubelet>,
) -> Result<BTreeMap<String, KubeletFacts>, Unanswered> {
    let asked = nodes.into_iter().map(|kubelet| async move {
        let facts = ask_one(probes, &kubelet).await;
        (kubelet.node, facts)
    });
    let answers: Vec<_> = stream::iter(asked).buffer_unordered(KUBELETS_AT_ONCE).collect().await;
    let (mut found, mut silent, mut closed) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (node, facts) in answers {
        match facts {
            Ok((facts, configuration)) => {
                closed.extend((configuration == Configuration::Closed).then(|| node.clone()));
                found.insert(node, facts);
            }
            Err(error) => silent.push(error),
        }
    }
    if !closed.is_empty() {
        closed.sort();
        tracing::warn!(
            nodes = closed.join(", "),
            "kubelets do not show their configuration before Kubernetes 1.33; image garbage collection is taken to begin at \
             {DEFAULT_GC_THRESHOLD_PERCENT} %, as Kubernetes has it"
        );
    }
    if silent.is_empty() {
        return Ok(found);
    }
    silent.sort_by_key(ToString::to_string);
    Err(Unanswered::Kubelets(silent))
}

/// Why a kubelet did not say how full its disk is.
#[derive(Debug, thiserror::Error)]
pub(super) enum KubeletFault {
    /// It did not answer, or with something else.
    #[error("failed to ask the kubelet of node {node} for {}: {source}", file.path())]
    File {
        node: String,
        file: KubeletFile,
        source: Box<dyn Error + Send + Sync>,
    },
    /// It left that out.
    #[error("kubelet of node {node} does not report its file system in stats/summary")]
    NoFileSystem { node: String },
}

/// Whether a kubelet shows its configuration to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Configuration {
    Shown,
    Closed,
}

async fn ask_one(
    probes: &dyn ExternalProbes,
    kubelet: &Kubelet,
) -> Result<(KubeletFacts, Configuration), KubeletFault> {
    let node = &kubelet.node;
    let summary = probes.kubelet(kubelet, KubeletFile::Summary).await;
    let summary = summary.map_err(|error| failed(node, KubeletFile::Summary, error))?;
    let summary: Summary = parse(node, KubeletFile::Summary, &summary)?;
    let fs = summary.node.fs;
    let (Some(capacity_bytes), Some(used_bytes)) = (
        fs.as_ref().and_then(|fs| fs.capacity_bytes),
        fs.as_ref().and_then(|fs| fs.used_bytes),
    ) else {
        return Err(KubeletFault::NoFileSystem { node: node.clone() });
    };
    let (threshold, configuration) = match probes.kubelet(kubelet, KubeletFile::Configz).await {
        Ok(body) => {
            let configz: Configz = parse(node, KubeletFile::Configz, &body)?;
            let threshold = configz.kubeletconfig.image_gc_high_threshold_percent;
            (threshold, Configuration::Shown)
        }
        Err(KubeletError::Forbidden(_)) => (None, Configuration::Closed),
        Err(error) => return Err(failed(node, KubeletFile::Configz, error)),
    };
    let facts = KubeletFacts {
        capacity_bytes,
        used_bytes,
        image_gc_high_threshold_percent: threshold.unwrap_or(DEFAULT_GC_THRESHOLD_PERCENT),
    };
    Ok((facts, configuration))
}

fn parse<T: for<'de> Deserialize<'de>>(node: &str, file: KubeletFile, body: &[u8]) -> Result<T, KubeletFault> {
    serde_json::from_slice(body).map_err(|error| failed(node, file, error))
}

fn failed(node: &str, file: KubeletFile, source: impl Error + Send + Sync + 'static) -> KubeletFault {
    KubeletFault::File {
        node: node.to_owned(),
        file,
        source: Box::new(source),
    }
}
