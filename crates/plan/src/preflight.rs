//! The checks between Initialized and the first change: disks and certificates. A failed check is final.

use api::{UpgradePlan, annotations};
use jiff::Timestamp;
use rules::room;
pub use rules::room::NEW_IMAGES_BYTES;

use crate::{
    image,
    observed::{KubeletFacts, NewImages, PreflightFacts, RepoServer},
};

/// Space that images take for each byte of their compressed archives. A release whose archives have 4.4 GiB takes the
/// 13 GiB of [`NEW_IMAGES_BYTES`].
const UNPACKED: u64 = 3;

/// Why an upgrade may not begin, for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PreflightError {
    /// The plan says something that cannot be.
    #[error("invalid value {given:?} for {place}: {rule}")]
    Invalid {
        /// What it says.
        given: String,
        /// Where it says so.
        place: String,
        /// What may stand there.
        rule: String,
    },
    /// An upgrade of Harvester's own controller runs.
    #[error(
        "a V1 upgrade (upgrades.harvesterhci.io) {name:?} is in progress: wait for it to end, then retry this plan \
         (annotation {})",
        annotations::RETRY
    )]
    V1Upgrade {
        /// Its name.
        name: String,
    },
    /// What is wrong with disks, a sentence for each node.
    #[error("{}", .0.join(" "))]
    Disks(Vec<String>),
    /// The addresses of the API servers are unknown.
    #[error("cluster IP is empty in the default/kubernetes endpointslices")]
    NoApiServer,
    /// No API server has shown its certificate.
    #[error("no certificates found for kubernetes API server")]
    NoCertificate,
    /// A certificate of the API server ends too soon.
    #[error("{}", room::certificate_text(*.earliest, *.now))]
    CertificateEnds {
        /// When it ends.
        earliest: Timestamp,
        /// When that was seen.
        now: Timestamp,
    },
}

impl PreflightError {
    fn annotation(key: &str, given: &str, rule: &str) -> Self {
        Self::Invalid {
            given: given.to_owned(),
            place: format!("annotation {key}"),
            rule: rule.to_owned(),
        }
    }
}

/// The outcome of a check.
pub type Result<T, E = PreflightError> = std::result::Result<T, E>;

/// A pre-flight check: one line of [`CHECKS`].
pub type Check = fn(&UpgradePlan, &PreflightFacts, Timestamp) -> Result<()>;

/// All checks, in order; the first that fails ends the plan.
pub const CHECKS: [(&str, Check); 5] = [
    ("toolkit image", |plan, _, _| image::check(plan)),
    ("repository server", repo_server_is_known),
    ("V1 upgrades", no_v1_upgrade_runs),
    ("disk space", disk_space),
    ("certificates", certificates),
];

/// Runs all checks.
///
/// # Errors
/// What the first failing check found, for the user.
pub fn check(plan: &UpgradePlan, facts: &PreflightFacts, now: Timestamp) -> Result<()> {
    CHECKS.iter().try_for_each(|(_, check)| check(plan, facts, now))
}

/// What the plan wants to serve the ISO with, if it says so.
///
/// # Errors
/// The annotation names no server that we know.
pub fn repo_server(plan: &UpgradePlan) -> Result<Option<RepoServer>> {
    let key = annotations::REPO_SERVER;
    let Some(value) = plan.annotation(key) else {
        return Ok(None);
    };
    match RepoServer::parse(value) {
        None => Err(PreflightError::annotation(key, value, "use \"toolkit\" or \"nginx\"")),
        known => Ok(known),
    }
}

fn repo_server_is_known(plan: &UpgradePlan, _: &PreflightFacts, _: Timestamp) -> Result<()> {
    repo_server(plan).map(drop)
}

/// Admission has looked too, but that may be long ago: a plan may have waited for another one, or for a manager.
fn no_v1_upgrade_runs(plan: &UpgradePlan, facts: &PreflightFacts, _: Timestamp) -> Result<()> {
    if plan.skips_data_checks() {
        return Ok(());
    }
    match facts.v1_upgrades.first() {
        None => Ok(()),
        Some(name) => Err(PreflightError::V1Upgrade { name: name.clone() }),
    }
}

/// Whether the plan skips the disk-space check.
///
/// # Errors
/// The annotation is no boolean.
pub fn skips_disk_space(plan: &UpgradePlan) -> Result<bool> {
    let key = annotations::SKIP_GC_THRESHOLD_CHECK;
    plan.skips_disk_space().ok_or_else(|| {
        let value = plan.annotation(key).unwrap_or_default();
        PreflightError::annotation(key, value, "use \"true\" or \"false\"")
    })
}

/// No kubelet may come to remove the new images because its disk fills up while they are loaded.
fn disk_space(plan: &UpgradePlan, facts: &PreflightFacts, _: Timestamp) -> Result<()> {
    if skips_disk_space(plan)? {
        return Ok(());
    }
    disks(&facts.kubelets, NEW_IMAGES_BYTES)
}

