//! What the manager reads outside the API: files of the upgrade repository, certificates of the API
//! servers, what kubelets say about themselves.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ::release::{
    manifest::{self, FileSum, IsoSum, Manifest},
    tls::Identity,
};
use api::{Component, names};
use hyper::body::Bytes;
use jiff::Timestamp;
use k8s_openapi::{api::apps::v1::Deployment, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use rules::room::{Disk, NEW_IMAGES_BYTES, projection};
use serde_json::json;

use crate::{
    actor::cdi::ISO_BYTES,
    cluster::platform::ISO_CHECKSUM,
    context::Context,
    release::{Release, image_list},
    troubles::RepositoryTrouble,
};

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
const GIB: u64 = 1 << 30;
const CAPACITY: u64 = 200 * GIB;
const USED: u64 = 60 * GIB;
const THRESHOLD_PERCENT: f64 = 85.0;
/// More than the threshold of image garbage collection, with what an upgrade adds.
const USED_WHEN_FULL: u64 = 165 * GIB;

/// The archives of a release have 4.4 GiB together.
const ARCHIVE_BYTES: u64 = 22 * GIB / 15;
const METADATA: &str = "images:
  common:
  - {list: /harvester/images-lists/harvester.txt, archive: /harvester/images/harvester.tar.zst}
  rke2:
  - {list: /harvester/images-lists/rke2.txt, archive: /harvester/images/rke2.tar.zst}
  agent:
  - {list: /rancherd/images/agent.txt, archive: /rancherd/images/agent.tar.zst}
";

/// The lists of those archives, from the root of the ISO.
const LISTS: [&str; 3] = [
    "bundle/harvester/images-lists/harvester.txt",
    "bundle/harvester/images-lists/rke2.txt",
    "bundle/rancherd/images/agent.txt",
];

/// Why the repository did not answer with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryError {
    /// No connection.
    #[error("{0}")]
    Unreachable(String),
    /// Another server answers.
    #[error("{0}")]
    Untrusted(String),
    /// An answer that is not a file.
    #[error("unexpected status {0}")]
    Status(u16),
}

/// What the manager reads outside the API.
#[derive(Clone)]
pub struct Facts(pub(crate) Arc<Context>);

impl Facts {
    /// Changes the simulated failures from now on.
    pub fn set_troubles(&self, troubles: crate::Troubles) {
        self.0.set_troubles(troubles);
    }

    /// Waits as long as others take to answer.
    pub async fn think(&self) {
        self.0.clock.sleep(self.0.durations.answer).await;
    }

    /// The current simulated time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// What the repository of a plan serves over TLS with: what is in the Secret that its pods mount.
    #[must_use]
    pub fn repository_identity(&self, plan: &str) -> Option<Identity> {
        let deployment = self.0.deployments.get(names::HARVESTER_NAMESPACE, &names::repo(plan))?;
        self.identity(&deployment)
    }

