//! What a kubelet reports of the RKE2 that it is of, and how Plans are told apart.

use rstest::rstest;
use rules::{suc_plan, version::kubelet_version};

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
