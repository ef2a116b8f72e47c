//! The whole matrix. It runs in the profile of the sweep, since it is long: `make sweep`.

use rstest::rstest;

use super::{deletions, failure::Failure, failures, play_all};

#[rstest]
#[case::before_the_cluster("before the cluster", failures::before_the_cluster())]
#[case::of_the_cluster("of the cluster", failures::of_the_cluster())]
#[case::of_nodes("of nodes", failures::of_nodes())]
#[case::of_steps("of steps", failures::of_steps())]
#[case::of_a_single_node("of a single node", failures::of_a_single_node())]
#[case::of_a_mixed_cluster("of a mixed cluster", failures::of_a_mixed_cluster())]
#[case::of_movable_vms("of VMs that can move", failures::of_movable_vms())]
#[case::of_vms_that_stay_stopped("of VMs that stay stopped", failures::of_vms_that_stay_stopped())]
#[case::of_two_plans("of two plans", failures::of_two_plans())]
#[case::deletions("deletions", deletions::all())]
fn from_every_failure_a_way_leads_to_the_end(#[case] what: &str, #[case] failures: Vec<Failure>) {
    play_all(what, &failures);
}
