//! Lists of what tenants have, in little memory whatever they have put into it.
//!
//! A tenant may have hundreds of objects there, with 256 KiB of annotations each. So a page that is larger than
//! [`PAGE_BYTES`] is requested again in smaller ones; of each object only the fields that are used are kept, while
//! the text is parsed, and the rest of it is passed over; and all that is kept has a bound.

use std::{
    cell::Cell,
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures::{AsyncReadExt, pin_mut};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{Api, Client, Resource, api::ListParams, core::Request};
use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

/// Bytes of a page's text that are taken in. One object fits, whatever it is: API servers take no more than 3 MiB.
const PAGE_BYTES: u64 = 4 * 1024 * 1024;
/// Objects per page: the first that fits. A list keeps the smaller size: large objects rarely come alone.
const PAGES: [u32; 4] = [500, 128, 16, 1];
/// Pages that are under way at once.
const AT_ONCE: usize = 2;
/// Bytes that all lists of one reader may take in memory, by estimate: those of 5,000 VMs take less.
const MOST_KEPT: usize = 32 * 1024 * 1024;
/// What one value takes in addition to its text while it is parsed.
const VALUE: usize = 64;
/// What one value takes in addition to its text in the object that is kept.
const KEPT_VALUE: usize = 40;
/// Never looked at, and the largest part of most objects.
const MANAGED_FIELDS: &str = "managedFields";

/// What is kept of a value. What is kept of a list is kept of each of its elements.
#[derive(Clone, Copy, Debug)]
pub enum Keep {
    /// All of it.
    All,
    /// These fields.
    Fields(&'static [(&'static str, Self)]),
    /// Of a list, whether there is anything in it.
    Any,
}

/// The name and the namespace of an object.
pub const NAMED: Keep = Keep::Fields(&[("name", Keep::All), ("namespace", Keep::All)]);

/// One object, of which only that is taken in.
///
/// # Errors
/// It is not one of these, or larger than anything may be.
pub fn kept<'de, K: DeserializeOwned, D: Deserializer<'de>>(text: D, keep: Keep) -> Result<K, D::Error> {
    let (left, weight) = (Cell::new(MOST_KEPT), Cell::new(0));
    let object = Kept {
        keep,
        left: &left,
        weight: &weight,
    }
    .deserialize(text)?;
    serde_json::from_value(object).map_err(D::Error::custom)
}

/// Lists objects. All that one reader has read counts together.
pub struct Reader {
    client: Client,
    kept: AtomicUsize,
    most: usize,
    pages: Semaphore,
}

impl Reader {
    /// Reads through a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            kept: AtomicUsize::new(0),
            most: MOST_KEPT,
            pages: Semaphore::new(AT_ONCE),
        }
    }

    /// What is kept of those objects of a kind that are wanted.
    ///
    /// # Errors
    /// The API server refused or could not be reached, or there is more than may be kept.
    pub async fn list<K: Resource + DeserializeOwned>(
        &self,
        api: &Api<K>,
        which: &ListParams,
        keep: Keep,
        wanted: fn(&K) -> bool,
    ) -> kube::Result<Vec<K>> {
        let mut found = Vec::new();
        let mut sizes = PAGES.into_iter();
        let mut which = which.clone().limit(sizes.next().unwrap_or(1));
        loop {
            // Semaphores are never closed.
            let turn = self.pages.acquire().await.ok();
            let Some(text) = self.page(api, &which).await? else {
                match sizes.next() {
                    Some(fewer) => which = which.limit(fewer),
                    None => return Err(too_much("one object has", PAGE_BYTES)),
                }
                continue;
            };
            let page = Page {
                reader: self,
                keep,
                wanted,
                found: &mut found,
            };
            let more = page
                .deserialize(&mut serde_json::Deserializer::from_slice(&text))
                .map_err(kube::Error::SerdeError)?;
            drop((text, turn));
            match more.filter(|token| !token.is_empty()) {
                Some(token) => which = which.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// The text of a page, or nothing when it is too large.
    async fn page<K: Resource>(&self, api: &Api<K>, which: &ListParams) -> kube::Result<Option<Vec<u8>>> {
        let request = Request::new(api.resource_url()).list(which);
        let body = self
            .client
            .request_stream(request.map_err(kube::Error::BuildRequest)?)
            .await?;
        let body = body.take(PAGE_BYTES + 1);
        pin_mut!(body);
        let mut text = Vec::new();
        body.read_to_end(&mut text).await.map_err(kube::Error::ReadEvents)?;
        Ok(Some(text).filter(|text| text.len() as u64 <= PAGE_BYTES))
    }
}

fn too_much(what: &str, most: u64) -> kube::Error {
    let text = format!("{what} more than the manager looks at ({} MiB)", most >> 20);
    kube::Error::SerdeError(serde_json::Error::custom(text))
}

/// Parses a page; what it is worth keeping goes to the others, and the token of the next page comes back.
struct Page<'a, K> {
    reader: &'a Reader,
    keep: Keep,
    wanted: fn(&K) -> bool,
    found: &'a mut Vec<K>,
}

impl<'de, K: DeserializeOwned> DeserializeSeed<'de> for Page<'_, K> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<Self::Value, D::Error> {
        text.deserialize_map(self)
    }
}

impl<'de, K: DeserializeOwned> Visitor<'de> for Page<'_, K> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut more = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metadata" => more = map.next_value::<ListMeta>()?.continue_,
                "items" => map.next_value_seed(Items(&mut self))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(more)
    }
}

/// Parses the items of a page.
struct Items<'a, 'b, K>(&'a mut Page<'b, K>);

