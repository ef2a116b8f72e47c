//! Protobuf bodies of the few built-in kinds that kubectl's own commands send in no other form
//! (`create namespace`, `create configmap`, `auth can-i` …). Anything not in the table is refused, never half read.

use base64::Engine as _;
use serde_json::{Map, Value, json};

/// Every body begins with this, then comes `runtime.Unknown`.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

#[derive(Clone, Copy)]
enum Field {
    Text,
    Bytes,
    Int,
    Bool,
    Time,
    Texts,
    TextMap,
    BytesMap,
    One(&'static [Row]),
    Many(&'static [Row]),
}

/// Number, name in JSON, type.
type Row = (u64, &'static str, Field);

const OWNER: &[Row] = &[
    (1, "kind", Field::Text),
    (3, "name", Field::Text),
    (4, "uid", Field::Text),
    (5, "apiVersion", Field::Text),
    (6, "controller", Field::Bool),
    (7, "blockOwnerDeletion", Field::Bool),
];
const METADATA: &[Row] = &[
    (1, "name", Field::Text),
    (2, "generateName", Field::Text),
    (3, "namespace", Field::Text),
    (4, "selfLink", Field::Text),
    (5, "uid", Field::Text),
    (6, "resourceVersion", Field::Text),
    (7, "generation", Field::Int),
    (8, "creationTimestamp", Field::Time),
    (11, "labels", Field::TextMap),
    (12, "annotations", Field::TextMap),
    (13, "ownerReferences", Field::Many(OWNER)),
    (14, "finalizers", Field::Texts),
];
const META: Row = (1, "metadata", Field::One(METADATA));
const NAME: &[Row] = &[(1, "name", Field::Text)];
const DELETE_OPTIONS: &[Row] = &[
    (1, "gracePeriodSeconds", Field::Int),
    (
        2,
        "preconditions",
        Field::One(&[(1, "uid", Field::Text), (2, "resourceVersion", Field::Text)]),
    ),
    (3, "orphanDependents", Field::Bool),
    (4, "propagationPolicy", Field::Text),
    (5, "dryRun", Field::Texts),
];
const RULE: &[Row] = &[
    (1, "verbs", Field::Texts),
    (2, "apiGroups", Field::Texts),
    (3, "resources", Field::Texts),
    (4, "resourceNames", Field::Texts),
    (5, "nonResourceURLs", Field::Texts),
];
const ROLE: &[Row] = &[META, (2, "rules", Field::Many(RULE))];
const BINDING: &[Row] = &[
    META,
    (
        2,
        "subjects",
        Field::Many(&[
            (1, "kind", Field::Text),
            (2, "apiGroup", Field::Text),
            (3, "name", Field::Text),
            (4, "namespace", Field::Text),
        ]),
    ),
    (
        3,
        "roleRef",
        Field::One(&[
            (1, "apiGroup", Field::Text),
            (2, "kind", Field::Text),
            (3, "name", Field::Text),
        ]),
    ),
];
const ACCESS: &[Row] = &[
    META,
    (
        2,
        "spec",
        Field::One(&[
            (
                1,
                "resourceAttributes",
                Field::One(&[
                    (1, "namespace", Field::Text),
                    (2, "verb", Field::Text),
                    (3, "group", Field::Text),
                    (4, "version", Field::Text),
                    (5, "resource", Field::Text),
                    (6, "subresource", Field::Text),
                    (7, "name", Field::Text),
                ]),
            ),
            (
                2,
                "nonResourceAttributes",
                Field::One(&[(1, "path", Field::Text), (2, "verb", Field::Text)]),
            ),
        ]),
    ),
    (
        3,
        "status",
        Field::One(&[
            (1, "allowed", Field::Bool),
            (2, "reason", Field::Text),
            (3, "evaluationError", Field::Text),
            (4, "denied", Field::Bool),
        ]),
    ),
];

fn rows(kind: &str) -> Option<&'static [Row]> {
    Some(match kind {
        "ConfigMap" => &[
            META,
            (2, "data", Field::TextMap),
            (3, "binaryData", Field::BytesMap),
            (4, "immutable", Field::Bool),
        ],
        "Secret" => &[
            META,
            (2, "data", Field::BytesMap),
            (3, "type", Field::Text),
            (4, "stringData", Field::TextMap),
            (5, "immutable", Field::Bool),
        ],
        "Namespace" => &[
            META,
            (2, "spec", Field::One(&[(1, "finalizers", Field::Texts)])),
            (3, "status", Field::One(&[(1, "phase", Field::Text)])),
        ],
        "ServiceAccount" => &[
            META,
            (2, "secrets", Field::Many(&[(3, "name", Field::Text)])),
            (3, "imagePullSecrets", Field::Many(NAME)),
            (4, "automountServiceAccountToken", Field::Bool),
        ],
        "Role" | "ClusterRole" => ROLE,
        "RoleBinding" | "ClusterRoleBinding" => BINDING,
        "SelfSubjectAccessReview" => ACCESS,
        "DeleteOptions" => DELETE_OPTIONS,
        "Eviction" => &[META, (2, "deleteOptions", Field::One(DELETE_OPTIONS))],
        "TokenRequest" => &[
            META,
            (
                2,
                "spec",
                Field::One(&[(1, "audiences", Field::Texts), (4, "expirationSeconds", Field::Int)]),
            ),
            (
                3,
                "status",
                Field::One(&[(1, "token", Field::Text), (2, "expirationTimestamp", Field::Time)]),
            ),
        ],
        _ => return None,
    })
}

/// The object in a protobuf body; none when it is not one we can read whole.
pub(crate) fn read(bytes: &[u8]) -> Option<Value> {
    let envelope = message(
        bytes.strip_prefix(MAGIC)?,
        &[
            (
                1,
                "type",
                Field::One(&[(1, "apiVersion", Field::Text), (2, "kind", Field::Text)]),
            ),
            (2, "raw", Field::Bytes),
            (3, "contentEncoding", Field::Text),
            (4, "contentType", Field::Text),
        ],
    )?;
    let raw = base64::engine::general_purpose::STANDARD
        .decode(envelope["raw"].as_str().unwrap_or_default())
        .ok()?;
    let mut object = message(&raw, rows(envelope["type"]["kind"].as_str()?)?)?;
    object["apiVersion"] = envelope["type"]["apiVersion"].clone();
    object["kind"] = envelope["type"]["kind"].clone();
    Some(object)
}

/// What is left to read of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let (found, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(found)
    }
}

