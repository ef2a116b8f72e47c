//! `harvester-release.yaml`: the versions of a release. Pure: text in, value out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where it is in the image.
pub const PATH: &str = "harvester-release.yaml";
/// It has a few hundred bytes.
pub const LARGEST_BYTES: u64 = 256 * 1024;

/// What `harvester-release.yaml` says. Unused keys are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReleaseFile {
    /// The Harvester version.
    pub harvester: String,
    /// The version of the Harvester chart.
    pub harvester_chart: String,
    /// The operating system, as an upgraded node names it.
    pub os: String,
    /// The image of the operating system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_image: Option<String>,
    /// The RKE2 version.
    pub kubernetes: String,
    /// The Rancher version.
    pub rancher: String,
    /// The version of the monitoring chart.
    pub monitoring_chart: String,
    /// The version of the logging chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logging_chart: Option<String>,
    /// The image of the event router of the logging addon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logging_chart_harvester_event_router: Option<String>,
    /// The KubeVirt version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubevirt: Option<String>,
    /// The oldest version that may be upgraded to this one; empty when any may.
    pub min_upgradable_version: String,
    /// Charts that Rancher brings, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rancher_dependencies: BTreeMap<String, ChartVersions>,
}

/// The versions of a chart that Rancher brings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChartVersions {
    /// Of the chart.
    pub chart: String,
    /// Of what it installs.
    pub app: String,
}

impl ReleaseFile {
    /// The version in the name of the operating system: what the tag of images made with it is.
    #[must_use]
    pub fn os_version(&self) -> &str {
        self.os.strip_prefix("Harvester ").unwrap_or(&self.os)
    }
}

/// Why a text is not the metadata of a release.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseFileError {
    /// Not YAML, or YAML of another shape.
    #[error("failed to read {PATH}: {0}")]
    Yaml(Box<serde_saphyr::Error>),
    /// A key that no upgrade can do without is missing or empty.
    #[error("{PATH} has no {0}: this is not a Harvester release")]
    Missing(&'static str),
}

/// Reads `harvester-release.yaml`.
///
/// # Errors
/// When it is something else, or lacks the version of Harvester, the operating system or Kubernetes.
pub fn parse(text: &str) -> Result<ReleaseFile, ReleaseFileError> {
    let release: ReleaseFile = serde_saphyr::from_str(text).map_err(|error| ReleaseFileError::Yaml(Box::new(error)))?;
    let needed = [
        ("harvester", &release.harvester),
        ("os", &release.os),
        ("kubernetes", &release.kubernetes),
    ];
    let missing = needed
        .into_iter()
        .find(|(_, value)| value.is_empty())
        .map(|(name, _)| name);
    missing.map_or(Ok(()), |name| Err(ReleaseFileError::Missing(name)))?;
    Ok(release)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "harvester: v1.8.0-rc1\nharvesterChart: 1.8.0-rc1\nos: Harvester v1.8.0-rc1\n\
        kubernetes: v1.35.2+rke2r1\nrancher: v2.14.0-alpha9\nmonitoringChart: 108.0.2+up77.9.1-rancher.11\n\
        minUpgradableVersion: ''\nrancherDependencies:\n  fleet-crd:\n    chart: 108.0.0+up0.14.0\n    app: 0.14.0\n\
        somethingNew: {a: [1]}\n";

    #[test]
    fn versions_are_texts_whatever_they_look_like() {
        let release = parse(TEXT).unwrap();
        assert_eq!(release.kubernetes, "v1.35.2+rke2r1");
        assert_eq!(release.os_version(), "v1.8.0-rc1");
        assert_eq!(release.min_upgradable_version, "");
        assert_eq!(release.rancher_dependencies["fleet-crd"].app, "0.14.0");
        assert_eq!(release.logging_chart, None);
        let number = parse(&TEXT.replace("1.8.0-rc1\nos", "1.8\nos")).unwrap();
        assert_eq!(number.harvester_chart, "1.8");
    }

    #[test]
    fn what_no_upgrade_can_do_without_is_named() {
        let error = parse(&TEXT.replace("kubernetes: v1.35.2+rke2r1\n", "")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "harvester-release.yaml has no kubernetes: this is not a Harvester release"
        );
        assert!(matches!(parse("a: b"), Err(ReleaseFileError::Missing("harvester"))));
        assert!(parse("<html>404</html>").is_err());
        assert!(parse("").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_release_or_an_error(text in "\\PC*|([a-z:{}&*!-]{1,4}[ \n]){0,40}") {
            let _ = parse(&text);
        }
    }
}
