//! Where the ISO comes from: a Version or an image.

use api::{UpgradePlan, annotations, foreign::harvester::VirtualMachineImage, names};
use kube::ResourceExt;

use crate::{Cluster, FieldError};

use super::within;

/// Where the checks of the Version report.
pub(super) const VERSION: &str = "spec.version";
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

/// Whether it is imported already does not matter: the upgrade waits for that. But its volume must be one that the repository
/// can mount, and which volume an image gets was decided when it was created.
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
    let Some(found) = images.into_iter().find(|found| found.name_any() == *image) else {
        return Ok(vec![FieldError::not_found(IMAGE, image)]);
    };
    let refused = unmountable(found).map(|why| {
        let remedy = format!(
            "create another image with spec.backend: cdi and the annotation {}: \"True\", and use that one",
            annotations::OS_UPGRADE_IMAGE
        );
        FieldError::invalid(IMAGE, image, &format!("{why}: {remedy}"))
    });
    Ok(refused.into_iter().collect())
}

/// Nothing verifies that an ISO without a checksum is the released one. That is no reason to refuse it.
pub(super) fn unverified(plan: &UpgradePlan, cluster: &Cluster) -> Option<String> {
    let is_given = |sum: &Option<String>| sum.as_deref().is_some_and(|sum| !sum.trim().is_empty());
    let from = if let Some(image) = &plan.spec.image {
        let images = within(&cluster.images, "virtualmachineimages", names::HARVESTER_NAMESPACE).ok()?;
        let found = images.into_iter().find(|found| found.name_any() == *image)?;
        (!is_given(&found.spec.checksum)).then(|| format!("spec.checksum of VirtualMachineImage {image}"))
    } else {
        let version = plan.spec.version.as_ref()?;
        let versions = within(&cluster.versions, "versions", names::HARVESTER_NAMESPACE).ok()?;
        let found = versions.into_iter().find(|found| found.name_any() == *version)?;
        (!is_given(&found.spec.iso_checksum)).then(|| format!("spec.isoChecksum of Version {version}"))
    };
    from.map(|field| {
        format!(
            "{field} is not set, so nothing verifies that the ISO is the released one: set it to the published SHA-512, or \
             compare status.releaseDigests.isoSHA512 of the UpgradePlan with it"
        )
    })
}

/// Why the repository could not mount the volume of an image. CDI fills a claim of the image's name; only for images with the
/// annotation is it a file system that several nodes can mount. The other backend makes no such claim at all.
fn unmountable(image: &VirtualMachineImage) -> Option<&'static str> {
    // The API server's default.
    let backend = image.spec.backend.as_deref().unwrap_or("backingimage");
    let annotations = image.metadata.annotations.as_ref();
    let marked = annotations.and_then(|known| known.get(annotations::OS_UPGRADE_IMAGE));
    if backend != "cdi" {
        Some("is no CDI image, so there is no PersistentVolumeClaim of its name for the repository to mount")
    } else if marked.is_none_or(|value| value != "True") {
        Some(
            "is not marked as an upgrade image, so its volume is none that the repository can mount (ReadWriteMany, Filesystem)",
        )
    } else {
        None
    }
}
