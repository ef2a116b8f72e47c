//! Which release it is: the ISO must have the SHA-512 that was given, and its digests are recorded before any node reads
//! from it. What nodes get later must match the record, whichever server serves it then.

use std::collections::BTreeMap;

use api::{
    ReleaseDigests, Wait, annotations,
    names::{self, RepoScheme},
    reasons,
    release_digests::NEEDED_FILES,
};

use crate::{
    decision::Need,
    draft::{Draft, Outcome},
};
use rules::PlanEvent;

/// The SHA-512 that the ISO should have, in lower case, and its source.
#[must_use]
pub fn given(draft: &Draft<'_>) -> Option<(String, String)> {
    let observed = draft.observed;
    let (sum, from) = match &observed.plan.spec.image {
        Some(image) => {
            let sum = observed.iso_image.as_ref().and_then(|image| image.checksum.clone());
            let from = format!("VirtualMachineImage {}/{image}", names::HARVESTER_NAMESPACE);
            (sum, format!("spec.checksum of {from}"))
        }
        None => {
            let version = draft.status().version.as_ref();
            let name = observed.plan.spec.version.as_deref().unwrap_or_default();
            let from = format!("Version {}/{name}", names::HARVESTER_NAMESPACE);
            let sum = version.and_then(|version| version.iso_checksum.clone());
            (sum, format!("spec.isoChecksum of {from}"))
        }
    };
    let sum = sum.map(|sum| sum.trim().to_ascii_lowercase());
    sum.filter(|sum| !sum.is_empty()).map(|sum| (sum, from))
}

/// Whether a text can be a SHA-512. Anything else goes no further than into a comparison.
#[must_use]
pub fn is_sha512(text: &str) -> bool {
    text.len() == 128 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Records the digests of the release that the repository serves, if it is the requested one.
pub fn record(draft: &mut Draft<'_>) -> Outcome {
    let observed = draft.observed;
    let url = names::repo_manifest_url(draft.plan_name(), RepoScheme::by(draft.status().repository.as_ref()));
    if observed.repo.deployment_ready.is_none() {
        let name = names::repo(draft.plan_name());
        let object = Some(format!("Deployment {}/{name}", names::HARVESTER_NAMESPACE));
        let message = "the repository is being deployed";
        let limit = observed.settings.deadlines.metadata;
        return draft.wait_within(Wait::Repository, object, message, limit).into();
    }
    // Decided by the record: a user who may change the Deployment could remove its annotation.
    let is_ours = draft.noted(annotations::SERVES_MANIFEST) == Some("true");
    if !observed.repo.serves_manifest && is_ours {
        let name = names::repo(draft.plan_name());
        return Outcome::Fail(format!(
            "Deployment {}/{name} was created to serve the digests of the release, but its annotation is missing: a client changed \
             it; nothing has been changed on the nodes: find out who, delete this UpgradePlan and create another one",
            names::HARVESTER_NAMESPACE
        ));
    }
    if !observed.repo.serves_manifest {
        // An older manager made it. Its upgrade continues as it began.
        warn_of_old_repository(draft);
        return Outcome::Done;
    }
    let waiting = (
        Wait::ReleaseManifest,
        url.clone(),
        "the digests of the release are being read",
    );
    let found = match draft.ask(Need::Manifest, &observed.facts.digests, waiting) {
        Ok(found) => found,
        Err(noted) => return noted.into(),
    };
    if let Some(path) = missing_file(found) {
        return Outcome::Fail(format!(
            "{url} has no {path}, which every node reads: it is not the manifest of a whole release; nothing has been changed: \
             check the ISO and the repository, delete this UpgradePlan and create another one"
        ));
    }
    let mut digests = found.clone();
    digests.iso_verified = match given(draft) {
        Some((sum, _)) if sum == found.iso_sha512 => true,
        Some((sum, from)) => {
            return Outcome::Fail(format!(
                "the ISO is not the requested one: its SHA-512 is {}, and {from} says {sum}; nothing has been \
                 changed: correct the checksum or the ISO, delete this UpgradePlan and create another one",
                found.iso_sha512
            ));
        }
        None => {
            draft.event(PlanEvent::warning(
                reasons::RELEASE_NOT_VERIFIED,
                format!(
                    "No checksum of the ISO was given, so it is not verified that it is the released one: its SHA-512 is \
                     {} ({} bytes), compare it with the published one",
                    found.iso_sha512, found.iso_size
                ),
            ));
            false
        }
    };
    let recorded = observed
        .plan
        .status
        .as_ref()
        .and_then(|status| status.release_digests.as_ref());
    match recorded {
        Some(recorded) if is_same(recorded, &digests) => return Outcome::Done,
        // What was read of the release is of the recorded one. A retry keeps it too: an attacker who could replace the
        // repository between two tries would choose what nodes install.
        Some(recorded) => {
            return Outcome::Fail(format!(
                "{url} is not the recorded one (status.releaseDigests): its SHA-256 is {}, and the recorded one is {}; the \
                 repository or the ISO was replaced: nothing has been changed, delete this UpgradePlan and create another one",
                digests.manifest, recorded.manifest
            ));
        }
        None => {}
    }
    // Recorded first: everything that is read from now on must match.
    *draft.record().release_digests = Some(digests);
    let message = "the digests of the release are being recorded";
    draft.wait(Wait::ReleaseManifest, Some(url), message).into()
}

/// A file that nodes need and that a manifest does not have. Nodes would find out only when they are to read it.
#[must_use]
pub fn missing_file(digests: &ReleaseDigests) -> Option<&'static str> {
    NEEDED_FILES.into_iter().find(|path| !digests.files.contains_key(*path))
}

/// The root digest covers all files; which of them are shown is another matter.
fn is_same(recorded: &ReleaseDigests, found: &ReleaseDigests) -> bool {
    let without_files = |digests: &ReleaseDigests| ReleaseDigests {
        files: BTreeMap::new(),
        ..digests.clone()
    };
    without_files(recorded) == without_files(found)
}

/// Says, once per try, that nodes verify nothing in an upgrade that began under an older manager.
pub fn warn_of_old_repository(draft: &mut Draft<'_>) {
    if draft.status().release_digests.is_none() {
        draft.event(PlanEvent::warning(
            reasons::RELEASE_NOT_VERIFIED,
            "This upgrade began under an older manager, which recorded no digests: nodes do not verify what they install",
        ));
    }
}
