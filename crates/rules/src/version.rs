//! May this version be upgraded to that one?

use semver::Version;

/// A version text, by what can be said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Parsed {
    /// Three numbers, possibly a pre-release.
    Release(Version),
    /// A branch, a hash, anything else.
    Dev,
}

/// Why an upgrade is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ineligible {
    /// A text that cannot be a version.
    #[error("invalid version string")]
    Invalid,
    /// From a development build to a release.
    #[error("upgrading from dev versions to non-dev versions is prohibited")]
    FromDev,
    /// To an older version.
    #[error("downgrading is prohibited")]
    Downgrade,
    /// From too old a version.
    #[error("current version does not meet minimum upgrade requirement")]
    BelowMinimum,
    /// The minimum is a development build, which has no order.
    #[error("incomparable: dev version")]
    Incomparable,
    /// From a pre-release of another version.
    #[error("cross-version upgrades from/to any prerelease version are prohibited")]
    AcrossPrerelease,
}

/// Checks an upgrade. `minimum` is empty when there is none. `strict` forbids leaving development builds.
///
/// # Errors
/// The first rule that forbids it.
pub fn check(current: &str, target: &str, minimum: &str, strict: bool) -> Result<(), Ineligible> {
    let current = parse(current)?;
    let Parsed::Release(target) = parse(target)? else {
        return Ok(());
    };
    let Parsed::Release(current) = current else {
        return if strict { Err(Ineligible::FromDev) } else { Ok(()) };
    };
    let order = current.cmp_precedence(&target);
    if order.is_eq() {
        return Ok(());
    }
    if order.is_gt() {
        return Err(Ineligible::Downgrade);
    }
    if !minimum.is_empty() {
        match parse(minimum)? {
            Parsed::Dev => return Err(Ineligible::Incomparable),
            Parsed::Release(minimum) if current.cmp_precedence(&minimum).is_lt() => {
                return Err(Ineligible::BelowMinimum);
            }
            Parsed::Release(_) => {}
        }
    }
    let same_release = (current.major, current.minor, current.patch) == (target.major, target.minor, target.patch);
    if !current.pre.is_empty() && !same_release {
        return Err(Ineligible::AcrossPrerelease);
    }
    Ok(())
}

/// What runs is beyond a release, as far as known: newer, or a build that has no order, where it is not the
/// release itself.
#[must_use]
pub fn is_beyond(running: &str, release: &str) -> bool {
    match (parse(running), parse(release)) {
        (Ok(Parsed::Release(running)), Ok(Parsed::Release(release))) => running.cmp_precedence(&release).is_gt(),
        _ => running != release,
    }
}

