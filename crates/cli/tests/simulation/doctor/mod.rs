//! `doctor` against whole simulated upgrades: each of the 48 situations is injected, and found; upgrades that go well have no
//! finding that calls for an administrator.

mod by_snapshot;
mod by_trouble;
pub(crate) mod edit;
mod healthy;
pub(crate) mod play;
mod repaired;

use checks::{
    doctor::{SITUATIONS, examine},
    finding::{Finding, Report},
};

/// The result of one injection.
pub(crate) struct Injected {
    pub(crate) id: &'static str,
    /// By what it was injected.
    pub(crate) how: &'static str,
    /// What the finding is about, or what was found instead.
    pub(crate) result: Result<String, String>,
}

/// The finding of an id about an object, as the result of an injection.
pub(crate) fn judged(id: &'static str, how: &'static str, object: &str, report: &Report) -> Injected {
    let found = named(report, id, object);
    let complete = found.filter(|finding| !finding.remedy.is_empty() && !finding.commands.is_empty());
    let others: Vec<String> = report
        .findings
        .iter()
        .map(|finding| format!("{} {}: {}", finding.id, finding.objects[0], finding.message))
        .collect();
    Injected {
        id,
        how,
        result: complete
            .map(|finding| finding.objects[0].to_string())
            .ok_or_else(|| format!("no {id} about {object} among {others:#?}")),
    }
}

/// The finding of an id whose first object begins so.
pub(crate) fn named<'a>(report: &'a Report, id: &str, object: &str) -> Option<&'a Finding> {
    let mut findings = report.findings.iter();
    findings.find(|finding| finding.id == id && finding.objects[0].to_string().starts_with(object))
}

#[test]
fn each_of_the_48_situations_is_injected_and_found_with_its_object_and_a_remedy() {
    let mut all = by_trouble::run();
    all.extend(by_snapshot::run());
    let mut missed = Vec::new();
    let mut found = 0;
    println!("{:<5} {:<9} found", "id", "by");
    for situation in SITUATIONS {
        let Some(injected) = all.iter().find(|injected| injected.id == situation.id) else {
            missed.push(format!("{} is not injected", situation.id));
            continue;
        };
        match &injected.result {
            Ok(object) => {
                found += 1;
                println!("{:<5} {:<9} {object}", injected.id, injected.how);
            }
            Err(why) => missed.push(format!("{} ({}): {why}", injected.id, injected.how)),
        }
    }
    println!("recall {found}/{}", SITUATIONS.len());
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    assert_eq!(found, SITUATIONS.len());
}

#[test]
fn a_snapshot_of_the_embedded_cluster_lacks_nothing_that_doctor_needs() {
    let moments = play::moments();
    for (moment, snapshot) in moments {
        let report = examine(snapshot);
        assert_eq!(report.not_checked, [], "{moment}");
        assert_eq!(report.checked, SITUATIONS.len());
    }
}
