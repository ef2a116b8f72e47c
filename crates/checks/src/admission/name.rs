//! The plan's own name. Ours: everything an upgrade creates carries it as a label, and the repository's Service is named
//! after it, so it must fit both.

use api::UpgradePlan;

use crate::{Cluster, FieldError};

/// Longest value of a label, in bytes.
const LABEL_LIMIT: usize = 63;
/// What the API server adds to a `generateName`, in bytes.
const GENERATED: usize = 5;

pub(super) fn fits_its_objects(plan: &UpgradePlan, _: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let (field, given, most) = match (&plan.metadata.name, &plan.metadata.generate_name) {
        (Some(name), _) if !name.is_empty() => ("metadata.name", name, LABEL_LIMIT),
        (_, Some(prefix)) => ("metadata.generateName", prefix, LABEL_LIMIT - GENERATED),
        _ => return Ok(Vec::new()),
    };
    let mut faults = Vec::new();
    if given.len() > most {
        let why = format!(
            "must be no more than {most} characters: the objects of the upgrade carry the plan's name as a label, and a label has at most {LABEL_LIMIT}"
        );
        faults.push(FieldError::invalid(field, given, &why));
    }
    if !begins_a_service_name(given) {
        let why = "must begin with a letter and have only lower-case letters, digits and '-': the Service of the upgrade \
                   repository is named after the plan";
        faults.push(FieldError::invalid(field, given, why));
    }
    Ok(faults)
}

/// What a Service's name may begin with. A plan's name may have dots and begin with a digit; a Service's may not.
fn begins_a_service_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(allowed)
}
