//! MetadataPopulate: what the ISO says about the new release is recorded.

use api::ReleaseMetadata;

use crate::{
    decision::Need,
    draft::{Draft, Outcome},
};

use super::release_digests;

/// Reads the release metadata. Metadata that later phases could not work with is refused here, where nothing has been
/// changed yet, instead of stalling a drained node.
pub fn run(draft: &mut Draft<'_>) -> Outcome {
    // First: what the release says of itself counts once it is the one that was asked for, and that is on record.
    match release_digests::record(draft) {
        Outcome::Done => {}
        other => return other,
    }
    let seen = draft.seen;
    let url = format!("{}/harvester-release.yaml", draft.repo_url());
    let limit = seen.settings.deadlines.metadata;
    let waiting = ("ReleaseMetadata", url.clone(), "release metadata is being read");
    let Some(release) = draft.ask(Need::Release, &seen.facts.release, waiting, limit) else {
        return Outcome::Wait;
    };
    if let Some(missing) = missing_field(release) {
        let message =
            format!("{url} has no {missing}: the ISO is not a Harvester release; start over with another one");
        draft.wait("ReleaseMetadata", Some(url), &message, limit);
        draft.degrade(message);
        return Outcome::Wait;
    }
    *draft.record().release_metadata = Some(release.clone());
    Outcome::Done
}

fn missing_field(release: &ReleaseMetadata) -> Option<&'static str> {
    let needed = [
        ("harvester", &release.harvester),
        ("os", &release.os),
        ("kubernetes", &release.kubernetes),
    ];
    needed
        .into_iter()
        .find(|(_, value)| value.as_deref().is_none_or(str::is_empty))
        .map(|(name, _)| name)
}
