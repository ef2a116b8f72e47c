//! Tables of checks that no case of creating a plan turns on both of their sides.

use api::{
    UpgradePlan,
    image::{Image, Sources},
};
use checks::admission::{self, image};
use rstest::rstest;
use serde_json::json;

use crate::support::{annotated, create, healthy, plan, plan_with, texts, volume};

const IMAGE: &str = "upgrade-toolkit-image";

fn with_image(repository: &str) -> UpgradePlan {
    annotated(plan(), IMAGE, repository)
}

#[test]
fn create_with_an_image_that_is_none_is_refused_by_the_name_of_its_field() {
    assert_eq!(create(&with_image("me/mine"), &healthy(1)), [""; 0]);
    let refused = create(&with_image("me/mine:v3"), &healthy(1)).concat();
    assert!(
        refused.starts_with("metadata.annotations[management.harvesterhci.io/upgrade-toolkit-image]: Invalid value")
    );
    let tagged = plan_with(json!({"version": "v1.8.0", "upgrade": "a tag"}));
    let refused = create(&tagged, &healthy(1)).concat();
    assert!(
        refused.starts_with("spec.upgrade: Invalid value: \"a tag\""),
        "{refused}"
    );
}

#[rstest]
#[case::own(None, "rancher/toolkit", true)]
#[case::allowed(None, "me/mine", true)]
#[case::of_another_user(None, "evil.test/pwn", false)]
#[case::there_before(Some("evil.test/pwn"), "evil.test/pwn", true)]
#[case::another_one(Some("me/mine"), "evil.test/pwn", false)]
#[case::none_before(Some(""), "evil.test/pwn", false)]
fn a_repository_that_is_not_allowed_is_refused_when_it_is_new(
    #[case] old: Option<&str>,
    #[case] new: &str,
    #[case] allowed: bool,
) {
    let sources = Sources {
        own: Image::parse("rancher/toolkit:v1").unwrap(),
        others: vec!["me/mine".to_owned()],
    };
    let old = old.map(with_image);
    let errors = texts(&image::not_allowed(old.as_ref(), &with_image(new), &sources));
    assert_eq!(errors.is_empty(), allowed, "{errors:?}");
    assert_eq!(errors.concat().contains("\"evil.test/pwn\""), !allowed);
}

#[test]
fn an_empty_name_is_one_that_is_yet_to_be_generated() {
    let mut plan = plan();
    plan.metadata.name = Some(String::new());
    plan.metadata.generate_name = Some("up-".to_owned());
    assert_eq!(create(&plan, &healthy(1)), [""; 0]);
    plan.metadata.generate_name = Some("1-".to_owned());
    let refused = create(&plan, &healthy(1)).concat();
    assert!(
        refused.starts_with("metadata.generateName: Invalid value: \"1-\""),
        "{refused}"
    );
}

#[test]
fn a_review_reads_what_its_checks_need() {
    use admission::Reads;
    let skips = annotated(plan(), "skip-webhook", "true");
    assert_eq!(admission::create_reads(&plan()), Reads::Everything);
    assert_eq!(
        admission::create_reads(&skips),
        Reads::Everything,
        "data is still protected"
    );
    assert_eq!(
        admission::create_reads(&annotated(skips, "skip-data-checks", "true")),
        Reads::Nothing
    );
    let pausing = plan_with(json!({"version": "v1.8.0", "nodeUpgradeOption": {"pauseNodes": ["node-1"]}}));
    assert_eq!(admission::update_reads(&plan(), &plan()), Reads::Nothing);
    assert_eq!(admission::update_reads(&pausing, &plan()), Reads::Nothing);
    assert_eq!(admission::update_reads(&plan(), &pausing), Reads::Nodes);
}

#[rstest]
#[case(3, "healthy", false)]
#[case(3, "unknown", false)]
#[case(3, "degraded", true)]
#[case(3, "faulted", true)]
#[case(1, "healthy", true)]
fn only_volumes_that_a_check_would_name_are_kept(#[case] replicas: i64, #[case] robustness: &str, #[case] kept: bool) {
    let volume = volume("v", replicas, "attached", robustness);
    assert_eq!(admission::matters::volume(&volume), kept);
}
