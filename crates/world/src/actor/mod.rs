//! What a Harvester cluster does by itself: one file per controller.
//!
//! Every actor is a loop over its inbox. It looks at one object as it is now, brings it one step closer to what that
//! controller wants, and returns. What takes time is processed again when it is due.

pub(crate) mod addons;
pub(crate) mod cdi;
pub(crate) mod daemon_sets;
pub(crate) mod deployments;
pub(crate) mod drain;
pub(crate) mod endpoints;
pub(crate) mod evacuation;
pub(crate) mod fleet;
pub(crate) mod garbage_collector;
pub(crate) mod harvester_chart;
pub(crate) mod instance_managers;
pub(crate) mod jobs;
pub(crate) mod kubelet;
pub(crate) mod kubevirt;
pub(crate) mod longhorn;
pub(crate) mod machine_drain;
pub(crate) mod machine_plan;
pub(crate) mod migrations;
pub(crate) mod node_down;
mod per_key;
pub(crate) mod rancher;
pub(crate) mod rancher_planner;
pub(crate) mod reboot;
mod restart;
pub(crate) mod saboteur;
pub(crate) mod system_agent;
pub(crate) mod system_upgrade;
mod tier;
mod volume_users;
pub(crate) mod workloads;
