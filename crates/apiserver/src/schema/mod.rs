//! A structural schema of a custom resource, compiled once from the CRD. Pure: values in, values and errors out.

mod cel;
mod default;
mod node;
mod prune;
mod validate;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;

pub(crate) use node::{Additional, ListType, Node};

use crate::status::FieldError;

/// How many compiled schemas are kept: more than the kinds of a cluster have.
const KEPT: usize = 300;

/// A compiled schema with its CEL rules.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) root: Node,
    rules: Option<cel::Rules>,
    /// As written in the CRD, for `/openapi`.
    pub(crate) source: Value,
}

impl Schema {
    /// Compiles `openAPIV3Schema`, once in a process however many servers serve it: large ones take longer than a whole
    /// simulated upgrade. The error is about the schema itself (bad pattern, bad rule).
    pub(crate) fn of(source: &Value) -> Result<Arc<Self>, Vec<FieldError>> {
        static COMPILED: Mutex<Option<HashMap<Value, Arc<Schema>>>> = Mutex::new(None);
        let kept = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept().get_or_insert_default().get(source) {
            return Ok(Arc::clone(known));
        }
        let compiled = Arc::new(Self::compile(source)?);
        let mut kept = kept();
        let kept = kept.get_or_insert_default();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(source.clone(), Arc::clone(&compiled));
        Ok(compiled)
    }

    fn compile(source: &Value) -> Result<Self, Vec<FieldError>> {
        let base = "spec.validation.openAPIV3Schema";
        let mut errors = Vec::new();
        let root = Node::compile(source, base, &mut errors);
        let rules = cel::Rules::compile(source, base, &mut errors);
        if errors.is_empty() {
            Ok(Self {
                root,
                rules,
                source: source.clone(),
            })
        } else {
            Err(errors)
        }
    }

    /// Drops what the schema does not know and returns the paths of it.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut dropped = Vec::new();
        prune::prune_root(&self.root, object, &mut dropped);
        dropped
    }

    /// Fills in defaults; nulls of fields that cannot be null count as absent.
    pub(crate) fn apply_defaults(&self, object: &mut Value) {
        default::fill(&self.root, object);
    }

    /// Everything wrong with an object: types and limits first. CEL rules are not looked at when these are so wrong that
    /// rules could stumble over them, and the answer says so.
    pub(crate) fn check(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validate::validate_root(&self.root, object, &mut errors);
        match &self.rules {
            Some(_) if errors.iter().any(FieldError::blocks_rules) => errors.push(FieldError::rules_unchecked()),
            Some(rules) => rules.check(object, old, &mut errors),
            None => {}
        }
        errors
    }
}
