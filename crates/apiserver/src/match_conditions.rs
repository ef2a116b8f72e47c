//! `matchConditions` of webhooks: CEL expressions about a request, which all have to be true for the webhook to be called.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use kube::core::cel::{
    KubeCelExt,
    cel::{Context, ExecutionError, ParseErrors, Program, SerializationError, Value as CelValue},
};
use serde_json::Value;

use crate::status::{ApiError, ApiResult};

/// What conditions are about.
pub(crate) struct Subject<'a> {
    /// The request of a review, in which both objects are null: they may be large, and most conditions are about the user.
    pub(crate) request: &'a Value,
    pub(crate) object: Option<&'a Value>,
    pub(crate) old: Option<&'a Value>,
}

/// Whether a webhook is called. One false condition decides, whatever the errors of the others.
/// Otherwise a condition that cannot be evaluated counts like a webhook that is down.
pub(crate) fn hold(hook: &Value, subject: &Subject<'_>) -> ApiResult<bool> {
    let mut broken = None;
    for condition in hook["matchConditions"].as_array().into_iter().flatten() {
        match holds(condition, subject) {
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

/// How many compiled conditions are kept: more than the webhooks of a cluster have.
const KEPT: usize = 100;

/// What evaluating has in common, whatever is evaluated.
struct Evaluator {
    /// All functions, and no variable.
    functions: Context<'static>,
    compiled: RefCell<HashMap<String, Rc<Program>>>,
}

thread_local! {
    // To register all functions takes longer than to call some.
    static EVALUATOR: Evaluator = Evaluator {
        functions: Context::default().with_all(),
        compiled: RefCell::default(),
    };
}

impl Evaluator {
    fn program(&self, expression: &str) -> Result<Rc<Program>, ParseErrors> {
        let mut compiled = self.compiled.borrow_mut();
        if let Some(known) = compiled.get(expression) {
            return Ok(Rc::clone(known));
        }
        let program = Rc::new(Program::compile(expression)?);
        if compiled.len() >= KEPT {
            compiled.clear();
        }
        compiled.insert(expression.to_owned(), Rc::clone(&program));
        Ok(program)
    }

    fn holds(&self, expression: &str, subject: &Subject<'_>) -> Result<bool, CelError> {
        let program = self.program(expression)?;
        let mut context = self.functions.new_inner_scope();
        // Only what a condition names is made a value of it.
        let names = program.references();
        for (name, object) in [("object", subject.object), ("oldObject", subject.old)] {
            if names.has_variable(name) {
                context.add_variable(name, object.unwrap_or(&Value::Null))?;
            }
        }
        context.add_variable("request", subject.request)?;
        match program.execute(&context) {
            Ok(CelValue::Bool(holds)) => Ok(holds),
            Ok(_) => Err(CelError::NoBoolean),
            Err(error) => Err(error.into()),
        }
    }
}

fn holds(condition: &Value, subject: &Subject<'_>) -> Result<bool, CelError> {
    EVALUATOR.with(|evaluator| evaluator.holds(text(&condition["expression"]), subject))
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
        let request = json!({"userInfo": {"username": "jane", "groups": ["a"]}, "operation": "UPDATE"});
        let (object, old) = (json!({"spec": {"x": 1}}), json!({"spec": {"x": 2}}));
        let subject = Subject {
            request: &request,
            object: Some(&object),
            old: Some(&old),
        };
        hold(&hook, &subject).map_err(|error| error.message)
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