/// The same with the size that the new images really have, once their archives are known.
///
/// # Errors
/// Which nodes would fill up.
pub fn new_images_fit(found: &NewImages, is_to_load: impl Fn(&str) -> bool) -> Result<()> {
    let Some(bytes) = found.archive_bytes else {
        return Ok(());
    };
    let kubelets = found.kubelets.iter().filter(|(node, _)| is_to_load(node));
    disks(kubelets, bytes.saturating_mul(UNPACKED))
}

fn disks<'a>(kubelets: impl IntoIterator<Item = (&'a String, &'a KubeletFacts)>, new_bytes: u64) -> Result<()> {
    let full: Vec<String> = kubelets
        .into_iter()
        .filter_map(|(node, kubelet)| projection(node, kubelet, new_bytes))
        .collect();
    if full.is_empty() {
        Ok(())
    } else {
        Err(PreflightError::Disks(full))
    }
}

/// What is wrong with one node's disk, if anything.
fn projection(node: &str, kubelet: &KubeletFacts, new_bytes: u64) -> Option<String> {
    let disk = room::Disk {
        capacity_bytes: kubelet.capacity_bytes,
        used_bytes: kubelet.used_bytes,
        threshold_percent: kubelet.image_gc_high_threshold_percent,
    };
    room::projection(node, disk, new_bytes)
}

/// No certificate of the API server may end during the upgrade.
fn certificates(plan: &UpgradePlan, facts: &PreflightFacts, now: Timestamp) -> Result<()> {
    let days = least_days(plan)?;
    if facts.api_servers.is_empty() {
        return Err(PreflightError::NoApiServer);
    }
    let Some(earliest) = facts.certificates.values().min() else {
        return Err(PreflightError::NoCertificate);
    };
    if room::ends_within(*earliest, days, now) {
        return Err(PreflightError::CertificateEnds {
            earliest: *earliest,
            now,
        });
    }
    Ok(())
}

