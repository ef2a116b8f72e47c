//! A manager that is replaced by another version in the middle of an upgrade.

use std::{collections::BTreeSet, time::Duration};

use api::{Phase, UpgradePlan, image::Image, labels};
use cli::rehearsal::{Scenario, beginning};
use clock::Clock;
use kube::ResourceExt;
use manager::run::Config;

use crate::{run::in_paused_time, timeline::versions, watched::Watched};

/// Where images may come from.
const REPOSITORY: &str = "rancher/harvester-upgrade-toolkit";
const LONG: Duration = Duration::from_secs(12 * 3600);

fn of_version(tag: &str) -> Config {
    let mut config = Config {
        lease_namespace: None,
        ..Config::default()
    };
    config.settings.own_image = Image::parse(&format!("{REPOSITORY}:{tag}")).unwrap();
    config
}

#[test]
fn programs_of_an_upgrade_are_of_one_version_though_its_manager_is_replaced() {
    in_paused_time(async {
        let scenario = Scenario {
            definitions: crate::run::definitions(),
            ..Scenario::default()
        };
        let rehearsal = Watched::start(scenario, Clock::simulated(beginning(), 1.0)).await;
        let first = rehearsal.start_manager_with(of_version("v1"));
        let name = rehearsal
            .create_unchecked(rehearsal.plan(true, &[]))
            .await
            .unwrap()
            .name_any();
        let at = |phase| move |plan: &UpgradePlan| plan.phase() >= Some(phase);
        rehearsal
            .follow(&name, Some(LONG), at(Phase::ClusterUpgrading))
            .await
            .unwrap();
        first.abort();
        let _second = rehearsal.start_manager_with(of_version("v2"));
        let plan = rehearsal.follow(&name, Some(LONG), at(Phase::Succeeded)).await.unwrap();
        assert_eq!(plan.phase(), Some(Phase::Succeeded));
        let pods = versions(rehearsal.server.store(), "pods");
        let ours = pods
            .iter()
            .filter(|(_, pod)| pod["metadata"]["labels"][labels::UPGRADE_PLAN] == name.as_str());
        let images: BTreeSet<&str> = ours
            .flat_map(|(_, pod)| pod["spec"]["containers"].as_array().into_iter().flatten())
            .filter_map(|container| container["image"].as_str())
            .filter(|image| image.starts_with(REPOSITORY))
            .collect();
        assert_eq!(images, [format!("{REPOSITORY}:v1").as_str()].into());
    });
}
