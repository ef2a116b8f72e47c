//! Which images of a list are not on the node. Pure.

use std::collections::BTreeSet;

/// The images of a list that are not there, sorted. A name counts however much of it is left out.
#[must_use]
pub fn missing(listed: &BTreeSet<String>, present: &BTreeSet<String>) -> Vec<String> {
    let present: BTreeSet<String> = present.iter().map(|name| full_name(name)).collect();
    let absent = listed.iter().filter(|image| !present.contains(&full_name(image)));
    absent.cloned().collect()
}

/// A reference as containerd spells it: with registry, and with a tag unless it has a digest.
#[must_use]
pub fn full_name(reference: &str) -> String {
    let (name, digest) = reference
        .split_once('@')
        .map_or((reference, None), |(name, digest)| (name, Some(digest)));
    let registry = name.split_once('/').map(|(first, _)| first);
    let has_registry = registry.is_some_and(|first| first.contains('.') || first.contains(':') || first == "localhost");
    let mut full = match (has_registry, registry) {
        (true, _) => name.to_owned(),
        (false, Some(_)) => format!("docker.io/{name}"),
        (false, None) => format!("docker.io/library/{name}"),
    };
    match digest {
        Some(digest) => full = format!("{full}@{digest}"),
        None if !last_segment(&full).contains(':') => full.push_str(":latest"),
        None => {}
    }
    full
}

/// The last element of a reference's path, with its tag and digest.
#[must_use]
pub fn last_segment(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or(reference)
}

/// What to say about images that are not there: how many, and all of their names.
#[must_use]
pub fn complaint(absent: &[String], listed: usize) -> String {
    let (count, names) = (absent.len(), absent.join(", "));
    format!("{count} of {listed} images are missing: {names}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[rstest]
    #[case("busybox", "docker.io/library/busybox:latest")]
    #[case("rancher/pause:3.6", "docker.io/rancher/pause:3.6")]
    #[case("docker.io/rancher/pause:3.6", "docker.io/rancher/pause:3.6")]
    #[case("localhost/x:1", "localhost/x:1")]
    #[case("registry:5000/x", "registry:5000/x:latest")]
    #[case("rancher/x@sha256:00", "docker.io/rancher/x@sha256:00")]
    fn names_are_spelled_out(#[case] short: &str, #[case] full: &str) {
        assert_eq!(full_name(short), full);
    }

    #[test]
    fn what_is_listed_and_not_there_is_missing() {
        let listed = set(&["docker.io/a/x:1", "docker.io/a/y:1", "b/z:2"]);
        let present = set(&["docker.io/a/x:1", "docker.io/b/z:2", "docker.io/a/y:2"]);
        let absent = missing(&listed, &present);
        assert_eq!(absent, ["docker.io/a/y:1"]);
        assert_eq!(
            complaint(&absent, listed.len()),
            "1 of 3 images are missing: docker.io/a/y:1"
        );
        assert!(missing(&set(&[]), &present).is_empty());
    }
}
