//! What an upgrade may cost the API server.

use std::time::Duration;

use cli::rehearsal::{beginning, manager_user};
use clock::Clock;
use kube::ResourceExt;

use crate::{
    run::{Case, in_paused_time, run},
    user::is_paused,
    watched::Watched,
};

/// The existing toolkit needs about 110 for the same upgrade, 13 of them conflicts.
const MOST_PLAN_WRITES: usize = 80;

#[test]
fn an_upgrade_of_three_nodes_needs_at_most_80_writes_to_the_plan_and_none_conflicts() {
    let ended = run(&Case::three_nodes());
    let plan_writes: Vec<_> = ended
        .writes
        .iter()
        .filter(|write| write.contains(" upgradeplans"))
        .collect();
    println!("{:?}", ended.requests);
    println!(
        "{} writes to the plan, {} in all",
        plan_writes.len(),
        ended.writes.len()
    );
    assert!(plan_writes.len() <= MOST_PLAN_WRITES, "{plan_writes:#?}");
    let refused: Vec<_> = ended
        .writes
        .iter()
        .filter(|write| !write.ends_with(" 200") && !write.ends_with(" 201"))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn at_rest_nothing_is_written_but_the_lease() {
    in_paused_time(async {
        let clock = Clock::simulated(beginning(), 1.0);
        let rehearsal = Watched::start(Case::three_nodes().scenario, clock).await;
        let _manager = rehearsal.start_manager("manager-1");
        let plan = rehearsal
            .create_unchecked(rehearsal.plan(false, &["node-1".to_owned()]))
            .await
            .unwrap();
        rehearsal
            .follow(&plan.name_any(), Some(Duration::from_secs(12 * 3600)), is_paused)
            .await
            .unwrap();
        rehearsal.clock.sleep(Duration::from_secs(60)).await;
        let written = || {
            let history = rehearsal.server.store().history().into_iter();
            history
                .filter(|write| write.user == manager_user() && write.resource.plural != "leases")
                .count()
        };
        let before = written();
        rehearsal.clock.sleep(Duration::from_secs(6 * 3600)).await;
        assert_eq!(written(), before, "a paused upgrade has nothing to write");
    });
}