    fn identity(&self, deployment: &Deployment) -> Option<Identity> {
        let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
        let mut volumes = pod.volumes.iter().flatten();
        let name = volumes.find_map(|volume| volume.secret.as_ref()?.secret_name.as_deref())?;
        let secret = self.0.repo_secrets.get(names::HARVESTER_NAMESPACE, name)?;
        let text = |file: &str| {
            let bytes = &secret.data.as_ref()?.get(file)?.0;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        Some(Identity {
            certificate: text("tls.crt")?,
            key: text("tls.key")?,
        })
    }

    /// A file of a plan's repository, by its URL as [`api::names::repo_url`] makes it, for a client that trusts a
    /// certificate. Over TLS no client reads from a server with another one.
    ///
    /// # Errors
    /// When no pod serves that repository now, or it has no such file.
    pub fn repository(&self, url: &str, certificate: Option<&str>) -> Result<Bytes, RepositoryError> {
        let world = &self.0;
        let refuse = |why: &str| Err(RepositoryError::Unreachable(format!("failed to reach {url}: {why}")));
        let Some((scheme, (host, path))) = url
            .split_once("://")
            .and_then(|(scheme, rest)| Some((scheme, rest.split_once('/')?)))
        else {
            return refuse("not a URL");
        };
        let name = host.split('.').next().unwrap_or(host);
        let deployment = world.deployments.get(names::HARVESTER_NAMESPACE, name);
        let is_repo = |meta: &ObjectMeta| Component::of(meta) == Some(Component::Repo);
        let Some(deployment) = deployment.filter(|found| is_repo(&found.metadata)) else {
            return refuse("no such host");
        };
        let available = deployment
            .status
            .as_ref()
            .and_then(|status| status.available_replicas)
            .unwrap_or(0);
        if available < 1 || world.troubles().repository == Some(RepositoryTrouble::Unreachable) {
            return refuse("connection refused");
        }
        let release = self.release_of(name);
        let is_impostor = world.troubles().repository == Some(RepositoryTrouble::Impostor);
        if scheme == "https" {
            let shown = self.identity(&deployment).filter(|_| !is_impostor);
            if certificate.is_none() || shown.as_ref().map(|shown| shown.certificate.as_str()) != certificate {
                return Err(RepositoryError::Untrusted(format!(
                    "failed to reach {url}: invalid peer certificate: UnknownIssuer"
                )));
            }
        } else if certificate.is_some() {
            return refuse("a client with a certificate sent a request without TLS");
        }
        if is_impostor && path == manifest::file_name() {
            let mut manifest = self.manifest(&release)?;
            manifest.files.remove(manifest::ROOTFS);
            return Ok(Bytes::from(manifest.text()));
        }
        if path == manifest::file_name() {
            let mut manifest = self.manifest(&release)?;
            if world.troubles().repository == Some(RepositoryTrouble::ReplayedManifest) {
                manifest.files.remove(manifest::ROOTFS);
            }
            return Ok(Bytes::from(manifest.text()));
        }
        let Some(path) = path.strip_prefix("harvester-iso/") else {
            return Err(RepositoryError::Status(404));
        };
        if self.0.troubles().repository == Some(RepositoryTrouble::SwappedRelease) && path == "harvester-release.yaml" {
            let another = Release::of("v1.9.9").yaml();
            return Ok(Bytes::from(another));
        }
        self.file(path, &release)
            .map(Bytes::from)
            .ok_or(RepositoryError::Status(404))
    }

    /// The release that a repository serves: that of the Version which its plan names.
    pub(crate) fn release_of(&self, repository: &str) -> Release {
        let plans = self.0.upgrade_plans.list();
        let mut plans = plans.iter();
        let plan = plans.find(|plan| {
            plan.metadata
                .name
                .as_deref()
                .is_some_and(|name| names::repo(name) == repository)
        });
        let version = plan.and_then(|plan| plan.spec.version.clone());
        version.map_or_else(|| self.0.shape.release(), |version| Release::of(&version))
    }

    /// The size of a file of the ISO that is too large to be simulated: an archive of images.
    #[must_use]
    pub fn size(&self, url: &str) -> Option<u64> {
        url.ends_with(".tar.zst").then_some(ARCHIVE_BYTES)
    }

    /// The manifest of the ISO. The content of its large files is not read.
    pub(crate) fn manifest(&self, release: &Release) -> Result<Manifest, RepositoryError> {
        let trouble = self.0.troubles().repository;
        let sha512 = match trouble {
            Some(RepositoryTrouble::AnotherIso) => "0".repeat(128),
            _ => ISO_CHECKSUM.to_owned(),
        };
        let broken = |_| RepositoryError::Status(500);
        let mut files = BTreeMap::new();
        let texts = ["harvester-release.yaml", "bundle/metadata.yaml"]
            .into_iter()
            .chain(LISTS);
        let versions = ["current", &self.0.shape.from].map(::release::image_list::path_of);
        for path in texts.chain(versions.iter().map(String::as_str)) {
            if let Some(text) = self.file(path, release) {
                let sum = FileSum {
                    size: text.len() as u64,
                    sha256: manifest::sha256(text.as_bytes()),
                };
                files.insert(path.to_owned(), sum);
            }
        }
        let archives = LISTS.map(|list| list.replace("images-lists", "images").replace(".txt", ".tar.zst"));
        for path in archives.into_iter().chain([manifest::ROOTFS.to_owned()]) {
            let sha256 = manifest::sha256(format!("{path} of {}", release.harvester).as_bytes());
            let size = ARCHIVE_BYTES;
            files.insert(path, FileSum { size, sha256 });
        }
        let iso = IsoSum {
            sha512: sha512.parse().map_err(broken)?,
            size: ISO_BYTES,
        };
        Ok(Manifest { iso, files })
    }

    /// A file of the ISO.
    fn file(&self, path: &str, release: &Release) -> Option<String> {
        let shape = &self.0.shape;
        if path == "harvester-release.yaml" {
            return Some(release.yaml());
        }
        if path == "bundle/metadata.yaml" {
            return Some(METADATA.to_owned());
        }
        let trouble = self.0.troubles().repository;
        if LISTS.contains(&path) {
            let empty = trouble == Some(RepositoryTrouble::EmptyImageLists);
            return Some(if empty {
                String::new()
            } else {
                image_list(&release.harvester, &release.kubernetes)
            });
        }
        if trouble == Some(RepositoryTrouble::NoImageLists) {
            return None;
        }
        let version = path
            .strip_prefix("bundle/harvester/images-lists-archive/")?
            .strip_suffix("/image_list_all.txt")?;
        match version {
            "current" => Some(image_list(&release.harvester, &release.kubernetes)),
            version if version == shape.from => Some(image_list(version, &shape.installed().kubernetes)),
            _ => None,
        }
    }

    /// The certificates of the API servers: address and when each expires.
    #[must_use]
    pub fn api_certificates(&self) -> Vec<(String, Timestamp)> {
        let world = &self.0;
        let days = u64::try_from(world.troubles().certificate_days.unwrap_or(365)).unwrap_or(0);
        let expires = world
            .began
            .saturating_add(Duration::from_secs(days * SECONDS_PER_DAY))
            .unwrap_or(Timestamp::MAX);
        let slice = world
            .endpoint_slices
            .get(names::DEFAULT_NAMESPACE, names::KUBERNETES_SERVICE);
        let addresses = slice
            .iter()
            .flat_map(|slice| &slice.endpoints)
            .flat_map(|endpoint| endpoint.addresses.clone());
        addresses.map(|address| (format!("{address}:6443"), expires)).collect()
    }

    /// The disk of a node: as it was seen, unless it was too full and an administrator has freed it since.
    fn disk(&self, node: &str) -> Disk {
        let is_full = self.0.troubles().full_disks.contains(node);
        let layout = self.0.shape.layout.iter().flat_map(|layout| &layout.nodes);
        let mut seen = layout.filter(|seen| seen.name == node).filter_map(|seen| seen.disk);
        let usual = Disk {
            capacity_bytes: CAPACITY,
            used_bytes: if is_full { USED_WHEN_FULL } else { USED },
            threshold_percent: THRESHOLD_PERCENT,
        };
        let disk = seen.next().unwrap_or(usual);
        let has_room = projection(node, disk, NEW_IMAGES_BYTES).is_none();
        if is_full || has_room { disk } else { usual }
    }

    /// What the kubelet of a node answers: status code, content type, body. Nothing when there is no such node.
    #[must_use]
    pub fn kubelet(&self, node: &str, path: &str) -> Option<(u16, String, Bytes)> {
        self.0.nodes.get("", node)?;
        let answer =
            |code: u16, body: serde_json::Value| Some((code, "application/json".to_owned(), body.to_string().into()));
        if !self.0.is_up(node) {
            return answer(503, json!({"message": "the node is down"}));
        }
        match path.trim_start_matches('/').split('?').next() {
            Some("stats/summary") => {
                let Disk {
                    capacity_bytes: capacity,
                    used_bytes: used,
                    ..
                } = self.disk(node);
                answer(
                    200,
                    json!({"node": {"nodeName": node, "fs": {
                    "availableBytes": capacity.saturating_sub(used), "capacityBytes": capacity, "usedBytes": used,
                }}, "pods": []}),
                )
            }
            Some("configz") => {
                // A kubelet has whole percents.
                let threshold: u64 = format!("{:.0}", self.disk(node).threshold_percent)
                    .parse()
                    .unwrap_or_default();
                answer(
                    200,
                    json!({"kubeletconfig": {"imageGCHighThresholdPercent": threshold}}),
                )
            }
            _ => answer(404, json!({"message": "not found"})),
        }
    }
}
