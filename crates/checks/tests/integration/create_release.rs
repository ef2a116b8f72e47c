//! Creating a plan for a Version to which this cluster cannot be upgraded, or whose ISO cannot be downloaded (row U-13).

use api::{UpgradePlan, names};
use checks::{Cluster, preflight};
use rstest::rstest;
use serde_json::{Value, json};
use snapshot::Snapshot;

use crate::support::{annotated, create, healthy, named, plan_with, read};

const ISO: &str = "https://releases.example.com/harvester.iso";

/// A cluster that runs a version and has a Version of that name.
fn cluster(running: &str, version: &str, spec: Value) -> Cluster {
    let mut cluster = healthy(1);
    cluster.versions = Ok(vec![named(names::HARVESTER_NAMESPACE, version, json!({"spec": spec}))]);
    cluster.settings = Ok(vec![setting(json!({"value": running}))]);
    cluster
}

fn setting(fields: Value) -> api::foreign::harvester::Setting {
    let mut object = json!({"metadata": {"name": "server-version"}, "value": "", "default": ""});
    for (key, value) in fields.as_object().unwrap() {
        object[key] = value.clone();
    }
    read(object)
}

fn plan_for(version: &str) -> UpgradePlan {
    plan_with(json!({"version": version}))
}

/// What is said about a plan for a Version.
fn upgrade(running: &str, target: &str, minimum: &str) -> Vec<String> {
    let spec = json!({"isoURL": ISO, "minUpgradableVersion": minimum});
    create(&plan_for(target), &cluster(running, target, spec))
}

#[rstest]
#[case::older(
    "v1.8.0",
    "v1.7.1",
    "",
    "v1.8.0 cannot be upgraded to v1.7.1: downgrading is prohibited (Setting server-version is v1.8.0): \
     use a Version that is newer than v1.8.0"
)]
#[case::too_far(
    "v1.7.1",
    "v1.8.0",
    "v1.7.2",
    "v1.7.1 cannot be upgraded to v1.8.0 (its minimum is v1.7.2): current version does not meet minimum upgrade \
     requirement (Setting server-version is v1.7.1): upgrade to a release in between first"
)]
#[case::of_a_candidate(
    "v1.7.1-rc1",
    "v1.8.0",
    "",
    "v1.7.1-rc1 cannot be upgraded to v1.8.0: cross-version upgrades from/to any prerelease version are prohibited \
     (Setting server-version is v1.7.1-rc1): upgrade v1.7.1-rc1 to the release of the same number first"
)]
fn u13_a_version_that_cannot_be_upgraded_to_is_refused_with_both_versions(
    #[case] running: &str,
    #[case] target: &str,
    #[case] minimum: &str,
    #[case] why: &str,
) {
    let expected = format!("spec.version: Invalid value: \"{target}\": Harvester {why}");
    assert_eq!(upgrade(running, target, minimum), [expected]);
}

#[rstest]
#[case::newer("v1.7.1", "v1.8.0", "v1.7.0")]
#[case::the_same("v1.8.0", "v1.8.0", "v1.7.0")]
#[case::to_a_branch("v1.8.0", "v1.7-head", "")]
#[case::from_a_branch("master-head", "v1.8.0", "")]
#[case::a_minimum_without_order("v1.7.1", "v1.8.0", "main-head")]
#[case::nothing_runs("", "v1.8.0", "v1.7.0")]
fn u13_what_may_be_upgraded_to_or_has_no_order_is_not_refused(
    #[case] running: &str,
    #[case] target: &str,
    #[case] minimum: &str,
) {
    assert_eq!(upgrade(running, target, minimum), [""; 0]);
}

#[test]
fn u13_a_downgrade_that_the_user_insists_on_is_not_refused() {
    let cluster = cluster("v1.8.0", "v1.7.1", json!({"isoURL": ISO}));
    assert_eq!(create(&plan_for("v1.7.1"), &cluster).len(), 1);
    let forced = plan_with(json!({"version": "v1.7.1", "force": true}));
    assert_eq!(create(&forced, &cluster), [""; 0]);
    let mut skips = plan_for("v1.7.1");
    let key = api::annotations::SKIP_VERSION_CHECK.to_owned();
    skips.metadata.annotations = Some([(key, "true".to_owned())].into());
    assert_eq!(create(&skips, &cluster), [""; 0]);
    let unchecked = annotated(plan_for("v1.7.1"), "skip-webhook", "true");
    assert_eq!(create(&unchecked, &cluster), [""; 0]);
}

#[test]
fn u13_the_default_of_the_setting_is_the_version_that_runs_and_an_unknown_one_is_reported() {
    let mut cluster = cluster("v1.8.0", "v1.7.1", json!({"isoURL": ISO}));
    cluster.settings = Ok(vec![setting(json!({"default": "v1.9.0"}))]);
    let refused = create(&plan_for("v1.7.1"), &cluster).concat();
    assert!(refused.contains("v1.9.0 cannot be upgraded to v1.7.1"), "{refused}");
    cluster.settings = Ok(Vec::new());
    assert_eq!(create(&plan_for("v1.7.1"), &cluster), [""; 0]);
    cluster.settings = Err("no route".into());
    assert_eq!(
        create(&plan_for("v1.7.1"), &cluster),
        ["[]: Internal error: failed to list settings: no route"]
    );
}

