//! MetadataPopulate: what the ISO says about the new release is recorded.

use api::{
    ReleaseMetadata, Wait,
    quoted::{LONGEST_NAME, plain},
};

use crate::{
    decision::Need,
    draft::{Draft, Outcome},
};

use super::release_digests;

/// Reads the release metadata. Metadata that later phases could not work with is refused here, where nothing has been
/// changed yet, instead of stalling a drained node.
pub fn run(draft: &mut Draft<'_>) -> Outcome {
    // First: the metadata of the release counts once it is the requested one, and that is recorded.
    match release_digests::record(draft) {
        Outcome::Done => {}
        other => return other,
    }
    let observed = draft.observed;
    let url = format!("{}/harvester-release.yaml", draft.repo_url());
    let waiting = (Wait::ReleaseMetadata, url.clone(), "release metadata is being read");
    let release = match draft.ask(Need::Release, &observed.facts.release, waiting) {
        Ok(release) => release,
        Err(noted) => return noted.into(),
    };
    if let Some(fault) = fault_of(release) {
        let message = format!("{url} {fault}: the ISO is not a Harvester release; start over with another one");
        let noted = draft.wait(Wait::ReleaseMetadata, Some(url), &message);
        draft.degrade(message);
        return noted.into();
    }
    *draft.record().release_metadata = Some(release.clone());
    Outcome::Done
}

/// Why the metadata cannot be used: a field that later phases need is missing, or one is no name. What it says is shown in
/// the status and in messages, so it must be short and printable.
fn fault_of(release: &ReleaseMetadata) -> Option<String> {
    // Every field is named, so that none that is added is forgotten.
    let ReleaseMetadata {
        harvester,
        harvester_chart,
        os,
        kubernetes,
        rancher,
        monitoring_chart,
        min_upgradable_version,
    } = release;
    let needed = [("harvester", harvester), ("os", os), ("kubernetes", kubernetes)];
    let optional = [
        ("harvesterChart", harvester_chart),
        ("rancher", rancher),
        ("monitoringChart", monitoring_chart),
        ("minUpgradableVersion", min_upgradable_version),
    ];
    let is_missing = |value: &Option<String>| value.as_deref().is_none_or(str::is_empty);
    if let Some((name, _)) = needed.iter().find(|(_, value)| is_missing(value)) {
        return Some(format!("has no {name}"));
    }
    let mut all = needed.into_iter().chain(optional);
    let strange = all.find(|(_, value)| value.as_deref().is_some_and(|text| plain(text, LONGEST_NAME) != text));
    strange
        .map(|(name, _)| format!("has a field {name} that is longer than {LONGEST_NAME} characters or not printable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release() -> ReleaseMetadata {
        ReleaseMetadata {
            harvester: Some("v1.8.0".to_owned()),
            os: Some("Harvester v1.8.0".to_owned()),
            kubernetes: Some("v1.35.2+rke2r1".to_owned()),
            ..ReleaseMetadata::default()
        }
    }

    #[test]
    fn s01_metadata_of_a_release_is_short_and_printable() {
        assert_eq!(fault_of(&release()), None);
        let mut long = release();
        long.rancher = Some("v".repeat(LONGEST_NAME + 1));
        assert!(fault_of(&long).unwrap().contains("rancher"));
        let mut steering = release();
        steering.os = Some("Harvester\u{1b}[2J".to_owned());
        assert!(fault_of(&steering).unwrap().contains("field os"));
    }

    #[test]
    fn what_later_phases_need_must_be_there() {
        let mut without = release();
        without.kubernetes = Some(String::new());
        assert_eq!(fault_of(&without).unwrap(), "has no kubernetes");
    }
}
