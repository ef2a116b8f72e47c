//! What holds for every line of the table.

use std::collections::BTreeSet;

use checks::{
    admission::{CREATE, Guards},
    finding::Severity,
    preflight::{self, CHECKS, Group, Look},
};
use snapshot::Snapshot;

use super::{World, annotate, cases, now};

#[test]
fn a_healthy_cluster_has_no_finding_and_everything_is_checked() {
    let report = World::healthy().report();
    assert_eq!(report.findings, []);
    assert_eq!(report.not_checked, []);
    assert_eq!(report.checked, CHECKS.len());
}

#[test]
fn every_check_has_a_cluster_in_which_it_finds_something_and_a_near_miss() {
    for row in &CHECKS {
        assert!(
            cases().any(|case| case.id == row.id),
            "{} {} has no case",
            row.id,
            row.title
        );
    }
    for case in cases() {
        let mut world = World::healthy();
        (case.found)(&mut world);
        let found = world.findings(case.id);
        assert!(!found.is_empty(), "{}: nothing found: {:?}", case.id, world.report());
        let texts: Vec<&str> = found.iter().map(|finding| finding.message.as_str()).collect();
        assert!(
            texts.iter().any(|text| text.contains(case.says)),
            "{}: {texts:?}",
            case.id
        );
        let mut world = World::healthy();
        (case.near)(&mut world);
        let report = world.report();
        let found: Vec<_> = report.findings.iter().filter(|finding| finding.id == case.id).collect();
        assert!(found.is_empty(), "{}: near miss: {found:?}", case.id);
        let missed: Vec<_> = report
            .not_checked
            .iter()
            .filter(|missed| missed.id == case.id)
            .collect();
        assert!(missed.is_empty(), "{}: near miss: {missed:?}", case.id);
    }
}

#[test]
fn every_line_has_an_id_of_its_own_a_remedy_and_a_link() {
    let ids: BTreeSet<&str> = CHECKS.iter().map(|row| row.id).collect();
    assert_eq!(ids.len(), CHECKS.len());
    assert!(CHECKS.len() >= 45, "{}", CHECKS.len());
    for (index, row) in CHECKS.iter().enumerate() {
        assert_eq!(row.id, format!("P{:02}", index + 1));
        assert!(row.remedy.ends_with('.') && row.remedy.len() > 10, "{}", row.id);
        assert_eq!(row.link(), format!("docs/preflight.md#p{:02}", index + 1));
    }
    for group in Group::ALL {
        assert!(CHECKS.iter().any(|row| row.group == group), "{group}");
    }
}

#[test]
fn all_checks_of_admission_are_lines_with_their_titles_and_overrides() {
    let admitted: Vec<(usize, &preflight::Row)> = CHECKS
        .iter()
        .filter_map(|row| match row.look {
            Look::Admission(index) | Look::Wider(index, _) => Some((index, row)),
            Look::Own(_) => None,
        })
        .collect();
    assert_eq!(admitted.len(), CREATE.len());
    for (position, (index, row)) in admitted.into_iter().enumerate() {
        let (title, guards, _) = CREATE[index];
        assert_eq!((index, row.title, row.severity), (position, title, Severity::Error));
        let by = row.overridden_by.unwrap_or_default();
        // What is found after admission too is not overridden by skipping admission.
        let skips_admission = matches!(row.look, Look::Admission(_));
        assert_eq!(by.contains("skip-webhook"), skips_admission, "{title}: {by}");
        assert_eq!(by.contains("skip-data-checks"), guards == Guards::Data, "{title}");
    }
}

#[test]
fn of_a_cluster_of_which_nothing_is_known_nothing_is_called_clean() {
    let snapshot = Snapshot::unknown(now(), "nodes is forbidden");
    let report = preflight::run(&snapshot, &World::healthy().plan);
    assert_eq!(report.findings, []);
    let ids: BTreeSet<&str> = report.not_checked.iter().map(|missed| missed.id.as_str()).collect();
    let checked: Vec<&str> = CHECKS.iter().map(|row| row.id).filter(|id| !ids.contains(id)).collect();
    // These look at the plan alone: no image to find, no node to pause, its name, its image, no image to import.
    assert_eq!(checked, ["P15", "P16", "P18", "P19", "P23"]);
    assert!(
        report.not_checked[0].why.contains("forbidden"),
        "{:?}",
        report.not_checked[0]
    );
}

#[test]
fn a_list_that_is_missing_makes_no_check_find_more_or_less_by_mistake() {
    for kind in Snapshot::kinds() {
        let mut world = World::healthy();
        world.snapshot.set_unknown(kind.field, "forbidden");
        let report = world.report();
        assert_eq!(report.findings, [], "without {}", kind.field);
        assert_eq!(report.checked + report.not_checked.len(), CHECKS.len());
    }
}

#[test]
fn without_a_version_what_needs_one_is_not_checked() {
    let mut world = World::healthy();
    world.plan = preflight::hypothetical(None, None);
    let report = world.report();
    assert_eq!(report.findings, []);
    let ids: Vec<&str> = report.not_checked.iter().map(|missed| missed.id.as_str()).collect();
    assert_eq!(ids, ["P01", "P20", "P21", "P22"]);
    assert!(
        report.not_checked[0].why.contains("--version or --image"),
        "{:?}",
        report.not_checked[0]
    );
}

#[test]
fn what_the_plan_skips_is_a_warning_that_says_so() {
    let mut world = World::healthy();
    world.change("nodes", "node-1", |node| node["spec"]["unschedulable"] = true.into());
    assert_eq!(world.findings("P03")[0].severity, Severity::Error);
    annotate(&mut world.plan, api::annotations::SKIP_WEBHOOK, "true");
    let found = world.findings("P03");
    assert_eq!(found[0].severity, Severity::Warning);
    assert!(
        found[0].message.ends_with("(the plan skips this check)"),
        "{}",
        found[0].message
    );
}

#[test]
fn findings_of_admission_name_the_objects() {
    let mut world = World::healthy();
    world.change("nodes", "node-2", |node| {
        node["status"]["conditions"] = serde_json::json!([])
    });
    let found = world.findings("P03");
    assert_eq!(found[0].message, "spec: Forbidden: node \"node-2\" is not Ready");
    let objects: Vec<String> = found[0].objects.iter().map(ToString::to_string).collect();
    assert_eq!(objects, ["Node node-2"]);
}
