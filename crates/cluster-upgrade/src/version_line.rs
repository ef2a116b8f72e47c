//! Which line of Harvester a version belongs to. Pure: for steps that only one line needs.

use rules::version::line;

/// Whether a version is of the line `major.minor`: its releases, its candidates and builds of its branch. Branches of
/// no line (`master-head`) and hashes are of none.
#[must_use]
pub fn is_of_line(version: &str, major: u64, minor: u64) -> bool {
    line(version) == Some((major, minor))
}

/// Whether a release is at least `major.minor`. Development builds of no line are: they are newer than any release.
#[must_use]
pub fn is_at_least(version: &str, major: u64, minor: u64) -> bool {
    line(version).is_none_or(|line| line >= (major, minor))
}

/// The line of a version by its name: `v1.8`.
#[must_use]
pub fn line_name(version: &str) -> Option<String> {
    line(version).map(|(major, minor)| format!("v{major}.{minor}"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("v1.7.1", true)]
    #[case("v1.7.10", true)]
    #[case("v1.7.2-rc1", true)]
    #[case("v1.7.0-dev.20260101", true)]
    #[case("v1.7-head", true)]
    #[case("v1.7-0a1b2c3-head", true)]
    #[case("1.7.3", true)]
    #[case("v1.70.0", false)]
    #[case("v1.8.0", false)]
    #[case("v11.7.0", false)]
    #[case("master-head", false)]
    #[case("0a1b2c3", false)]
    #[case("", false)]
    fn f13_candidates_and_two_digit_patches_are_of_their_line(#[case] version: &str, #[case] of: bool) {
        assert_eq!(is_of_line(version, 1, 7), of);
    }

    #[rstest]
    #[case("v2.15.0", true)]
    #[case("v2.15.0-alpha1", true)]
    #[case("v2.14.9", false)]
    #[case("v2.9.0", false)]
    #[case("v10.0.0", true)]
    #[case("head", true)]
    fn lines_are_ordered_as_numbers(#[case] version: &str, #[case] at_least: bool) {
        assert_eq!(is_at_least(version, 2, 15), at_least);
    }
}
