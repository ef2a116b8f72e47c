//! The cases of creating a plan that upstream itself tests, one test a line.

use crate::support;
use serde_json::json;

use crate::support::{annotated, create, healthy, message, other, plan, plan_with, read};

#[test]
fn create_with_version_missing_is_an_error_that_names_spec_version() {
    let mut cluster = healthy(1);
    cluster.versions = Ok(Vec::new());
    assert_eq!(create(&plan(), &cluster), ["spec.version: Not found: \"v1.8.0\""]);
}

#[test]
fn create_with_image_and_no_version_says_nothing_about_spec_version() {
    let mut cluster = healthy(1);
    cluster.versions = Ok(Vec::new());
    let errors = create(&plan_with(json!({"image": "iso"})), &cluster);
    assert_eq!(errors, ["spec.image: Not found: \"iso\""]);
}

#[test]
fn create_with_version_on_a_healthy_cluster_of_one_node_is_allowed() {
    assert!(create(&plan(), &healthy(1)).is_empty());
}

#[test]
fn create_while_another_plan_progresses_is_an_error_that_names_it() {
    let mut cluster = healthy(1);
    cluster.plans = Ok(vec![other("older", "ImagePreloading", Some("True"))]);
    let refused = "spec: Forbidden: another upgrade \"older\" is in progress";
    assert_eq!(create(&plan(), &cluster), [refused]);
}

#[test]
fn create_with_force_while_another_plan_progresses_is_still_rejected() {
    let mut cluster = healthy(1);
    cluster.plans = Ok(vec![other("older", "ImagePreloading", Some("True"))]);
    let forced = plan_with(json!({"version": "v1.8.0", "force": true}));
    assert!(message(&forced, &cluster).contains("older"));
}

#[test]
fn create_with_a_plan_that_does_not_progress_is_allowed() {
    let mut cluster = healthy(1);
    cluster.plans = Ok(vec![other("older", "Succeeded", Some("False"))]);
    assert!(create(&plan(), &cluster).is_empty());
}

#[test]
fn create_with_a_plan_with_no_progressing_condition_is_allowed() {
    let mut cluster = healthy(1);
    cluster.plans = Ok(vec![other("older", "", None)]);
    assert!(create(&plan(), &cluster).is_empty());
}

#[test]
fn create_with_skip_webhook_on_an_empty_cluster_is_allowed() {
    let empty = checks::Cluster::empty();
    assert!(!create(&plan(), &empty).is_empty());
    assert!(create(&annotated(plan(), "skip-webhook", "true"), &empty).is_empty());
}

#[test]
fn create_with_a_node_that_is_not_ready_names_it() {
    let mut cluster = healthy(1);
    let mut node = support::node(1);
    node["status"]["conditions"][0]["status"] = json!("False");
    cluster.nodes = Ok(vec![read(node)]);
    assert_eq!(
        create(&plan(), &cluster),
        ["spec: Forbidden: node \"node-1\" is not Ready"]
    );
}

#[test]
fn create_with_an_unschedulable_node_names_it() {
    let mut cluster = healthy(1);
    let mut node = support::node(1);
    node["spec"]["unschedulable"] = json!(true);
    cluster.nodes = Ok(vec![read(node)]);
    assert_eq!(
        create(&plan(), &cluster),
        ["spec: Forbidden: node \"node-1\" is unschedulable"]
    );
}

#[test]
fn create_with_two_healthy_nodes_and_two_machines_is_allowed() {
    assert!(create(&plan(), &healthy(2)).is_empty());
}
