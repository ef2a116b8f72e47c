//! How many values a JSON text has, found without keeping any. What a text takes in memory goes by that, not by its length:
//! `{},` is three bytes and can be a structure of hundreds.

use std::{cell::Cell, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// Values that a review may have: one of a plan with 5000 nodes has fewer.
pub(super) const MOST_VALUES: usize = 64 * 1024;
/// Has the most values by far, and is never looked at.
const MANAGED_FIELDS: &str = "managedFields";

/// Makes sure that a text is JSON and has no more values than is reasonable.
///
/// # Errors
/// It is not, or has more.
pub(super) fn measure(body: &[u8]) -> serde_json::Result<()> {
    let left = Cell::new(MOST_VALUES);
    let mut text = serde_json::Deserializer::from_slice(body);
    Count(&left).deserialize(&mut text)?;
    text.end()
}

/// Counts down.
#[derive(Clone, Copy)]
struct Count<'a>(&'a Cell<usize>);

impl Count<'_> {
    fn one<E: Error>(self) -> Result<(), E> {
        let left = self.0.get().checked_sub(1);
        let left = left.ok_or_else(|| E::custom(format!("it has more than {MOST_VALUES} values")))?;
        self.0.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Count<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Count<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.one()
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.one()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.one()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.one()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.one()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.one()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.one()?;
        while list.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.one()?;
        while let Some(key) = map.next_key_seed(IsManagedFields)? {
            if key {
                map.next_value::<IgnoredAny>()?;
            } else {
                map.next_value_seed(self)?;
            }
        }
        Ok(())
    }
}

/// Whether a key is the one that is skipped.
struct IsManagedFields;

impl<'de> DeserializeSeed<'de> for IsManagedFields {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<bool, D::Error> {
        text.deserialize_str(self)
    }
}

impl Visitor<'_> for IsManagedFields {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        Ok(key == MANAGED_FIELDS)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn measured(value: &Value) -> Result<(), String> {
        measure(value.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_counted_and_keys_are_not() {
        let list = |length: usize| json!(vec![1; length]);
        assert_eq!(measured(&list(MOST_VALUES - 1)), Ok(()));
        assert!(
            measured(&list(MOST_VALUES))
                .unwrap_err()
                .contains("more than 65536 values")
        );
        let map: serde_json::Map<String, Value> =
            (0..MOST_VALUES - 1).map(|key| (key.to_string(), json!(null))).collect();
        assert_eq!(measured(&json!(map)), Ok(()));
    }

    #[test]
    fn who_owns_fields_does_not_count_and_what_is_no_json_is_refused() {
        assert_eq!(measured(&json!({"managedFields": vec![1; 2 * MOST_VALUES]})), Ok(()));
        for text in ["", "{", "{}x", "[1,]", &"[".repeat(10_000)] {
            assert!(measure(text.as_bytes()).is_err(), "{text}");
        }
    }
}
