//! The programs of a node, whole: on the embedded API, on a node that is a folder, in paused time. And what they leave
//! on a node, with the real tools where this machine has them.

mod fake_node;
mod files;
mod grub;
mod guard;
mod kinds;
mod needed;
mod post_drain;
mod pre_drain;
mod pre_drain_again;
mod programs;
mod single_node;
