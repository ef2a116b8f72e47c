//! What the API says when it refuses: `Status` errors in the wording of the real server.
//! Builds errors only; knows nothing of the store or of HTTP bodies.

use serde_json::{Value, json};

use crate::kind::Kind;

/// A refusal: becomes a `Status` body with this code.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    /// HTTP status code.
    pub(crate) code: u16,
    /// Machine-readable reason (`NotFound`, `Conflict` …).
    pub(crate) reason: String,
    /// Text for users.
    pub(crate) message: String,
    /// The `details` of the Status, when there are any.
    pub(crate) details: Option<Box<Value>>,
}

/// Result of anything a request can ask for.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// An error with nothing but code, reason and text.
    pub(crate) fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
        }
    }

    fn about(mut self, kind: &Kind, name: &str) -> Self {
        let mut details = json!({});
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        if !kind.group.is_empty() {
            details["group"] = json!(kind.group);
        }
        details["kind"] = json!(kind.plural);
        self.details = Some(Box::new(details));
        self
    }

    /// 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 404 for an unknown path.
    pub(crate) fn no_such_path() -> Self {
        let mut error = Self::new(404, "NotFound", "the server could not find the requested resource");
        error.details = Some(Box::new(json!({})));
        error
    }

    /// 404 for an object.
    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.qualified())).about(kind, name)
    }

    /// 404 for a namespace that an object should go into.
    pub(crate) fn namespace_not_found(name: &str) -> Self {
        let mut error = Self::new(404, "NotFound", format!("namespaces \"{name}\" not found"));
        error.details = Some(Box::new(json!({"name": name, "kind": "namespaces"})));
        error
    }

    /// 405.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut error = Self::new(405, "MethodNotAllowed", message);
        error.details = Some(Box::new(json!({})));
        error
    }

    /// 406.
    pub(crate) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, application/yaml, application/json;stream=watch";
        Self::new(406, "NotAcceptable", message)
    }

    /// 409 on create.
    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} \"{name}\" already exists", kind.qualified()),
        )
        .about(kind, name)
    }

    /// 409 for a stale resourceVersion.
    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// 409 for any other reason.
    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            kind.qualified()
        );
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// The same in other words.
    pub(crate) fn with_message(self, message: String) -> Self {
        Self { message, ..self }
    }

    /// 410.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413.
    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 415 with the media types that would have been taken.
    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 422 with one cause per field.
    pub(crate) fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> Self {
        let texts: Vec<String> = errors.iter().map(FieldError::text).collect();
        let listed = if texts.len() == 1 {
            texts.concat()
        } else {
            format!("[{}]", texts.join(", "))
        };
        let subject = if kind.group.is_empty() {
            kind.kind.clone()
        } else {
            format!("{}.{}", kind.kind, kind.group)
        };
        let mut error = Self::new(422, "Invalid", format!("{subject} \"{name}\" is invalid: {listed}"));
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({"reason": e.reason, "message": e.message, "field": e.field}))
            .collect();
        let mut details = json!({});
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        if !kind.group.is_empty() {
            details["group"] = json!(kind.group);
        }
        details["kind"] = json!(kind.kind);
        details["causes"] = Value::Array(causes);
        error.details = Some(Box::new(details));
        error
    }

    /// 403 about one object or a collection.
    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let subject = if name.is_empty() {
            String::new()
        } else {
            format!(" \"{name}\"")
        };
        Self::new(
            403,
            "Forbidden",
            format!("{}{subject} is forbidden: {why}", kind.qualified()),
        )
        .about(kind, name)
    }

    /// What the real server says where it does not translate an error of its own: 500 and the bare text.
    pub(crate) fn untranslated(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 422 for a patch that cannot be applied.
    pub(crate) fn inapplicable_patch() -> Self {
        let message = "the server rejected our request due to an error in our request";
        let mut error = Self::new(422, "Invalid", message);
        error.details = Some(Box::new(json!({})));
        error
    }

    /// 422 about a parameter of the request, which the real server reads as an object of kind `CreateOptions` or alike.
    pub(crate) fn invalid_option(options: &str, error: &FieldError) -> Self {
        let mut refusal = Self::new(
            422,
            "Invalid",
            format!("{options}.meta.k8s.io \"\" is invalid: {}", error.text()),
        );
        let cause = json!({"reason": error.reason, "message": error.message, "field": error.field});
        refusal.details = Some(Box::new(
            json!({"group": "meta.k8s.io", "kind": options, "causes": [cause]}),
        ));
        refusal
    }

    /// 422 for what a patch makes of an object; the real server does not say which.
    pub(crate) fn invalid_patch(error: &FieldError) -> Self {
        let mut refusal = Self::new(422, "Invalid", format!(" \"\" is invalid: {}", error.text()));
        let cause = json!({"reason": error.reason, "message": error.message, "field": error.field});
        refusal.details = Some(Box::new(json!({"causes": [cause]})));
        refusal
    }

    /// 500.
    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// The `Status` object that clients get.
    pub(crate) fn body(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = (**details).clone();
        }
        status["code"] = json!(self.code);
        status
    }
}

