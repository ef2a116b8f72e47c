//! Helm releases, read from the Secrets that Helm keeps them in. Pure: bytes in, history and decisions out.

use std::{
    io::{Read, Write},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The type of Secrets that Helm keeps releases in.
pub const SECRET_TYPE: &str = "helm.sh/release.v1";
/// A release that has been pending for this long is abandoned: its client is gone.
pub const ABANDONED_AFTER: Duration = Duration::from_secs(5 * 60);
/// Larger than any release; a Secret holds a megabyte.
const LARGEST_RELEASE: u64 = 64 * 1024 * 1024;
const GZIP: [u8; 3] = [0x1f, 0x8b, 0x08];

/// One revision of a release.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HelmRelease {
    /// Its name.
    pub name: String,
    /// Which revision of the release this is.
    #[serde(rename = "version")]
    pub revision: i64,
    /// How it is.
    pub info: Info,
    /// What it installs.
    pub chart: Chart,
    /// The values that were given.
    pub config: Value,
}

/// How a revision is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Info {
    /// deployed, superseded, failed, pending-upgrade, …
    pub status: String,
    /// What Helm says about it: "Rollback to 3", for instance.
    pub description: String,
    /// When it was begun.
    pub last_deployed: Option<Timestamp>,
}

/// A chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Chart {
    /// Its name and versions.
    pub metadata: ChartMetadata,
    /// Its own values.
    pub values: Value,
}

/// Name and versions of a chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ChartMetadata {
    /// The name.
    pub name: String,
    /// The chart's version.
    pub version: String,
    /// The version of what it installs.
    pub app_version: String,
}

/// Why a Secret is no release.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// It has no `release`.
    #[error("the Secret has no data.release")]
    Empty,
    /// Not base64.
    #[error("data.release is not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    /// Not gzip, or cut short.
    #[error("data.release cannot be decompressed: {0}")]
    Gzip(#[from] std::io::Error),
    /// Too large to be one.
    #[error("data.release is larger than any release")]
    TooLarge,
    /// Not a release.
    #[error("data.release is not a Helm release: {0}")]
    Json(#[from] serde_json::Error),
}

/// Reads the value of `data.release`: base64 of compressed JSON. Old releases are not compressed.
///
/// # Errors
/// When it is something else.
pub fn decode(data: &[u8]) -> Result<HelmRelease, DecodeError> {
    let bytes = STANDARD.decode(data)?;
    if !bytes.starts_with(&GZIP) {
        return Ok(serde_json::from_slice(&bytes)?);
    }
    let mut text = Vec::new();
    let read = flate2::read::GzDecoder::new(bytes.as_slice())
        .take(LARGEST_RELEASE + 1)
        .read_to_end(&mut text)?;
    if read as u64 > LARGEST_RELEASE {
        return Err(DecodeError::TooLarge);
    }
    Ok(serde_json::from_slice(&text)?)
}

/// A release as Helm keeps it in `data.release`.
fn encode(release: &Value) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(release.to_string().as_bytes())?;
    Ok(STANDARD.encode(encoder.finish()?).into_bytes())
}

/// A revision as the Secret that Helm keeps it in.
///
/// # Errors
/// Never for values in memory.
pub fn secret(namespace: &str, release: &HelmRelease) -> std::io::Result<Value> {
    let mut content = serde_json::to_value(release)?;
    content["namespace"] = json!(namespace);
    let (name, revision) = (&release.name, release.revision);
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": {
            "name": format!("sh.helm.release.v1.{name}.v{revision}"), "namespace": namespace,
            "labels": {"owner": "helm", "name": name, "status": release.info.status, "version": revision.to_string()},
        },
        // Once for Helm, once for Kubernetes.
        "data": {"release": STANDARD.encode(encode(&content)?)},
    }))
}

/// Reads all revisions of a release, oldest first. Secrets that are no releases are passed over with a warning: one
/// broken old revision must not hide the others.
#[must_use]
pub fn history<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Vec<HelmRelease> {
    let mut revisions = Vec::new();
    for secret in secrets {
        if secret.type_.as_deref() != Some(SECRET_TYPE) {
            continue;
        }
        let data = secret.data.as_ref().and_then(|data| data.get("release"));
        match data.ok_or(DecodeError::Empty).and_then(|data| decode(&data.0)) {
            Ok(release) => revisions.push(release),
            Err(error) => tracing::warn!(%error, secret = secret.name_any(), "failed to read a Helm release"),
        }
    }
    revisions.sort_by_key(|release| release.revision);
    revisions
}

/// The newest revision that is deployed.
#[must_use]
pub fn deployed(history: &[HelmRelease]) -> Option<&HelmRelease> {
    history.iter().rev().find(|release| release.info.status == "deployed")
}

/// What to do about the newest revision of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pending {
    /// No client works on it.
    No,
    /// A client may still work on it, until then.
    Until(Timestamp),
    /// Abandoned: go back to this revision.
    RollBack(i64),
    /// Abandoned again, after it was rolled back: an administrator must repair it.
    Again,
    /// Abandoned, and there is nothing to go back to.
    NothingDeployed,
}

/// Whether the newest revision is pending, for how long, and what helps.
#[must_use]
pub fn pending(history: &[HelmRelease], now: Timestamp) -> Pending {
    let Some((newest, older)) = history.split_last() else {
        return Pending::No;
    };
    if !newest.info.status.starts_with("pending-") {
        return Pending::No;
    }
    let since = newest.info.last_deployed.unwrap_or(Timestamp::MIN);
    let until = since.saturating_add(ABANDONED_AFTER).unwrap_or(Timestamp::MAX);
    if now < until {
        return Pending::Until(until);
    }
    if older
        .last()
        .is_some_and(|release| release.info.description.starts_with("Rollback to "))
    {
        return Pending::Again;
    }
    deployed(older).map_or(Pending::NothingDeployed, |release| Pending::RollBack(release.revision))
}

