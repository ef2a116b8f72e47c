//! What a release is made of, as the manager has recorded it: what nodes install must be this.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Files that every node reads in an upgrade: what the release is, where its images are, and its operating system.
pub const NEEDED_FILES: [&str; 3] = ["harvester-release.yaml", "bundle/metadata.yaml", "rootfs.squashfs"];

/// Digests of the release in the repository, recorded before any node reads from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseDigests {
    /// The SHA-256 of the repository's manifest, which has the digests of all files. The programs on the nodes get
    /// this one and verify everything by it.
    pub manifest: String,
    /// The SHA-512 of the ISO, computed in the cluster.
    #[serde(rename = "isoSHA512")]
    pub iso_sha512: String,
    /// How many bytes of the volume are the ISO.
    pub iso_size: i64,
    /// Whether that SHA-512 was given, by the Version or the image, and is the one that was given. False when none was
    /// given: compare it with the published one.
    pub iso_verified: bool,
    /// The SHA-256 of each file that an upgrade reads, by its path in the ISO. Only the most important ones
    /// when there are too many to show.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub files: BTreeMap<String, String>,
}
