//! `matchConditions` of webhooks: CEL expressions about a request, which all have to be true for the webhook to be called.

use kube::core::cel::{
    KubeCelExt,
    cel::{Context, ExecutionError, ParseErrors, Program, SerializationError, Value as CelValue},
};
use serde_json::{Map, Value};

use crate::status::{ApiError, ApiResult};

/// Whether a webhook is called. One false condition decides, whatever the errors of the others.
/// Otherwise a condition that cannot be evaluated counts like a webhook that is down.
pub(crate) fn hold(hook: &Value, review: &Value) -> ApiResult<bool> {
    let mut broken = None;
    for condition in hook["matchConditions"].as_array().into_iter().flatten() {
        match holds(condition, &review["request"]) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => broken = Some((condition, why)),
        }
    }
    match broken {
        None => Ok(true),
        Some(_) if hook["failurePolicy"] == "Ignore" => Ok(false),
        Some((condition, why)) => {
            let (hook, condition) = (text(&hook["name"]), text(&condition["name"]));
            let why = format!("matchCondition \"{condition}\" of webhook \"{hook}\" cannot be evaluated: {why}");
            Err(ApiError::new(403, "Forbidden", why))
        }
    }
}

/// What a request has besides what it is: each is a variable of its own.
const OBJECTS: [&str; 2] = ["object", "oldObject"];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Why a condition cannot be evaluated.
#[derive(Debug, thiserror::Error)]
enum CelError {
    /// It is no expression.
    #[error("{0}")]
    Syntax(#[from] ParseErrors),
    /// It cannot be determined what it is about.
    #[error("{0}")]
    Variable(#[from] SerializationError),
    /// It asks for what is not there.
    #[error("{0}")]
    Execution(#[from] ExecutionError),
    /// It has another value than a condition has.
    #[error("it is neither true nor false")]
    NoBoolean,
}

fn holds(condition: &Value, request: &Value) -> Result<bool, CelError> {
    let expression = text(&condition["expression"]);
    let program = Program::compile(expression)?;
    let mut context = Context::default();
    context.register_all();
    // Objects may be large, and most conditions are about the user: only what a condition names is made a value of it.
    let names = program.references();
    for name in OBJECTS {
        if names.has_variable(name) {
            context.add_variable(name, request[name].clone())?;
        }
    }
    let about = request.as_object().into_iter().flatten();
    let about = about.map(|(name, value)| match OBJECTS.contains(&name.as_str()) {
        true => (name.clone(), Value::Null),
        false => (name.clone(), value.clone()),
    });
    let about: Map<String, Value> = about.collect();
    context.add_variable("request", about)?;
    match program.execute(&context) {
        Ok(CelValue::Bool(holds)) => Ok(holds),
        Ok(_) => Err(CelError::NoBoolean),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(policy: &str, expressions: &[&str]) -> Result<bool, String> {
        let conditions: Vec<Value> = expressions
            .iter()
            .map(|expression| json!({"name": "c", "expression": expression}))
            .collect();
        let hook = json!({"name": "h", "failurePolicy": policy, "matchConditions": conditions});
        let review = json!({"request": {"userInfo": {"username": "jane", "groups": ["a"]}, "operation": "UPDATE",
            "object": {"spec": {"x": 1}}, "oldObject": {"spec": {"x": 2}}}});
        hold(&hook, &review).map_err(|error| error.message)
    }

    #[test]
    fn all_have_to_hold_and_one_that_does_not_settles_it() {
        let jane = "request.userInfo.username == 'jane'";
        let other = "request.userInfo.username != 'jane'";
        assert_eq!(asked("Fail", &[]), Ok(true));
        assert_eq!(asked("Fail", &[jane, "object.spec.x < oldObject.spec.x"]), Ok(true));
        assert_eq!(asked("Fail", &[jane, other]), Ok(false));
        assert_eq!(asked("Fail", &["request.nothing.at.all", other]), Ok(false));
    }

    #[test]
    fn what_cannot_be_evaluated_is_a_webhook_that_fails() {
        for broken in ["request.nothing.at.all", "request.", "'text'"] {
            assert_eq!(asked("Ignore", &[broken]), Ok(false));
            assert!(
                asked("Fail", &[broken]).unwrap_err().contains("cannot be evaluated"),
                "{broken}"
            );
        }
    }
}
