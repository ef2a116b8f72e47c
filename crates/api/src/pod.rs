//! Predicates on Pods, in one place.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

/// Nothing runs in the pod any more, and nothing will.
#[must_use]
pub fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The pod says that it is ready.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// When the last container of the pod ended; nothing when none has.
#[must_use]
pub fn finished_at(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.as_ref()?.container_statuses.as_deref()?;
    let ended = statuses
        .iter()
        .filter_map(|container| container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    ended.map(|time| time.0).max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({"status": status})).unwrap()
    }

    #[test]
    fn a_pod_has_ended_well_or_badly() {
        assert!(has_ended(&pod(&json!({"phase": "Succeeded"}))));
        assert!(has_ended(&pod(&json!({"phase": "Failed"}))));
        assert!(!has_ended(&pod(&json!({"phase": "Running"}))));
        assert!(!has_ended(&Pod::default()));
    }

    #[test]
    fn a_pod_is_ready_when_it_says_so() {
        let says = |status: &str| pod(&json!({"conditions": [{"type": "Ready", "status": status}]}));
        assert!(is_ready(&says("True")));
        assert!(!is_ready(&says("False")));
    }

    #[test]
    fn a_pod_has_finished_when_its_last_container_has() {
        let ended = |time: &str| {
            json!({"name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "finishedAt": time}}})
        };
        let found = finished_at(&pod(
            &json!({"containerStatuses": [ended("2026-03-13T00:00:02Z"), ended("2026-03-13T00:00:01Z")]}),
        ));
        assert_eq!(found, Some("2026-03-13T00:00:02Z".parse().unwrap()));
        assert_eq!(finished_at(&Pod::default()), None);
    }
}
