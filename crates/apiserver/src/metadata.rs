//! Rules of `metadata` that hold for every kind: names, labels, finalizers, owners. Pure.

use serde_json::Value;

use crate::{kind::Kind, status::FieldError};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
    with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn is_dns_label(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    ends(text.chars().next())
        && ends(text.chars().last())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn is_qualified_part(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next())
        && ends(text.chars().last())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn longer(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

/// What is wrong with a name of this kind. `prefix`: a `generateName`, which may end in a dash.
fn name_faults(kind: &Kind, name: &str, prefix: bool) -> Vec<String> {
    let subject = if prefix { name.trim_end_matches('-') } else { name };
    // `generateName: "-"` has nothing before its dash.
    let subject = if prefix && subject.is_empty() { "a" } else { subject };
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("rbac.authorization.k8s.io", _) => match subject {
            "." | ".." => vec![format!("may not be '{subject}'")],
            _ if subject.contains('/') => vec!["may not contain '/'".into()],
            _ if subject.contains('%') => vec!["may not contain '%'".into()],
            _ => Vec::new(),
        },
        ("", "services") => {
            let starts = subject.chars().next().is_some_and(|c| c.is_ascii_lowercase());
            label_faults(subject, starts && is_dns_label(subject), LABEL_1035)
        }
        ("", "namespaces") => label_faults(subject, is_dns_label(subject), LABEL),
        _ => {
            let mut faults = Vec::new();
            if subject.len() > 253 {
                faults.push(longer(253));
            }
            if !subject.split('.').all(is_dns_label) {
                faults.push(SUBDOMAIN.into());
            }
            faults
        }
    }
}

fn label_faults(text: &str, fits: bool, message: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push(longer(63));
    }
    if !fits {
        faults.push(message.into());
    }
    faults
}

/// What is wrong with a key of labels or annotations.
pub(crate) fn key_faults(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let mut faults = Vec::new();
    match prefix {
        Some("") => faults.push("prefix part must be non-empty".into()),
        Some(prefix) if !prefix.split('.').all(is_dns_label) => faults.push(format!("prefix part {SUBDOMAIN}")),
        _ => {}
    }
    if name.is_empty() {
        faults.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        faults.push(format!("name part {}", longer(63)));
    }
    if !is_qualified_part(name) {
        faults.push(QUALIFIED_NAME.into());
    }
    faults
}

/// What is wrong with the value of a label.
pub(crate) fn label_value_faults(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > 63 {
        faults.push(longer(63));
    }
    if !value.is_empty() && !is_qualified_part(value) {
        faults.push(LABEL_VALUE.into());
    }
    faults
}

/// Everything wrong with the metadata of an object.
pub(crate) fn check(kind: &Kind, object: &Value, errors: &mut Vec<FieldError>) {
    let metadata = &object["metadata"];
    match (metadata["name"].as_str(), metadata["generateName"].as_str()) {
        (Some(name), _) => {
            for fault in name_faults(kind, name, false) {
                errors.push(FieldError::invalid("metadata.name", &metadata["name"], &fault));
            }
        }
        (None, Some(prefix)) => {
            for fault in name_faults(kind, prefix, true) {
                errors.push(FieldError::invalid(
                    "metadata.generateName",
                    &metadata["generateName"],
                    &fault,
                ));
            }
        }
        (None, None) => errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        )),
    }
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        for fault in key_faults(key) {
            errors.push(FieldError::invalid(
                "metadata.labels",
                &Value::String(key.clone()),
                &fault,
            ));
        }
        for fault in label_value_faults(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid("metadata.labels", value, &fault));
        }
    }
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        for fault in key_faults(&key.to_lowercase()) {
            errors.push(FieldError::invalid(
                "metadata.annotations",
                &Value::String(key.clone()),
                &fault,
            ));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > 256 * 1024 {
        errors.push(FieldError::too_long("metadata.annotations", 256 * 1024));
    }
    for (index, finalizer) in metadata["finalizers"].as_array().into_iter().flatten().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        for fault in key_faults(name) {
            errors.push(FieldError::invalid(
                &format!("metadata.finalizers[{index}]"),
                finalizer,
                &fault,
            ));
        }
    }
    check_owners(&metadata["ownerReferences"], errors);
}

fn check_owners(owners: &Value, errors: &mut Vec<FieldError>) {
    let mut controllers = 0;
    for owner in owners.as_array().into_iter().flatten() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let path = format!("metadata.ownerReferences.{field}");
                errors.push(FieldError::invalid(
                    &path,
                    &Value::String(String::new()),
                    "must not be empty",
                ));
            }
        }
        controllers += usize::from(owner["controller"] == true);
    }
    if controllers > 1 {
        let detail = "Only one reference can have Controller set to true.";
        errors.push(FieldError::invalid("metadata.ownerReferences", owners, detail));
    }
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// While an object is being deleted its finalizers may only go.
pub(crate) fn check_finalizers(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    if old["metadata"].get("deletionTimestamp").is_none() {
        return;
    }
    let before = texts(&old["metadata"]["finalizers"]);
    let added: Vec<String> = texts(&new["metadata"]["finalizers"])
        .into_iter()
        .filter(|finalizer| !before.contains(finalizer))
        .map(|finalizer| format!("\"{finalizer}\""))
        .collect();
    if !added.is_empty() {
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        errors.push(FieldError::forbidden("metadata.finalizers", &detail));
    }
}

/// Whether nothing keeps the object from going.
pub(crate) fn has_no_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

/// Whether the object is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

/// Seconds precision, as in all timestamps of metadata.
pub(crate) fn time_text(now: jiff::Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
