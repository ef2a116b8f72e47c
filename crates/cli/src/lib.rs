//! The binary `upgrade-toolkit`: one file per command, and the rehearsal that commands and tests share.

pub mod command;
pub mod invocation;
pub mod manifests;
pub mod rehearsal;

/// Rehearsals make and drop many small objects, which the C library's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
