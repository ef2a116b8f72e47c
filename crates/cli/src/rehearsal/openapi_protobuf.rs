//! The OpenAPI v2 document in the protobuf form that kubectl before 1.27 asks for, and no other.
//!
//! Pure: a document in, bytes out. Only definitions are written: it is from them that kubectl validates and explains.
//! Field numbers are those of `OpenAPIv2.proto` of the project gnostic.

use serde_json::{Map, Value};

/// How clients ask for the form.
pub(super) const ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// How it is answered: an `@` is not allowed in a media type, and clients that ask so do not read it so.
pub(super) const ANSWERED: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// A field that holds bytes: texts and messages.
const LENGTH_DELIMITED: u64 = 2;
/// A field that holds a number of variable length.
const VARINT: u64 = 0;

/// Writes a document.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut message = Message::default();
    message.text(1, document["swagger"].as_str());
    let mut info = Message::default();
    info.text(1, document["info"]["title"].as_str());
    info.text(2, document["info"]["version"].as_str());
    message.message(2, &info);
    message.message(8, &Message::default());
    message.message(9, &named_schemas(document["definitions"].as_object()));
    message.0
}

/// `Definitions` and `Properties` have the same form: a list of names and schemas.
fn named_schemas(schemas: Option<&Map<String, Value>>) -> Message {
    let mut all = Message::default();
    for (name, value) in schemas.into_iter().flatten() {
        let mut named = Message::default();
        named.text(1, Some(name));
        named.message(2, &schema(value));
        all.message(1, &named);
    }
    all
}

fn schema(value: &Value) -> Message {
    let mut message = Message::default();
    let text = |key: &str| value[key].as_str();
    message.text(1, text("$ref"));
    message.text(2, text("format"));
    message.text(3, text("title"));
    message.text(4, text("description"));
    message.text(13, text("pattern"));
    for (number, key) in [(11, "maxLength"), (12, "minLength"), (14, "maxItems"), (15, "minItems")] {
        if let Some(limit) = value[key].as_u64() {
            message.number(number, limit);
        }
    }
    for required in value["required"].as_array().into_iter().flatten() {
        message.text(19, required.as_str());
    }
    for allowed in value["enum"].as_array().into_iter().flatten() {
        message.message(20, &any(allowed));
    }
    match &value["additionalProperties"] {
        Value::Bool(allowed) => {
            let mut item = Message::default();
            item.number(2, u64::from(*allowed));
            message.message(21, &item);
        }
        inner @ Value::Object(_) => message.message(21, &holding(&schema(inner))),
        _ => {}
    }
    if let Some(name) = text("type") {
        let mut item = Message::default();
        item.text(1, Some(name));
        message.message(22, &item);
    }
    if value["items"].is_object() {
        message.message(23, &holding(&schema(&value["items"])));
    }
    if let Some(properties) = value["properties"].as_object() {
        message.message(25, &named_schemas(Some(properties)));
    }
    let extensions = value.as_object().into_iter().flatten();
    for (name, extension) in extensions.filter(|(name, _)| name.starts_with("x-")) {
        let mut named = Message::default();
        named.text(1, Some(name));
        named.message(2, &any(extension));
        message.message(31, &named);
    }
    message
}

/// A message whose first field is another one.
fn holding(inner: &Message) -> Message {
    let mut message = Message::default();
    message.message(1, inner);
    message
}

/// Any value, as YAML: JSON is YAML.
fn any(value: &Value) -> Message {
    let mut message = Message::default();
    message.text(2, Some(&value.to_string()));
    message
}

/// A message as it is written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while let [low, _, ..] = value.to_le_bytes()
            && value >= 0x80
        {
            self.0.push(low | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn key(&mut self, number: u64, kind: u64) {
        self.varint(number << 3 | kind);
    }

    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.key(number, LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn number(&mut self, number: u64, value: u64) {
        self.key(number, VARINT);
        self.varint(value);
    }

    fn text(&mut self, number: u64, text: Option<&str>) {
        if let Some(text) = text {
            self.bytes(number, text.as_bytes());
        }
    }

    fn message(&mut self, number: u64, message: &Self) {
        self.bytes(number, &message.0);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_written_in_groups_of_seven_bits() {
        let mut message = Message::default();
        for value in [0, 1, 127, 128, 300] {
            message.varint(value);
        }
        assert_eq!(message.0, [0, 1, 127, 0x80, 1, 0xac, 2]);
    }

    #[test]
    fn a_schema_is_written_by_the_numbers_of_its_fields() {
        let written = schema(&json!({
            "type": "array", "items": {"$ref": "a"}, "minLength": 1, "x-b": [1], "additionalProperties": true,
        }));
        let expected: &[&[u8]] = &[
            &[12 << 3, 1],
            &[0xaa, 1, 2, 2 << 3, 1],
            &[0xb2, 1, 7, 0x0a, 5],
            b"array",
            &[0xba, 1, 5, 0x0a, 3, 0x0a, 1],
            b"a",
            &[0xfa, 1, 12, 0x0a, 3],
            b"x-b",
            &[0x12, 5, 0x12, 3],
            b"[1]",
        ];
        assert_eq!(written.0, expected.concat());
    }
}
