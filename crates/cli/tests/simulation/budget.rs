//! What an upgrade may cost the API server.

use crate::run::{Case, run};

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
