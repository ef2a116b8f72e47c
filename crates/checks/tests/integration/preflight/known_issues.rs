//! Known issues: which are shown, and what a malformed file says.

use checks::{
    finding::Report,
    known_issues::{self, CONDITIONS, KnownIssue},
    preflight::{self, Question},
};
use rstest::rstest;
use serde_json::json;

use super::{World, vms::vm};

fn issue(from: &str, to: &str, condition: &str) -> Vec<KnownIssue> {
    let condition = if condition.is_empty() {
        String::new()
    } else {
        format!("\n  condition: {condition}")
    };
    let text = format!(
        "- id: KI-1\n  title: It breaks.\n  from: \"{from}\"\n  to: \"{to}\"{condition}\n  severity: error\n  remedy: Do not.\n  reference: https://example.com"
    );
    known_issues::parse(&text).unwrap()
}

fn report(world: &World, known: &[KnownIssue]) -> Report {
    preflight::run_with(&Question::new(&world.snapshot, &world.plan), known)
}

fn shown(world: &World, known: &[KnownIssue]) -> bool {
    let findings = report(world, known).findings;
    findings
        .iter()
        .any(|finding| finding.id == "KI-1" && finding.message == "It breaks." && finding.link == "https://example.com")
}

#[test]
fn the_built_in_issues_are_well_formed_and_in_plain_sentences() {
    let known = known_issues::with(None).unwrap();
    assert!(known.len() >= 60, "{}", known.len());
    for issue in &known {
        assert!(
            issue.title.ends_with('.') && issue.remedy.ends_with('.'),
            "{}",
            issue.id
        );
    }
}

#[rstest]
#[case("~1.7", "~1.8", true)]
#[case("=1.7.1", ">=1.8, <1.10", true)]
#[case("*", "*", true)]
#[case("~1.6", "~1.8", false)]
#[case("~1.7", "~1.7", false)]
fn an_issue_is_shown_when_both_ends_of_the_path_are_in_its_ranges(
    #[case] from: &str,
    #[case] to: &str,
    #[case] is_shown: bool,
) {
    assert_eq!(shown(&World::healthy(), &issue(from, to, "")), is_shown);
}

#[rstest]
#[case("v1.7.1-rc2", "~1.7", true)]
#[case("v1.7-head", "~1.7", true)]
#[case("v1.7-0a1b2c3-head", "~1.6", false)]
#[case("master-head", "~1.7", false)]
#[case("master-head", "*", true)]
fn a_candidate_counts_as_its_release_and_a_branch_as_its_line(
    #[case] running: &str,
    #[case] from: &str,
    #[case] is_shown: bool,
) {
    let mut world = World::healthy();
    world.change("settings", "server-version", |setting| {
        setting["value"] = json!(running)
    });
    assert_eq!(shown(&world, &issue(from, "*", "")), is_shown);
}

#[test]
fn without_a_target_only_issues_of_every_path_are_shown_and_the_rest_is_said_to_be_unchecked() {
    let mut world = World::healthy();
    world.plan = preflight::hypothetical(None, None);
    assert!(shown(&world, &issue("~1.7", "*", "")));
    assert!(!shown(&world, &issue("~1.7", "~1.8", "")));
    let unchecked = report(&world, &issue("~1.7", "~1.8", "")).not_checked;
    assert!(
        unchecked
            .iter()
            .any(|missed| missed.id == "KI" && missed.why.contains("--version")),
        "{unchecked:?}"
    );
    world.snapshot.set_unknown("settings", "forbidden");
    assert!(!shown(&world, &issue("*", "*", "")));
}

#[test]
fn a_condition_that_cannot_be_looked_at_is_not_checked() {
    let mut world = World::healthy();
    world.snapshot.set_unknown("vmis", "forbidden");
    let report = report(&world, &issue("*", "*", "running-vms"));
    assert!(
        report
            .not_checked
            .iter()
            .any(|missed| missed.id == "KI-1" && missed.why.contains("forbidden"))
    );
}

type Change = fn(&mut World);

#[rstest]
#[case("backing-images", |world: &mut World| world.add("backing_images", json!({"metadata": {"name": "i", "namespace": "longhorn-system"}})))]
#[case("backup-target-without-interval", |world: &mut World| world.add("backup_targets", json!({"metadata": {"name": "t",
    "namespace": "longhorn-system"}, "spec": {"backupTargetURL": "nfs://a", "pollInterval": "0s"}})))]
#[case("host-device-vms", |world: &mut World| vm(world, "a", "node-1", "1Gi", json!({"domain": {"devices": {"gpus": [{}]}}})))]
#[case("monitoring-addon", |world: &mut World| world.add("addons", json!({"metadata": {"name": "rancher-monitoring", "namespace": "m"}, "spec": {"enabled": true}})))]
#[case("multi-thread-vms", |world: &mut World| vm(world, "a", "node-1", "1Gi", json!({"domain": {"cpu": {"threads": 2}}})))]
#[case("recurring-jobs", |world: &mut World| world.add("recurring_jobs", json!({"metadata": {"name": "j", "namespace": "longhorn-system"}})))]
#[case("restart-required", |world: &mut World| world.add("vms", json!({"metadata": {"name": "a", "namespace": "d"},
    "status": {"conditions": [{"type": "RestartRequired", "status": "True"}]}})))]
