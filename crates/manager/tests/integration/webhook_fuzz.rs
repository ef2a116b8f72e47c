//! Whatever comes in, an answer goes out: arbitrary JSON, arbitrary bytes, arbitrary annotations.

use crate::support;
use api::image::Sources;
use checks::{
    Cluster,
    admission::powers::{Asker, Power},
};
use manager::webhook::{review::Review, server};
use plan::observed::Settings;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        let key = prop_oneof![
            Just("metadata".to_owned()),
            Just("name".to_owned()),
            Just("annotations".to_owned()),
            Just("spec".to_owned()),
            Just("status".to_owned()),
            Just("conditions".to_owned()),
            Just("version".to_owned()),
            Just("image".to_owned()),
            Just("nodeUpgradeOption".to_owned()),
            Just("pauseNodes".to_owned()),
            Just("type".to_owned()),
            ".*",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6).prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

/// Both webhooks answer, and say yes or no; a no has a code and a reason.
fn answers(body: &[u8]) -> Result<Value, TestCaseError> {
    let mut last = Value::Null;
    let asker = Asker {
        name: "alice".to_owned(),
        powers: Ok(Power::ALL.into_iter().collect()),
    };
    let sources = Sources {
        own: Settings::default().own_image,
        others: Vec::new(),
    };
    for cluster in [Cluster::empty(), Cluster::unknown("no route")] {
        let validated = match Review::read(body) {
            Ok(review) => review.validate(&cluster, &asker, &sources),
            Err(answer) => *answer,
        };
        for answer in [server::mutate(body, support::beginning()), validated] {
            let answer = serde_json::to_value(answer).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let response = &answer["response"];
            if response["allowed"] != true {
                let status = &response["status"];
                prop_assert!(status["code"] == 400 || status["code"] == 422, "{answer}");
                prop_assert!(!status["message"].as_str().unwrap_or_default().is_empty(), "{answer}");
            }
            last = response.clone();
        }
    }
    Ok(last)
}

proptest! {
    #[test]
    fn any_bytes_are_answered(body in prop::collection::vec(any::<u8>(), 0..512)) {
        prop_assert_eq!(&answers(&body)?["allowed"], false);
    }

    #[test]
    fn any_json_is_answered(body in any_json()) {
        prop_assert_eq!(&answers(body.to_string().as_bytes())?["allowed"], false);
    }

    #[test]
    fn any_request_is_answered(request in any_json(), uid in ".*") {
        let mut body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        if let Some(request) = body["request"].as_object_mut() {
            request.insert("uid".to_owned(), json!(uid));
            prop_assert_eq!(&answers(body.to_string().as_bytes())?["uid"], &json!(uid));
        } else {
            answers(body.to_string().as_bytes())?;
        }
    }

    #[test]
    fn any_object_is_answered(
        object in any_json(), old in any_json(), operation in prop::sample::select(vec!["CREATE", "UPDATE", "DELETE", "CONNECT", "?"]),
    ) {
        let review = support::review(operation, object, old);
        prop_assert_eq!(&answers(review.to_string().as_bytes())?["uid"], "705ab4f5");
    }

    #[test]
    fn any_specification_is_answered(spec in any_json(), status in any_json()) {
        let mut plan = support::plan();
        plan["spec"] = spec;
        plan["status"] = status;
        for operation in ["CREATE", "UPDATE", "DELETE"] {
            answers(support::review(operation, plan.clone(), plan.clone()).to_string().as_bytes())?;
        }
    }

    #[test]
    fn any_value_of_an_annotation_is_answered_and_only_true_means_true(value in ".*") {
        let mut plan = support::plan();
        let ours = ["skip-webhook", "skip-single-replica-detached-vol", "allow-deletion",
            "skip-garbage-collection-threshold-check", "min-certs-expiration-in-day", "upgrade-toolkit-image", "retry"];
        for key in ours {
            plan["metadata"]["annotations"][format!("management.harvesterhci.io/{key}")] = json!(value);
        }
        let created = answers(support::review("CREATE", plan.clone(), json!(null)).to_string().as_bytes())?;
        prop_assert_eq!(created["allowed"] == true, value == "true");
        plan["status"] = json!({"currentPhase": value, "conditions": [{"type": "Progressing", "status": "True",
            "reason": "R", "message": "", "lastTransitionTime": "2026-03-13T03:57:09Z"}]});
        let deleted = answers(support::review("DELETE", json!(null), plan).to_string().as_bytes())?;
        prop_assert_eq!(deleted["allowed"] == true, value == "true");
    }

    #[test]
    fn any_names_are_answered_each_by_itself(names in prop::collection::vec(".*", 0..8), image in prop::option::of(".*")) {
        let mut plan = support::plan();
        plan["spec"]["nodeUpgradeOption"] = json!({"pauseNodes": names});
        plan["spec"]["image"] = json!(image);
        answers(support::review("CREATE", plan.clone(), json!(null)).to_string().as_bytes())?;
        let updated = answers(support::review("UPDATE", plan, support::plan()).to_string().as_bytes())?;
        prop_assert_eq!(updated["allowed"] == true, names.is_empty());
    }
}

#[test]
fn a_review_nested_beyond_reason_is_answered() {
    let deep = "[".repeat(100_000);
    let Err(answer) = Review::read(deep.as_bytes()) else {
        panic!("that is no review");
    };
    assert_eq!(answer.response.unwrap().result.code, 400);
}
