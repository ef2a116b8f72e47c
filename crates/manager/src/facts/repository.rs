//! Reads the repository of a plan. Once its digests are recorded, all files must match them.

use std::sync::Arc;

use api::{
    ReleaseDigests, ReleaseMetadata, UpgradePlan,
    names::{self, RepoScheme},
    release_digests::NEEDED_FILES,
};
use futures::{StreamExt, stream};
use kube::ResourceExt;
use plan::observed::ImageLists;
use release::{
    bundle, image_list,
    manifest::{self, FileSum, Manifest},
    release_file,
    tls::Trust,
};

use super::error::Unanswered;
use crate::external_probes::{ExternalProbes, FetchError};

/// How many archives are asked for at once.
const ARCHIVES_AT_ONCE: usize = 8;
/// How many files are shown in the status. A release has some thirty.
const MOST_SHOWN: usize = 100;

/// The repository of a plan.
pub(super) struct Repository {
    probes: Arc<dyn ExternalProbes>,
    base: String,
    /// The recorded certificate of the server. None in an upgrade that began under an older manager.
    trust: Option<Trust>,
    /// What is on record.
    digests: Option<ReleaseDigests>,
}

impl Repository {
    /// That of a plan.
    pub(super) fn of(plan: &UpgradePlan, probes: Arc<dyn ExternalProbes>) -> Self {
        let name = plan.name_any();
        let access = plan.status.as_ref().and_then(|status| status.repository.as_ref());
        let trust = access.map(|access| Trust {
            certificate: access.certificate.clone(),
            server_name: names::repo_server_name(&name),
        });
        Self {
            probes,
            base: names::repo_url(&name, RepoScheme::by(trust.as_ref())),
            trust,
            digests: plan.status.as_ref().and_then(|status| status.release_digests.clone()),
        }
    }

    /// The digests of what it serves now.
    pub(super) async fn digests(&self) -> Result<ReleaseDigests, Unanswered> {
        let (url, text) = self.manifest_text().await?;
        let (manifest, root) = Manifest::read(&text).map_err(|source| Unanswered::Manifest { url, source })?;
        let Manifest { iso, files } = manifest;
        let shown = files.len() <= MOST_SHOWN;
        let is_needed = |path: &str| NEEDED_FILES.contains(&path);
        let files = files.into_iter().filter(|(path, _)| shown || is_needed(path));
        Ok(ReleaseDigests {
            manifest: root.into(),
            iso_sha512: iso.sha512.into(),
            iso_size: i64::try_from(iso.size).unwrap_or(i64::MAX),
            iso_verified: false,
            files: files.map(|(path, sum)| (path, sum.sha256.into())).collect(),
        })
    }

    async fn manifest_text(&self) -> Result<(String, String), Unanswered> {
        let url = manifest::url_of(&self.base);
        let body = self.probes.fetch(&url, self.trust.as_ref()).await;
        match body.map(String::from_utf8) {
            Ok(Ok(text)) => Ok((url, text)),
            Ok(Err(_)) => Err(Unanswered::NotText { url }),
            Err(source) => Err(Unanswered::Fetch { url, source }),
        }
    }

    /// What is on record about a file: nothing where nothing is on record at all.
    async fn recorded(&self, path: &str) -> Result<Option<FileSum>, FetchError> {
        let Some(digests) = &self.digests else { return Ok(None) };
        let other = |error: Unanswered| FetchError::Other(error.to_string());
        let (url, text) = self.manifest_text().await.map_err(other)?;
        let unusable = |error: &dyn std::fmt::Display| FetchError::Other(format!("{url} is refused: {error}"));
        let root = digests
            .manifest
            .parse()
            .map_err(|error: bundle::BundleError| unusable(&error))?;
        let manifest = Manifest::verified(&text, &root).map_err(|error| unusable(&error))?;
        manifest.files.get(path).cloned().map(Some).ok_or(FetchError::NotFound)
    }

    /// A file, which must be the one on record.
    async fn file(&self, path: &str) -> Result<Vec<u8>, FetchError> {
        let recorded = self.recorded(path).await?;
        let url = format!("{}/{path}", self.base);
        let body = self.probes.fetch(&url, self.trust.as_ref()).await?;
        let found = manifest::sha256(&body);
        match recorded {
            Some(sum) if sum.sha256 != found => Err(FetchError::Other(format!(
                "{url} is refused: its SHA-256 is {}, and {} is recorded (status.releaseDigests): it was replaced or damaged",
                found.as_str(),
                sum.sha256.as_str()
            ))),
            _ => Ok(body),
        }
    }

    pub(super) async fn release(&self) -> Result<ReleaseMetadata, Unanswered> {
        let url = format!("{}/{}", self.base, release_file::PATH);
        let body = self.file(release_file::PATH).await;
        let text = match body.map(String::from_utf8) {
            Ok(Ok(text)) => text,
            Ok(Err(_)) => return Err(Unanswered::NotText { url }),
            Err(source) => return Err(Unanswered::Fetch { url, source }),
        };
        serde_saphyr::from_str(&text).map_err(|error| Unanswered::Metadata {
            url,
            source: Box::new(error),
        })
    }

    pub(super) async fn image_lists(&self, previous: &str) -> Result<ImageLists, Unanswered> {
        let list = async |version: &str| {
            let path = image_list::path_of(version);
            let url = format!("{}/{path}", self.base);
            match self.file(&path).await {
                Ok(body) => match image_list::parse(&String::from_utf8_lossy(&body)) {
                    Ok(images) => Ok(Some(images.into_iter().collect())),
                    Err(source) => Err(Unanswered::ImageList { url, source }),
                },
                Err(FetchError::NotFound) => Ok(None),
                Err(source) => Err(Unanswered::Fetch { url, source }),
            }
        };
        Ok(ImageLists {
            previous: list(previous).await?,
            current: list(image_list::CURRENT).await?,
        })
    }

    /// How many bytes the archives have together.
    pub(super) async fn archive_bytes(&self) -> Result<Option<u64>, Unanswered> {
        let url = format!("{}/{}", self.base, bundle::PATH);
        let body = match self.file(bundle::PATH).await {
            Ok(body) => body,
            Err(FetchError::NotFound) => return Ok(None),
            Err(source) => return Err(Unanswered::Fetch { url, source }),
        };
        let found =
            bundle::parse(&String::from_utf8_lossy(&body)).map_err(|source| Unanswered::Bundle { url, source })?;
        let urls = found
            .archives()
            .map(|(_, archive)| format!("{}/{}", self.base, archive.archive.as_str()));
        let urls: Vec<String> = urls.collect();
        let sizes = urls.into_iter().map(|url| async move {
            let size = self.probes.size(&url, self.trust.as_ref()).await;
            size.map_err(|source| Unanswered::Size { url, source })
        });
        let sizes: Vec<_> = stream::iter(sizes).buffer_unordered(ARCHIVES_AT_ONCE).collect().await;
        let mut total: u64 = 0;
        for size in sizes {
            total = total.saturating_add(size?);
        }
        Ok(Some(total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_nodes_need_are_those_that_they_ask_for() {
        assert_eq!(NEEDED_FILES, [release_file::PATH, bundle::PATH, manifest::ROOTFS]);
    }
}
