//! The programs about VMs, whole, on the embedded API and in paused time.

mod detector;
pub(crate) mod harness;
mod needed;
mod restore;
