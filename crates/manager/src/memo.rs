//! What was read from the caches last time, kept for as long as they do not change: most changes concern one kind, and
//! the others are as large as the cluster.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use cache::Cache;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Node, Pod},
};
use kube::{Resource, ResourceExt};
use plan::{
    observed::{ObservedJob, ObservedMachinePlan, ObservedNode, ObservedPod},
    shared::Shared,
};
use rules::estimate::Size;

/// The parts of an observation that grow with the cluster.
#[derive(Default)]
pub struct Memos {
    pub(crate) nodes: MemoEach<Node, ObservedNode>,
    pub(crate) jobs: MemoEach<Job, ObservedJob>,
    pub(crate) machine_plans: Memo<Vec<ObservedMachinePlan>>,
    pub(crate) pods: MemoEach<Pod, ObservedPod>,
    pub(crate) unhealthy_volumes: Memo<Vec<String>>,
    pub(crate) vms_by_node: Memo<BTreeMap<String, Vec<String>>>,
    pub(crate) immovable_vms: Memo<BTreeMap<String, Vec<String>>>,
    pub(crate) size: Memo<Size>,
}

/// A value, and the plan and the state of the caches it was made for.
pub(crate) struct Memo<T> {
    made_for: Option<(String, u64)>,
    value: Arc<T>,
}

impl<T: Default> Default for Memo<T> {
    fn default() -> Self {
        Self {
            made_for: None,
            value: Arc::default(),
        }
    }
}

impl<T> Memo<T> {
    /// The value as it was, or a new one if the plan is another or the caches have changed.
    pub(crate) fn get(&mut self, plan: &str, revision: u64, make: impl FnOnce() -> T) -> Shared<T> {
        let same = self
            .made_for
            .as_ref()
            .is_some_and(|(made_for, at)| made_for == plan && *at == revision);
        if !same {
            self.value = Arc::new(make());
            self.made_for = Some((plan.to_owned(), revision));
        }
        self.value.clone().into()
    }
}

/// What was derived from each object of a kind, by [`key`]: after a change, only the changed objects are processed again.
pub(crate) struct MemoEach<K, V> {
    made_for: Option<(String, u64)>,
    objects: Vec<Arc<K>>,
    value: Shared<BTreeMap<String, V>>,
}

impl<K, V> Default for MemoEach<K, V> {
    fn default() -> Self {
        Self {
            made_for: None,
            objects: Vec::new(),
            value: Shared::from(BTreeMap::new()),
        }
    }
}

impl<K: Resource, V: Clone> MemoEach<K, V> {
    /// What `look` sees of each object of the cache; of an object of which it sees nothing, nothing.
    ///
    /// `made_for` covers all other inputs of `look`: when it changes, all objects are processed again.
    pub(crate) fn get(
        &mut self,
        made_for: &str,
        caches: &[&Cache<K>],
        look: impl Fn(&K) -> Option<V>,
    ) -> Shared<BTreeMap<String, V>> {
        // The count first: a change in between is processed again, not missed. Each count only grows, and so does their sum.
        let revision = caches.iter().map(|cache| cache.revision()).sum();
        self.get_from(
            made_for,
            revision,
            || caches.iter().flat_map(|cache| cache.list()).collect(),
            look,
        )
    }

    fn get_from(
        &mut self,
        whom: &str,
        revision: u64,
        list: impl FnOnce() -> Vec<Arc<K>>,
        look: impl Fn(&K) -> Option<V>,
    ) -> Shared<BTreeMap<String, V>> {
        match &self.made_for {
            Some((made_for, at)) if made_for == whom && *at == revision => return self.value.clone(),
            Some((made_for, _)) if made_for == whom => {}
            _ => *self = Self::default(),
        }
        let objects = list();
        let (before, after) = (addresses(&self.objects), addresses(&objects));
        for gone in self.objects.iter().filter(|one| !after.contains(&Arc::as_ptr(one))) {
            self.value.remove(&key(gone.as_ref()));
        }
        for new in objects.iter().filter(|one| !before.contains(&Arc::as_ptr(one))) {
            if let Some(observed) = look(new) {
                self.value.insert(key(new.as_ref()), observed);
            }
        }
        self.objects = objects;
        self.made_for = Some((whom.to_owned(), revision));
        self.value.clone()
    }
}

/// Objects of different namespaces may have the same name. Those of the upgrade itself go by their name alone.
fn key<K: Resource>(object: &K) -> String {
    plan::observed::key(object.namespace().as_deref().unwrap_or_default(), &object.name_any())
}

/// An object that changed is another object at another address.
fn addresses<K>(objects: &[Arc<K>]) -> HashSet<*const K> {
    objects.iter().map(Arc::as_ptr).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_again_only_for_another_plan_or_after_a_change() {
        let mut remembered = Memo::<u32>::default();
        assert_eq!(*remembered.get("a", 1, || 1), 1);
        assert_eq!(*remembered.get("a", 1, || 2), 1);
        assert_eq!(*remembered.get("a", 2, || 3), 3);
        assert_eq!(*remembered.get("b", 2, || 4), 4);
    }

    fn node(name: &str) -> Arc<Node> {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        Arc::new(node)
    }

    #[test]
    fn after_a_change_only_objects_that_changed_are_looked_at_again() {
        let mut remembered = MemoEach::<Node, u32>::default();
        let looks = std::cell::Cell::new(0);
        let look = |_: &Node| {
            looks.set(looks.get() + 1);
            Some(looks.get())
        };
        let (one, two) = (node("one"), node("two"));
        let observed = remembered.get_from("a", 1, || vec![one.clone(), two.clone()], look);
        assert_eq!(*observed, [("one".to_owned(), 1), ("two".to_owned(), 2)].into());
        // No change: nothing is even listed.
        remembered.get_from("a", 1, || panic!("listed without a change"), look);
        // Another version of one, two as it was.
        let newer = node("one");
        let observed = remembered.get_from("a", 2, || vec![newer.clone(), two.clone()], look);
        assert_eq!(*observed, [("one".to_owned(), 3), ("two".to_owned(), 2)].into());
        // One that is gone is forgotten, and another plan starts from nothing.
        let observed = remembered.get_from("a", 3, || vec![two.clone()], look);
        assert_eq!(*observed, [("two".to_owned(), 2)].into());
        let observed = remembered.get_from("b", 3, || vec![two.clone()], look);
        assert_eq!(*observed, [("two".to_owned(), 4)].into());
    }

    #[test]
    fn an_object_of_which_nothing_is_seen_any_more_is_forgotten() {
        let mut remembered = MemoEach::<Node, u32>::default();
        remembered.get_from("a", 1, || vec![node("one")], |_| Some(1));
        let observed = remembered.get_from("a", 2, || vec![node("one")], |_| None);
        assert!(observed.is_empty());
    }
}
