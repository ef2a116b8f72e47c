//! Which records of an older manager are valid: every user who could annotate plans could write them then.

use api::{annotations, image::Image, quoted::LONGEST_MESSAGE};
use serde_json::Value;

use crate::{
    image,
    observed::Observed,
    undo::charts::{SavedMethods, SavedValues},
};

/// How KubeVirt may update its workloads.
const METHODS: [&str; 2] = ["LiveMigrate", "Evict"];

/// A record is one that its manager could have written.
pub(super) fn is_sound(observed: &Observed, key: &str, value: &str) -> bool {
    let are_methods = |methods: &[String]| methods.iter().all(|method| METHODS.contains(&method.as_str()));
    match key {
        annotations::TOOLKIT_IMAGE => {
            let image = Image::parse(value);
            image.is_some_and(|image| image::is_allowed(&image, &observed.settings))
        }
        annotations::SAVED_REPLENISHMENT_INTERVAL => value.parse::<u32>().is_ok(),
        annotations::SAVED_UPGRADE_STRATEGY => {
            let strategy = serde_json::from_str::<Value>(value);
            strategy.is_ok_and(|strategy| strategy.is_object() || strategy.is_null())
        }
        annotations::SAVED_CHART_METHODS => serde_json::from_str::<SavedValues>(value).is_ok_and(|saved| {
            let methods = serde_json::from_value::<Option<Vec<String>>>(saved.methods);
            methods.is_ok_and(|methods| are_methods(&methods.unwrap_or_default()))
        }),
        annotations::SAVED_WORKLOAD_UPDATE_METHODS => {
            serde_json::from_str::<SavedMethods>(value).is_ok_and(|saved| are_methods(&saved.methods))
        }
        annotations::TAKEN_OVER | annotations::DESCHEDULER_WAS_ENABLED | annotations::SKIP_MANIFESTS_APPLIED => {
            matches!(value, "true" | "false")
        }
        // Text of the user.
        _ => value.chars().count() <= LONGEST_MESSAGE,
    }
}
