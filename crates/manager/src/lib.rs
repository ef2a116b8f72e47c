//! The operator: observes the cluster, lets [`plan::decide`] decide, and carries decisions out.
//!
//! [`run::run`] is the whole manager. It gets its client, its clock and its view of the outside from its caller, so the
//! rehearsal and the tests run the very same code on a simulated cluster.

pub mod act;
mod backoff;
mod blockers;
mod capi_version;
pub mod client;
mod decision_log;
pub mod events;
pub mod external_probes;
pub mod facts;
pub mod field_validation;
pub mod health;
pub mod https;
mod instance;
pub mod keyring;
pub mod lease;
pub mod lists;
pub mod memo;
pub mod metrics;
pub mod objects;
pub mod observe;
mod ours;
pub mod own_image;
pub mod rbac;
mod reconcile;
pub mod run;
pub mod status_throttle;
pub mod tls;
pub mod upgrade_record;
pub mod watched;
pub mod webhook;
