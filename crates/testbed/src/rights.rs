//! Programs as their accounts: the roles that ship are in force, what is asked for is noted, and single rules can be taken
//! away.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "only tests use it"
)]

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use apiserver::{ApiServer, FaultPlan, Identity, ReadFault, Verb};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use manager::rbac::{self, PROGRAMS, Program};
use serde_json::{Value, json};

pub const PREFIX: &str = "upgrade-toolkit-";
const NAMESPACE: &str = "harvester-system";

/// The program whose account this is.
pub fn program(account: &str) -> Program {
    PROGRAMS.into_iter().find(|program| program.account == account).unwrap()
}

/// Who a program is.
pub fn identity(account: &str) -> Identity {
    Identity::service_account(program(account).namespace, &format!("{PREFIX}{account}"))
}

fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let (group, version) = match object["apiVersion"].as_str().unwrap().split_once('/') {
        Some(both) => both,
        None => ("", object["apiVersion"].as_str().unwrap()),
    };
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let resource = ApiResource::from_gvk(&kind);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Installs the accounts that ship.
pub async fn install(server: &ApiServer) {
    let objects = rbac::accounts(PREFIX, NAMESPACE);
    let namespaces: BTreeSet<&str> = objects
        .iter()
        .filter_map(|object| object["metadata"]["namespace"].as_str())
        .collect();
    for name in namespaces {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let api = api_of(&server.client(), &namespace);
        // Most are there.
        let _ = api
            .create(&PostParams::default(), &serde_json::from_value(namespace).unwrap())
            .await;
    }
    for object in objects {
        let api = api_of(&server.client(), &object);
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

/// All rules of a program: the role, and the number of the rule in it.
pub fn rules(account: &str) -> Vec<(Value, usize)> {
    let roles = rbac::roles_of(PREFIX, &program(account)).into_iter();
    roles
        .flat_map(|role| {
            let count = role["rules"].as_array().unwrap().len();
            (0..count).map(move |number| (role.clone(), number))
        })
        .collect()
}

/// A rule in words.
pub fn shown(role: &Value, number: usize) -> String {
    let rule = &role["rules"][number];
    let place = role["metadata"]["namespace"].as_str().unwrap_or("cluster");
    format!(
        "{place}: {} {} {}",
        rule["verbs"], rule["resources"], rule["resourceNames"]
    )
}

/// Takes a rule away.
pub async fn take_away(server: &ApiServer, role: &Value, number: usize) {
    let mut rules = role["rules"].as_array().unwrap().clone();
    rules.remove(number);
    let name = role["metadata"]["name"].as_str().unwrap();
    api_of(&server.client(), role)
        .patch(name, &PatchParams::default(), &Patch::Merge(json!({"rules": rules})))
        .await
        .unwrap();
}

#[allow(dead_code, reason = "not where there is no KubeVirt")]
/// Whether a user may access a subresource of KubeVirt's, of which the embedded API has none.
pub async fn may(client: Client, verb: &str, resource: &str, subresource: Option<&str>) -> bool {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some("subresources.kubevirt.io".to_owned()),
                resource: Some(resource.to_owned()),
                subresource: subresource.map(str::to_owned),
                verb: Some(verb.to_owned()),
                namespace: subresource.map(|_| "default".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client);
    let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
    answer.status.unwrap().allowed
}

/// What was asked for: group, resource with its subresource, verb, namespace, name.
type Question = (String, String, String, String, String);

/// What programs ask for, over several runs.
#[derive(Clone, Default)]
pub struct Asked(Arc<Mutex<BTreeSet<Question>>>);

impl Asked {
    fn add(&self, resource: (&str, &str, Option<&str>), verb: &str, (namespace, name): (&str, &str)) {
        let (group, plural, subresource) = resource;
        let subresource = subresource.map(|sub| format!("/{sub}")).unwrap_or_default();
        let resource = format!("{plural}{subresource}");
        self.0.lock().unwrap().insert((
            group.to_owned(),
            resource,
            verb.to_owned(),
            namespace.to_owned(),
            name.to_owned(),
        ));
    }

    /// Notes what is read from now on. What is written, the server keeps.
    pub fn listen(&self, server: &ApiServer, account: &str) {
        let (asked, user) = (self.clone(), identity(account).user);
        server.set_faults(FaultPlan::none().with_reads(move |read| {
            if read.who.user == user {
                let resource = (
                    read.resource.group.as_str(),
                    read.resource.plural.as_str(),
                    read.subresource,
                );
                asked.add(resource, read.verb.name(), (read.namespace, read.name));
            }
            ReadFault::None
        }));
    }

    /// Notes what was written.
    pub fn take_writes(&self, server: &ApiServer, account: &str) {
        let user = identity(account).user;
        for write in server.store().history().into_iter().filter(|write| write.user == user) {
            let resource = (
                write.resource.group.as_str(),
                write.resource.plural.as_str(),
                write.subresource.as_deref(),
            );
            let object = (write.namespace.as_str(), write.name.as_str());
            self.add(resource, write.verb.name(), object);
            if write.verb == Verb::Patch && write.code == 201 {
                self.add(resource, "create", object);
            }
        }
    }

    /// The verbs, with resource and place, that a program's roles allow and that were never asked for.
    pub fn never(&self, account: &str, elsewhere: &[&str]) -> Vec<String> {
        let asked = self.0.lock().unwrap();
        let mut never = Vec::new();
        for (role, number) in rules(account) {
            let rule = &role["rules"][number];
            let words =
                |field: &str| -> Vec<String> { serde_json::from_value(rule[field].clone()).unwrap_or_default() };
            let (groups, names) = (words("apiGroups"), words("resourceNames"));
            let place = role["metadata"]["namespace"].as_str();
            // Each name by itself: a name that no request uses must not be granted.
            let names: Vec<Option<String>> = match names.as_slice() {
                [] => vec![None],
                some => some.iter().cloned().map(Some).collect(),
            };
            for resource in words("resources") {
                for verb in words("verbs") {
                    for name in &names {
                        let is_it = |one: &Question| {
                            groups.contains(&one.0)
                                && one.1 == resource
                                && one.2 == verb
                                && place.is_none_or(|place| place == one.3)
                                && name.as_ref().is_none_or(|name| *name == one.4)
                        };
                        let text = format!(
                            "{}: {verb} {resource} {}",
                            place.unwrap_or("cluster"),
                            name.as_deref().unwrap_or("*")
                        );
                        if !asked.iter().any(is_it) && !elsewhere.iter().any(|known| text.contains(known)) {
                            never.push(text);
                        }
                    }
                }
            }
        }
        never
    }
}
