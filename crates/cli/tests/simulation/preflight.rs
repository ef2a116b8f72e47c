//! `preflight` and `doctor` on clusters in which nothing is wrong, before and after an upgrade: they find nothing.

use std::time::Duration;

use checks::{
    doctor,
    finding::{Report, Severity},
    preflight,
};
use cli::rehearsal::beginning;
use clock::Clock;
use rstest::rstest;

use crate::{
    doctor::play::{follow, start, take},
    run::{Case, in_paused_time},
    watched::Watched,
};

/// What is found, but for what is only worth knowing.
fn serious(report: &Report) -> Vec<String> {
    let serious = report.findings.iter().filter(|found| found.severity != Severity::Info);
    serious
        .map(|found| format!("{} {}: {}", found.severity, found.id, found.message))
        .collect()
}

fn of(nodes: usize, witness: bool) -> Case {
    let mut case = Case::three_nodes();
    case.scenario.shape.nodes = nodes;
    case.scenario.shape.vms = 2 * nodes;
    case.scenario.shape.witness = witness;
    case.restore_vm = true;
    case
}

#[rstest]
#[case::one_node(1, false)]
#[case::three_nodes(3, false)]
#[case::with_a_witness(5, true)]
fn a_cluster_in_which_nothing_is_wrong_has_neither_errors_nor_warnings(#[case] nodes: usize, #[case] witness: bool) {
    let case = of(nodes, witness);
    let snapshot = in_paused_time(async {
        let clock = Clock::simulated(beginning(), 1.0);
        let rehearsal = Watched::start(case.scenario.clone(), clock).await;
        let _manager = rehearsal.start_only_manager();
        rehearsal.clock.sleep(Duration::from_mins(5)).await;
        (take(&rehearsal).await, rehearsal.plan(true, &[]))
    });
    let (snapshot, plan) = snapshot;
    assert_eq!(serious(&preflight::run(&snapshot, &plan)), Vec::<String>::new());
    assert_eq!(serious(&doctor::examine(&snapshot)), Vec::<String>::new());
}

#[test]
fn after_an_upgrade_that_went_well_nothing_is_wrong_either() {
    let mut last = None;
    let plan = in_paused_time(async {
        let (rehearsal, _, _manager) = start(&of(3, false)).await;
        follow(&rehearsal, Duration::from_mins(2), |_| false).await;
        // VMs that were shut down start again, and volumes are rebuilt.
        rehearsal.clock.sleep(Duration::from_hours(1)).await;
        last = Some(take(&rehearsal).await);
        rehearsal.plan(true, &[])
    });
    let snapshot = last.unwrap();
    assert_eq!(serious(&doctor::examine(&snapshot)), Vec::<String>::new());
    // The manager of this upgrade has no rival, and does not renew its lease.
    let found = serious(&preflight::run(&snapshot, &plan));
    assert_eq!(
        found,
        ["warning P34: no manager of UpgradePlans runs: its lease was not renewed"]
    );
}
