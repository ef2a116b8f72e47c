//! A volume and an API for tests: with the faults and the limits of the real ones.

pub(crate) mod api;
pub(crate) mod disk;
pub(crate) mod pod;
