//! Which container image the upgrade's own workloads run.

use api::{Phase, UpgradePlan, annotations, names};

/// Repository and name, without tag: the plan's own choice or ours.
#[must_use]
pub fn repository(plan: &UpgradePlan) -> &str {
    plan.annotation(annotations::UPGRADE_TOOLKIT_IMAGE)
        .filter(|image| !image.is_empty())
        .unwrap_or(names::TOOLKIT_IMAGE)
}

/// The tag: the plan's own choice; else the manager's until images are preloaded, because until then nodes without a
/// network have no other; then that of the new release.
#[must_use]
pub fn tag(plan: &UpgradePlan, own_tag: &str) -> String {
    if let Some(tag) = plan.spec.upgrade.as_ref().filter(|tag| !tag.is_empty()) {
        return tag.clone();
    }
    let preloaded = plan.phase().is_some_and(|phase| phase >= Phase::ImagePreloaded);
    let skipped = plan
        .spec
        .image_preload_option
        .as_ref()
        .and_then(|option| option.concurrency)
        .is_some_and(|n| n < 0);
    let release = plan
        .status
        .as_ref()
        .and_then(|status| status.release_metadata.as_ref()?.harvester.clone());
    match release {
        Some(release) if preloaded && !skipped && !release.is_empty() => release,
        _ => own_tag.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use api::{ReleaseMetadata, UpgradePlanStatus};

    use super::*;

    fn plan(phase: Phase, release: Option<&str>) -> UpgradePlan {
        let mut plan = UpgradePlan::new("up", Default::default());
        plan.status = Some(UpgradePlanStatus {
            current_phase: Some(phase.to_string()),
            release_metadata: release.map(|harvester| ReleaseMetadata {
                harvester: Some(harvester.into()),
                ..Default::default()
            }),
            ..Default::default()
        });
        plan
    }

    #[test]
    fn the_plans_own_tag_always_wins() {
        let mut plan = plan(Phase::NodeUpgrading, Some("v1.8.0"));
        plan.spec.upgrade = Some("dev".into());
        assert_eq!(tag(&plan, "own"), "dev");
    }

    #[test]
    fn w05_until_images_are_preloaded_workloads_run_what_the_manager_runs() {
        assert_eq!(tag(&plan(Phase::RepoCreating, None), "own"), "own");
        assert_eq!(tag(&plan(Phase::ImagePreloading, Some("v1.8.0")), "own"), "own");
        assert_eq!(tag(&plan(Phase::ImagePreloaded, Some("v1.8.0")), "own"), "v1.8.0");
        assert_eq!(tag(&plan(Phase::ClusterUpgrading, Some("")), "own"), "own");
    }

    #[test]
    fn without_preload_nodes_never_get_the_new_image_so_the_managers_is_used_throughout() {
        let mut plan = plan(Phase::NodeUpgrading, Some("v1.8.0"));
        plan.spec.image_preload_option = Some(api::ImagePreloadOption { concurrency: Some(-1) });
        assert_eq!(tag(&plan, "own"), "own");
    }

    #[test]
    fn an_empty_annotation_is_no_choice() {
        let mut plan = plan(Phase::Initializing, None);
        assert_eq!(repository(&plan), "rancher/harvester-upgrade-toolkit");
        let key = annotations::UPGRADE_TOOLKIT_IMAGE.to_owned();
        plan.metadata.annotations = Some([(key.clone(), String::new())].into());
        assert_eq!(repository(&plan), "rancher/harvester-upgrade-toolkit");
        plan.metadata.annotations = Some([(key, "me/mine".into())].into());
        assert_eq!(repository(&plan), "me/mine");
    }
}
