//! Pre-flight checks that cannot look, and at which value each one turns.

use api::{Phase, UpgradePlan, annotations};
use jiff::{SignedDuration, Timestamp};
use plan::{
    Need,
    observed::{Fetched, KubeletFacts, PreflightFacts},
    preflight,
};
use rstest::rstest;

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

/// Facts with which nothing is wrong, but for what a test changes.
fn sound() -> PreflightFacts {
    PreflightFacts {
        api_servers: vec!["10.0.0.1:6443".to_owned()],
        certificates: [("10.0.0.1:6443".to_owned(), Timestamp::MAX)].into(),
        ..PreflightFacts::default()
    }
}

#[rstest]
#[case(&[], false)]
#[case(&[annotations::SKIP_WEBHOOK], false)]
#[case(&[annotations::SKIP_DATA_CHECKS], false)]
#[case(&[annotations::SKIP_WEBHOOK, annotations::SKIP_DATA_CHECKS], true)]
fn a_v1_upgrade_that_runs_is_passed_over_only_by_who_skips_both_kinds_of_checks(
    #[case] keys: &[&str],
    #[case] allowed: bool,
) {
    let mut plan = UpgradePlan::new("up", Default::default());
    let skips = keys.iter().map(|key| ((*key).to_owned(), "true".to_owned()));
    plan.metadata.annotations = Some(skips.collect());
    let facts = PreflightFacts {
        v1_upgrades: vec!["hvst-upgrade".to_owned()],
        ..sound()
    };
    let now = Timestamp::UNIX_EPOCH;
    assert_eq!(preflight::check(&plan, &facts, now).is_ok(), allowed);
    assert!(preflight::check(&plan, &sound(), now).is_ok());
}

#[rstest]
#[case(-1, false)]
#[case(0, true)]
#[case(1, true)]
fn a_certificate_must_last_seven_days(#[case] seconds: i64, #[case] allowed: bool) {
    let now = Timestamp::UNIX_EPOCH;
    let end = now + SignedDuration::from_hours(7 * 24) + SignedDuration::from_secs(seconds);
    let facts = PreflightFacts {
        certificates: [("a".to_owned(), Timestamp::MAX), ("b".to_owned(), end)].into(),
        ..sound()
    };
    let plan = UpgradePlan::new("up", Default::default());
    assert_eq!(preflight::check(&plan, &facts, now).is_ok(), allowed);
}

#[rstest]
#[case(87, true)]
#[case(88, false)]
fn images_of_a_release_that_is_not_known_take_thirteen_gibibytes(#[case] used: u64, #[case] allowed: bool) {
    const GIB: u64 = 1 << 30;
    let kubelet = KubeletFacts {
        capacity_bytes: 100 * GIB,
        used_bytes: used * GIB,
        image_gc_high_threshold_percent: 100.0,
    };
    let facts = PreflightFacts {
        kubelets: [("node-1".to_owned(), kubelet)].into(),
        ..sound()
    };
    let plan = UpgradePlan::new("up", Default::default());
    assert_eq!(preflight::check(&plan, &facts, Timestamp::UNIX_EPOCH).is_ok(), allowed);
    let empty = KubeletFacts {
        capacity_bytes: 0,
        ..kubelet
    };
    let facts = PreflightFacts {
        kubelets: [("node-1".to_owned(), empty)].into(),
        ..sound()
    };
    let why = preflight::check(&plan, &facts, Timestamp::UNIX_EPOCH).unwrap_err();
    let said = format!("check: {why}");
    assert!(said.contains("reports a file system of 0 bytes"), "{said}");
}
