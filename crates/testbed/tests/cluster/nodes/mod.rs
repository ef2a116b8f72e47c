//! Upgrades of real nodes: our image, in pods that a real kubelet and containerd run, brings a node's disk from one system to
//! the next. KubeVirt, Longhorn, Rancher's planner, Fleet, CDI and system-upgrade-controller are the world's actors.

mod broken;
mod cluster;
mod images;
mod recorder;
mod release;
mod upgrade;
mod virt_api;
