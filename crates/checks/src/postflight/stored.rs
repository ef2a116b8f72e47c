//! A record in ConfigMaps of its plan: JSON, compressed with zstd, as base64, in parts where it is larger than one ConfigMap. A
//! ConfigMap that the plan does not own counts for nothing.

use std::{collections::BTreeMap, io::Read};

use api::{labels, names, owner};
use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt;

use super::Record;

/// The most characters of a part. A ConfigMap may have a MiB, with its metadata.
const LARGEST_PART: usize = 900 * 1024;
/// The most bytes of a record. A hundred thousand VMs take a tenth of it.
const LARGEST_RECORD: u64 = 64 * 1024 * 1024;
/// The key of a part.
const RECORD: &str = "record";
/// The key of how many parts there are.
const PARTS: &str = "parts";
/// The key of what identifies the record: parts of two records never mix.
const ID: &str = "id";
/// Characters of it.
const ID_LENGTH: usize = 10;

/// Why a record cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// It cannot be written as JSON.
    #[error("failed to write the record")]
    Write(#[source] serde_json::Error),
    /// It cannot be compressed.
    #[error("failed to compress the record")]
    Compress(#[source] std::io::Error),
    /// A part is missing.
    #[error("the record lacks part {0}")]
    NoPart(usize),
    /// It is not base64.
    #[error("the record is damaged")]
    Encoding(#[from] base64::DecodeError),
    /// It cannot be decompressed.
    #[error("failed to decompress the record")]
    Decompress(#[source] std::io::Error),
    /// It is no record, or one of a newer version.
    #[error("failed to read the record")]
    Read(#[source] serde_json::Error),
}

/// The ConfigMaps that keep a record of a plan, in the order in which they are created: the first part, which makes it a record,
/// comes last.
///
/// # Errors
/// The record cannot be compressed.
pub fn config_maps(plan: &ObjectMeta, record: &Record) -> Result<Vec<ConfigMap>, StoredError> {
    let json = serde_json::to_vec(record).map_err(StoredError::Write)?;
    let packed = zstd::encode_all(json.as_slice(), 9).map_err(StoredError::Compress)?;
    let text = BASE64_STANDARD.encode(packed);
    // Base64 is ASCII, so every byte is a character.
    let parts: Vec<&[u8]> = text.as_bytes().chunks(LARGEST_PART).collect();
    let id = names::digest(&text)[..ID_LENGTH].to_owned();
    let of = |(index, part): (usize, &&[u8])| {
        let data = [
            (RECORD.to_owned(), String::from_utf8_lossy(part).into_owned()),
            (PARTS.to_owned(), parts.len().to_string()),
            (ID.to_owned(), id.clone()),
        ];
        let plan_name = plan.name.clone().unwrap_or_default();
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name_of(&plan_name, &id, index)),
                namespace: Some(names::HARVESTER_NAMESPACE.to_owned()),
                labels: Some(BTreeMap::from([(labels::UPGRADE_PLAN.to_owned(), plan_name)])),
                owner_references: Some(vec![owner::reference(plan)]),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from(data)),
            // What was there does not change.
            immutable: Some(true),
            ..ConfigMap::default()
        }
    };
    Ok(parts.iter().enumerate().rev().map(of).collect())
}

fn name_of(plan: &str, id: &str, index: usize) -> String {
    match index {
        0 => names::record_config_map(plan),
        index => names::record_part_config_map(plan, id, index),
    }
}

/// The record of a plan; nothing where there is none.
///
/// # Errors
/// It is incomplete or damaged.
pub fn record(plan: &ObjectMeta, maps: &[ConfigMap]) -> Result<Option<Record>, StoredError> {
    let plan_name = plan.name.clone().unwrap_or_default();
    let uid = plan.uid.as_deref().unwrap_or_default();
    let part = |id: &str, index: usize| {
        let name = name_of(&plan_name, id, index);
        let mut found = maps.iter().filter(|map| map.metadata.name.as_ref() == Some(&name));
        found
            .find(|map| map.owner_references().iter().any(|owner| owner.uid == uid))?
            .data
            .as_ref()
    };
    let Some(first) = part("", 0) else { return Ok(None) };
    let parts: usize = first.get(PARTS).and_then(|parts| parts.parse().ok()).unwrap_or(1);
    let id = first.get(ID).map(String::as_str).unwrap_or_default();
    let mut text = String::new();
    for index in 0..parts {
        let found = part(id, index).and_then(|data| data.get(RECORD));
        text.push_str(found.ok_or(StoredError::NoPart(index + 1))?);
    }
    let packed = BASE64_STANDARD.decode(text)?;
    let decoder = zstd::Decoder::new(packed.as_slice()).map_err(StoredError::Decompress)?;
    let mut json = Vec::new();
    decoder
        .take(LARGEST_RECORD)
        .read_to_end(&mut json)
        .map_err(StoredError::Decompress)?;
    serde_json::from_slice(&json).map(Some).map_err(StoredError::Read)
}
