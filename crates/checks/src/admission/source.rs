//! Where the ISO comes from: a Version or an image.

use api::{UpgradePlan, names};
use kube::ResourceExt;

use crate::{Cluster, FieldError};

use super::within;

const VERSION: &str = "spec.version";
const IMAGE: &str = "spec.image";

/// An image, even an empty one, makes the Version irrelevant.
pub(super) fn version_exists(plan: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    if plan.spec.image.is_some() {
        return Ok(Vec::new());
    }
    let Some(version) = &plan.spec.version else {
        let why = "must be set when spec.image is not provided";
        return Err(FieldError::required(VERSION, why));
    };
    let versions = within(&cluster.versions, "versions", names::HARVESTER_NAMESPACE);
    let versions = versions.map_err(|error| FieldError::internal(VERSION, error.detail))?;
    if versions.iter().any(|found| found.name_any() == *version) {
        return Ok(Vec::new());
    }
    Ok(vec![FieldError::not_found(VERSION, version)])
}

/// Whether it is imported already does not matter: the upgrade waits for that.
pub(super) fn image_exists(plan: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let Some(image) = &plan.spec.image else {
        return Ok(Vec::new());
    };
    if image.contains('/') {
        let why = "must be a plain VMImage name without namespace prefix";
        return Err(FieldError::invalid(IMAGE, image, why));
    }
    let images = within(&cluster.images, "virtualmachineimages", names::HARVESTER_NAMESPACE);
    let images = images.map_err(|error| FieldError::internal(IMAGE, error.detail))?;
    if images.iter().any(|found| found.name_any() == *image) {
        return Ok(Vec::new());
    }
    Ok(vec![FieldError::not_found(IMAGE, image)])
}
