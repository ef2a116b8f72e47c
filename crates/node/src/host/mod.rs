//! The node's own system: its files under one root, its tools behind one trait.

pub mod grub;
pub mod mounts;
pub mod oem;
pub mod os_image;
pub mod os_install;
mod own_root;
pub mod reboot;
pub mod rke2_config;
pub mod root;
pub mod system_agent;
pub mod tools;

pub use root::HostRoot;
pub use tools::{Call, Chroot, Ended, HostTools};

/// What an upgrade keeps on a node, as the node names it. It survives a reboot.
pub const UPGRADE_DIR: &str = "/usr/local/upgrade_tmp";
