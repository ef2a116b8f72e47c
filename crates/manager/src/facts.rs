//! Answers to the questions that decisions ask outside the watched kinds.
//!
//! A question is answered by a future that the manager's loop drives; what it found is kept until the plan is gone.

mod kept_pods;

use std::{collections::BTreeMap, sync::Arc};

use api::{Phase, ReleaseMetadata, UpgradePlan, labels, names};
use clock::Clock;
use futures::{StreamExt, future::BoxFuture, stream};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client, ResourceExt, api::ListParams};
use plan::{
    Need,
    observed::{Facts, Fetched, ImageLists, KeptPods, KubeletFacts, NewImages, PreflightFacts},
    preflight,
};
use release::{bundle, image_list};
use serde::Deserialize;

use crate::outside::{FetchError, Outside};

/// How many kubelets are asked at once.
const KUBELETS_AT_ONCE: usize = 16;
/// How many archives are asked for at once.
const ARCHIVES_AT_ONCE: usize = 8;
/// The port of the API server on its own addresses.
const API_SERVER_PORT: u16 = 6443;
/// What a kubelet does when its configuration does not say.
const DEFAULT_GC_THRESHOLD_PERCENT: f64 = 85.0;

/// An answer on its way.
pub type Answering = BoxFuture<'static, Answer>;

/// An answer: which plan asked what, and what was found.
pub struct Answer {
    uid: String,
    found: Found,
}

enum Found {
    Preflight(Result<PreflightFacts, String>),
    Release(Result<ReleaseMetadata, String>),
    ImageLists(Result<ImageLists, String>),
    NewImages(Result<NewImages, String>),
    KeptPods(Result<KeptPods, String>),
}

/// What is known, per plan.
#[derive(Default)]
pub struct Known {
    facts: BTreeMap<String, Facts>,
    asked: BTreeMap<String, Vec<Need>>,
}

impl Known {
    /// What is known for a plan.
    #[must_use]
    pub fn of(&self, plan: &UpgradePlan) -> Facts {
        self.facts
            .get(&plan.uid().unwrap_or_default())
            .cloned()
            .unwrap_or_default()
    }

    /// Notes that a question is on its way; `false` if it already was.
    pub fn ask(&mut self, plan: &UpgradePlan, need: Need) -> bool {
        let asked = self.asked.entry(plan.uid().unwrap_or_default()).or_default();
        let new = !asked.contains(&need);
        if new {
            asked.push(need);
        }
        new
    }

    /// Takes an answer in.
    pub fn take(&mut self, answer: Answer, clock: &Clock) {
        let Answer { uid, found } = answer;
        let facts = self.facts.entry(uid.clone()).or_default();
        let need = match found {
            Found::Preflight(result) => {
                note(&mut facts.preflight, result, clock);
                Need::Preflight
            }
            Found::Release(result) => {
                note(&mut facts.release, result, clock);
                Need::Release
            }
            Found::ImageLists(result) => {
                note(&mut facts.image_lists, result, clock);
                Need::ImageLists
            }
            Found::NewImages(result) => {
                note(&mut facts.new_images, result, clock);
                Need::NewImages
            }
            Found::KeptPods(result) => {
                let at = clock.now_in_seconds();
                note(
                    &mut facts.kept_pods,
                    result.map(|found| KeptPods { at, ..found }),
                    clock,
                );
                Need::KeptPods
            }
        };
        self.asked.entry(uid).or_default().retain(|asked| *asked != need);
    }

    /// Forgets plans that are gone or have ended: another try asks again.
    pub fn keep(&mut self, plans: &[Arc<UpgradePlan>]) {
        let alive = |uid: &String| {
            plans
                .iter()
                .any(|plan| plan.metadata.uid.as_ref() == Some(uid) && !plan.phase().is_some_and(Phase::is_terminal))
        };
        self.facts.retain(|uid, _| alive(uid));
        self.asked.retain(|uid, _| alive(uid));
    }
}

fn note<T>(known: &mut Fetched<T>, result: Result<T, String>, clock: &Clock) {
    let before = match known {
        Fetched::Failed { attempts, .. } => *attempts,
        _ => 0,
    };
    *known = match result {
        Ok(found) => Fetched::Got(found),
        Err(error) => Fetched::Failed {
            error,
            at: clock.now_in_seconds(),
            attempts: before + 1,
        },
    };
}

