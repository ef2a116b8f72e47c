//! How charts are restored: their values, their pauses, and what older versions of ours changed.

use api::{annotations, names};
use jiff::SignedDuration;
use plan::{Action, observed::ObservedChart};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    model::Model,
    restore_at_end::{
        Ending::{self, Deletion, Failure, Success},
        ending, is_over, notes,
    },
    small::{note, waits},
};

const SAVED: &str = annotations::SAVED_CHART_METHODS;

fn harvester(model: &mut Model) -> &mut ObservedChart {
    model.observed.charts.get_mut(names::HARVESTER_CHART).unwrap()
}

/// A plan that has emptied the methods of the chart, which had `LiveMigrate` at generation 7.
fn emptied(end: Ending) -> Model {
    let mut model = ending(end);
    note(
        &mut model,
        SAVED,
        r#"{"methods": ["LiveMigrate"], "observedGeneration": 7}"#,
    );
    harvester(&mut model).methods = json!([]);
    harvester(&mut model).observed_generation = 8;
    model
}

#[rstest]
fn the_methods_of_the_chart_are_restored_and_fleet_must_have_applied_them(
    #[values(Success, Failure, Deletion)] end: Ending,
) {
    let mut model = emptied(end);
    harvester(&mut model).record = Some("r".to_owned());
    let decision = model.decide();
    let set = Action::SetChartMethods {
        methods: json!(["LiveMigrate"]),
        resume: false,
        record: None,
    };
    assert_eq!(decision.actions, std::slice::from_ref(&set));
    let saved: Value = serde_json::from_str(&notes(&decision, SAVED).unwrap()).unwrap();
    assert_eq!(saved["putBackAfter"], 8);
    model.observed.plan.status = Some(decision.status);
    harvester(&mut model).methods = json!(["LiveMigrate"]);
    assert_eq!(model.decide().actions, [set], "what is noted on the chart goes, too");
    harvester(&mut model).record = None;
    let says = |model: &Model| waits(&model.decide()).join("");
    assert!(
        says(&model).contains("Fleet has not applied it: Fleet has not seen the change yet"),
        "{}",
        says(&model)
    );
    harvester(&mut model).observed_generation = 9;
    let done = model.decide();
    assert!(is_over(&done) && done.actions.is_empty());
    assert_eq!(notes(&done, SAVED).is_none(), end == Failure);
    harvester(&mut model).lacks = Some("it is not ready".to_owned());
    let waiting = model.decide();
    assert!(
        !is_over(&waiting)
            && waits(&waiting)
                .join("")
                .contains("Fleet has not applied it: it is not ready")
    );
    model.apply(&waiting);
    model.now += SignedDuration::from_mins(5);
    assert!(is_over(&model.decide()), "Fleet may be kept from it for good");
}

#[rstest]
#[case::by_an_unknown_client(None, true)]
#[case::by_another_client(Some("other"), true)]
#[case::by_this_plan(Some("uid"), false)]
fn the_plan_does_not_wait_for_a_chart_that_another_client_paused(#[case] by: Option<&str>, #[case] over: bool) {
    let mut model = ending(Success);
    note(
        &mut model,
        SAVED,
        r#"{"methods": [], "observedGeneration": 7, "putBackAfter": 8}"#,
    );
    let chart = harvester(&mut model);
    (chart.methods, chart.observed_generation, chart.paused) = (json!([]), 8, true);
    chart.paused_by = by.map(str::to_owned);
    let decision = model.decide();
    assert_eq!(is_over(&decision), over, "{:?}", waits(&decision));
    let resume = Action::ResumeChart {
        name: names::HARVESTER_CHART.to_owned(),
    };
    assert_eq!(decision.actions, if over { vec![] } else { vec![resume] });
}

