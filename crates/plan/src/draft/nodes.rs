//! What nodes have reached, in a draft. A state is written here and nowhere else, and only forward.

use api::NodeState;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Draft;
use crate::node::{self, Progress, Stage};

impl Draft<'_> {
    /// What a node has reached, as drafted so far.
    #[must_use]
    pub fn progress(&self, node: &str) -> Progress {
        let entry = self.status.node_upgrade_statuses.get(node);
        Progress::recorded(entry.and_then(|entry| entry.state()))
    }

    /// Joins a state that is seen into what the node has reached.
    pub fn reach(&mut self, node: &str, state: NodeState, reason: Option<&str>, message: Option<&str>) {
        let nodes = &mut self.status.node_upgrade_statuses;
        if !nodes.reach(node, state) {
            return;
        }
        nodes.set_reason(node, reason, message);
        let stage = Stage::of(state);
        let started = stage.is_in_flight() || stage == Stage::Ended;
        let finished = node::is_upgraded(state) && stage == Stage::Ended;
        let at = |is: bool| is.then_some(Time(self.now));
        nodes.record_times(node, at(started), at(finished));
    }

    /// Sets the reason and the message of a node whose state stays the same.
    pub fn set_reason(&mut self, node: &str, reason: Option<&str>, message: Option<&str>) {
        self.status.node_upgrade_statuses.set_reason(node, reason, message);
    }

    /// The reason of a node's state.
    #[must_use]
    pub fn reason(&self, node: &str) -> Option<&str> {
        self.status.node_upgrade_statuses.get(node)?.reason.as_deref()
    }

    /// The upgrade of a node has failed, and is not being retried.
    #[must_use]
    pub fn has_failed(&self, node: &str) -> bool {
        self.status
            .node_upgrade_statuses
            .get(node)
            .is_some_and(node::has_failed)
    }

    /// What the state of a node says failed is being tried again.
    #[must_use]
    pub fn is_tried_again(&self, node: &str) -> bool {
        self.status
            .node_upgrade_statuses
            .get(node)
            .is_some_and(node::is_tried_again)
    }
}
