//! The binary `upgrade-toolkit`: one file per command, and the rehearsal that commands and tests share.

pub mod command;
pub mod manifests;
pub mod rehearsal;
