//! POST of reviews: who is this token, may they do that. Answered from the tables, never stored.

use serde_json::{Value, json};

use crate::{
    body,
    history::Verb,
    identity::Identity,
    rbac::{self, Question},
    request::Call,
    route::Answer,
    server::Server,
    status::{ApiError, ApiResult},
};

pub(crate) fn review(server: &Server, who: &Identity, call: &Call) -> ApiResult<Answer> {
    if call.verb != Verb::Create || call.target.name.is_some() {
        return Err(ApiError::method_not_allowed());
    }
    let mut value = body::parse(call)?;
    body::check_kind(call.kind(), &value)?;
    value["status"] = match call.kind().kind.as_str() {
        "TokenReview" => token_status(server, &value),
        "SelfSubjectAccessReview" => access_status(server, who, &value),
        "SelfSubjectRulesReview" => json!({"resourceRules": [], "nonResourceRules": [], "incomplete": true}),
        _ => access_status(server, &subject(&value), &value),
    };
    Ok(Answer::Value {
        code: 201,
        value,
        changed: false,
    })
}

fn token_status(server: &Server, review: &Value) -> Value {
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    match server.tokens().identity(token) {
        Some(who) => json!({"authenticated": true, "user": {"username": who.user, "groups": who.groups}}),
        None => json!({"error": "invalid bearer token", "user": {}}),
    }
}

fn subject(review: &Value) -> Identity {
    let groups = review["spec"]["groups"].as_array().into_iter().flatten();
    Identity {
        user: review["spec"]["user"].as_str().unwrap_or_default().to_owned(),
        groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
    }
}

fn access_status(server: &Server, who: &Identity, review: &Value) -> Value {
    let resource = &review["spec"]["resourceAttributes"];
    let other = &review["spec"]["nonResourceAttributes"];
    let text = |value: &'static str| resource[value].as_str().unwrap_or_default();
    let question = if resource.is_object() {
        Question {
            verb: text("verb"),
            group: text("group"),
            resource: text("resource"),
            subresource: resource["subresource"].as_str().filter(|text| !text.is_empty()),
            namespace: text("namespace"),
            name: text("name"),
            path: None,
        }
    } else {
        Question {
            verb: other["verb"].as_str().unwrap_or_default(),
            path: Some(other["path"].as_str().unwrap_or_default()),
            ..Question::default()
        }
    };
    // Without RBAC everything is allowed, and that is what a review must say.
    let allowed = !server.config.enforce_rbac || rbac::allows(&server.store, who, &question);
    if allowed {
        json!({"allowed": true, "reason": "RBAC: allowed"})
    } else {
        json!({"allowed": false, "reason": rbac::refusal(who, &question)})
    }
}
