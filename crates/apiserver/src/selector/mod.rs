//! Which objects a list or watch is about. Pure predicates over JSON.

mod field;
mod label;

use serde_json::Value;

pub(crate) use field::FieldSelector;
pub(crate) use label::LabelSelector;

use crate::{kind::Kind, request::Query, status::ApiResult};

/// Label and field selector of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    namespace: Option<String>,
}

impl Selection {
    pub(crate) fn parse(kind: &Kind, namespace: Option<&str>, name: Option<&str>, query: &Query) -> ApiResult<Self> {
        let mut fields = FieldSelector::parse(kind, query.get("fieldSelector").unwrap_or_default())?;
        if let Some(name) = name {
            fields.require("metadata.name", name);
        }
        Ok(Self {
            labels: LabelSelector::parse(query.get("labelSelector").unwrap_or_default())?,
            fields,
            namespace: namespace.map(str::to_owned),
        })
    }

    /// Whether a stored object is selected.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|namespace| object["metadata"]["namespace"] == namespace)
            && self.labels.matches(&object["metadata"]["labels"])
            && self.fields.matches(object)
    }
}
