//! What the program writes, compared with the real definitions of foreign kinds.

use apiserver::Verb;
use rstest::rstest;
use testbed::Writes;

use super::{
    harness::{Harness, PROGRAM},
    objects,
};
use crate::STEPS;

/// What the program wrote so far of foreign kinds, where the real definitions are there.
fn written(harness: &Harness) -> Option<Writes> {
    let mut writes = Writes::begin()?;
    let history = harness.server.store().history().into_iter();
    let ours = history.filter(|write| write.user == PROGRAM);
    for write in ours.filter(|write| [Verb::Create, Verb::Update, Verb::Patch].contains(&write.verb)) {
        writes.add(&write.resource.group, &write.resource.plural, &write.sent);
    }
    Some(writes)
}

/// At the end of every test: no write was refused as invalid, and no field is unknown.
pub(super) fn check(harness: &Harness) {
    let history = harness.server.store().history().into_iter();
    let refused = history.filter(|write| [400, 422].contains(&write.code));
    let refused: Vec<String> = refused
        .map(|write| format!("{}: {}", write.resource, write.refusal.unwrap_or_default()))
        .collect();
    assert_eq!(refused, [""; 0]);
    let unknown = written(harness).map(|writes| writes.unknown());
    assert_eq!(unknown.unwrap_or_default(), [""; 0]);
}

#[rstest]
#[case::from_v1_7("v1.7.1", "v1.8.0")]
#[case::from_v1_8("v1.8.2-rc1", "v1.8.2")]
#[tokio::test(start_paused = true)]
async fn r01_all_steps_write_no_field_that_the_real_definitions_do_not_have(#[case] from: &str, #[case] to: &str) {
    let mut harness = Harness::of(objects::cluster(), from).await;
    harness.release = objects::RELEASE.replace("v1.8.0", to);
    harness.attempt().await.unwrap();
    let shown = harness.shown.lock().unwrap().clone();
    let steps = STEPS.iter().map(|step| step.name);
    let left_out: Vec<&str> = steps.filter(|step| !shown.contains(&format!("step {step}"))).collect();
    assert_eq!(left_out, [""; 0]);
    if let Some(writes) = written(&harness) {
        println!("from {from}: {}", writes.summary());
        for kind in [
            "addons.harvesterhci.io",
            "clusterrepos.catalog.cattle.io",
            "clusters.fleet.cattle.io",
            "clusters.provisioning.cattle.io",
            "helmchartconfigs.helm.cattle.io",
            "managedcharts.management.cattle.io",
            "plans.upgrade.cattle.io",
        ] {
            assert!(
                writes.kinds().iter().any(|written| written == kind),
                "{kind} was never written"
            );
        }
    }
}
