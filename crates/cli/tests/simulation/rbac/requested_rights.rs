//! What the manager asks for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use apiserver::{Fault, FaultPlan, ReadFault, ResourceId, Verb};
use cli::rehearsal::{Rehearsal, manager_user};
use serde_json::Value;

/// One thing that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    group: String,
    /// With its subresource.
    resource: String,
    verb: String,
    namespace: String,
    name: String,
}

impl Question {
    /// Whether this is one of the things that a rule of a role allows; of the rule's resources and verbs this pair.
    pub(crate) fn is_of(&self, role: &Value, rule: &Value, resource: &str, verb: &str) -> bool {
        let among = |field: &str, wanted: &str| {
            let list = rule[field].as_array();
            list.is_none_or(|list| list.iter().any(|one| one == wanted))
        };
        (self.resource.as_str(), self.verb.as_str()) == (resource, verb)
            && among("apiGroups", &self.group)
            && among("resourceNames", &self.name)
            && role["metadata"]["namespace"]
                .as_str()
                .is_none_or(|namespace| namespace == self.namespace)
    }
}

/// What was asked for.
pub(crate) type RequestedRights = Arc<Mutex<BTreeSet<Question>>>;

/// Notes what the manager asks for. Replies to its first creation of each kind are lost and its watches of that kind delayed
/// back for a while, so that it also creates what is there already.
pub(crate) fn note(rehearsal: &Rehearsal, asked: &RequestedRights) {
    let (reads, writes, server) = (asked.clone(), asked.clone(), rehearsal.server.clone());
    let created: Mutex<BTreeMap<ResourceId, ()>> = Mutex::default();
    let note = |asked: &RequestedRights, verb: Verb, resource: &ResourceId, of: (&str, &str, Option<&str>)| {
        let (namespace, name, subresource) = of;
        let subresource = subresource.map(|sub| format!("/{sub}")).unwrap_or_default();
        asked.lock().unwrap().insert(Question {
            group: resource.group.clone(),
            resource: format!("{}{subresource}", resource.plural),
            verb: verb.name().to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
    };
    let plan = FaultPlan::writes(move |write| {
        if write.who.user != manager_user() {
            return Fault::None;
        }
        let of = (write.namespace, write.name, write.subresource);
        note(&writes, write.verb, write.resource, of);
        let quiet = ["events", "leases", "secrets"].contains(&write.resource.plural.as_str());
        if write.verb != Verb::Create || quiet || created.lock().unwrap().insert(write.resource.clone(), ()).is_some() {
            return Fault::None;
        }
        let (server, resource) = (server.clone(), write.resource.clone());
        server.delay_watches(&manager_user(), &resource, true);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(90)).await;
            server.delay_watches(&manager_user(), &resource, false);
        });
        Fault::LoseReply
    });
    rehearsal.server.set_faults(plan.with_reads(move |read| {
        if read.who.user == manager_user() {
            let of = (read.namespace, read.name, read.subresource);
            note(&reads, read.verb, read.resource, of);
        }
        ReadFault::None
    }));
}
