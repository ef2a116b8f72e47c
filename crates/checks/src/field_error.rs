//! One error of one field, with the wording of Kubernetes' own field errors.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The field that Kubernetes prints for a path built from an empty name. Lists that fail are reported there.
const NO_FIELD: &str = "[]";

/// What kind of wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorType {
    /// The field is missing.
    Required,
    /// The field names something that does not exist.
    NotFound,
    /// The field has a value it may not have.
    Invalid,
    /// Not now, or not like this.
    Forbidden,
    /// The check itself failed.
    Internal,
}

impl ErrorType {
    /// The text in messages.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::NotFound => "Not found",
            Self::Invalid => "Invalid value",
            Self::Forbidden => "Forbidden",
            Self::Internal => "Internal error",
        }
    }

    /// The reason in `details.causes`.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::NotFound => "FieldValueNotFound",
            Self::Invalid => "FieldValueInvalid",
            Self::Forbidden => "FieldValueForbidden",
            Self::Internal => "InternalError",
        }
    }
}

/// One error of one field. Prints as `<field>: <type>[: "<value>"][: <detail>]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    /// Path of the field.
    pub field: String,
    /// What kind of wrong.
    pub type_: ErrorType,
    /// The value, where it is part of the message.
    pub value: Option<String>,
    /// The rest of the message; may be empty.
    pub detail: String,
}

impl FieldError {
    /// The field is missing.
    #[must_use]
    pub fn required(field: &str, detail: &str) -> Self {
        Self::new(field, ErrorType::Required, None, detail.to_owned())
    }

    /// What the field names does not exist.
    #[must_use]
    pub fn not_found(field: &str, value: &str) -> Self {
        Self::new(field, ErrorType::NotFound, Some(value), String::new())
    }

    /// The field has a value it may not have.
    #[must_use]
    pub fn invalid(field: &str, value: &str, detail: &str) -> Self {
        Self::new(field, ErrorType::Invalid, Some(value), detail.to_owned())
    }

    /// Not now, or not like this.
    #[must_use]
    pub fn forbidden(field: &str, detail: impl Into<String>) -> Self {
        Self::new(field, ErrorType::Forbidden, None, detail.into())
    }

    /// The check itself failed, over one field.
    #[must_use]
    pub fn internal(field: &str, detail: impl Into<String>) -> Self {
        Self::new(field, ErrorType::Internal, None, detail.into())
    }

    /// A list failed that the check needs.
    #[must_use]
    pub fn not_listed(what: &str, error: &str) -> Self {
        Self::internal(NO_FIELD, format!("failed to list {what}: {error}"))
    }

    fn new(field: &str, type_: ErrorType, value: Option<&str>, detail: String) -> Self {
        Self {
            field: field.to_owned(),
            type_,
            value: value.map(str::to_owned),
            detail,
        }
    }

    /// The message without the field, as in `details.causes`.
    #[must_use]
    pub fn body(&self) -> String {
        let mut text = self.type_.text().to_owned();
        if let Some(value) = &self.value {
            text.push_str(&format!(": {value:?}"));
        }
        if !self.detail.is_empty() {
            text.push_str(&format!(": {}", self.detail));
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_prints_as_kubernetes_prints_it() {
        let shown = |error: FieldError| error.to_string();
        assert_eq!(
            shown(FieldError::required("spec.version", "must be set")),
            "spec.version: Required value: must be set"
        );
        assert_eq!(
            shown(FieldError::not_found("spec.image", "iso")),
            "spec.image: Not found: \"iso\""
        );
        assert_eq!(
            shown(FieldError::invalid("spec.image", "a/b", "must be plain")),
            "spec.image: Invalid value: \"a/b\": must be plain"
        );
        assert_eq!(
            shown(FieldError::forbidden("spec", "not now")),
            "spec: Forbidden: not now"
        );
        assert_eq!(
            shown(FieldError::not_listed("nodes", "timed out")),
            "[]: Internal error: failed to list nodes: timed out"
        );
    }
}