/// Starts to answer a question.
#[must_use]
pub fn answer(
    client: Client,
    outside: Arc<dyn Outside>,
    plan: &UpgradePlan,
    need: Need,
    managed_nodes: Vec<String>,
) -> Answering {
    let uid = plan.uid().unwrap_or_default();
    let base = names::repo_url(&plan.name_any());
    // Kubelets are not asked where what they say does not count.
    let managed_nodes = match preflight::skips_disk_space(plan) {
        Ok(true) => Vec::new(),
        _ => managed_nodes,
    };
    let previous = plan
        .status
        .as_ref()
        .and_then(|status| status.previous_version.clone())
        .unwrap_or_default();
    let drained = kept_pods::drained_nodes(plan);
    Box::pin(async move {
        let found = match need {
            Need::Preflight => Found::Preflight(disks_and_certificates(&client, outside.as_ref(), managed_nodes).await),
            Need::Release => Found::Release(release(outside.as_ref(), &base).await),
            Need::ImageLists => Found::ImageLists(image_lists(outside.as_ref(), &base, &previous).await),
            Need::NewImages => Found::NewImages(new_images(&client, outside.as_ref(), &base, managed_nodes).await),
            Need::KeptPods => Found::KeptPods(kept_pods::ask(&client, &drained).await),
        };
        Answer { uid, found }
    })
}

async fn release(outside: &dyn Outside, base: &str) -> Result<ReleaseMetadata, String> {
    let url = format!("{base}/harvester-release.yaml");
    let body = outside
        .fetch(&url)
        .await
        .map_err(|error| format!("failed to read {url}: {error}"))?;
    let text = String::from_utf8(body).map_err(|_| format!("{url} is not text"))?;
    serde_saphyr::from_str(&text).map_err(|error| format!("{url} is not release metadata: {error}"))
}

async fn image_lists(outside: &dyn Outside, base: &str, previous: &str) -> Result<ImageLists, String> {
    let list = async |version: &str| {
        let url = format!("{base}/{}", image_list::path_of(version));
        match outside.fetch(&url).await {
            Ok(body) => match image_list::parse(&String::from_utf8_lossy(&body)) {
                Ok(images) => Ok(Some(images.into_iter().collect())),
                Err(error) => Err(format!("{url} is not a list of images: {error}")),
            },
            Err(FetchError::NotFound) => Ok(None),
            Err(FetchError::Other(error)) => Err(format!("failed to read {url}: {error}")),
        }
    };
    Ok(ImageLists {
        previous: list(previous).await?,
        current: list(image_list::CURRENT).await?,
    })
}

/// How large the archives are, and how full the disks.
async fn new_images(
    client: &Client,
    outside: &dyn Outside,
    base: &str,
    nodes: Vec<String>,
) -> Result<NewImages, String> {
    Ok(NewImages {
        archive_bytes: archive_bytes(outside, base).await?,
        kubelets: kubelets(client, nodes).await?,
    })
}

async fn archive_bytes(outside: &dyn Outside, base: &str) -> Result<Option<u64>, String> {
    let url = format!("{base}/{}", bundle::PATH);
    let body = match outside.fetch(&url).await {
        Ok(body) => body,
        Err(FetchError::NotFound) => return Ok(None),
        Err(error) => return Err(format!("failed to read {url}: {error}")),
    };
    let found = bundle::parse(&String::from_utf8_lossy(&body)).map_err(|error| format!("{url}: {error}"))?;
    let urls = found
        .archives()
        .map(|(_, archive)| format!("{base}/{}", archive.archive.as_str()));
    let urls: Vec<String> = urls.collect();
    let sizes = urls.into_iter().map(|url| async move {
        let size = outside.size(&url).await;
        size.map_err(|error| format!("failed to ask for the size of {url}: {error}"))
    });
    let sizes: Vec<_> = stream::iter(sizes).buffer_unordered(ARCHIVES_AT_ONCE).collect().await;
    let mut total: u64 = 0;
    for size in sizes {
        total = total.saturating_add(size?);
    }
    Ok(Some(total))
}