#[test]
fn the_plan_does_not_wait_for_a_chart_that_was_not_changed() {
    let mut model = ending(Success);
    note(&mut model, SAVED, r#"{"methods": [], "observedGeneration": 7}"#);
    harvester(&mut model).methods = json!([]);
    harvester(&mut model).lacks = Some("it is not ready".to_owned());
    assert!(is_over(&model.decide()));
}

#[test]
fn charts_that_a_user_had_paused_are_paused_again() {
    let mut model = ending(Failure);
    note(
        &mut model,
        SAVED,
        r#"{"methods": null, "observedGeneration": 7, "paused": ["harvester", "gone"]}"#,
    );
    let decision = model.decide();
    assert_eq!(
        decision.actions,
        [Action::PauseChart {
            name: "harvester".to_owned()
        }]
    );
    assert!(notes(&decision, SAVED).is_some() && !is_over(&decision));
    harvester(&mut model).paused = true;
    let done = model.decide();
    assert!(is_over(&done) && done.actions.is_empty() && notes(&done, SAVED).is_none());
}

#[rstest]
#[case::of_this_plan(true, Some("uid"), true)]
#[case::of_another(true, Some("other"), false)]
#[case::of_a_user(true, None, false)]
#[case::applied(false, Some("uid"), false)]
fn charts_that_this_plan_paused_are_resumed(#[case] paused: bool, #[case] by: Option<&str>, #[case] resumed: bool) {
    for known in [true, false] {
        let mut model = ending(Failure);
        if !known {
            model.observed.plan.metadata.uid = None;
        }
        let chart = harvester(&mut model);
        (chart.paused, chart.paused_by) = (paused, by.map(str::to_owned));
        let resume = Action::ResumeChart {
            name: names::HARVESTER_CHART.to_owned(),
        };
        assert_eq!(
            model.decide().actions,
            if resumed && known { vec![resume] } else { vec![] },
            "{known}"
        );
    }
}

#[rstest]
#[case::changed(&[], false, true, 2)]
#[case::fleet_ignored_it_before(&[], true, true, 1)]
#[case::fleet_does_not_ignore_it(&[], false, false, 1)]
#[case::restored(&["Evict"], false, false, 0)]
fn what_an_older_version_changed_on_kubevirt_is_restored(
    #[case] now: &[&str],
    #[case] ignored: bool,
    #[case] ignores: bool,
    #[case] actions: usize,
) {
    let key = annotations::SAVED_WORKLOAD_UPDATE_METHODS;
    for end in [Success, Failure, Deletion] {
        let mut model = ending(end);
        note(
            &mut model,
            key,
            &json!({"methods": ["Evict"], "ignored": ignored}).to_string(),
        );
        model.observed.workload_update_methods = Some(now.iter().map(|method| (*method).to_owned()).collect());
        harvester(&mut model).ignores_methods = ignores;
        let decision = model.decide();
        assert_eq!(decision.actions.len(), actions, "{:?}", decision.actions);
        assert_eq!(notes(&decision, key).is_none(), actions == 0);
        assert_eq!(is_over(&decision), actions == 0);
    }
}

#[test]
fn what_an_upgrade_whose_plan_is_gone_noted_on_the_chart_counts() {
    let mut model = crate::small::in_phase(api::Phase::ImagePreloaded);
    let record = r#"{"methods": ["Evict"], "observedGeneration": 3, "paused": ["x"], "putBackAfter": 5}"#;
    harvester(&mut model).record = Some(record.to_owned());
    let saved: Value = serde_json::from_str(&notes(&model.decide(), SAVED).unwrap()).unwrap();
    assert_eq!(
        saved,
        json!({"methods": ["Evict"], "observedGeneration": 3, "paused": ["x"]})
    );
    harvester(&mut model).record = None;
    harvester(&mut model).paused = true;
    let other = model.observed.charts.values_mut().next_back().unwrap();
    (other.paused, other.paused_by) = (true, Some("uid".to_owned()));
    let saved: Value = serde_json::from_str(&notes(&model.decide(), SAVED).unwrap()).unwrap();
    assert_eq!(saved["observedGeneration"], 7);
    assert_eq!(
        saved["paused"].as_array().map(Vec::len),
        Some(1),
        "what a plan paused is its own affair: {saved}"
    );
}