/// The line `(major, minor)` that a version belongs to: its releases, its candidates and builds of its branch
/// (`v1.8-head`, `v1.8-0a1b2c3-head`). Branches of no line (`master-head`) and hashes are of none.
#[must_use]
pub fn line(version: &str) -> Option<(u64, u64)> {
    if let Ok(Parsed::Release(version)) = parse(version) {
        return Some((version.major, version.minor));
    }
    let (major, rest) = version.strip_prefix('v').unwrap_or(version).split_once('.')?;
    let minor = rest.split_once('-').map_or(rest, |(minor, _)| minor);
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn parse(text: &str) -> Result<Parsed, Ineligible> {
    let text = text.strip_prefix('v').unwrap_or(text);
    if text.is_empty() {
        return Err(Ineligible::Invalid);
    }
    Ok(Version::parse(text).map_or(Parsed::Dev, Parsed::Release))
}

/// The version that the kubelet of an RKE2 reports: that of a release candidate does not say so.
#[must_use]
pub fn kubelet_version(rke2: &str) -> String {
    let mut plain = String::new();
    let mut rest = rke2;
    while let Some((before, after)) = rest.split_once("-rc") {
        plain.push_str(before);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        if digits == 0 {
            plain.push_str("-rc");
        }
        rest = &after[digits..];
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    // Cases of the library that Harvester itself uses.
    #[rstest]
    #[case("v1.2.1", "v1.2.1", "v1.1.2", Ok(()))]
    #[case("v1.1.2", "v1.2.1", "v1.1.2", Ok(()))]
    #[case("v1.2.0", "v1.2.1", "v1.1.2", Ok(()))]
    #[case("v1.1.1", "v1.2.1", "v1.1.2", Err(Ineligible::BelowMinimum))]
    #[case("v1.2.1", "v1.2.0", "v1.1.2", Err(Ineligible::Downgrade))]
    #[case("v1.1.2", "v1.2.1-rc1", "v1.1.2", Ok(()))]
    #[case("v1.2.0", "v1.2.1-rc1", "v1.1.2", Ok(()))]
    #[case("v1.1.1", "v1.2.1-rc1", "v1.1.2", Err(Ineligible::BelowMinimum))]
    #[case("v1.2.1", "v1.2.1-rc1", "v1.1.2", Err(Ineligible::Downgrade))]
    #[case("v1.2.1", "v1.2-ab12cd34", "", Ok(()))]
    #[case("v1.2.2-rc1", "v1.2.2-rc1", "v1.2.1", Ok(()))]
    #[case("v1.1.2-rc1", "v1.2.1", "v1.1.2", Err(Ineligible::BelowMinimum))]
    #[case("v1.2.0-rc1", "v1.2.1", "v1.1.2", Err(Ineligible::AcrossPrerelease))]
    #[case("v1.1.1-rc1", "v1.2.1", "v1.1.2", Err(Ineligible::BelowMinimum))]
    #[case("v1.2.2-rc1", "v1.2.2-rc2", "v1.2.1", Ok(()))]
    #[case("v1.2.1-rc1", "v1.2.2-rc2", "v1.2.1", Err(Ineligible::BelowMinimum))]
    #[case("v1.2.0-rc1", "v1.2.1-rc2", "v1.1.2", Err(Ineligible::AcrossPrerelease))]
    #[case("v1.2.2-rc1", "v1.2-ab12cd34", "", Ok(()))]
    #[case("v1.2-ab12cd34", "v1.2-ab12cd34", "", Ok(()))]
    #[case("v1.2-ab12cd34", "v1.2-ef56ab78", "", Ok(()))]
    #[case("v1.2-ab12cd34", "v1.2.1", "", Err(Ineligible::FromDev))]
    #[case("v1.2-ab12cd34", "v1.2.2-rc1", "", Err(Ineligible::FromDev))]
    #[case("v1.2.1", "v1.3.0", "", Ok(()))]
    fn eligibility_as_the_shared_library_has_it(
        #[case] from: &str,
        #[case] to: &str,
        #[case] min: &str,
        #[case] expected: Result<(), Ineligible>,
    ) {
        assert_eq!(check(from, to, min, true), expected);
    }

    // Cases of the existing toolkit.
    #[rstest]
    #[case("v1.2.1", "v1.2.2", "v1.2.1", Ok(()))]
    #[case("v1.2.0", "v1.2.2", "v1.2.1", Err(Ineligible::BelowMinimum))]
    #[case("v1.2.1", "v1.2.0", "v1.1.2", Err(Ineligible::Downgrade))]
    #[case("v1.2.1", "v1.2.2-rc1", "v1.2.1", Ok(()))]
    #[case("v1.2.2-rc1", "v1.2.2-rc2", "v1.2.1", Ok(()))]
    #[case("v1.2.2-rc2", "v1.2.2-rc1", "v1.2.1", Err(Ineligible::Downgrade))]
    #[case("v1.2.1", "v1.2-head", "", Ok(()))]
    #[case("v1.2-head", "v1.3-head", "", Ok(()))]
    #[case("v1.2-head", "v1.3.1", "v1.2.2", Err(Ineligible::FromDev))]
    #[case("v1.2.2-rc1", "v1.2.2", "v1.2.1", Ok(()))]
    fn eligibility_as_version_guard_has_it(
        #[case] from: &str,
        #[case] to: &str,
        #[case] min: &str,
        #[case] expected: Result<(), Ineligible>,
    ) {
        assert_eq!(check(from, to, min, true), expected);
    }

    // Is it an upgrade at all?
    #[rstest]
    #[case("v1.2.2", "v1.2.1", "", Err(Ineligible::Downgrade))]
    #[case("v1.2.2-rc2", "v1.2.1", "", Err(Ineligible::Downgrade))]
    #[case("v1.2.2", "v1.2.2-rc2", "", Err(Ineligible::Downgrade))]
    #[case("v1.2.2", "v1.2.1-rc2", "", Err(Ineligible::Downgrade))]
    #[case("v1.2.2-rc2", "v1.2.2-rc1", "", Err(Ineligible::Downgrade))]
    #[case("v1.2.2-rc2", "v1.2.1-rc3", "", Err(Ineligible::Downgrade))]
    #[case("v1.10.0", "v1.9.9", "", Err(Ineligible::Downgrade))]
    fn a_lower_version_of_any_kind_is_a_downgrade(
        #[case] from: &str,
        #[case] to: &str,
        #[case] min: &str,
        #[case] expected: Result<(), Ineligible>,
    ) {
        assert_eq!(check(from, to, min, true), expected);
    }

    // Is it one that is allowed?
    #[rstest]
    #[case("v1.2.1", "v1.3.0", "v1.2.0", Ok(()))]
    #[case("v1.2.1", "v1.3.0", "v1.2.2", Err(Ineligible::BelowMinimum))]
    #[case("v1.2.1", "v1.3.0", "v1.2.1", Ok(()))]
    #[case("v1.2.1-rc1", "v1.2.2", "v1.2.1", Err(Ineligible::BelowMinimum))]
    #[case("v1.2.1-rc2", "v1.2.1", "v1.2.1-rc1", Ok(()))]
    #[case("v1.2.1-rc1", "v1.2.1", "v1.2.1-rc2", Err(Ineligible::BelowMinimum))]
    #[case("v1.2.0-rc1", "v1.2.1", "v1.2.1-rc2", Err(Ineligible::BelowMinimum))]
    #[case("v1.2.1", "v1.3.0", "", Ok(()))]
    fn a_pre_release_of_the_minimum_is_below_it(
        #[case] from: &str,
        #[case] to: &str,
        #[case] min: &str,
        #[case] expected: Result<(), Ineligible>,
    ) {
        assert_eq!(check(from, to, min, true), expected);
    }

    // Ours.
    #[rstest]
    #[case("v1.2.2-rc1", "v1.3.0", "", Err(Ineligible::AcrossPrerelease))]
    #[case("v1.2.2-rc1", "v1.3.0-rc1", "", Err(Ineligible::AcrossPrerelease))]
    #[case("v1.8.0", "v1.8.0", "v1.9.0", Ok(()))]
    #[case("v1.7.1", "v1.8.0", "main-head", Err(Ineligible::Incomparable))]
    #[case("", "v1.8.0", "", Err(Ineligible::Invalid))]
    #[case("v1.7.1", "v", "", Err(Ineligible::Invalid))]
    #[case("f0e1d2c", "master-head", "", Ok(()))]
    #[case("1.2.1", "v1.2.2", "1.2.1", Ok(()))]
    fn what_no_list_of_upstream_has(
        #[case] from: &str,
        #[case] to: &str,
        #[case] min: &str,
        #[case] expected: Result<(), Ineligible>,
    ) {
        assert_eq!(check(from, to, min, true), expected);
    }

    // Newer, equal, older: numbers are compared as numbers, and build metadata says nothing.
    #[rstest]
    #[case("v1.2.0", "v1.2.1")]
    #[case("v1.2.9", "v1.2.10")]
    #[case("v1.2.1", "v1.10.0")]
    #[case("v1.9.9", "v2.0.0")]
    #[case("v1.2.1-rc1", "v1.2.1")]
    #[case("v1.2.1-rc1", "v1.2.1-rc2")]
    #[case("v1.2.0-rc10", "v1.10.0")]
    #[case("v1.2.0", "v1.10.0-rc1")]
    #[case("v1.2.0-rc2", "v1.2.1-rc1")]
    #[case("v1.2.1-rc1", "v1.3.0-rc1")]
    #[case("v1.2.0", "v1.2.1-rc1")]
    #[case("v1.2.1-rc3", "v1.2.2")]
    #[case("v1.2.1-alpha1", "v1.2.1-beta1")]
    #[case("v1.2.1-beta1", "v1.2.1-rc1")]
    fn the_first_is_older_and_the_second_newer(#[case] older: &str, #[case] newer: &str) {
        assert_eq!(check(older, newer, newer, true), Err(Ineligible::BelowMinimum));
        assert_eq!(check(newer, older, "", true), Err(Ineligible::Downgrade));
    }

    #[rstest]
    #[case("v1.2.1", "v1.2.1")]
    #[case("v1.2.1", "1.2.1")]
    #[case("v1.2.1-rc1", "v1.2.1-rc1")]
    #[case("v1.2.1+build1", "v1.2.1+build2")]
    #[case("v1.2-head", "v1.2.1")]
    #[case("v1.2.1", "v1.2-head")]
    #[case("v1.2-head", "v1.3-head")]
    fn neither_is_older(#[case] one: &str, #[case] other: &str) {
        assert_eq!(check(one, other, "", false), Ok(()));
        assert_eq!(check(other, one, "", false), Ok(()));
    }

    #[rstest]
    #[case("v1.8.1", "v1.8.0", true)]
    #[case("v1.8.0", "v1.8.0-rc2", true)]
    #[case("v1.8.0", "v1.8.0", false)]
    #[case("v1.7.1", "v1.8.0", false)]
    #[case("v1.8.0-rc1", "v1.8.0", false)]
    #[case("master-head", "v1.8.0", true)]
    #[case("v1.8.0", "master-head", true)]
    #[case("master-head", "master-head", false)]
    fn what_has_no_order_counts_as_beyond(#[case] running: &str, #[case] release: &str, #[case] expected: bool) {
        assert_eq!(is_beyond(running, release), expected);
    }

    #[rstest]
    #[case("v1.7.0", Some((1, 7)))]
    #[case("v1.7.1-rc1", Some((1, 7)))]
    #[case("1.10.3", Some((1, 10)))]
    #[case("v1.6-head", Some((1, 6)))]
    #[case("v1.6-0a1b2c3-head", Some((1, 6)))]
    #[case("v1.6.2-dev.20260101", Some((1, 6)))]
    #[case("v1.6", Some((1, 6)))]
    #[case("master-head", None)]
    #[case("0a1b2c3", None)]
    #[case("", None)]
    fn releases_candidates_and_builds_of_a_branch_are_of_its_line(
        #[case] version: &str,
        #[case] expected: Option<(u64, u64)>,
    ) {
        assert_eq!(line(version), expected);
    }

    #[rstest]
    #[case("v1.2-head", "v1.3.1", "v1.2.2")]
    #[case("v1.2-ab12cd34", "v1.2.1", "")]
    #[case("v1.2-ab12cd34", "v1.2.2-rc1", "")]
    fn leaving_a_development_build_is_allowed_when_not_strict(#[case] from: &str, #[case] to: &str, #[case] min: &str) {
        assert_eq!(check(from, to, min, true), Err(Ineligible::FromDev));
        assert_eq!(check(from, to, min, false), Ok(()));
    }

    #[rstest]
    #[case(Ineligible::Invalid, "invalid version string")]
    #[case(Ineligible::Incomparable, "incomparable: dev version")]
    #[case(
        Ineligible::BelowMinimum,
        "current version does not meet minimum upgrade requirement"
    )]
    #[case(Ineligible::Downgrade, "downgrading is prohibited")]
    #[case(Ineligible::FromDev, "upgrading from dev versions to non-dev versions is prohibited")]
    #[case(
        Ineligible::AcrossPrerelease,
        "cross-version upgrades from/to any prerelease version are prohibited"
    )]
    fn the_words_are_those_that_people_search_for(#[case] why: Ineligible, #[case] words: &str) {
        assert_eq!(why.to_string(), words);
    }
}