/// What a release still lacks to be the chart of that version, deployed.
#[must_use]
pub fn lacks(history: &[HelmRelease], name: &str, chart: &str, app: &str) -> Option<String> {
    let Some(newest) = history.last() else {
        return Some("it is not installed".to_owned());
    };
    let metadata = &newest.chart.metadata;
    if metadata.name != name || metadata.version != chart || metadata.app_version != app {
        return Some(format!(
            "it is {}-{} ({})",
            metadata.name, metadata.version, metadata.app_version
        ));
    }
    (newest.info.status != "deployed").then(|| format!("it is {}", newest.info.status))
}

/// The values in force: those that were given over the chart's own.
#[must_use]
pub fn values(release: &HelmRelease) -> Value {
    let mut values = release.chart.values.clone();
    overlay(&mut values, &release.config);
    values
}

fn overlay(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                if value.is_null() {
                    // Helm: null removes a default.
                    under.remove(key);
                } else {
                    overlay(under.entry(key.as_str()).or_insert(Value::Null), value);
                }
            }
        }
        (_, Value::Null) => {}
        (under, over) => under.clone_from(over),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn encode(release: &Value) -> Vec<u8> {
        super::encode(release).unwrap()
    }

    fn revision(revision: i64, status: &str, description: &str) -> HelmRelease {
        let info = json!({"status": status, "description": description, "last_deployed": "2026-03-13T04:00:00Z"});
        serde_json::from_value(json!({"name": "fleet", "version": revision, "info": info})).unwrap()
    }

    fn minutes(minutes: i64) -> Timestamp {
        "2026-03-13T04:00:00Z".parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_mins(minutes)
    }

    #[test]
    fn a_release_is_read_as_helm_writes_it() {
        let release = json!({
            "name": "rancher", "namespace": "cattle-system", "version": 7,
            "info": {"status": "deployed", "last_deployed": "2026-03-13T04:00:00.123456789+01:00", "description": "x", "notes": "…"},
            "chart": {"metadata": {"name": "rancher", "version": "2.13.0", "appVersion": "v2.13.0"}, "values": {"a": 1}, "templates": []},
            "config": {"image": {"tag": "v2.13.0"}}, "manifest": "---",
        });
        let read = decode(&encode(&release)).unwrap();
        assert_eq!((read.revision, read.info.status.as_str()), (7, "deployed"));
        assert_eq!(read.chart.metadata.app_version, "v2.13.0");
        assert_eq!(read.config["image"]["tag"], "v2.13.0");
        // Helm 2 style: not compressed.
        let plain = STANDARD.encode(release.to_string());
        assert_eq!(decode(plain.as_bytes()).unwrap(), read);
    }

    #[rstest]
    #[case(b"%%%", "base64")]
    #[case(b"H4sIAAAA", "decompressed")]
    #[case(b"e30x", "not a Helm release")]
    fn what_is_no_release_says_why(#[case] data: &[u8], #[case] why: &str) {
        let error = decode(data).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }

    #[rstest]
    #[case(&[(1, "deployed", "")], 60, Pending::No)]
    #[case(&[], 60, Pending::No)]
    #[case(&[(1, "deployed", ""), (2, "pending-upgrade", "")], 4, Pending::Until(minutes(5)))]
    #[case(&[(1, "deployed", ""), (2, "pending-upgrade", "")], 5, Pending::RollBack(1))]
    #[case(&[(1, "superseded", ""), (2, "deployed", ""), (3, "failed", ""), (4, "pending-upgrade", "")], 5, Pending::RollBack(2))]
    #[case(&[(1, "pending-install", "")], 5, Pending::NothingDeployed)]
    #[case(&[(1, "superseded", ""), (2, "pending-upgrade", ""), (3, "deployed", "Rollback to 1"), (4, "pending-upgrade", "")],
        9, Pending::Again)]
    fn an_abandoned_release_goes_back_to_the_newest_deployed_revision_once(
        #[case] revisions: &[(i64, &str, &str)],
        #[case] after: i64,
        #[case] expected: Pending,
    ) {
        let history: Vec<HelmRelease> = revisions
            .iter()
            .map(|(n, status, text)| revision(*n, status, text))
            .collect();
        assert_eq!(pending(&history, minutes(after)), expected);
    }

    #[test]
    fn given_values_win_over_the_charts_and_null_removes() {
        let release: HelmRelease = serde_json::from_value(json!({
            "chart": {"values": {"a": {"b": 1, "c": 2}, "d": 3}}, "config": {"a": {"b": 9}, "d": null, "e": [1]},
        }))
        .unwrap();
        assert_eq!(values(&release), json!({"a": {"b": 9, "c": 2}, "e": [1]}));
    }

    #[test]
    fn a_release_is_done_at_its_versions_and_deployed() {
        let mut release = revision(1, "deployed", "");
        release.chart.metadata = ChartMetadata {
            name: "fleet".into(),
            version: "108.0.0+up0.14.0".into(),
            app_version: "0.14.0".into(),
        };
        let history = [release];
        assert_eq!(lacks(&history, "fleet", "108.0.0+up0.14.0", "0.14.0"), None);
        assert!(
            lacks(&history, "fleet", "109.0.0", "0.15.0")
                .unwrap()
                .contains("108.0.0")
        );
        assert!(lacks(&[], "fleet", "1", "1").is_some());
    }
}
