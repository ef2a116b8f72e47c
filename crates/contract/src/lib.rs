//! The contract: requests and what a Kubernetes API answers, as tables in the YAML files of `tables`.
//!
//! Every file is a list of cases, every case a list of steps. Each case gets a fresh server (or, on a real cluster, a
//! fresh namespace): `$ns` in paths and bodies is its namespace, `$name` a value saved by an earlier step.
//! Expected bodies are subsets: `<any>` is anything but null, null is absence, `~text` contains text, `!$x` differs.
//!
//! Only tests use it: those of `apiserver` ask the embedded server, those of `testbed` a real one.

// Everything here is for tests, which fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod case;
mod target;

pub use case::{Case, read_cases, run_case, tables};
pub use target::{Answer, Later, Target, header_map, request};

/// The invented kind that some cases need, as YAML.
pub const WIDGETS: &str = include_str!("../tables/support/widget.yaml");
