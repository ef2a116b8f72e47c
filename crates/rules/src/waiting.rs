//! What is waited for, as data, and since when.

use api::{ProgramWait, WaitingFor};
use jiff::Timestamp;

/// One thing a step waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// In one word.
    pub what: ProgramWait,
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// The same in a sentence that says why.
    pub message: String,
}

/// Two entries are of the same wait: their words may differ, and say how far it is.
#[must_use]
pub fn is_same(one: &WaitingFor, what: &str, object: Option<&str>) -> bool {
    one.what == what && one.object.as_deref() == object
}

/// Since when something is waited for, by what was waited for before: from now on, if it is not among it.
#[must_use]
pub fn since<'a>(
    known: impl IntoIterator<Item = &'a WaitingFor>,
    what: &str,
    object: Option<&str>,
    now: Timestamp,
) -> Timestamp {
    let mut known = known.into_iter();
    known
        .find(|wait| is_same(wait, what, object))
        .map_or(now, |wait| wait.since.0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn a_wait_keeps_its_beginning_as_long_as_its_word_and_its_object_stay() {
        let began: Timestamp = "2026-03-13T00:00:00Z".parse().unwrap();
        let now: Timestamp = "2026-03-13T01:00:00Z".parse().unwrap();
        let known = [WaitingFor {
            what: "VMEvacuation".to_owned(),
            object: Some("Node node-1".to_owned()),
            message: Some("two VMs are left".to_owned()),
            since: Time(began),
            deadline: None,
        }];
        assert_eq!(since(&known, "VMEvacuation", Some("Node node-1"), now), began);
        assert_eq!(since(&known, "VMEvacuation", Some("Node node-2"), now), now);
        assert_eq!(since(&known, "VMEvacuation", None, now), now);
        assert_eq!(since(&known, "Reboot", Some("Node node-1"), now), now);
    }
}
