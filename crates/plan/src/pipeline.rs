//! The order of the phases. A phase is one file in `phase/` and one line here.

use api::Phase;

use crate::{
    draft::{Draft, Outcome},
    phase,
};

/// A rule: looks at what is seen, adds to the draft what is to be done, and says whether its matter holds.
pub type Rule = fn(&mut Draft<'_>) -> Outcome;

/// One phase.
pub struct Entry {
    /// Its name in events.
    pub name: &'static str,
    /// Its value while it runs.
    pub active: Phase,
    /// Its value when it has run.
    pub completed: Phase,
    /// What must hold before it begins.
    pub enter: Rule,
    /// What must hold before it has run.
    pub run: Rule,
    /// What must hold before the next one begins.
    pub leave: Rule,
}

const NOTHING: Rule = |_| Outcome::Done;

/// All phases, in order.
#[rustfmt::skip]
pub const PIPELINE: [Entry; 8] = [
    Entry { name: "Initialize", active: Phase::Initializing, completed: Phase::Initialized, enter: NOTHING, run: phase::initialize::run, leave: phase::initialize::leave },
    Entry { name: "ISODownload", active: Phase::ISODownloading, completed: Phase::ISODownloaded, enter: NOTHING, run: phase::iso_download::run, leave: NOTHING },
    Entry { name: "RepoCreate", active: Phase::RepoCreating, completed: Phase::RepoCreated, enter: NOTHING, run: phase::repo_create::run, leave: NOTHING },
    Entry { name: "MetadataPopulate", active: Phase::MetadataPopulating, completed: Phase::MetadataPopulated, enter: NOTHING, run: phase::metadata_populate::run, leave: NOTHING },
    Entry { name: "ImagePreload", active: Phase::ImagePreloading, completed: Phase::ImagePreloaded, enter: phase::image_preload::enter, run: phase::image_preload::run, leave: NOTHING },
    Entry { name: "ClusterUpgrade", active: Phase::ClusterUpgrading, completed: Phase::ClusterUpgraded, enter: phase::cluster_upgrade::enter, run: phase::cluster_upgrade::run, leave: NOTHING },
    Entry { name: "NodeUpgrade", active: Phase::NodeUpgrading, completed: Phase::NodeUpgraded, enter: phase::node_upgrade::enter, run: phase::node_upgrade::run, leave: phase::node_upgrade::leave },
    Entry { name: "ImageCleanup", active: Phase::CleaningUp, completed: Phase::CleanedUp, enter: NOTHING, run: phase::image_cleanup::run, leave: phase::finalize::leave },
];

/// The entry that a phase belongs to, and the one after it.
#[must_use]
pub fn find(phase: Phase) -> Option<(&'static Entry, Option<&'static Entry>)> {
    let at = PIPELINE
        .iter()
        .position(|entry| entry.active == phase || entry.completed == phase)?;
    Some((&PIPELINE[at], PIPELINE.get(at + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_every_phase_once_and_in_order() {
        let values: Vec<Phase> = PIPELINE
            .iter()
            .flat_map(|entry| [entry.active, entry.completed])
            .collect();
        assert_eq!(values, Phase::ALL[..16]);
    }
}