/// What all kubelets say about their disks.
async fn kubelets(client: &Client, nodes: Vec<String>) -> Result<BTreeMap<String, KubeletFacts>, String> {
    let asked = nodes.into_iter().map(|node| async move {
        let facts = kubelet(client, &node).await;
        (node, facts)
    });
    let answers: Vec<_> = stream::iter(asked).buffer_unordered(KUBELETS_AT_ONCE).collect().await;
    let (mut found, mut silent) = (BTreeMap::new(), Vec::new());
    for (node, facts) in answers {
        match facts {
            Ok(facts) => {
                found.insert(node, facts);
            }
            Err(error) => silent.push(error),
        }
    }
    if silent.is_empty() {
        return Ok(found);
    }
    silent.sort();
    Err(silent.join("; "))
}

async fn disks_and_certificates(
    client: &Client,
    outside: &dyn Outside,
    nodes: Vec<String>,
) -> Result<PreflightFacts, String> {
    let kubelets = kubelets(client, nodes).await?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), names::DEFAULT_NAMESPACE);
    let selector = format!("{}={}", labels::SERVICE_NAME, names::KUBERNETES_SERVICE);
    let slices = slices.list(&ListParams::default().labels(&selector)).await;
    let slices = slices.map_err(|error| format!("failed to list the API server's endpoints: {error}"))?;
    let api_servers: Vec<String> = slices
        .iter()
        .flat_map(|slice| &slice.endpoints)
        .flat_map(|endpoint| &endpoint.addresses)
        .map(|address| with_port(address))
        .collect();
    let (mut certificates, mut silent) = (BTreeMap::new(), Vec::new());
    for address in &api_servers {
        match outside.certificate_end(address).await {
            Ok(end) => {
                certificates.insert(address.clone(), end);
            }
            Err(error) => {
                tracing::warn!(%error, "an API server did not show its certificate");
                silent.push(error.to_string());
            }
        }
    }
    if certificates.is_empty() && !silent.is_empty() {
        let silent = silent.join("; ");
        return Err(format!("no certificates found for kubernetes API server: {silent}"));
    }
    Ok(PreflightFacts {
        kubelets,
        api_servers,
        certificates,
    })
}

/// `host:port`, with brackets around IPv6 addresses.
fn with_port(address: &str) -> String {
    if address.contains(':') {
        format!("[{address}]:{API_SERVER_PORT}")
    } else {
        format!("{address}:{API_SERVER_PORT}")
    }
}

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

/// What a kubelet says about its disk, through the API server: no token of ours leaves for a node.
async fn kubelet(client: &Client, node: &str) -> Result<KubeletFacts, String> {
    let summary: Summary = proxied(client, node, "stats/summary").await?;
    let configz: Configz = proxied(client, node, "configz").await?;
    let fs = summary.node.fs;
    let (Some(capacity_bytes), Some(used_bytes)) = (
        fs.as_ref().and_then(|fs| fs.capacity_bytes),
        fs.as_ref().and_then(|fs| fs.used_bytes),
    ) else {
        return Err(format!(
            "kubelet of node {node} does not report its file system in stats/summary"
        ));
    };
    let threshold = configz
        .kubeletconfig
        .image_gc_high_threshold_percent
        .unwrap_or(DEFAULT_GC_THRESHOLD_PERCENT);
    Ok(KubeletFacts {
        capacity_bytes,
        used_bytes,
        image_gc_high_threshold_percent: threshold,
    })
}

async fn proxied<T: for<'de> Deserialize<'de>>(client: &Client, node: &str, path: &str) -> Result<T, String> {
    let failed = |what: &dyn std::fmt::Display| format!("failed to ask the kubelet of node {node} for {path}: {what}");
    let request = http::Request::get(format!("/api/v1/nodes/{node}/proxy/{path}"));
    let request = request.body(Vec::new()).map_err(|error| failed(&error))?;
    let text = client.request_text(request).await.map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w30_addresses_of_ipv6_get_brackets() {
        assert_eq!(with_port("10.0.0.1"), "10.0.0.1:6443");
        assert_eq!(with_port("fd00::1"), "[fd00::1]:6443");
    }
}
