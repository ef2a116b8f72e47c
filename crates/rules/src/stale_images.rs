//! Which images of the previous release may be removed from the nodes.

use std::collections::BTreeSet;

/// Images that stay although the new release does not list them: running workloads still use them.
const RETAINED: [&str; 6] = [
    "harvester-upgrade",
    "harvester-upgrade-toolkit",
    "longhorn-engine",
    "longhorn-instance-manager",
    "mirrored-banzaicloud-fluentd",
    "mirrored-fluent-fluent-bit",
];

/// The images of the previous release that the new one does not have, sorted, without those that stay.
#[must_use]
pub fn stale(previous: &[String], current: &[String]) -> Vec<String> {
    let current: BTreeSet<&str> = current.iter().map(String::as_str).collect();
    let stale: BTreeSet<&str> = previous
        .iter()
        .map(String::as_str)
        .filter(|image| !current.contains(image))
        .collect();
    stale
        .into_iter()
        .filter(|image| !RETAINED.contains(&name_component(image)))
        .map(str::to_owned)
        .collect()
}

/// The last path element of an image reference, without tag and digest.
fn name_component(image: &str) -> &str {
    let last = image.rsplit('/').next().unwrap_or(image);
    let last = last.split('@').next().unwrap_or(last);
    last.split(':').next().unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn list(images: &[&str]) -> Vec<String> {
        images.iter().map(|image| (*image).to_owned()).collect()
    }

    #[rstest]
    #[case(&[], &[], &[])]
    #[case(&["b:1", "a:1"], &[], &["a:1", "b:1"])]
    #[case(&[], &["a:1"], &[])]
    #[case(&["a:1", "b:1"], &["b:1", "c:1"], &["a:1"])]
    #[case(&["a:1"], &["a:1"], &[])]
    fn what_only_the_previous_release_has_is_stale(#[case] old: &[&str], #[case] new: &[&str], #[case] out: &[&str]) {
        assert_eq!(stale(&list(old), &list(new)), list(out));
    }

    #[test]
    fn w25_the_toolkits_own_image_and_those_of_running_engines_stay() {
        let old = list(&[
            "docker.io/rancher/harvester-upgrade:v1",
            "rancher/harvester-upgrade-toolkit:v1",
            "registry:5000/longhornio/longhorn-engine:v1",
            "rancher/longhorn-engine-like:v1",
        ]);
        assert_eq!(stale(&old, &[]), list(&["rancher/longhorn-engine-like:v1"]));
    }

    #[rstest]
    #[case("registry.example:5000/a/b:v1", "b")]
    #[case("a/b@sha256:00ff", "b")]
    #[case("b", "b")]
    #[case("registry:5000/b", "b")]
    fn the_name_of_an_image(#[case] image: &str, #[case] name: &str) {
        assert_eq!(name_component(image), name);
    }
}
