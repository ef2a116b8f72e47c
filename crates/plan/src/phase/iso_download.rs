//! ISODownload: the ISO is imported into a VirtualMachineImage, or the user's own is awaited.

use api::{Wait, names};

use crate::{
    decision::Child,
    draft::{Draft, Outcome},
};

/// Waits for the image; creates it unless the user named one.
pub fn run(draft: &mut Draft<'_>) -> Outcome {
    let observed = draft.observed;
    let given = observed.plan.spec.image.clone();
    let name = given.clone().unwrap_or_else(|| names::iso_image(draft.plan_name()));
    let object = Some(format!("VirtualMachineImage harvester-system/{name}"));
    *draft.record().iso_image_id = Some(name.clone());
    let message = match (&observed.iso_image, given) {
        (Some(image), _) if image.imported == Some(true) => return Outcome::Done,
        (Some(image), _) if image.imported == Some(false) => {
            return Outcome::Fail("ISO image download failed".to_owned());
        }
        (Some(_), _) => format!("image {name} is being imported"),
        (None, Some(_)) => format!("image harvester-system/{name} is missing"),
        (None, None) => {
            let version = draft.status().version.clone().unwrap_or_default();
            let checksum = version.iso_checksum.unwrap_or_default();
            draft.create(Child::IsoImage {
                url: version.iso_url,
                checksum,
            });
            format!("image {name} is being imported")
        }
    };
    draft.wait(Wait::IsoImport, object, message).into()
}
