//! The parameters of `pods/log`, read and checked as the real server does. Looks at no pod.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{
    kind::Kind,
    logs::Wanted,
    request::{Call, Query},
    status::{ApiError, ApiResult, FieldError},
};

/// `PodLogOptions`.
#[derive(Debug)]
pub(super) struct LogOptions {
    pub(super) container: Option<String>,
    pub(super) follow: bool,
    pub(super) previous: bool,
    timestamps: bool,
    since_seconds: Option<i64>,
    since_time: Option<Timestamp>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
}

impl LogOptions {
    /// The options of a request.
    pub(super) fn of(call: &Call) -> ApiResult<Self> {
        let query = &call.query;
        let options = Self {
            container: query.get("container").map(str::to_owned),
            follow: is_set(query, "follow"),
            previous: is_set(query, "previous"),
            timestamps: is_set(query, "timestamps"),
            since_seconds: number(query, "sinceSeconds")?,
            since_time: time(query, "sinceTime")?,
            tail_lines: number(query, "tailLines")?,
            limit_bytes: number(query, "limitBytes")?,
        };
        let mut errors = options.errors();
        // Its feature gate is off by default.
        if query.has("stream") {
            errors.push(FieldError::forbidden("stream", "may not be specified"));
        }
        if errors.is_empty() {
            return Ok(options);
        }
        let kind = Kind {
            kind: "PodLogOptions".to_owned(),
            ..(**call.kind()).clone()
        };
        Err(ApiError::invalid(&kind, call.name(), &errors))
    }

    fn errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(lines) = self.tail_lines.filter(|lines| *lines < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid("tailLines", &json!(lines), why));
        }
        let mut positive = |field: &str, value: Option<i64>| {
            if let Some(value) = value.filter(|value| *value < 1) {
                errors.push(FieldError::invalid(field, &json!(value), "must be greater than 0"));
            }
        };
        positive("limitBytes", self.limit_bytes);
        if self.since_seconds.is_some() && self.since_time.is_some() {
            // How the real server writes a path without a name.
            let path = "[]";
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.push(FieldError::forbidden(path, why));
        } else {
            positive("sinceSeconds", self.since_seconds);
        }
        errors
    }

    /// What is to be read, at a time.
    pub(super) fn wanted(&self, now: Timestamp) -> Wanted {
        let ago = |seconds| {
            now.saturating_sub(SignedDuration::from_secs(seconds))
                .unwrap_or(Timestamp::MIN)
        };
        Wanted {
            tail: self.tail_lines.and_then(|lines| lines.try_into().ok()),
            since: self.since_seconds.map(ago).or(self.since_time),
            timestamps: self.timestamps,
            limit: self.limit_bytes.and_then(|bytes| bytes.try_into().ok()),
        }
    }

    /// The same for a kubelet: the query of the request that the API server sends to it.
    pub(super) fn kubelet_query(&self) -> String {
        let set = |name: &str, is_set: bool| is_set.then(|| format!("{name}=true"));
        let given = |name: &str, value: Option<i64>| value.map(|value| format!("{name}={value}"));
        let since = self.since_time.map(|time| {
            let time = time.to_string().replace(':', "%3A");
            format!("sinceTime={time}")
        });
        let parameters = [
            set("follow", self.follow),
            given("limitBytes", self.limit_bytes),
            set("previous", self.previous),
            given("sinceSeconds", self.since_seconds),
            since,
            given("tailLines", self.tail_lines),
            set("timestamps", self.timestamps),
        ];
        let parameters: Vec<String> = parameters.into_iter().flatten().collect();
        if parameters.is_empty() {
            String::new()
        } else {
            format!("?{}", parameters.join("&"))
        }
    }
}

/// Whatever is neither `false` nor `0` is true, also nothing.
fn is_set(query: &Query, key: &str) -> bool {
    query
        .raw(key)
        .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

fn number(query: &Query, key: &str) -> ApiResult<Option<i64>> {
    let Some(text) = query.raw(key) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        let why = format!("strconv.ParseInt: parsing \"{text}\": invalid syntax");
        ApiError::bad_request(why)
    })
}

/// A time; the API server hands it to the kubelet in whole seconds.
fn time(query: &Query, key: &str) -> ApiResult<Option<Timestamp>> {
    let Some(text) = query.get(key).filter(|text| *text != "null") else {
        return Ok(None);
    };
    let refused = || {
        let why =
            format!("parsing time \"{text}\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"{text}\" as \"2006\"");
        ApiError::bad_request(why)
    };
    let time: Timestamp = text.parse().map_err(|_| refused())?;
    let seconds = time.as_nanosecond().div_euclid(1_000_000_000);
    let seconds = i64::try_from(seconds).map_err(|_| refused())?;
    Timestamp::from_second(seconds).map(Some).map_err(|_| refused())
}
