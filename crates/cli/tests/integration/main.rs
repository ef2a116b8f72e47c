//! Tests of `cli` through its public surface, in one binary: linking is most of what a test costs to build.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it leaves out"
)]

mod docs;
mod forecast_cli;
mod hostile;
mod images_end_to_end;
mod insight;
mod logs_cli;
mod logs_embedded;
mod manager_process;
mod packaging;
mod programs_cli;
mod rehearse_cli;
mod rehearse_rows;
mod release_cli;
mod serve_kubectl;
mod serve_logs;
mod support;
