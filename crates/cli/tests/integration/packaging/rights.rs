//! `docs/security-jobs.md` has every step of every program, and exactly the rights that the roles of its account give.

use std::collections::{BTreeMap, BTreeSet};

use api::accounts;
use manager::rbac::{self, PROGRAMS, Program};
use node::{
    host::system_agent::SUSPEND_STEPS,
    images::{cleanup, prepare},
    limits::Limits,
    post_drain, pre_drain, single_node, skip_manifests,
    vm::{detector, restore},
};
use program::step::Step;
use serde_json::Value;

use crate::packaging::root;

const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
/// What stands for every step of a program.
const ALL_STEPS: &str = "all steps";

/// Place (empty for the whole cluster), resource with its group, verb, name (`*` for all).
type Right = (String, String, String, String);

/// Steps, and the rights that they need.
type Row = (Vec<String>, BTreeSet<Right>);

fn names<C>(steps: &[Step<C>]) -> Vec<&'static str> {
    steps.iter().map(|step| step.name).collect()
}

/// The steps of all programs that an account is for.
fn steps_of(account: &str) -> BTreeSet<&'static str> {
    let limits = Limits::default();
    let steps = match account {
        accounts::CLUSTER_UPGRADE => names(cluster_upgrade::STEPS),
        accounts::NODE_UPGRADE => [
            names(&pre_drain::steps(&limits)),
            names(&post_drain::steps(&limits)),
            names(&single_node::steps(&limits)),
            names(detector::STEPS),
        ]
        .concat(),
        accounts::VM_RESTORE => names(restore::STEPS),
        accounts::NODE_PLANS => [
            names(prepare::STEPS),
            names(cleanup::STEPS),
            names(skip_manifests::STEPS),
            names(SUSPEND_STEPS),
        ]
        .concat(),
        accounts::RANCHER_INSTALLER => Vec::new(),
        other => panic!("whose is {other}?"),
    };
    steps.into_iter().collect()
}

/// What the roles of an account allow.
fn granted(program: &Program) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for role in rbac::roles_of("", program) {
        let place = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().unwrap() {
            let words =
                |field: &str| -> Vec<String> { serde_json::from_value(rule[field].clone()).unwrap_or_default() };
            let mut names = words("resourceNames");
            if names.is_empty() {
                names.push("*".to_owned());
            }
            for resource in words("resources") {
                let group = words("apiGroups").concat();
                let resource = if group.is_empty() {
                    resource
                } else {
                    format!("{resource}.{group}")
                };
                for verb in words("verbs") {
                    rights.extend(
                        names
                            .iter()
                            .map(|name| (place.to_owned(), resource.clone(), verb.clone(), name.clone())),
                    );
                }
            }
        }
    }
    rights
}

/// One entry of the page: `[PLACE:] VERB… RESOURCE [NAME…]`.
fn rights_in(entry: &str) -> BTreeSet<Right> {
    let (place, rest) = entry.split_once(": ").unwrap_or(("", entry));
    let words: Vec<&str> = rest.split(' ').collect();
    let (verbs, rest): (Vec<&str>, Vec<&str>) = {
        let count = words.iter().take_while(|word| VERBS.contains(word)).count();
        (words[..count].to_vec(), words[count..].to_vec())
    };
    let [resource, names @ ..] = rest.as_slice() else {
        panic!("no resource in {entry:?}");
    };
    let all = ["*"];
    let names: &[&str] = if names.is_empty() { &all } else { names };
    let text = |word: &str| word.to_owned();
    let pairs = verbs.iter().flat_map(|verb| names.iter().map(move |name| (verb, name)));
    pairs
        .map(|(verb, name)| (text(place), text(resource), text(verb), text(name)))
        .collect()
}

/// The rows of each account's table.
fn tables() -> BTreeMap<String, Vec<Row>> {
    let page = std::fs::read_to_string(root().join("docs/security-jobs.md")).unwrap();
    let mut tables: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    let mut heading = String::new();
    for line in page.lines() {
        if let Some(found) = line.strip_prefix("## ") {
            found.clone_into(&mut heading);
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let is_account = PROGRAMS.iter().any(|program| program.account == heading);
        let ["", steps, rights, _, ""] = cells.as_slice() else {
            continue;
        };
        if !is_account || *steps == "step" || steps.starts_with("---") {
            continue;
        }
        let steps = steps.split(", ").map(str::to_owned).collect();
        let entries = rights.split('`').skip(1).step_by(2);
        let rights = entries.flat_map(rights_in).collect();
        tables.entry(heading.clone()).or_default().push((steps, rights));
    }
    tables
}

#[test]
fn s06_every_step_is_in_the_table_with_the_rights_of_its_account_and_no_others() {
    let tables = tables();
    for program in PROGRAMS {
        let rows = tables.get(program.account).cloned().unwrap_or_default();
        let known = steps_of(program.account);
        let named: BTreeSet<&str> = rows.iter().flat_map(|row| &row.0).map(String::as_str).collect();
        let missing: Vec<_> = known.iter().filter(|step| !named.contains(*step)).collect();
        assert!(missing.is_empty(), "{}: no row for {missing:?}", program.account);
        let unknown: Vec<_> = named
            .iter()
            .filter(|step| **step != ALL_STEPS && !known.contains(*step))
            .collect();
        assert!(unknown.is_empty(), "{}: no such step as {unknown:?}", program.account);
        let explained: BTreeSet<Right> = rows.into_iter().flat_map(|row| row.1).collect();
        let granted = granted(&program);
        let no_reason: Vec<_> = granted.difference(&explained).collect();
        assert!(
            no_reason.is_empty(),
            "{}: no step needs {no_reason:#?}",
            program.account
        );
        let not_granted: Vec<_> = explained.difference(&granted).collect();
        assert!(
            not_granted.is_empty(),
            "{}: no rule for {not_granted:#?}",
            program.account
        );
    }
}

#[test]
fn s06_accounts_give_their_tokens_to_pods_that_ask_and_only_helm_is_an_administrator() {
    let objects = rbac::accounts("p-", "n");
    for account in objects.iter().filter(|object| object["kind"] == "ServiceAccount") {
        // A Plan of system-upgrade-controller has no field to ask with.
        let is_of_plans = account["metadata"]["name"] == format!("p-{}", accounts::NODE_PLANS);
        assert_eq!(
            account["automountServiceAccountToken"],
            Value::Bool(is_of_plans),
            "{account}"
        );
    }
    let administrators: Vec<&Value> = objects
        .iter()
        .filter(|object| object["roleRef"]["name"] == "cluster-admin")
        .map(|object| &object["subjects"][0]["name"])
        .collect();
    assert_eq!(administrators, [&format!("p-{}", accounts::RANCHER_INSTALLER)]);
    // Nothing is granted by a star, and no account may give rights to others or enter a container.
    for role in objects.iter().filter(|object| object["rules"].is_array()) {
        let text = role["rules"].to_string();
        for word in [
            "\"*\"",
            "escalate",
            "\"bind\"",
            "impersonate",
            "pods/exec",
            "nodes/proxy",
            "rolebindings",
        ] {
            assert!(!text.contains(word), "{word} in {role}");
        }
    }
}
