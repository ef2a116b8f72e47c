//! The release that a Version names: may this cluster be upgraded to it, and can its ISO be downloaded? Ours: otherwise both
//! would show only after the download. The lines of preflight about the same ask the functions here.

use api::{UpgradePlan, foreign::harvester::Version, names, quoted};
use kube::ResourceExt;
use rules::{
    eligibility::{self, Refused},
    version::Ineligible,
};

use crate::{Cluster, FieldError, cluster};

use super::{all, full_name, source::VERSION, within};

/// Hexadecimal digits of a SHA-512.
const CHECKSUM_DIGITS: usize = 128;

/// The plan's Version. That there is none, or that it does not exist, is for another check to report.
fn version_of<'a>(plan: &UpgradePlan, cluster: &'a Cluster) -> Result<Option<&'a Version>, FieldError> {
    let Some(name) = plan.spec.version.as_ref().filter(|_| plan.spec.image.is_none()) else {
        return Ok(None);
    };
    let versions = within(&cluster.versions, "versions", names::HARVESTER_NAMESPACE);
    let versions = versions.map_err(|error| FieldError::internal(VERSION, error.detail))?;
    Ok(versions.into_iter().find(|found| found.name_any() == *name))
}

/// What has no order, a build of a branch for one, is not refused here: the manager checks once more when it has read the
/// release.
pub(super) fn may_be_upgraded_to(plan: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let Some(version) = version_of(plan, cluster)? else {
        return Ok(Vec::new());
    };
    let settings = all(&cluster.settings, "settings")?;
    let Some(running) = cluster::server_version(settings) else {
        return Ok(Vec::new());
    };
    let target = version.name_any();
    let Some((refused, why)) = ineligible(plan, running, &target, Some(version)) else {
        return Ok(Vec::new());
    };
    let remedy = match refused {
        Refused::Ineligible(Ineligible::Downgrade) => format!("use a Version that is newer than {running}"),
        Refused::Ineligible(Ineligible::BelowMinimum) => "upgrade to a release in between first".to_owned(),
        Refused::Ineligible(Ineligible::AcrossPrerelease) => {
            format!("upgrade {running} to the release of the same number first")
        }
        Refused::Ineligible(Ineligible::Invalid | Ineligible::FromDev | Ineligible::Incomparable)
        | Refused::NoRelease
        | Refused::NoPreviousVersion => return Ok(Vec::new()),
    };
    let why = format!("Harvester {why} (Setting server-version is {running}): {remedy}");
    Ok(vec![FieldError::invalid(VERSION, &target, &why)])
}

/// Why the running version may not be upgraded to another one, with both of them.
pub(crate) fn ineligible(
    plan: &UpgradePlan,
    running: &str,
    target: &str,
    version: Option<&Version>,
) -> Option<(Refused, String)> {
    let minimum = version.and_then(|version| version.spec.min_upgradable_version.as_deref());
    let minimum = minimum.unwrap_or_default();
    let refused = eligibility::check(eligibility::Question {
        current: Some(running),
        target,
        minimum,
        strict: true,
        skipped: plan.skips_version_check(),
    })
    .err()?;
    let minimum = if minimum.is_empty() {
        String::new()
    } else {
        format!(" (its minimum is {minimum})")
    };
    Some((
        refused,
        format!("{running} cannot be upgraded to {target}{minimum}: {refused}"),
    ))
}

pub(super) fn iso_can_be_downloaded(plan: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let Some(version) = version_of(plan, cluster)? else {
        return Ok(Vec::new());
    };
    let errors = iso_faults(version).into_iter().map(|Fault { field, why }| {
        let object = full_name(version);
        let why = format!("{field} of Version {object} {why}: correct {field} of the Version");
        FieldError::invalid(VERSION, &version.name_any(), &why)
    });
    Ok(errors.collect())
}

/// What is wrong with a field of a Version: `<field> <why>` is a sentence.
pub(crate) struct Fault {
    /// The field.
    pub field: &'static str,
    /// What it is and should not be.
    pub why: String,
}

/// Why the ISO of a Version could not be downloaded, or not be verified.
pub(crate) fn iso_faults(version: &Version) -> Vec<Fault> {
    let mut faults = Vec::new();
    let url = version.spec.iso_url.as_deref().unwrap_or_default();
    if !is_web_address(url) {
        // Quotation does not show spaces at the ends.
        let why = if is_web_address(url.trim()) {
            "has spaces before or after the address".to_owned()
        } else {
            format!("is {}, which is no http or https address", quoted::quoted(url))
        };
        faults.push(Fault {
            field: "spec.isoURL",
            why,
        });
    }
    let sum = version.spec.iso_checksum.as_deref().unwrap_or_default().trim();
    let is_sha512 = sum.len() == CHECKSUM_DIGITS && sum.chars().all(|digit| digit.is_ascii_hexdigit());
    if !sum.is_empty() && !is_sha512 {
        faults.push(Fault {
            field: "spec.isoChecksum",
            why: format!(
                "has {} characters and is no SHA-512, which has {CHECKSUM_DIGITS} hexadecimal digits",
                sum.chars().count()
            ),
        });
    }
    faults
}

/// The text is downloaded from as it is, so spaces around an address are part of it.
fn is_web_address(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let is_web = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    is_web && !rest.is_empty() && !rest.starts_with(['/', '?', '#', ':']) && !url.contains(char::is_whitespace)
}
