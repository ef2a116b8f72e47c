//! The release: may this cluster be upgraded to it, and can its ISO be downloaded?

use api::foreign::{condition_is, harvester::Version};
use rules::version;

use super::{Found, Question, missing};
use crate::{
    admission::{
        self,
        release::{Fault, ineligible, iso_faults},
    },
    finding::{Missing, ObjectRef, needed},
};

/// Older clusters lack what the toolkit's Jobs rely on.
const OLDEST_LINE: (u64, u64) = (1, 7);
/// What releases name as their minimum.
const OLDEST: &str = "v1.7.1";

/// The Version of the plan, where it has one that exists.
fn version<'a>(question: &Question<'a>) -> Result<Option<&'a Version>, Missing> {
    if question.plan.spec.image.is_some() {
        return Ok(None);
    }
    let target = question.target()?.to_owned();
    let versions = needed(&question.snapshot.versions, "versions")?;
    Ok(versions
        .iter()
        .find(|version| version.metadata.name.as_deref() == Some(&target)))
}

pub(super) fn is_verified(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    if question.plan.spec.image.is_some() {
        needed(&question.snapshot.images, "virtualmachineimages")?;
    } else {
        version(question)?;
    }
    let warnings = admission::warnings(&question.plan, &question.cluster);
    Ok(warnings.into_iter().map(Found::new).collect())
}

pub(super) fn is_eligible(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let running = question.running()?;
    let target = question.target()?;
    let version = version(question)?;
    let refused = ineligible(&question.plan, running, target, version);
    let found = refused.map(|(_, why)| Found::new(why).about(version.map(ObjectRef::of)));
    Ok(found.into_iter().collect())
}

pub(super) fn iso_can_be_downloaded(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let Some(version) = version(question)? else {
        return Ok(Vec::new());
    };
    let faults = iso_faults(version).into_iter();
    Ok(faults
        .map(|Fault { field, why }| Found::of(version, format!("{field} {why}")))
        .collect())
}

pub(super) fn image_is_imported(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let Some(name) = &question.plan.spec.image else {
        return Ok(Vec::new());
    };
    let images = needed(&question.snapshot.images, "virtualmachineimages")?;
    let image = images.iter().find(|image| image.metadata.name.as_ref() == Some(name));
    let failed = image.and_then(|image| {
        let conditions = image.status.conditions.as_deref().unwrap_or_default();
        let gave_up = condition_is(conditions, "RetryLimitExceeded") == Some(true);
        let imported = conditions.iter().find(|condition| condition.type_ == "Imported")?;
        let why = imported.message.as_deref().filter(|message| !message.is_empty());
        let failed = gave_up || (imported.status.as_deref() == Some("False") && why.is_some());
        let why = why
            .map(|why| format!(": {}", api::quoted::quoted(why)))
            .unwrap_or_default();
        failed.then(|| Found::of(image, format!("the import of image {name} failed{why}")))
    });
    Ok(failed.into_iter().collect())
}

pub(super) fn cluster_is_new_enough(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let running = question.running()?;
    let Some(line) = version::line(running) else {
        return Err(missing("settings", "server-version is a build of no release"));
    };
    if line < OLDEST_LINE {
        return Ok(vec![Found::new(format!(
            "Harvester {running} is older than v{}.{}: upgrade to {OLDEST} with Harvester's own upgrade first",
            OLDEST_LINE.0, OLDEST_LINE.1
        ))]);
    }
    // Within the first line the order of releases decides; a build of a branch has none.
    let is_older =
        line == OLDEST_LINE && version::check(OLDEST, running, "", true) == Err(version::Ineligible::Downgrade);
    let found = is_older.then(|| {
        Found::new(format!(
            "Harvester {running} is older than {OLDEST}, which releases name as their minimum"
        ))
        .severity(crate::finding::Severity::Warning)
    });
    Ok(found.into_iter().collect())
}