fn least_days(plan: &UpgradePlan) -> Result<i64> {
    let key = annotations::MIN_CERTS_EXPIRATION_IN_DAY;
    let value = plan.annotation(key).unwrap_or_default();
    match plan.certificate_days() {
        Some(days) if days > 0 => Ok(days),
        Some(_) => Err(PreflightError::annotation(key, value, "must be greater than 0")),
        None => Err(PreflightError::annotation(key, value, "must be a whole number of days")),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rstest::rstest;

    use super::*;

    const GIB: u64 = 1024 * 1024 * 1024;

    fn now() -> Timestamp {
        "2026-03-13T03:57:09Z".parse().unwrap()
    }

    fn plan(annotation: Option<(&str, &str)>) -> UpgradePlan {
        let mut plan = UpgradePlan::new("up", Default::default());
        plan.metadata.annotations = annotation.map(|(key, value)| [(key.to_owned(), value.to_owned())].into());
        plan
    }

    fn facts(used_gib: u64, threshold: f64, cert_days: i64) -> PreflightFacts {
        let kubelet = KubeletFacts {
            capacity_bytes: 100 * GIB,
            used_bytes: used_gib * GIB,
            image_gc_high_threshold_percent: threshold,
        };
        let end = now() + SignedDuration::from_hours(24 * cert_days);
        PreflightFacts {
            kubelets: [("node-1".into(), kubelet), ("node-2".into(), kubelet)].into(),
            api_servers: vec!["10.0.0.1:6443".into()],
            certificates: [("10.0.0.1:6443".into(), end)].into(),
            v1_upgrades: Vec::new(),
        }
    }

    #[test]
    fn r12_a_v1_upgrade_that_runs_is_named_unless_data_checks_are_skipped() {
        let found = PreflightFacts {
            v1_upgrades: vec!["hvst-upgrade-v1".into()],
            ..facts(50, 85.0, 365)
        };
        let error = check(&plan(None), &found, now()).unwrap_err().to_string();
        assert!(
            error.contains("hvst-upgrade-v1") && error.contains(annotations::RETRY),
            "{error}"
        );
        let mut skips = plan(None);
        let known = skips.metadata.annotations.get_or_insert_default();
        for key in [annotations::SKIP_WEBHOOK, annotations::SKIP_DATA_CHECKS] {
            known.insert(key.to_owned(), "true".to_owned());
        }
        assert_eq!(check(&skips, &found, now()), Ok(()));
    }

    #[test]
    fn once_the_archives_are_known_their_size_counts() {
        let found = |archive_gib: Option<u64>| NewImages {
            archive_bytes: archive_gib.map(|gib| gib * GIB),
            kubelets: facts(70, 85.0, 365).kubelets,
        };
        let all = |_: &str| true;
        assert_eq!(new_images_fit(&found(Some(5)), all), Ok(()));
        let error = new_images_fit(&found(Some(6)), all).unwrap_err().to_string();
        assert!(
            error.starts_with("Node node-1 will reach 88.00% storage space"),
            "{error}"
        );
        assert_eq!(new_images_fit(&found(None), all), Ok(()));
    }

    #[test]
    fn a_node_that_has_the_images_needs_no_more_space_for_them() {
        let found = NewImages {
            archive_bytes: Some(6 * GIB),
            kubelets: facts(70, 85.0, 365).kubelets,
        };
        let error = new_images_fit(&found, |node| node == "node-2").unwrap_err().to_string();
        assert!(error.starts_with("Node node-2") && !error.contains("node-1"), "{error}");
        assert_eq!(new_images_fit(&found, |_| false), Ok(()));
    }

    #[test]
    fn enough_space_and_long_certificates_pass() {
        assert_eq!(check(&plan(None), &facts(50, 85.0, 365), now()), Ok(()));
    }

    #[test]
    fn every_node_that_would_fill_up_is_named() {
        let error = check(&plan(None), &facts(80, 85.0, 365), now())
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "Node node-1 will reach 93.00% storage space after loading new images. It's higher than kubelet image \
             garbage collection threshold 85%. Node node-2 will reach 93.00% storage space after loading new images. \
             It's higher than kubelet image garbage collection threshold 85%."
        );
    }

    #[test]
    fn the_kubelets_own_threshold_counts_and_reaching_it_exactly_is_fine() {
        assert!(
            check(&plan(None), &facts(50, 60.0, 365), now())
                .unwrap_err()
                .to_string()
                .contains("threshold 60%")
        );
        assert_eq!(check(&plan(None), &facts(47, 60.0, 365), now()), Ok(()));
    }

    #[rstest]
    #[case("true", true)]
    #[case("T", true)]
    #[case("0", false)]
    fn the_disk_check_can_be_skipped(#[case] value: &str, #[case] skipped: bool) {
        let plan = plan(Some((annotations::SKIP_GC_THRESHOLD_CHECK, value)));
        assert_eq!(check(&plan, &facts(99, 85.0, 365), now()).is_ok(), skipped);
    }

    #[rstest]
    #[case(annotations::SKIP_GC_THRESHOLD_CHECK, "notabool", "invalid value")]
    #[case(annotations::UPGRADE_TOOLKIT_IMAGE, "me/mine:v3", "spec.upgrade holds the tag")]
    #[case(annotations::REPO_SERVER, "apache", "use \"toolkit\" or \"nginx\"")]
    #[case(annotations::MIN_CERTS_EXPIRATION_IN_DAY, "soon", "invalid value")]
    #[case(annotations::MIN_CERTS_EXPIRATION_IN_DAY, "-1", "must be greater than 0")]
    #[case(annotations::MIN_CERTS_EXPIRATION_IN_DAY, "0", "must be greater than 0")]
    fn a_bad_value_is_refused_and_its_annotation_named(#[case] key: &str, #[case] value: &str, #[case] text: &str) {
        let error = check(&plan(Some((key, value))), &facts(10, 85.0, 365), now())
            .unwrap_err()
            .to_string();
        assert!(error.contains(text) && error.contains(key), "{error}");
    }

    #[test]
    fn u11_a_certificate_that_ends_within_the_window_is_refused_with_the_days_that_it_still_lasts() {
        let error = check(&plan(None), &facts(10, 85.0, 3), now()).unwrap_err().to_string();
        assert!(
            error.starts_with("earliest expiring cert for default/kubernetes ClusterIP is 2026-03-16"),
            "{error}"
        );
        assert!(
            error.ends_with("it will expire in 3 days. Please rotate RKE2 certificates"),
            "{error}"
        );
        let three = plan(Some((annotations::MIN_CERTS_EXPIRATION_IN_DAY, "3")));
        assert_eq!(check(&three, &facts(10, 85.0, 5), now()), Ok(()));
    }

    #[test]
    fn an_api_server_that_cannot_be_found_or_shows_no_certificate_is_refused() {
        let mut facts = facts(10, 85.0, 365);
        facts.certificates.clear();
        assert!(
            check(&plan(None), &facts, now())
                .unwrap_err()
                .to_string()
                .contains("no certificates found")
        );
        facts.api_servers.clear();
        assert!(
            check(&plan(None), &facts, now())
                .unwrap_err()
                .to_string()
                .contains("cluster IP is empty")
        );
    }

    #[test]
    fn a_full_disk_is_reported_before_certificates() {
        assert!(
            check(&plan(None), &facts(99, 85.0, 1), now())
                .unwrap_err()
                .to_string()
                .contains("storage space")
        );
    }
}
