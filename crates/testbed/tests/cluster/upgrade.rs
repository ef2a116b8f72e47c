//! Whole upgrades on a real control plane.

use std::time::Duration;

use api::UpgradePlanSpec;
use world::{Durations, Shape, Troubles};

use crate::harvester::{Harvester, MANAGER};

/// An upgrade in which nothing takes time.
const UPGRADE: Duration = Duration::from_secs(180);

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().unwrap().block_on(test);
}

#[test]
fn three_nodes_are_upgraded_to_the_end() {
    if !testbed::is_wanted() {
        return;
    }
    run(async {
        let mut harvester = Harvester::start(Shape::default(), Durations::instant(), Troubles::default()).await;
        harvester.start_manager().await;
        harvester.create_plan("up", UpgradePlanSpec::default()).await;
        harvester.plan_ended("up", UPGRADE).await;
        let requests = harvester.control_plane.audit().unwrap();
        let refused: Vec<_> = requests
            .iter()
            .filter(|request| request.agent == MANAGER && request.code == 403)
            .collect();
        assert!(refused.is_empty(), "the shipped roles do not allow {refused:?}");
    });
}
