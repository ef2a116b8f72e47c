//! Which deadline each wait has.

use std::time::Duration;

use api::Wait;
use rules::deadlines::{Deadlines, UNBOUNDED};

#[test]
fn what_has_no_limit_by_its_nature_has_a_hundred_years() {
    assert_eq!(UNBOUNDED.as_secs(), 3_153_600_000);
}

#[test]
fn every_wait_has_the_deadline_of_its_kind() {
    let minutes = Duration::from_mins;
    let deadlines = Deadlines::default();
    let table = [
        (Wait::StartRequest, UNBOUNDED),
        (Wait::OlderUpgrade, UNBOUNDED),
        (Wait::OtherUpgrade, UNBOUNDED),
        (Wait::Paused, UNBOUNDED),
        (Wait::BehindPaused, UNBOUNDED),
        (Wait::More, UNBOUNDED),
        (Wait::Version, minutes(5)),
        (Wait::ServerVersion, minutes(5)),
        (Wait::Nodes, minutes(5)),
        (Wait::Cluster, minutes(5)),
        (Wait::Preflight, minutes(10)),
        (Wait::NewImages, minutes(10)),
        (Wait::IsoImport, minutes(30)),
        (Wait::Repository, minutes(10)),
        (Wait::ReleaseMetadata, minutes(10)),
        (Wait::ImagePreload, minutes(60)),
        (Wait::ToolkitImage, minutes(10)),
        (Wait::Setting, minutes(5)),
        (Wait::ClusterUpgradeJob, minutes(45)),
        (Wait::SkipManifestsApply, minutes(10)),
        (Wait::RancherUpdate, minutes(20)),
        (Wait::PreDrainJob, minutes(30)),
        (Wait::PostDrainJob, minutes(30)),
        (Wait::SingleNodeJob, minutes(60)),
        (Wait::Reboot, minutes(20)),
        (Wait::Turn, minutes(30 + 20 + 30 + 20)),
        (Wait::ImageCleanup, minutes(10)),
        (Wait::Pod, minutes(5)),
        (Wait::StillRunning, minutes(10)),
    ];
    for (wait, expected) in table {
        assert_eq!(deadlines.of(wait), expected, "{wait}");
    }
}
