//! What a kubelet reports of its RKE2, and how Plans are distinguished.

use api::Component;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rstest::rstest;
use rules::{suc_plan, version::kubelet_version};
use serde_json::json;

#[rstest]
#[case("v1.35.2+rke2r1", "v1.35.2+rke2r1")]
#[case("v1.35.2-rc3+rke2r1", "v1.35.2+rke2r1")]
#[case("v1.35.2-rc12+rke2r1", "v1.35.2+rke2r1")]
#[case("v1.35.2+rke2r1-rc1", "v1.35.2+rke2r1")]
#[case("v1.35.2-rcx+rke2r1", "v1.35.2-rcx+rke2r1")]
#[case("v1.35.2-rc", "v1.35.2-rc")]
#[case("v1.35.2-rc1-rc2", "v1.35.2")]
#[case("", "")]
fn a_release_candidate_does_not_say_so(#[case] rke2: &str, #[case] kubelet: &str) {
    assert_eq!(kubelet_version(rke2), kubelet);
}

#[test]
fn the_version_of_a_plan_is_the_beginning_of_a_digest() {
    assert_eq!(suc_plan::version("a"), "ca978112");
}

#[test]
fn a_plan_is_where_its_controller_looks_and_says_what_it_is() {
    let manifest = suc_plan::manifest(suc_plan::Wanted {
        upgrade_plan: "up",
        owner: api::owner::reference(&ObjectMeta::default()),
        component: Component::ImagePreload,
        concurrency: 2,
        deadline_seconds: 60,
        service_account: "ours",
        version: "0a1b2c3d",
        container: json!({"image": "a/b:c"}),
    });
    assert_eq!(manifest["metadata"]["namespace"], "cattle-system");
    assert_eq!(manifest["metadata"]["name"], "up-image-preload");
    let spec = &manifest["spec"];
    assert_eq!(
        (&spec["concurrency"], &spec["jobActiveDeadlineSecs"]),
        (&json!(2), &json!(60))
    );
    assert_eq!(
        (&spec["serviceAccountName"], &spec["version"]),
        (&json!("ours"), &json!("0a1b2c3d"))
    );
}
