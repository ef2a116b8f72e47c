//! Certificates of the API servers: none ends during the upgrade.

use api::annotations;
use rules::room;

use super::{Found, Question, missing};
use crate::finding::{Missing, ObjectRef};

/// The same rule as in the manager's own checks.
pub(super) fn last(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let Some(days) = question.plan.certificate_days().filter(|days| *days > 0) else {
        let why = format!(
            "annotation {} is no whole number above 0",
            annotations::MIN_CERTS_EXPIRATION_IN_DAY
        );
        return Ok(vec![Found::new(why)]);
    };
    let certificates = &question.snapshot.certificates;
    let ends: Vec<_> = certificates
        .iter()
        .filter_map(|(address, end)| Some((address, *end.as_ref().ok()?)))
        .collect();
    let Some((_, earliest)) = ends.iter().min_by_key(|(_, end)| *end) else {
        let why = certificates
            .values()
            .find_map(|end| end.as_ref().err().map(ToString::to_string));
        return Err(missing(
            "certificates",
            &why.unwrap_or_else(|| "no API server was asked".to_owned()),
        ));
    };
    let now = question.snapshot.taken_at;
    let short = ends.iter().filter(|(_, end)| room::ends_within(*end, days, now));
    let short: Vec<ObjectRef> = short
        .map(|(address, _)| ObjectRef::new("Endpoint", None, address))
        .collect();
    if short.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![Found::new(room::certificate_text(*earliest, now)).about(short)])
}
