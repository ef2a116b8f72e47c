//! The VirtualMachineImage that downloads the ISO.

use api::{Component, UpgradePlan, annotations, foreign::harvester::VirtualMachineImage, names};
use kube::ResourceExt;
use serde_json::json;

use super::{component_labels, metadata};

/// How often Harvester tries a failed download again.
const RETRIES: i64 = 3;

/// The image.
///
/// # Errors
/// Never for a plan that the API server accepted.
pub fn build(plan: &UpgradePlan, url: &str, checksum: &str) -> Result<VirtualMachineImage, serde_json::Error> {
    let name = plan.name_any();
    let display_name = match &plan.spec.version {
        Some(version) => format!("{name}-{version}"),
        None => name.clone(),
    };
    let labels = component_labels(plan, Component::Iso);
    let mut metadata = metadata(plan, names::HARVESTER_NAMESPACE, names::iso_image(&name), labels);
    metadata.annotations = Some([(annotations::OS_UPGRADE_IMAGE.to_owned(), "True".to_owned())].into());
    serde_json::from_value(json!({
        "apiVersion": "harvesterhci.io/v1beta1",
        "kind": "VirtualMachineImage",
        "metadata": metadata,
        "spec": {
            "backend": "cdi",
            "displayName": display_name,
            "sourceType": "download",
            "url": url,
            "checksum": checksum,
            "retry": RETRIES,
            "targetStorageClassName": "longhorn-static",
        },
    }))
}
