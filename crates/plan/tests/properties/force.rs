//! A user may let any version be upgraded to any other, by either switch.

use api::{Phase, annotations};

use crate::{
    model::Model,
    walk::{at, ended, until},
};

/// A cluster that is newer than the release of its plan.
fn downgrade() -> Model {
    let mut model = Model::new(1);
    model.seen.server_version = Some("v1.9.0".into());
    model
}

fn annotated(value: &str) -> Model {
    let mut model = downgrade();
    let annotations = model.seen.plan.metadata.annotations.get_or_insert_default();
    annotations.insert(annotations::SKIP_VERSION_CHECK.to_owned(), value.to_owned());
    model
}

#[test]
fn f15_the_manager_lets_pass_whom_the_nodes_let_pass() {
    let mut forced = downgrade();
    forced.seen.plan.spec.force = Some(true);
    for mut model in [forced, annotated("true")] {
        until(&mut model, at(Phase::ImagePreloaded));
        assert_eq!(model.phase(), Some(Phase::ImagePreloaded));
    }
    for mut model in [downgrade(), annotated("True")] {
        until(&mut model, ended);
        assert_eq!(model.phase(), Some(Phase::Failed));
    }
}
