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

/// Whether a release is older than another one; development builds never are.
#[must_use]
pub fn is_older(version: &str, than: &str) -> bool {
    match (parse(version), parse(than)) {
        (Ok(Parsed::Release(version)), Ok(Parsed::Release(than))) => version.cmp_precedence(&than).is_lt(),
        _ => false,
    }
}

fn parse(text: &str) -> Result<Parsed, Ineligible> {
    let text = text.strip_prefix('v').unwrap_or(text);
    if text.is_empty() {
        return Err(Ineligible::Invalid);
    }
    Ok(Version::parse(text).map_or(Parsed::Dev, Parsed::Release))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("v1.2.1", "v1.2.2", "v1.2.1", Ok(()))]
    #[case("v1.2.0", "v1.2.2", "v1.2.1", Err(Ineligible::BelowMinimum))]
    #[case("v1.2.1", "v1.2.0", "", Err(Ineligible::Downgrade))]
    #[case("v1.2.1", "v1.2.2-rc1", "v1.2.0", Ok(()))]
    #[case("v1.2.2-rc1", "v1.2.2-rc2", "v1.2.1", Ok(()))]
    #[case("v1.2.2-rc2", "v1.2.2-rc1", "v1.2.1", Err(Ineligible::Downgrade))]
    #[case("v1.2.1", "v1.2-head", "v1.2.1", Ok(()))]
    #[case("v1.2-head", "v1.3-head", "", Ok(()))]
    #[case("v1.2-head", "v1.3.1", "", Err(Ineligible::FromDev))]
    #[case("v1.2.2-rc1", "v1.2.2", "v1.2.1", Ok(()))]
    #[case("v1.2.2-rc1", "v1.3.0", "", Err(Ineligible::AcrossPrerelease))]
    #[case("v1.2.2-rc1", "v1.3.0-rc1", "", Err(Ineligible::AcrossPrerelease))]
    #[case("v1.8.0", "v1.8.0", "v1.9.0", Ok(()))]
    #[case("v1.7.1", "v1.8.0", "main-head", Err(Ineligible::Incomparable))]
    #[case("", "v1.8.0", "", Err(Ineligible::Invalid))]
    #[case("v1.7.1", "v", "", Err(Ineligible::Invalid))]
    #[case("f0e1d2c", "master-head", "", Ok(()))]
    fn eligibility(#[case] from: &str, #[case] to: &str, #[case] min: &str, #[case] expected: Result<(), Ineligible>) {
        assert_eq!(check(from, to, min, true), expected);
    }

    #[rstest]
    #[case("v1.7.0", true)]
    #[case("v1.7.1-rc1", true)]
    #[case("v1.7.1", false)]
    #[case("master-head", false)]
    #[case("", false)]
    fn only_releases_can_be_older(#[case] version: &str, #[case] older: bool) {
        assert_eq!(is_older(version, "v1.7.1"), older);
    }

    #[test]
    fn leaving_a_development_build_is_allowed_when_not_strict() {
        assert_eq!(check("v1.2-head", "v1.3.1", "", false), Ok(()));
    }
}
