//! The contract (`crates/contract`), asked of the embedded server. `crates/testbed` asks a real one.

// Everything here is a test, also what is not marked as one.
mod embedded;

use contract::{read_cases, run_case, tables};
use embedded::Embedded;
use rstest::rstest;

#[test]
fn every_table_is_run() {
    let source = include_str!("mod.rs");
    for table in tables() {
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
#[case::logs("logs")]
#[case::patch("patch")]
#[case::schema("schema")]
#[case::table("table")]
#[case::update("update")]
#[case::watch("watch")]
fn the_embedded_server_keeps_the_contract(#[case] file: &str) {
    let cases = read_cases(file);
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