/// One error of one field, as in `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// Path of the field (`spec.version`); empty for the object itself.
    pub(crate) field: String,
    /// `FieldValueRequired`, `FieldValueInvalid` …
    pub(crate) reason: String,
    /// Text without the field.
    pub(crate) message: String,
}

impl FieldError {
    fn new(field: &str, reason: &str, message: String) -> Self {
        // The real server writes `<nil>` where an error concerns the whole object.
        let field = if field.is_empty() { "<nil>" } else { field };
        Self {
            field: field.into(),
            reason: reason.into(),
            message,
        }
    }

    /// CEL rules could stumble over a value as wrong as this.
    pub(crate) fn blocks_rules(&self) -> bool {
        matches!(
            self.reason.as_str(),
            "FieldValueNotSupported"
                | "FieldValueRequired"
                | "FieldValueTooLong"
                | "FieldValueTooMany"
                | "FieldValueTypeInvalid"
        )
    }

    /// Said when CEL rules were not looked at.
    pub(crate) fn rules_unchecked() -> Self {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                      complete validation";
        Self::invalid("", &Value::Null, detail)
    }

    fn text(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }

    /// The field is missing.
    pub(crate) fn required(field: &str, detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Required value".into()
        } else {
            format!("Required value: {detail}")
        };
        Self::new(field, "FieldValueRequired", message)
    }

    /// The field has a value it may not have.
    pub(crate) fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        Self::new(
            field,
            "FieldValueInvalid",
            format!("Invalid value: {}: {detail}", shown(value)),
        )
    }

    /// The field is of the wrong type.
    pub(crate) fn wrong_type(field: &str, value: &Value, detail: &str) -> Self {
        Self::new(
            field,
            "FieldValueTypeInvalid",
            format!("Invalid value: {}: {detail}", shown(value)),
        )
    }

    /// The field's value is not one of a list.
    pub(crate) fn unsupported(field: &str, value: &Value, allowed: &[Value]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(shown).collect();
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            shown(value),
            allowed.join(", ")
        );
        Self::new(field, "FieldValueNotSupported", message)
    }

    /// An entry of a set or map occurs twice.
    pub(crate) fn duplicate(field: &str, value: &Value) -> Self {
        Self::new(
            field,
            "FieldValueDuplicate",
            format!("Duplicate value: {}", shown(value)),
        )
    }

    /// The text is longer than allowed.
    pub(crate) fn too_long(field: &str, most: u64) -> Self {
        let plural = if most == 1 { "byte" } else { "bytes" };
        Self::new(
            field,
            "FieldValueTooLong",
            format!("Too long: may not be more than {most} {plural}"),
        )
    }

    /// The list or map has more entries than allowed.
    pub(crate) fn too_many(field: &str, actual: usize, most: u64) -> Self {
        let plural = if most == 1 { "item" } else { "items" };
        Self::new(
            field,
            "FieldValueTooMany",
            format!("Too many: {actual}: must have at most {most} {plural}"),
        )
    }

    /// The change is not allowed.
    pub(crate) fn forbidden(field: &str, detail: &str) -> Self {
        Self::new(field, "FieldValueForbidden", format!("Forbidden: {detail}"))
    }

    /// An error whose reason and text come from elsewhere (CEL rules).
    pub(crate) fn other(field: &str, reason: &str, message: String) -> Self {
        Self::new(field, reason, message)
    }
}

/// A value as the real server prints it inside messages.
fn shown(value: &Value) -> String {
    value.to_string()
}
