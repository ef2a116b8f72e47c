//! The audit log of the API server: who asked for what, and how it was answered.

use std::{collections::BTreeMap, path::Path};

use jiff::Timestamp;
use serde::Deserialize;

use crate::Error;

/// A request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asked.
    pub user: String,
    /// With which program.
    pub agent: String,
    /// `get`, `list`, `watch`, `create` …
    pub verb: String,
    /// Plural, with its subresource behind a slash; empty for what is no resource.
    pub resource: String,
    /// Empty for what is in none.
    pub namespace: String,
    /// Empty where no single object was asked for.
    pub name: String,
    /// The HTTP status code.
    pub code: u16,
    /// When it came in.
    pub received: Timestamp,
    /// When it was answered; the log is in this order.
    pub answered: Timestamp,
}

impl Request {
    /// Reads one line of the log; nothing when it is not whole.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        parse(line)
    }

    /// The request was to change something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    /// The request was done.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

/// What requests are counted by: agent, verb, resource, code.
pub type Tally = BTreeMap<(String, String, String, u16), usize>;

/// Counts requests.
#[must_use]
pub fn tally(requests: &[Request]) -> Tally {
    let mut tally = Tally::new();
    for request in requests {
        let key = (
            request.agent.clone(),
            request.verb.clone(),
            request.resource.clone(),
            request.code,
        );
        *tally.entry(key).or_default() += 1;
    }
    tally
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: Reference,
    #[serde(default)]
    response_status: Outcome,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reference {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Outcome {
    code: u16,
}

/// All requests so far, in order. A line that is only half written is left for the next time.
pub(crate) fn read(path: &Path) -> Result<Vec<Request>, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Audit {
        path: path.to_owned(),
        source,
    })?;
    Ok(text.lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Request> {
    let line: Line = serde_json::from_str(line).ok()?;
    let Reference {
        mut resource,
        subresource,
        namespace,
        name,
    } = line.object_ref;
    if !subresource.is_empty() {
        resource = format!("{resource}/{subresource}");
    }
    Some(Request {
        user: line.user.username,
        agent: line.user_agent,
        verb: line.verb,
        resource,
        namespace,
        name,
        code: line.response_status.code,
        received: line.request_received_timestamp,
        answered: line.stage_timestamp,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete",
        "requestURI":"/x","verb":"patch","user":{"username":"me","groups":["g"]},"userAgent":"manager",
        "objectRef":{"resource":"upgradeplans","name":"up","apiGroup":"management.harvesterhci.io","subresource":"status"},
        "responseStatus":{"metadata":{},"code":409},
        "requestReceivedTimestamp":"2026-03-13T03:57:09.100000Z","stageTimestamp":"2026-03-13T03:57:09.250000Z"}"#;

    #[test]
    fn a_request_records_who_requested_what_and_how_it_ended() {
        let request = parse(&LINE.replace('\n', "")).unwrap();
        assert_eq!(request.resource, "upgradeplans/status");
        assert!(request.is_write() && !request.succeeded());
        assert_eq!(request.answered.duration_since(request.received).as_millis(), 150);
        let counted = tally(&[request.clone(), request]);
        let key = (
            "manager".to_owned(),
            "patch".to_owned(),
            "upgradeplans/status".to_owned(),
            409,
        );
        assert_eq!(counted, Tally::from([(key, 2)]));
    }

    #[test]
    fn half_a_line_is_left_for_the_next_time() {
        assert_eq!(parse(&LINE[..40]), None);
    }
}
