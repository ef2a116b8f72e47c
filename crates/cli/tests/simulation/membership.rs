//! Nodes that leave the cluster while it is upgraded.

use api::{NodeState, Phase, reasons};
use rstest::rstest;

use crate::{
    run::{Case, run},
    user::User,
};

#[rstest]
#[case::before_its_turn(User::RemovesNode("node-4", Phase::NodeUpgrading))]
#[case::before_any_nodes_turn(User::RemovesNode("node-4", Phase::ClusterUpgrading))]
#[case::while_it_is_emptied(User::RemovesNodeAt("node-2", NodeState::PreDraining))]
#[case::while_it_reboots(User::RemovesNodeAt("node-2", NodeState::WaitingReboot))]
fn w23_a_node_that_leaves_the_cluster_is_named_and_no_longer_waited_for(#[case] removal: User) {
    let (User::RemovesNode(gone, _) | User::RemovesNodeAt(gone, _)) = removal else {
        unreachable!()
    };
    let mut case = Case {
        user: vec![removal],
        ..Case::three_nodes()
    };
    case.scenario.shape.nodes = 4;
    // Without volumes: those of a node that is gone are not rebuilt elsewhere in this world.
    case.scenario.shape.vms = 0;
    let ended = run(&case);
    let plan = ended.plan.unwrap();
    assert_eq!(plan.phase(), Some(Phase::Succeeded), "{:#?}", plan.status);
    let statuses = plan.status.unwrap().node_upgrade_statuses;
    assert_eq!(statuses[gone].reason.as_deref(), Some(reasons::NODE_REMOVED));
    let others: Vec<_> = statuses.iter().filter(|(name, _)| *name != gone).collect();
    assert_eq!(others.len(), 3);
    for (name, node) in others {
        assert_eq!(node.state(), Some("ImageCleaned"), "{name}");
        assert_eq!(ended.digest["nodes"][name]["osImage"], "Harvester v1.8.0", "{name}");
    }
    let events: Vec<String> = serde_json::from_value(ended.digest["events"].clone()).unwrap();
    let history = events
        .iter()
        .filter(|event| event.contains(&format!("Node {gone} left the cluster")));
    assert_eq!(history.count(), 1, "{events:#?}");
}
