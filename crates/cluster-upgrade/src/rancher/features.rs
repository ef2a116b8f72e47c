//! The text of Rancher's `--features`. Pure.
//!
//! Rancher refuses the whole text when it does not know one name in it, says so only in its log, and starts with its
//! defaults: multi-cluster management would be on. So only names that the new version knows are passed on.

use semver::Version;

/// Harvester's own: Rancher manages this one cluster, and Harvester brings system-upgrade-controller itself.
const OURS: [&str; 4] = [
    "multi-cluster-management",
    "multi-cluster-management-agent",
    "managed-system-upgrade-controller",
    "crt-token-ttl-rotation",
];

/// Every feature of Rancher v2.13 to v2.16: its name, the first version that has it and the first that has it no longer.
const KNOWN: &[(&str, Option<&str>, Option<&str>)] = &[
    ("aggregated-roletemplates", None, None),
    ("auth", None, Some("2.16.0-0")),
    ("clean-stale-secrets", None, None),
    ("cluster-agent-scheduling-customization", None, None),
    ("cluster-autoscaling", None, None),
    ("cluster-shell", Some("2.15.0-alpha5"), None),
    ("consistent-hashing-cluster-ownership", Some("2.14.0-alpha3"), None),
    ("continuous-delivery", None, None),
    ("crt-token-ttl-rotation", Some("2.15.0-alpha16"), None),
    ("embedded-cluster-api", None, Some("2.14.0-alpha4")),
    ("fleet", None, None),
    ("harvester", None, None),
    ("harvester-baremetal-container-workload", None, None),
    ("hide-local-auth-provider", Some("2.15.0-alpha7"), None),
    ("imported-day-2-ops", Some("2.15.0-alpha1"), None),
    ("istio-virtual-service-ui", None, None),
    ("legacy", None, None),
    ("managed-system-upgrade-controller", None, None),
    ("multi-cluster-management", None, None),
    ("multi-cluster-management-agent", None, None),
    ("node-shell", Some("2.15.0-alpha5"), None),
    ("oidc-provider", None, None),
    ("pod-shell", Some("2.15.0-alpha5"), None),
    ("provisioningprebootstrap", None, None),
    ("provisioningv2", None, None),
    ("provisioningv2-fleet-workspace-back-population", None, None),
    ("rancher-scc-registration-extension", None, None),
    ("rke1-custom-node-cleanup", None, Some("2.15.0-alpha18")),
    ("rke1-ui", None, Some("2.15.0-alpha18")),
    ("rke2", None, None),
    ("scim", Some("2.14.0-alpha4"), None),
    ("token-hashing", None, None),
    ("turtles", None, None),
    ("ui-sql-cache", None, Some("2.16.0-0")),
    ("uiextension", None, None),
    ("unsupported-storage-drivers", None, None),
    ("v2prov-etcd-snapshot-backpopulate", None, None),
    ("v3-public", Some("2.14.0-alpha1"), None),
];

/// What the new Rancher is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Features {
    /// The text.
    pub(super) text: String,
    /// What users had set and the new version would refuse, as they wrote it.
    pub(super) left_out: Vec<String>,
}

/// Harvester's features, and after them those of users that the new version knows.
pub(super) fn of(current: &str, target: &str) -> Features {
    let ours = OURS.iter().filter(|name| is_known(name, target));
    let mut all: Vec<String> = ours.map(|name| format!("{name}=false")).collect();
    let mut left_out = Vec::new();
    for feature in current.split(',').map(str::trim).filter(|feature| !feature.is_empty()) {
        match feature.split_once('=') {
            Some((name, _)) if OURS.contains(&name) => {}
            Some((name, value)) if is_bool(value) && is_known(name, target) => all.push(feature.to_owned()),
            _ => left_out.push(feature.to_owned()),
        }
    }
    let text = all.join(",");
    Features { text, left_out }
}

/// What Go takes for true or false.
fn is_bool(text: &str) -> bool {
    let values = [
        "1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False",
    ];
    values.contains(&text)
}

/// Whether a version has a feature. Builds of no version are newer than any.
fn is_known(name: &str, target: &str) -> bool {
    let Some((_, since, until)) = KNOWN.iter().find(|(known, ..)| *known == name) else {
        return false;
    };
    let Ok(target) = Version::parse(target.trim_start_matches('v')) else {
        return until.is_none();
    };
    let reached = |bound: &str| Version::parse(bound).is_ok_and(|bound| target >= bound);
    since.is_none_or(reached) && !until.is_some_and(reached)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ALWAYS: &str =
        "multi-cluster-management=false,multi-cluster-management-agent=false,managed-system-upgrade-controller=false";

    #[rstest]
    #[case("v2.14.0", "", ALWAYS, &[])]
    #[case("v2.14.0", "fleet=true,multi-cluster-management=true", "fleet=true", &[])]
    #[case("v2.14.0", "embedded-cluster-api=false,rke2=true", "rke2=true", &["embedded-cluster-api=false"])]
    #[case("v2.13.1", "embedded-cluster-api=false,scim=true", "embedded-cluster-api=false", &["scim=true"])]
    #[case("v2.15.0", "rke1-ui=false", "crt-token-ttl-rotation=false", &["rke1-ui=false"])]
    #[case("v2.15.0-alpha1", "", ALWAYS, &[])]
    #[case("v2.16.0-alpha1", "auth=true", "crt-token-ttl-rotation=false", &["auth=true"])]
    #[case("head", "auth=true,scim=true", "scim=true", &["auth=true"])]
    #[case("v2.14.0", "fleet=yes, turtles=True,,mine", "turtles=True", &["fleet=yes", "mine"])]
    fn r16_only_names_that_the_new_rancher_knows_are_passed_on(
        #[case] target: &str,
        #[case] current: &str,
        #[case] ends: &str,
        #[case] left_out: &[&str],
    ) {
        let features = of(current, target);
        assert!(features.text.starts_with(ALWAYS), "{}", features.text);
        assert!(features.text.ends_with(ends), "{}", features.text);
        assert_eq!(features.left_out, left_out);
    }

    #[test]
    fn every_bound_is_a_version_and_every_feature_of_ours_is_known() {
        for (name, since, until) in KNOWN {
            for bound in [since, until].into_iter().flatten() {
                assert!(Version::parse(bound).is_ok(), "{name}: {bound}");
            }
        }
        assert!(OURS.iter().all(|name| KNOWN.iter().any(|(known, ..)| known == name)));
    }
}
