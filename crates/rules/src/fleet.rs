//! When Fleet is done with a chart or a bundle.

use api::{
    foreign::{fleet::Bundle, rancher::ManagedChart},
    quoted::quoted,
};

/// Why a chart is not ready, as Fleet reports it; nothing when it is.
#[must_use]
pub fn chart_lacks(chart: &ManagedChart) -> Option<String> {
    let ready = chart.status.summary.as_ref().and_then(|summary| summary.ready);
    if ready == Some(1) && chart.status.unavailable.unwrap_or(0) == 0 {
        return None;
    }
    let conditions = chart.status.conditions.iter().flatten();
    let why = conditions
        .filter(|condition| condition.type_ == "Ready")
        .find_map(|condition| condition.message.as_deref().filter(|message| !message.is_empty()));
    Some(why.map_or_else(
        || "it is not ready".to_owned(),
        |why| format!("Fleet says {}", quoted(why)),
    ))
}

/// What keeps a bundle from being settled: Fleet has not seen what it is now, or says that it is unready. A bundle of which
/// nothing more is known is settled.
#[must_use]
pub fn bundle_lacks(bundle: &Bundle) -> Option<String> {
    // Right after a change Fleet still reports the state before it.
    if bundle.status.observed_generation.unwrap_or(0) < bundle.metadata.generation.unwrap_or(0) {
        return Some("Fleet has not seen its last change".to_owned());
    }
    let conditions = bundle.status.conditions.iter().flatten();
    let mut unready = conditions.filter(|condition| condition.type_ == "Ready");
    let condition = unready.find(|condition| condition.status.as_deref() == Some("False"))?;
    Some(match condition.message.as_deref() {
        Some(why) => format!("Fleet says {}", quoted(why)),
        None => "Fleet gives no reason".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn r38_a_bundle_whose_last_change_fleet_has_not_seen_is_not_settled() {
        let bundle = |generation: i64, observed: Option<i64>, ready: &str| -> Bundle {
            serde_json::from_value(json!({
                "metadata": {"name": "mcc-harvester", "namespace": "fleet-local", "generation": generation},
                "status": {"observedGeneration": observed, "conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };
        let unseen = Some("Fleet has not seen its last change".to_owned());
        assert_eq!(bundle_lacks(&bundle(3, Some(2), "True")), unseen);
        assert_eq!(bundle_lacks(&bundle(1, None, "True")), unseen);
        assert_eq!(bundle_lacks(&bundle(3, Some(3), "True")), None);
        assert_eq!(
            bundle_lacks(&bundle(3, Some(3), "False")),
            Some("Fleet gives no reason".to_owned())
        );
    }

    #[test]
    fn a_chart_is_ready_when_fleet_says_so() {
        let mut chart =
            serde_json::from_value::<ManagedChart>(json!({"metadata": {"name": "harvester"}, "spec": {}})).unwrap();
        assert_eq!(chart_lacks(&chart).unwrap(), "it is not ready");
        chart.status.summary = serde_json::from_value(json!({"ready": 1})).unwrap();
        assert_eq!(chart_lacks(&chart), None);
        chart.status.unavailable = Some(1);
        let condition = json!([{"type": "Ready", "status": "False", "message": "ErrApplied(1)"}]);
        chart.status.conditions = serde_json::from_value(condition).unwrap();
        assert_eq!(chart_lacks(&chart).unwrap(), "Fleet says \"ErrApplied(1)\"");
    }
}
