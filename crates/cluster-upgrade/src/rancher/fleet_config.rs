//! Fleet's own configuration: whose it is, and the address that Fleet's agents call. Pure.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use program::error::{Error, Result};

use super::fleet::CONTROLLER;

/// The configuration; null when there is none. Fleet reads it as YAML, and so do we.
fn config_of(map: Option<&ConfigMap>) -> Result<Value> {
    let text = map.and_then(|map| map.data.as_ref()?.get("config"));
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        return Ok(Value::Null);
    };
    let odd = |error| Error::Transient(format!("data.config of ConfigMap {CONTROLLER} is not YAML: {error}"));
    serde_saphyr::from_str(text).map_err(odd)
}

/// The address that Fleet's agents call and the certificate they trust; empty if they are not set.
///
/// # Errors
/// When the configuration is not what Fleet reads.
pub(super) fn server_of(map: Option<&ConfigMap>) -> Result<(String, String)> {
    let config = config_of(map)?;
    let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
    Ok((text("apiServerURL"), text("apiServerCA")))
}

/// Whether the configuration was written by the chart of that version of Fleet: it names the agent of the same version.
/// (Fields come and go over the years; `agentTLSMode`, which the existing script looks for, is there since v0.10.)
pub(super) fn is_of(map: &ConfigMap, version: &str) -> bool {
    let config = config_of(Some(map)).unwrap_or_default();
    let tag = config["agentImage"].as_str().and_then(|image| image.rsplit_once(':'));
    tag.is_some_and(|(_, tag)| tag.trim_start_matches('v') == version.trim_start_matches('v'))
}

/// The patch that puts address and certificate back; nothing when they are as they were, or were not set, or when there
/// is no configuration to put them into.
///
/// # Errors
/// When the configuration is not what Fleet reads.
pub fn restored(map: Option<&ConfigMap>, url: &str, ca: &str) -> Result<Option<Value>> {
    let mut config = config_of(map)?;
    if !config.is_object() {
        return Ok(None);
    }
    let mut changed = false;
    for (key, value) in [("apiServerURL", url), ("apiServerCA", ca)] {
        if !value.is_empty() && config[key] != value {
            config[key] = json!(value);
            changed = true;
        }
    }
    Ok(changed.then(|| json!({"data": {"config": config.to_string()}})))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn map(config: &str) -> ConfigMap {
        ConfigMap {
            data: Some([("config".to_owned(), config.to_owned())].into()),
            ..ConfigMap::default()
        }
    }

    #[test]
    fn only_what_rancher_changed_is_restored_and_the_rest_stays() {
        let before = map(&json!({"apiServerURL": "https://vip", "apiServerCA": "Y2E="}).to_string());
        assert_eq!(
            server_of(Some(&before)).unwrap(),
            ("https://vip".to_owned(), "Y2E=".to_owned())
        );
        let after = json!({"apiServerURL": "", "apiServerCA": "Y2E=", "agentTLSMode": "system-store"});
        let after = map(&after.to_string());
        let patch = restored(Some(&after), "https://vip", "Y2E=").unwrap().unwrap();
        let config: Value = serde_json::from_str(patch["data"]["config"].as_str().unwrap()).unwrap();
        assert_eq!(
            config,
            json!({"apiServerURL": "https://vip", "apiServerCA": "Y2E=", "agentTLSMode": "system-store"})
        );
        assert_eq!(restored(Some(&before), "https://vip", "Y2E=").unwrap(), None);
        assert_eq!(restored(Some(&after), "", "").unwrap(), None);
    }

    #[test]
    fn r24_fleets_configuration_is_yaml_and_may_be_missing() {
        let yaml = map("# ours\napiServerURL: https://vip\napiServerCA: Y2E=\nbootstrap:\n  branch: master\n");
        assert_eq!(
            server_of(Some(&yaml)).unwrap(),
            ("https://vip".to_owned(), "Y2E=".to_owned())
        );
        let patch = restored(Some(&yaml), "https://other", "").unwrap().unwrap();
        assert!(patch["data"]["config"].as_str().unwrap().contains("https://other"));
        for missing in [None, Some(&ConfigMap::default()), Some(&map("")), Some(&map("null"))] {
            assert_eq!(server_of(missing).unwrap(), (String::new(), String::new()));
            assert_eq!(restored(missing, "https://vip", "Y2E=").unwrap(), None);
        }
        assert!(server_of(Some(&map("{"))).is_err());
    }

    #[rstest]
    #[case("rancher/fleet-agent:v0.15.0-alpha.8", true)]
    #[case("registry.local:5000/rancher/fleet-agent:v0.15.0-alpha.8", true)]
    #[case("rancher/fleet-agent:v0.14.1", false)]
    #[case("rancher/fleet-agent", false)]
    fn r49_the_new_fleet_is_known_by_the_agent_that_it_brings(#[case] image: &str, #[case] is_new: bool) {
        let config = json!({"agentImage": image, "agentTLSMode": "system-store"}).to_string();
        assert_eq!(is_of(&map(&config), "0.15.0-alpha.8"), is_new);
        assert!(!is_of(&ConfigMap::default(), "0.15.0-alpha.8"));
    }
}
