//! Addresses of the storage network: while Longhorn is upgraded its old and new managers have one each, and so has the volume
//! of the repository if shared volumes use that network.

use std::net::Ipv4Addr;

use api::foreign::whereabouts::IPPool;
use kube::ResourceExt;
use serde_json::Value;

use super::{Found, Question, missing};
use crate::finding::{Missing, ObjectRef, needed};

const COMPONENT: &str = "longhorn.io/component";

/// A network of a setting.
struct Network {
    range: String,
    excluded: Vec<String>,
}

pub(super) fn has_addresses(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let storage = setting(question, "storage-network")?;
    let shared = setting(question, "rwx-network")?;
    let uses_storage = match &shared {
        Some(value) => value.get("share-storage-network").and_then(Value::as_bool) == Some(true),
        // Before v1.8 a setting of Longhorn decides.
        None => longhorn_shares(question)?,
    };
    let mut found = Vec::new();
    if let Some(network) = storage.as_ref().and_then(network) {
        let managers = needed(&question.snapshot.instance_managers, "instancemanagers")?.len();
        let pods = needed(&question.snapshot.pods, "pods")?;
        let images = pods
            .iter()
            .filter(|pod| {
                pod.labels()
                    .get(COMPONENT)
                    .is_some_and(|component| component == "backing-image-manager")
            })
            .count();
        let wanted = managers + images + usize::from(uses_storage);
        found.extend(shortage(question, "storage network", &network, wanted)?);
    }
    if let Some(network) = shared
        .as_ref()
        .and_then(|value| network(value.get("network")?))
        .filter(|_| !uses_storage)
    {
        found.extend(shortage(question, "network of shared volumes", &network, 1)?);
    }
    Ok(found)
}

/// The value of a setting, its default where there is none.
fn setting(question: &Question<'_>, name: &str) -> Result<Option<Value>, Missing> {
    let settings = needed(&question.snapshot.settings, "settings")?;
    let setting = settings.iter().find(|setting| setting.name_any() == name);
    let text = setting.map(|setting| {
        if setting.value.is_empty() {
            &setting.default
        } else {
            &setting.value
        }
    });
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let unreadable = |_| missing("settings", &format!("setting {name} is not JSON"));
    let value: Value = serde_json::from_str(text).map_err(unreadable)?;
    Ok(Some(value).filter(|value| !value.is_null()))
}

fn longhorn_shares(question: &Question<'_>) -> Result<bool, Missing> {
    let settings = needed(&question.snapshot.longhorn_settings, "settings.longhorn.io")?;
    let setting = settings
        .iter()
        .find(|setting| setting.name_any() == "storage-network-for-rwx-volume-enabled");
    Ok(setting.is_some_and(|setting| setting.value == "true"))
}

fn network(value: &Value) -> Option<Network> {
    let range = value.get("range")?.as_str().filter(|range| !range.is_empty())?;
    let excluded = value.get("exclude").and_then(Value::as_array).into_iter().flatten();
    Some(Network {
        range: range.to_owned(),
        excluded: excluded.filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}

fn shortage(question: &Question<'_>, what: &str, network: &Network, wanted: usize) -> Result<Option<Found>, Missing> {
    let pools = needed(&question.snapshot.ip_pools, "ippools")?;
    // As whereabouts names them.
    let name = network.range.replace([':', '/'], "-");
    let pool: Option<&IPPool> = pools
        .iter()
        .find(|pool| pool.spec.range.as_deref() == Some(&network.range) || pool.name_any() == name);
    let pool = pool.ok_or_else(|| missing("ippools", &format!("there is none for {}", network.range)))?;
    let Some(usable) = usable(network) else {
        return Err(missing(
            "ippools",
            &format!("{} is no range of IPv4 addresses", network.range),
        ));
    };
    let taken = pool
        .spec
        .allocations
        .as_ref()
        .map_or(0, |allocations| allocations.len());
    let free = usable.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX));
    if u64::try_from(wanted).unwrap_or(u64::MAX) <= free {
        return Ok(None);
    }
    let text = format!(
        "the {what} {} has {free} free addresses ({taken} of {usable} are taken), and the upgrade needs {wanted}",
        network.range
    );
    Ok(Some(Found::new(text).about([ObjectRef::of(pool)])))
}

/// How many addresses pods can have: neither the first and last one, nor those that are excluded.
fn usable(network: &Network) -> Option<u64> {
    let (first, last) = bounds(&network.range)?;
    let (first, last) = (first + 1, last.checked_sub(1)?);
    let mut usable = (last + 1).checked_sub(first)?;
    for excluded in &network.excluded {
        let (from, to) = bounds(excluded)?;
        let (from, to) = (from.max(first), to.min(last));
        usable = usable.saturating_sub((to + 1).saturating_sub(from));
    }
    Some(usable)
}

/// First and last address of a range.
fn bounds(range: &str) -> Option<(u64, u64)> {
    let (address, prefix) = range.split_once('/').unwrap_or((range, "32"));
    let address = u64::from(u32::from(address.trim().parse::<Ipv4Addr>().ok()?));
    let prefix: u32 = prefix.trim().parse().ok().filter(|prefix| *prefix <= 32)?;
    let size = 1_u64 << (32 - prefix);
    let first = address / size * size;
    Some((first, first + size - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_counted_without_the_ends_and_what_is_excluded() {
        let count = |range: &str, excluded: &[&str]| {
            usable(&Network {
                range: range.to_owned(),
                excluded: excluded.iter().map(|text| (*text).to_owned()).collect(),
            })
        };
        assert_eq!(count("192.168.0.0/24", &[]), Some(254));
        assert_eq!(count("192.168.0.0/28", &["192.168.0.1/32", "192.168.0.8/29"]), Some(6));
        assert_eq!(count("192.168.0.0/28", &["10.0.0.0/8"]), Some(14));
        assert_eq!(count("fd00::/64", &[]), None);
        assert_eq!(count("192.168.0.0/33", &[]), None);
    }
}
