//! `bundle/metadata.yaml`: which archives of container images a release has. Pure: text in, value out.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

/// Where it is in the image.
pub const PATH: &str = "bundle/metadata.yaml";
/// It has a few kilobytes.
pub const LARGEST_BYTES: u64 = 1024 * 1024;
/// The folder that its paths begin in.
const FOLDER: &str = "bundle";

/// The images of all nodes, for containerd.
pub const COMMON: &str = "common";
/// The images of RKE2 itself.
pub const RKE2: &str = "rke2";
/// The images that bootstrap a node.
pub const AGENT: &str = "agent";

/// What `bundle/metadata.yaml` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bundle {
    /// Archives by group: [`COMMON`], [`RKE2`], [`AGENT`].
    pub images: BTreeMap<String, Vec<Archive>>,
    /// What is promised about other files, by their paths from the root of the image; nothing in releases built so far.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, Promise>,
}

/// What is promised about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Promise {
    /// How many bytes it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Its SHA-256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256Sum>,
}

/// An archive of images and the list of what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    /// The list: one image a line.
    pub list: BundlePath,
    /// The archive: tar, compressed with zstd.
    pub archive: BundlePath,
    /// How many bytes the archive has; unknown in releases built so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The SHA-256 of the archive; unknown in releases built so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256Sum>,
}

impl Bundle {
    /// The archives of a group; none when there is no such group.
    #[must_use]
    pub fn group(&self, group: &str) -> &[Archive] {
        self.images.get(group).map_or(&[], Vec::as_slice)
    }

    /// All archives with their groups.
    pub fn archives(&self) -> impl Iterator<Item = (&str, &Archive)> {
        let groups = self.images.iter();
        groups.flat_map(|(group, archives)| archives.iter().map(move |archive| (group.as_str(), archive)))
    }
}

/// A path in the image, from its root, without a slash in front. It never leads out of the bundle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BundlePath(String);

impl BundlePath {
    /// The path, from the root of the image.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its last element.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl fmt::Display for BundlePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<BundlePath> for String {
    fn from(path: BundlePath) -> Self {
        path.0
    }
}

/// The metadata has paths from the folder of the bundle on, with a slash in front.
impl TryFrom<String> for BundlePath {
    type Error = BundleError;

    fn try_from(text: String) -> Result<Self, BundleError> {
        let elements: Vec<&str> = text
            .split('/')
            .filter(|element| !matches!(*element, "" | "."))
            .collect();
        if elements.is_empty() || elements.contains(&"..") || text.chars().any(char::is_control) {
            return Err(BundleError::Path(text));
        }
        Ok(Self(format!("{FOLDER}/{}", elements.join("/"))))
    }
}

/// A SHA-256, in 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Sum(String);

impl Sha256Sum {
    /// Its digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// From what a hash gives.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(hexadecimal(bytes))
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl std::str::FromStr for Sha256Sum {
    type Err = BundleError;

    fn from_str(text: &str) -> Result<Self, BundleError> {
        text.to_owned().try_into()
    }
}

impl From<Sha256Sum> for String {
    fn from(sum: Sha256Sum) -> Self {
        sum.0
    }
}

impl TryFrom<String> for Sha256Sum {
    type Error = BundleError;

    fn try_from(text: String) -> Result<Self, BundleError> {
        if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(BundleError::Checksum(text))
        }
    }
}

/// Why a text is not the metadata of a bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Not YAML, or YAML of another shape.
    #[error("failed to read {PATH}: {0}")]
    Yaml(Box<serde_saphyr::Error>),
    /// A path that is none, or leads out of the bundle.
    #[error("{0:?} is not the path of a file in the bundle")]
    Path(String),
    /// A checksum that is none.
    #[error("{0:?} is not a SHA-256")]
    Checksum(String),
    /// An upgrade needs images.
    #[error("{PATH} names no images: with this ISO nothing can be upgraded; net-install ISOs are of this kind")]
    Empty,
}

/// Reads `bundle/metadata.yaml`.
///
/// # Errors
/// When it is something else, names no archive, or names one outside of the bundle.
pub fn parse(text: &str) -> Result<Bundle, BundleError> {
    let bundle: Bundle = serde_saphyr::from_str(text).map_err(|error| BundleError::Yaml(Box::new(error)))?;
    if bundle.archives().next().is_none() {
        return Err(BundleError::Empty);
    }
    Ok(bundle)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const TEXT: &str = "images:\n  common:\n  - list: /harvester/images-lists/a.txt\n    archive: harvester/images/a.tar.zst\n  \
        rke2:\n  - list: /x//y.txt\n    archive: /x/./y.tar.zst\n  agent: []\n";

    #[test]
    fn paths_begin_at_the_root_of_the_image() {
        let bundle = parse(TEXT).unwrap();
        let common = &bundle.group(COMMON)[0];
        assert_eq!(common.list.as_str(), "bundle/harvester/images-lists/a.txt");
        assert_eq!(common.archive.file_name(), "a.tar.zst");
        let rke2 = &bundle.group(RKE2)[0];
        assert_eq!(
            (rke2.list.as_str(), rke2.archive.as_str()),
            ("bundle/x/y.txt", "bundle/x/y.tar.zst")
        );
        assert_eq!(bundle.group(AGENT), []);
        assert_eq!(bundle.group("other"), []);
        assert_eq!(bundle.archives().count(), 2);
    }

    #[rstest]
    #[case("/../../etc/passwd")]
    #[case("a/../../b")]
    #[case("''")]
    #[case("/")]
    #[case("\"a\\nb\"")]
    fn a_path_that_is_none_is_refused_by_name(#[case] path: &str) {
        let error = parse(&TEXT.replace("/x/./y.tar.zst", path)).unwrap_err();
        assert!(
            error.to_string().contains("is not the path of a file in the bundle"),
            "{error}"
        );
    }

    #[test]
    fn sizes_and_checksums_may_be_there_and_are_read_when_they_are() {
        assert_eq!(parse(TEXT).unwrap().group(COMMON)[0].sha256, None);
        let sum = "AB".repeat(32);
        let known = TEXT.replacen("a.tar.zst", &format!("a.tar.zst\n    size: 5\n    sha256: {sum}"), 1);
        let bundle = parse(&known).unwrap();
        let archive = &bundle.group(COMMON)[0];
        assert_eq!(archive.size, Some(5));
        assert_eq!(archive.sha256.as_ref().unwrap().as_str(), "ab".repeat(32));
        let error = parse(&known.replace(&sum, "ab12")).unwrap_err();
        assert!(error.to_string().contains("is not a SHA-256"), "{error}");
    }

    #[test]
    fn a_bundle_without_images_is_of_no_use() {
        assert!(matches!(parse("images: {common: []}"), Err(BundleError::Empty)));
        assert!(matches!(parse("other: 1"), Err(BundleError::Empty)));
        assert!(parse("images: [1]").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_bundle_or_an_error(text in "\\PC*|images:\\PC{0,50}|([a-z:{}&*!-]{1,4}[ \n]){0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn no_path_leads_out_of_the_bundle(text in "[a-c./]{0,12}") {
            if let Ok(path) = BundlePath::try_from(text) {
                prop_assert!(path.as_str().starts_with("bundle/"));
                prop_assert!(path.as_str().split('/').all(|element| !element.is_empty() && element != ".."));
            }
        }
    }
}
