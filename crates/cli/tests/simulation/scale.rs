//! Twice as many VMs or nodes are at most about twice the work, counted in what is requested and read, not in seconds.

use std::time::Duration;

use api::{Phase, UpgradePlan};
use apiserver::Counters;
use cli::rehearsal::beginning;
use clock::Clock;
use kube::ResourceExt;

use crate::{
    run::{Case, in_paused_time},
    watched::Watched,
};

/// What twice the size may cost at most. Waits that last longer are reported more often.
const MOST: f64 = 2.3;

/// What an upgrade of a cluster costs the API server.
fn cost(nodes: usize, vms: usize) -> Counters {
    in_paused_time(async {
        let mut scenario = Case::three_nodes().scenario;
        (scenario.shape.nodes, scenario.shape.vms) = (nodes, vms);
        let rehearsal = Watched::start(scenario, Clock::simulated(beginning(), 1.0)).await;
        let _manager = rehearsal.start_only_manager();
        let name = rehearsal.create(&rehearsal.plan(true, &[])).await.unwrap().name_any();
        let ended = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty();
        let limit = Duration::from_hours(200);
        let plan = rehearsal.follow(&name, Some(limit), ended).await.unwrap();
        assert_eq!(plan.phase(), Some(Phase::Succeeded), "{nodes} nodes, {vms} VMs");
        rehearsal.server.store().counters()
    })
}

fn assert_at_most_doubles(small: &Counters, large: &Counters, most_listed: f64) {
    let parts = [
        ("reads", small.reads, large.reads, MOST),
        ("writes", small.writes, large.writes, MOST),
        ("changes", small.commits, large.commits, MOST),
        ("objects listed", small.listed, large.listed, most_listed),
    ];
    for (what, small, large, most) in parts {
        println!("{what}: {small}, then {large}");
        #[allow(clippy::cast_precision_loss, reason = "counts are small")]
        let ratio = large as f64 / small as f64;
        assert!(ratio <= most, "{what}: {small}, then {large}");
    }
}

#[test]
fn twice_the_vms_are_at_most_about_twice_the_work() {
    assert_at_most_doubles(&cost(3, 30), &cost(3, 60), MOST);
}

#[test]
fn twice_the_nodes_are_at_most_about_twice_the_work() {
    // The programs of each node list all nodes: that alone grows with their square.
    assert_at_most_doubles(&cost(8, 16), &cost(16, 32), 3.0);
}
