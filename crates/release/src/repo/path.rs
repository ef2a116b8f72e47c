//! From the target of a request to a place in the repository. Pure.

use percent_encoding::percent_decode_str;

use super::PREFIX;
use crate::manifest;

/// A place in the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `/`
    Top,
    /// `/healthz`
    Health,
    /// The manifest of the image, next to its root.
    Manifest,
    /// A path in the image, without slashes at its ends, and whether there was one at its end.
    Image { path: String, slash: bool },
    /// Nothing is there.
    Nowhere,
}

/// A target that no well-meaning client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadTarget;

/// Reads a target. Doubled slashes count once, as nginx counts them: upgrades ask for `bundle//harvester/...`.
///
/// Any `..` is refused, encoded or not: clients resolve it themselves, so what still has it is looking for a way out.
pub(super) fn locate(target: &str) -> Result<Place, BadTarget> {
    let raw = match target.split_once("://") {
        Some(("http" | "https", rest)) => rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/"),
        _ => target,
    };
    let raw = raw.split(['?', '#']).next().unwrap_or_default();
    if !raw.starts_with('/') || !is_well_encoded(raw) {
        return Err(BadTarget);
    }
    // Names in an image are shown as UTF-8; what is not cannot be one of them.
    let Ok(path) = percent_decode_str(raw).decode_utf8() else {
        return Ok(Place::Nowhere);
    };
    if path.contains('\0') {
        return Err(BadTarget);
    }
    let elements: Vec<&str> = path
        .split('/')
        .filter(|element| !matches!(*element, "" | "."))
        .collect();
    if elements.contains(&"..") {
        return Err(BadTarget);
    }
    Ok(match elements.as_slice() {
        [] => Place::Top,
        ["healthz"] => Place::Health,
        [name] if name.strip_prefix(PREFIX) == Some(manifest::SUFFIX) => Place::Manifest,
        [first, rest @ ..] if *first == PREFIX => Place::Image {
            path: rest.join("/"),
            slash: path.ends_with('/') || path.ends_with("/."),
        },
        _ => Place::Nowhere,
    })
}

/// Whether every `%` has two hexadecimal digits after it.
fn is_well_encoded(text: &str) -> bool {
    let mut parts = text.as_bytes().split(|byte| *byte == b'%');
    parts.next();
    parts.all(|part| matches!(part, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/", Ok(Place::Top))]
    #[case("/healthz", Ok(Place::Health))]
    #[case("/healthz?verbose", Ok(Place::Health))]
    #[case("/index.html", Ok(Place::Nowhere))]
    #[case("/harvester-isolation/x", Ok(Place::Nowhere))]
    #[case("/harvester-iso/%ff", Ok(Place::Nowhere))]
    #[case("/harvester-iso/a/../b", Err(BadTarget))]
    #[case("/harvester-iso/%2e%2E/b", Err(BadTarget))]
    #[case("/harvester-iso/..%2fb", Err(BadTarget))]
    #[case("/..", Err(BadTarget))]
    #[case("/harvester-iso/a%00b", Err(BadTarget))]
    #[case("/harvester-iso/a%", Err(BadTarget))]
    #[case("/harvester-iso/a%2", Err(BadTarget))]
    #[case("/harvester-iso/a%zz", Err(BadTarget))]
    #[case("harvester-iso/a", Err(BadTarget))]
    #[case("*", Err(BadTarget))]
    #[case("", Err(BadTarget))]
    fn targets(#[case] target: &str, #[case] place: Result<Place, BadTarget>) {
        assert_eq!(locate(target), place);
    }

    #[rstest]
    #[case("/harvester-iso", "", false)]
    #[case("/harvester-iso/", "", true)]
    #[case("//harvester-iso//bundle///x.txt", "bundle/x.txt", false)]
    #[case("/harvester-iso/./bundle/.", "bundle", true)]
    #[case("/harvester-iso/bundle%2Fx.txt?y=/../", "bundle/x.txt", false)]
    #[case("/harvester-iso/a%20b+c", "a b+c", false)]
    #[case("/harvester-iso/...", "...", false)]
    #[case("/harvester-iso/%252e%252e", "%2e%2e", false)]
    #[case("http://host/harvester-iso/x", "x", false)]
    fn targets_in_the_image(#[case] target: &str, #[case] path: &str, #[case] slash: bool) {
        let path = path.to_owned();
        assert_eq!(locate(target), Ok(Place::Image { path, slash }));
    }

    proptest! {
        #[test]
        fn no_target_leads_out_of_the_image(target in "/harvester-iso/([./%a-f0-9]{0,20}|\\PC{0,20})") {
            if let Ok(Place::Image { path, .. }) = locate(&target) {
                prop_assert!(path.is_empty() || path.split('/').all(|element| !matches!(element, "" | "." | "..")));
            }
        }
    }
}