#[case("running-vms", |world: &mut World| vm(world, "a", "node-1", "1Gi", json!({})))]
#[case("seeder-addon", |world: &mut World| world.add("addons", json!({"metadata": {"name": "harvester-seeder", "namespace": "s"}, "spec": {"enabled": true}})))]
#[case("shared-volumes", |world: &mut World| world.add("share_managers", json!({"metadata": {"name": "v", "namespace": "longhorn-system"}})))]
#[case("storage-network", |world: &mut World| world.add("settings", json!({"metadata": {"name": "storage-network"}, "value": "{\"range\": \"10.0.0.0/8\"}"})))]
#[case("storage-network-and-shared-volumes", |world: &mut World| {
    world.add("settings", json!({"metadata": {"name": "storage-network"}, "value": "{\"range\": \"10.0.0.0/8\"}"}));
    world.add("share_managers", json!({"metadata": {"name": "v", "namespace": "longhorn-system"}}));
})]
#[case("two-hosts", |world: &mut World| world.change("nodes", "node-3", |node|
    node["metadata"]["labels"]["node-role.harvesterhci.io/witness"] = json!("true")))]
#[case("container-disk-vms", |world: &mut World| vm(world, "a", "node-1", "1Gi", json!({"volumes": [{"name": "d", "containerDisk": {}}]})))]
fn each_condition_holds_of_a_cluster_with_it_and_not_of_one_without(#[case] name: &str, #[case] change: Change) {
    let mut world = World::healthy();
    assert!(!shown(&world, &issue("*", "*", name)));
    change(&mut world);
    assert!(shown(&world, &issue("*", "*", name)));
}

#[test]
fn conditions_about_several_nodes_hold_of_three_and_not_of_one() {
    for name in ["several-hosts", "several-control-planes"] {
        assert!(shown(&World::healthy(), &issue("*", "*", name)));
        let mut world = World::healthy();
        world.empty("nodes");
        world.add("nodes", super::node(1));
        assert!(!shown(&world, &issue("*", "*", name)));
    }
    assert_eq!(CONDITIONS.len(), 14 + 2, "each condition has a case above");
}

#[test]
fn another_file_adds_issues_and_replaces_those_of_the_same_id() {
    let text = "- id: KI-9880\n  title: Ours.\n  from: \"*\"\n  to: \"*\"\n  severity: info\n  remedy: None.\n  reference: https://example.com\n\
                - id: KI-NEW\n  title: New.\n  from: \"*\"\n  to: \"*\"\n  severity: info\n  remedy: None.\n  reference: https://example.com";
    let (before, after) = (
        known_issues::with(None).unwrap(),
        known_issues::with(Some(text)).unwrap(),
    );
    assert_eq!(after.len(), before.len() + 1);
    assert!(
        after
            .iter()
            .any(|issue| issue.id == "KI-9880" && issue.title == "Ours.")
    );
}

#[rstest]
#[case("title: It breaks.", "titel: It breaks.", "known issue KI-1: unknown field `titel`")]
#[case("  title: It breaks.\n", "", "known issue KI-1: missing field `title`")]
#[case(
    "title: It breaks.",
    "title: \"\"",
    "known issue KI-1: field title: must not be empty"
)]
#[case(
    "\"*\"",
    "\"1.7 to 1.8\"",
    "known issue KI-1: field from: \"1.7 to 1.8\" is no range of versions"
)]
#[case("severity: error", "severity: fatal", "known issue KI-1: unknown variant `fatal`")]
#[case("reference: https", "reference: http", "known issue KI-1: field reference:")]
#[case("KI-1", "issue-1", "known issue issue-1: field id:")]
#[case(
    "severity: error",
    "severity: error\n  condition: full-moon",
    "known issue KI-1: field condition: \"full-moon\" is no condition; there are backing-images"
)]
#[case("- id", "id", "not a YAML list")]
fn a_malformed_file_is_an_error_that_names_the_entry_and_the_field(
    #[case] good: &str,
    #[case] bad: &str,
    #[case] why: &str,
) {
    let text = "- id: KI-1\n  title: It breaks.\n  from: \"*\"\n  to: \"*\"\n  severity: error\n  remedy: Do not.\n  reference: https://example.com\n";
    assert!(known_issues::parse(text).is_ok());
    let error = known_issues::parse(&text.replacen(good, bad, 1))
        .unwrap_err()
        .to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn two_entries_of_one_id_are_an_error() {
    let text = "- id: KI-1\n  title: It breaks.\n  from: \"*\"\n  to: \"*\"\n  severity: error\n  remedy: Do not.\n  reference: https://example.com\n";
    let error = known_issues::parse(&text.repeat(2)).unwrap_err().to_string();
    assert_eq!(error, "known issue KI-1: field id: another entry has the same one");
}