fn text(bytes: &[u8]) -> Option<Value> {
    std::str::from_utf8(bytes).ok().map(Value::from)
}

fn encoded(bytes: &[u8]) -> Value {
    Value::String(base64::engine::general_purpose::STANDARD.encode(bytes))
}

fn message(bytes: &[u8], rows: &[Row]) -> Option<Value> {
    let mut reader = Reader(bytes);
    let mut object = Map::new();
    while !reader.0.is_empty() {
        let tag = reader.varint()?;
        let &(_, name, field) = rows.iter().find(|(number, _, _)| *number == tag >> 3)?;
        let entry = object.entry(name).or_insert(Value::Null);
        match (field, tag & 7) {
            (Field::Int, 0) => *entry = json!(reader.varint()?.cast_signed()),
            (Field::Bool, 0) => *entry = json!(reader.varint()? != 0),
            (Field::Text, 2) => *entry = text(reader.bytes()?)?,
            (Field::Bytes, 2) => *entry = encoded(reader.bytes()?),
            (Field::One(inner), 2) => *entry = message(reader.bytes()?, inner)?,
            (Field::Many(inner), 2) => push(entry, message(reader.bytes()?, inner)?),
            (Field::Texts, 2) => push(entry, text(reader.bytes()?)?),
            (Field::Time, 2) => *entry = time(reader.bytes()?)?,
            (Field::TextMap | Field::BytesMap, 2) => {
                let kind = if matches!(field, Field::TextMap) {
                    Field::Text
                } else {
                    Field::Bytes
                };
                let pair = message(reader.bytes()?, &[(1, "key", Field::Text), (2, "value", kind)])?;
                let key = pair["key"].as_str().unwrap_or_default().to_owned();
                let value = if pair["value"].is_null() {
                    json!("")
                } else {
                    pair["value"].clone()
                };
                entry[key] = value;
            }
            _ => return None,
        }
    }
    // Empty texts stand for absent ones: the wire format has no other way to say it.
    object.retain(|_, value| value.as_str() != Some(""));
    Some(Value::Object(object))
}

fn push(list: &mut Value, value: Value) {
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        list.push(value);
    }
}

fn time(bytes: &[u8]) -> Option<Value> {
    let parts = message(bytes, &[(1, "seconds", Field::Int), (2, "nanos", Field::Int)])?;
    let Some(seconds) = parts["seconds"].as_i64() else {
        return Some(Value::Null);
    };
    let at = jiff::Timestamp::from_second(seconds).ok()?;
    Some(Value::String(crate::metadata::time_text(at)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::read;

    /// A ConfigMap `m` with `k: v`, as kubectl sends it.
    fn config_map() -> Vec<u8> {
        let object = b"\x0a\x05\x0a\x01m\x42\x00\x12\x06\x0a\x01k\x12\x01v";
        let mut bytes = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12".to_vec();
        bytes.push(object.len() as u8);
        bytes.extend_from_slice(object);
        bytes.extend_from_slice(b"\x1a\x00\x22\x00");
        bytes
    }

    #[test]
    fn a_config_map_is_read() {
        let expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "creationTimestamp": null}, "data": {"k": "v"},
        });
        assert_eq!(read(&config_map()), Some(expected));
    }

    #[test]
    fn broken_or_unknown_bodies_are_not_read() {
        let whole = config_map();
        for length in 0..whole.len() - 4 {
            // Cut anywhere, it is refused or lacks its object, but never panics.
            let _ = read(&whole[..length]);
        }
        assert_eq!(read(b"{}"), None);
        assert_eq!(read(&whole[..30]), None);
        let unknown: Vec<u8> = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x00".to_vec();
        assert_eq!(read(&unknown), None);
    }
}
