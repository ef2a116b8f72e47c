//! Whether disks have room for the images of a release, and whether certificates last: what must hold before an upgrade changes
//! anything. Pure.

use jiff::{SignedDuration, Timestamp};

/// Space that new images take when nothing better is known.
pub const NEW_IMAGES_BYTES: u64 = 13 * 1024 * 1024 * 1024;
const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

/// The disk of a node, as its kubelet reports it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk {
    /// Bytes in all.
    pub capacity_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Above this, the kubelet removes images.
    pub threshold_percent: f64,
}

/// What is wrong with one node's disk once the new images are on it, if anything.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a percentage with two decimals")]
pub fn projection(node: &str, disk: Disk, new_bytes: u64) -> Option<String> {
    let Disk {
        capacity_bytes,
        used_bytes,
        threshold_percent: threshold,
    } = disk;
    if capacity_bytes == 0 {
        return Some(format!(
            "Node {node} reports a file system of 0 bytes; check its kubelet."
        ));
    }
    let percent = used_bytes.saturating_add(new_bytes) as f64 / capacity_bytes as f64 * 100.0;
    (percent > threshold).then(|| {
        format!(
            "Node {node} will reach {percent:.2}% storage space after loading new images. \
             It's higher than kubelet image garbage collection threshold {threshold}%."
        )
    })
}

/// A certificate that ends at that time does not last so many days from now.
#[must_use]
pub fn ends_within(end: Timestamp, days: i64, now: Timestamp) -> bool {
    let window = SignedDuration::from_secs(days.saturating_mul(SECONDS_PER_DAY));
    end < now.saturating_add(window).unwrap_or(Timestamp::MAX)
}

/// What users read about such a certificate.
#[must_use]
pub fn certificate_text(earliest: Timestamp, now: Timestamp) -> String {
    let days = earliest
        .duration_since(now)
        .as_secs()
        .div_euclid(SECONDS_PER_DAY)
        .max(0);
    format!(
        "earliest expiring cert for default/kubernetes ClusterIP is {earliest}, it will expire in {days} days. \
         Please rotate RKE2 certificates"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * 1024 * 1024;

    fn disk(used_gib: u64) -> Disk {
        Disk {
            capacity_bytes: 100 * GIB,
            used_bytes: used_gib * GIB,
            threshold_percent: 85.0,
        }
    }

    #[test]
    fn a_disk_may_reach_its_threshold_and_not_pass_it() {
        assert_eq!(projection("n", disk(72), NEW_IMAGES_BYTES), None);
        let text = projection("n", disk(73), NEW_IMAGES_BYTES).unwrap();
        assert!(text.starts_with("Node n will reach 86.00%"), "{text}");
        let none = Disk {
            capacity_bytes: 0,
            ..disk(0)
        };
        assert!(projection("n", none, 0).unwrap().contains("0 bytes"));
    }

    #[test]
    fn a_certificate_must_last_to_the_end_of_the_window() {
        let now: Timestamp = "2026-03-13T00:00:00Z".parse().unwrap();
        let in_a_week: Timestamp = "2026-03-20T00:00:00Z".parse().unwrap();
        assert!(!ends_within(in_a_week, 7, now));
        assert!(ends_within(in_a_week, 8, now));
        assert!(ends_within(in_a_week, i64::MAX, now));
    }
}
