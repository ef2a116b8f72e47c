//! `/openapi/v2` in the protobuf form older kubectls insist on (gnostic's `openapi.v2.Document`).
//! Only custom kinds are described: for built-in ones kubectl has types of its own, better than ours.

use serde_json::Value;

/// Bytes of a message under construction.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A text field; absent when empty.
    fn text(&mut self, field: u64, text: &Value) {
        if let Some(text) = text.as_str().filter(|text| !text.is_empty()) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }
}

/// `NamedSchema`, `NamedAny`: name 1, value 2.
fn named(name: &str, value: &Message) -> Message {
    let mut out = Message::default();
    out.bytes(1, name.as_bytes());
    out.message(2, value);
    out
}

/// The whole document from the JSON form of its definitions.
pub(crate) fn document<'a>(definitions: impl Iterator<Item = (&'a String, &'a Value)>) -> Vec<u8> {
    let mut info = Message::default();
    info.bytes(1, b"Kubernetes");
    info.bytes(2, b"embedded");
    let mut all = Message::default();
    for (name, definition) in definitions {
        all.message(1, &named(name, &schema(definition)));
    }
    let mut document = Message::default();
    document.bytes(1, b"2.0");
    document.message(2, &info);
    document.message(8, &Message::default());
    document.message(9, &all);
    document.0
}

fn schema(source: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, &source["$ref"]);
    out.text(2, &source["format"]);
    out.text(4, &source["description"]);
    for required in source["required"].as_array().into_iter().flatten() {
        out.text(19, required);
    }
    // What is not closed may not be described as closed: older clients would refuse fields of it.
    let open = source["x-kubernetes-preserve-unknown-fields"] == true
        || source["x-kubernetes-int-or-string"] == true
        || source["nullable"] == true;
    if !open {
        if source["additionalProperties"].is_object() {
            let mut item = Message::default();
            item.message(1, &schema(&source["additionalProperties"]));
            out.message(21, &item);
        }
        if source["type"].is_string() {
            let mut kind = Message::default();
            kind.text(1, &source["type"]);
            out.message(22, &kind);
        }
        if source["items"].is_object() {
            let mut items = Message::default();
            items.message(1, &schema(&source["items"]));
            out.message(23, &items);
        }
        let mut properties = Message::default();
        for (name, child) in source["properties"].as_object().into_iter().flatten() {
            properties.message(1, &named(name, &schema(child)));
        }
        if !properties.0.is_empty() {
            out.message(25, &properties);
        }
    }
    if let Some(kinds) = source.get("x-kubernetes-group-version-kind") {
        let mut any = Message::default();
        // JSON is YAML.
        any.bytes(2, kinds.to_string().as_bytes());
        out.message(31, &named("x-kubernetes-group-version-kind", &any));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::document;

    #[test]
    fn a_document_has_its_fields_at_their_numbers() {
        let definitions = json!({"D": {"type": "string", "description": "x"}});
        let bytes = document(definitions.as_object().unwrap().iter());
        let expected: Vec<u8> = [
            b"\x0a\x03".as_slice(),
            b"2.0",
            b"\x12\x16\x0a\x0aKubernetes\x12\x08embedded",
            b"\x42\x00",
            b"\x4a\x15\x0a\x13\x0a\x01D\x12\x0e\x22\x01x\xb2\x01\x08\x0a\x06string",
        ]
        .concat();
        assert_eq!(bytes, expected);
    }
}
