//! VMs that cannot move while their node is upgraded: they are found, put on a list, stopped, and started again later.

pub mod detector;
pub mod hypervisor;
mod name;
pub mod power;
pub mod restore;
pub mod restore_list;
pub mod subresource;

pub use hypervisor::{Hypervisor, KubeVirt};
pub use name::VmName;