impl<'de, K: DeserializeOwned> DeserializeSeed<'de> for Items<'_, '_, K> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de, K: DeserializeOwned> Visitor<'de> for Items<'_, '_, K> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the objects of a list")
    }

    /// Go writes a list of nothing like this.
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let page = self.0;
        let reader = page.reader;
        loop {
            let known = reader.kept.load(Ordering::Relaxed);
            let left = Cell::new(reader.most.saturating_sub(known));
            let weight = Cell::new(size_of::<K>());
            spend(&left, size_of::<K>())?;
            let item = Kept {
                keep: page.keep,
                left: &left,
                weight: &weight,
            };
            let Some(item) = list.next_element_seed(item)? else {
                return Ok(());
            };
            let item: K = serde_json::from_value(item).map_err(A::Error::custom)?;
            if (page.wanted)(&item) {
                page.found.push(item);
                reader.kept.fetch_add(weight.get(), Ordering::Relaxed);
            }
        }
    }
}

/// Parses what is kept of a value.
#[derive(Clone, Copy)]
struct Kept<'a> {
    keep: Keep,
    /// What may still be taken in, with all that parsing needs for a while.
    left: &'a Cell<usize>,
    /// What the object takes that is made of it.
    weight: &'a Cell<usize>,
}

fn spend<E: Error>(left: &Cell<usize>, bytes: usize) -> Result<(), E> {
    let rest = left.get().checked_sub(bytes);
    left.set(rest.ok_or_else(|| E::custom(too_much("there is", MOST_KEPT as u64)))?);
    Ok(())
}

impl Kept<'_> {
    fn one<E: Error>(self, value: impl Into<Value>, bytes: usize) -> Result<Value, E> {
        spend(self.left, VALUE + bytes)?;
        self.weigh(bytes);
        Ok(value.into())
    }

    fn weigh(self, bytes: usize) {
        self.weight.set(self.weight.get().saturating_add(KEPT_VALUE + bytes));
    }
}

impl<'de> DeserializeSeed<'de> for Kept<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<Value, D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Kept<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.one(Value::Null, 0)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.one(value, 0)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.one(value, 0)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.one(value, 0)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.one(value, 0)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.one(value, value.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        spend(self.left, VALUE)?;
        self.weigh(0);
        let mut all = Vec::new();
        if matches!(self.keep, Keep::Any) {
            while list.next_element::<IgnoredAny>()?.is_some() {
                all = vec![Value::Null];
            }
            return Ok(all.into());
        }
        while let Some(element) = list.next_element_seed(self)? {
            all.push(element);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        spend(self.left, VALUE)?;
        let mut all = Map::new();
        while let Some(key) = map.next_key_seed(Key(self.keep))? {
            let Some((key, keep)) = key else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            spend(self.left, VALUE + key.len())?;
            // Names of fields are nowhere in an object; those of free maps are.
            if matches!(self.keep, Keep::All) {
                self.weigh(key.len());
            }
            let value = map.next_value_seed(Kept { keep, ..self })?;
            all.insert(key, value);
        }
        Ok(all.into())
    }
}

/// A key that is kept, with what is kept of its value.
struct Key(Keep);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<(String, Keep)>;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<Self::Value, D::Error> {
        text.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<(String, Keep)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(match self.0 {
            Keep::All => (key != MANAGED_FIELDS).then(|| (key.to_owned(), Keep::All)),
            Keep::Fields(fields) => {
                let mut fields = fields.iter();
                let known = fields.find(|(name, _)| *name == key);
                known.map(|(name, keep)| ((*name).to_owned(), *keep))
            }
            Keep::Any => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use api::foreign::kubevirt::VirtualMachineInstance;
    use serde_json::json;

    use super::*;

    const VMI: Keep = Keep::Fields(&[
        ("metadata", NAMED),
        (
            "spec",
            Keep::Fields(&[("nodeSelector", Keep::All), ("affinity", Keep::All)]),
        ),
        ("status", Keep::All),
    ]);

    /// What an object weighs.
    fn weight(object: &Value) -> usize {
        let (left, weight) = (Cell::new(MOST_KEPT), Cell::new(size_of::<VirtualMachineInstance>()));
        let kept = Kept {
            keep: VMI,
            left: &left,
            weight: &weight,
        };
        kept.deserialize(object).unwrap();
        weight.get()
    }

    #[test]
    fn five_thousand_vms_are_fewer_than_the_manager_looks_at() {
        let terms = json!([{"matchExpressions": [{"key": "network.harvesterhci.io/mgmt", "operator": "In", "values": ["true"]}]}]);
        let conditions: Vec<Value> = [
            "Ready",
            "LiveMigratable",
            "AgentConnected",
            "StorageLiveMigratable",
            "DataVolumesReady",
        ]
        .map(|name| json!({"type": name, "status": "True"}))
        .into();
        let vmi = json!({
            "metadata": {"name": "a-vm-with-a-long-name-0001", "namespace": "a-namespace-of-a-tenant", "annotations": {"a": "b".repeat(5_000)}},
            "spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}},
            "status": {"phase": "Running", "nodeName": "node-1", "conditions": conditions},
        });
        // As much again for the VM itself.
        let all = 5_000 * 2 * weight(&vmi);
        assert!(all < MOST_KEPT, "{} bytes each, {all} in all", weight(&vmi));
    }

    #[test]
    fn s04_keys_of_free_maps_weigh_what_they_are() {
        let labels: Map<String, Value> = (0..100).map(|number| (format!("{number:01000}"), json!("x"))).collect();
        let fat = json!({"metadata": {"name": "fat"}, "spec": {"nodeSelector": labels}});
        assert!(weight(&fat) > 100 * 1_000);
    }
}