#[rstest]
#[case(json!("not a url"), false)]
#[case(json!(null), false)]
#[case(json!(""), false)]
#[case(json!("ftp://a/b.iso"), false)]
#[case(json!("https:///b.iso"), false)]
#[case(json!("https://"), false)]
#[case(json!("http://a b/c.iso"), false)]
#[case(json!("releases.example.com/b.iso"), false)]
#[case(json!("http://a/b.iso"), true)]
#[case(json!("HTTPS://a/b.iso"), true)]
#[case(json!("https://[fd00::1]:8080/b.iso?x=y"), true)]
fn u13_an_address_of_the_iso_that_is_none_is_refused(#[case] url: Value, #[case] allowed: bool) {
    let errors = create(
        &plan_for("v1.8.0"),
        &cluster("v1.7.1", "v1.8.0", json!({"isoURL": url})),
    );
    let text = url.as_str().unwrap_or_default();
    let why = format!(
        "spec.version: Invalid value: \"v1.8.0\": spec.isoURL of Version harvester-system/v1.8.0 is {text:?}, which is no http \
         or https address: correct spec.isoURL of the Version"
    );
    let expected: Vec<String> = (!allowed).then_some(why).into_iter().collect();
    assert_eq!(errors, expected);
}

#[test]
fn u13_spaces_around_an_address_are_named() {
    let cluster = cluster("v1.7.1", "v1.8.0", json!({"isoURL": format!("{ISO} ")}));
    let refused = create(&plan_for("v1.8.0"), &cluster).concat();
    assert!(refused.contains("has spaces before or after the address"), "{refused}");
}

#[rstest]
#[case("", true)]
#[case(&"aB".repeat(64), true)]
#[case(&"a".repeat(64), false)]
#[case(&"x".repeat(128), false)]
#[case(&"é".repeat(64), false)]
fn u13_a_checksum_that_is_no_sha_512_is_refused(#[case] sum: &str, #[case] allowed: bool) {
    let spec = json!({"isoURL": ISO, "isoChecksum": sum});
    let errors = create(&plan_for("v1.8.0"), &cluster("v1.7.1", "v1.8.0", spec));
    assert_eq!(errors.is_empty(), allowed, "{errors:?}");
    let why = "spec.isoChecksum of Version harvester-system/v1.8.0 has ";
    assert_eq!(errors.concat().contains(why), !allowed, "{errors:?}");
}

#[test]
fn u13_of_a_plan_with_an_image_no_version_is_looked_at() {
    let mut cluster = cluster("v1.8.0", "v1.7.1", json!({"isoURL": "no"}));
    cluster.images = Ok(vec![crate::support::upgrade_image("iso")]);
    let both = plan_with(json!({"version": "v1.7.1", "image": "iso"}));
    assert_eq!(create(&both, &cluster), [""; 0]);
}

/// What preflight finds, and whether it says that admission refuses the plan for it.
fn found(running: &str, plan: &UpgradePlan, url: &str) -> Vec<(String, bool)> {
    let mut snapshot = Snapshot::unknown(jiff::Timestamp::UNIX_EPOCH, "not read");
    let version = named(names::HARVESTER_NAMESPACE, "v1.8.0", json!({"spec": {"isoURL": url}}));
    snapshot.versions = Ok(vec![version].into());
    snapshot.settings = Ok(vec![setting(json!({"value": running}))].into());
    let question = preflight::Question::new(&snapshot, plan);
    let findings = preflight::run_with(&question, &[]).findings.into_iter();
    let errors = findings.filter(|finding| finding.severity == checks::finding::Severity::Error);
    errors
        .map(|finding| (finding.id.clone(), preflight::is_refused(&finding.id, &question)))
        .collect()
}

#[test]
fn u13_preflight_reports_each_once_and_says_more_than_admission_about_builds_of_branches() {
    let plan = plan_for("v1.8.0");
    let once = |id: &str, refused: bool| vec![(id.to_owned(), refused)];
    assert_eq!(found("v1.7.1", &plan, ISO), []);
    assert_eq!(found("v1.9.0", &plan, ISO), once("P21", true));
    assert_eq!(found("v1.8-head", &plan, ISO), once("P21", false));
    assert_eq!(found("v1.7.1", &plan, "no"), once("P22", true));
    // The manager and the download would stop it all the same.
    let skips = annotated(plan, "skip-webhook", "true");
    assert_eq!(found("v1.9.0", &skips, ISO).len(), 1);
    assert_eq!(found("v1.7.1", &skips, "no").len(), 1);
}
