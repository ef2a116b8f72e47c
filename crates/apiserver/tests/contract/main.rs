//! The contract: requests and what a Kubernetes API answers, as tables in YAML files beside this one.
//!
//! Every file is a list of cases, every case a list of steps. Each case gets a fresh server (or, on a real cluster, a
//! fresh namespace): `$ns` in paths and bodies is its namespace, `$name` a value saved by an earlier step.
//! Expected bodies are subsets: `<any>` is anything but null, null is absence, `~text` contains text, `!$x` differs.
//!
//! Here the tables are run against the embedded server; `crates/testbed` runs them against a real one.

// Everything here is a test, also what is not marked as one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod case;
mod embedded;
#[path = "../support/mod.rs"]
mod support;
mod target;

use std::path::Path;

use case::{read_cases, run_case, tables};
use embedded::Embedded;
use rstest::rstest;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/contract");

#[test]
fn every_table_is_run() {
    let source = include_str!("main.rs");
    for table in tables(Path::new(DIRECTORY)) {
        assert!(source.contains(&format!("(\"{table}\")]")), "{table}.yaml is not run");
    }
}

#[rstest]
#[case::apply("apply")]
#[case::create("create")]
#[case::crd("crd")]
#[case::delete("delete")]
#[case::discovery("discovery")]
#[case::errors("errors")]
#[case::list("list")]
#[case::patch("patch")]
#[case::schema("schema")]
#[case::table("table")]
#[case::update("update")]
#[case::watch("watch")]
fn the_embedded_server_keeps_the_contract(#[case] file: &str) {
    let cases = read_cases(Path::new(DIRECTORY), file);
    let mut failed = Vec::new();
    for case in &cases {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let outcome = runtime.block_on(async {
            let target = Embedded::new(case.watch_log);
            run_case(&target, case).await
        });
        if let Err(wrong) = outcome {
            failed.push(format!("{}: {wrong}", case.name));
        }
    }
    println!("{} cases", cases.len());
    assert!(
        failed.is_empty(),
        "{} of {} cases failed:\n{}",
        failed.len(),
        cases.len(),
        failed.join("\n")
    );
}
