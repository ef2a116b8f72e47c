//! Pre-flight checks that cannot look.

use api::Phase;
use plan::{Need, observed::Fetched};

use crate::{
    model::Model,
    walk::{ended, until},
};

#[test]
fn w08_an_error_of_a_kubelet_is_tried_again_and_not_the_end() {
    let mut model = Model::new(3);
    until(&mut model, |model| model.decide().needs.contains(&Need::Preflight));
    let error = "failed to ask the kubelet of node node-2 for configz: connection refused";
    for attempts in 1..=3 {
        model.observed.facts.preflight = Fetched::Failed {
            error: error.into(),
            at: model.now,
            attempts,
        };
        let decision = model.decide();
        assert_ne!(decision.status.current_phase.as_deref(), Some("Failed"));
        let waiting = decision
            .status
            .waiting_for
            .first()
            .and_then(|wait| wait.message.clone());
        assert!(
            waiting.is_some_and(|text| text.contains("node node-2")),
            "the kubelet is named"
        );
        model.apply(&decision);
        model.now = decision.wake_at.expect("it is asked again");
        assert!(model.decide().needs.contains(&Need::Preflight));
    }
    let mut patient = model.clone();
    until(&mut patient, ended);
    assert_eq!(patient.phase(), Some(Phase::Succeeded));
    // Silence that lasts is the end, and named.
    let since = model.observed.plan.status.as_ref().unwrap().waiting_for[0].since.0;
    model.now = since + model.observed.settings.deadlines.preflight;
    let decision = model.decide();
    assert_eq!(decision.status.current_phase.as_deref(), Some("Failed"));
    let progressing = decision.status.conditions.iter().find(|c| c.type_ == "Progressing");
    assert_eq!(progressing.map(|c| c.message.as_str()), Some(error));
}
