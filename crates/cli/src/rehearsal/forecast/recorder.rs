//! Writes down what happens to VMs in a rehearsal, and when anything happened last. It looks at every write, and changes nothing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use apiserver::Change;
use clock::Clock;
use jiff::Timestamp;
use serde_json::Value;
use world::Layout;

use super::super::Rehearsal;

/// What is written although nothing happens: leases, what is reported, and the plan that waits.
const IDLE: [&str; 3] = ["leases", "events", "upgradeplans"];

/// A VM that moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) vm: (String, String),
    pub(super) from: String,
    pub(super) to: String,
    pub(super) began: Timestamp,
    pub(super) ended: Timestamp,
}

/// A VM that was off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Off {
    pub(super) vm: (String, String),
    pub(super) node: String,
    pub(super) began: Timestamp,
    pub(super) ended: Option<Timestamp>,
}

/// What happened to VMs.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) moves: Vec<Moved>,
    pub(super) offs: Vec<Off>,
    nodes: BTreeMap<(String, String), String>,
    last_change: Timestamp,
}

/// Writes it down.
pub(super) struct Recorder {
    record: Arc<Mutex<Record>>,
    clock: Clock,
}

impl Recorder {
    /// From now on.
    pub(super) fn start(rehearsal: &Rehearsal, layout: &Layout) -> Self {
        let clock = rehearsal.clock.clone();
        let nodes = layout.vms.iter().map(|(key, vm)| (key.clone(), vm.node.clone()));
        let record = Arc::new(Mutex::new(Record {
            nodes: nodes.collect(),
            last_change: clock.now(),
            ..Record::default()
        }));
        let (written, now) = (record.clone(), clock.clone());
        rehearsal.server.store().observe(move |change| {
            let mut record = lock(&written);
            record.see(change, now.now());
        });
        Self { record, clock }
    }

    /// When anything happened last.
    pub(super) fn last_change(&self) -> Timestamp {
        lock(&self.record).last_change
    }

    /// Something happens now.
    pub(super) fn touch(&self) {
        lock(&self.record).last_change = self.clock.now();
    }

    /// What was written down does not count: it begins again.
    pub(super) fn forget(&self) {
        let mut record = lock(&self.record);
        record.moves.clear();
        record.offs.clear();
        record.last_change = self.clock.now();
    }

    /// What was written down.
    pub(super) fn take(&self) -> Record {
        lock(&self.record).clone()
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    // Each change is written down whole.
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Record {
    fn see(&mut self, change: &Change, now: Timestamp) {
        let plural = change.resource.plural.as_str();
        if IDLE.contains(&plural) {
            return;
        }
        self.last_change = now;
        match plural {
            "virtualmachineinstances" => self.see_instance(&change.object, change.previous.as_deref(), now),
            "virtualmachines" => self.see_vm(&change.object, change.previous.as_deref(), now),
            _ => {}
        }
    }

    fn see_instance(&mut self, object: &Value, previous: Option<&Value>, now: Timestamp) {
        let key = key(object);
        let state = &object["status"]["migrationState"];
        let was = previous.map(|previous| &previous["status"]["migrationState"]);
        let has_ended = |state: &Value| state["completed"] == true;
        let is_same = was.is_some_and(|was| has_ended(was) && was["migrationUid"] == state["migrationUid"]);
        if has_ended(state) && state["failed"] != true && !is_same {
            let text = |field: &str| state[field].as_str().unwrap_or_default().to_owned();
            self.moves.push(Moved {
                vm: key.clone(),
                from: text("sourceNode"),
                to: text("targetNode"),
                began: text("startTimestamp").parse().unwrap_or(now),
                ended: now,
            });
        }
        if let Some(node) = object["status"]["nodeName"].as_str() {
            self.nodes.insert(key, node.to_owned());
        }
    }

    fn see_vm(&mut self, object: &Value, previous: Option<&Value>, now: Timestamp) {
        let runs = |object: &Value| {
            let shown = object["status"]["printableStatus"].as_str().unwrap_or_default();
            matches!(shown, "Running" | "Paused" | "Migrating")
        };
        let Some(previous) = previous else { return };
        let key = key(object);
        let open = self.offs.iter_mut().find(|off| off.vm == key && off.ended.is_none());
        match (runs(previous), runs(object), open) {
            (true, false, None) => self.offs.push(Off {
                node: self.nodes.get(&key).cloned().unwrap_or_default(),
                vm: key,
                began: now,
                ended: None,
            }),
            (_, true, Some(off)) => off.ended = Some(now),
            _ => {}
        }
    }
}

fn key(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}
