//! The plan's own name. Ours: everything an upgrade creates carries it as a label, so it must fit one.

use api::UpgradePlan;

use crate::{Cluster, FieldError};

/// Longest value of a label, in bytes.
const LABEL_LIMIT: usize = 63;
/// What the API server adds to a `generateName`, in bytes.
const GENERATED: usize = 5;

pub(super) fn fits_a_label(plan: &UpgradePlan, _: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let (field, given, most) = match (&plan.metadata.name, &plan.metadata.generate_name) {
        (Some(name), _) if !name.is_empty() => ("metadata.name", name, LABEL_LIMIT),
        (_, Some(prefix)) => ("metadata.generateName", prefix, LABEL_LIMIT - GENERATED),
        _ => return Ok(Vec::new()),
    };
    if given.len() <= most {
        return Ok(Vec::new());
    }
    let why = format!(
        "must be no more than {most} characters: the objects of the upgrade carry the plan's name as a label, and a label holds {LABEL_LIMIT}"
    );
    Ok(vec![FieldError::invalid(field, given, &why)])
}
