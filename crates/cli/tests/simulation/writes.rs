//! What is written in whole upgrades, held against the real definitions.
//!
//! Every write asks the API server to refuse fields that a definition does not name, so a single one would stop the
//! upgrade. Here they are counted, and looked at once more without the API server.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    Phase,
    labels::{component, job_type},
};
use apiserver::Verb;
use cli::rehearsal::manager_user;
use rstest::rstest;
use serde_json::Value;
use world::Troubles;

use crate::{
    failure::{failing_job, old_system},
    run::{Case, Ended, run},
    user::User,
};

/// The schemas of a definition by version.
type Schemas = BTreeMap<String, &'static Value>;

/// The schemas of the real definitions by group and plural.
fn definitions() -> Option<BTreeMap<(String, String), Schemas>> {
    let definitions = testbed::real_definitions()?.iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let found = definitions.map(|definition| {
        let spec = &definition["spec"];
        let versions = spec["versions"].as_array().unwrap().iter();
        let versions = versions.map(|version| (text(&version["name"]), &version["schema"]["openAPIV3Schema"]));
        (
            (text(&spec["group"]), text(&spec["names"]["plural"])),
            versions.collect(),
        )
    });
    Some(found.collect())
}

/// The paths of everything that is written below a place, and of what its schema does not name.
fn fields(path: &str, schema: &Value, sent: &Value, known: &mut BTreeSet<String>, unknown: &mut BTreeSet<String>) {
    let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    match sent {
        Value::Object(map) => {
            for (name, child) in map {
                if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                    continue;
                }
                let named = schema["properties"].get(name);
                let (path, of) = match (named, &schema["additionalProperties"]) {
                    (Some(named), _) => (format!("{path}.{name}"), named),
                    (None, any @ Value::Object(_)) => (format!("{path}.*"), any),
                    (None, _) if is_open => continue,
                    (None, _) => {
                        unknown.insert(format!("{path}.{name}"));
                        continue;
                    }
                };
                known.insert(path.clone());
                fields(&path, of, child, known, unknown);
            }
        }
        Value::Array(list) => {
            for child in list {
                fields(&format!("{path}[]"), &schema["items"], child, known, unknown);
            }
        }
        _ => {}
    }
}

/// What a JSON patch sets, as the objects that would set it; anything else is as it is.
fn merged(sent: Value) -> Vec<Value> {
    let Value::Array(operations) = sent else {
        return vec![sent];
    };
    let set = operations.iter().filter(|operation| operation["op"] != "remove");
    let nested = set.map(|operation| {
        let path = operation["path"].as_str().unwrap();
        let steps = path
            .split('/')
            .skip(1)
            .map(|step| step.replace("~1", "/").replace("~0", "~"));
        let steps: Vec<String> = steps.collect();
        let put = |value: Value, step: &String| match step.parse::<usize>().is_ok() || step == "-" {
            true => Value::Array(vec![value]),
            false => Value::Object([(step.clone(), value)].into_iter().collect()),
        };
        steps.iter().rev().fold(operation["value"].clone(), put)
    });
    nested.collect()
}

/// What was written, by kind.
#[derive(Default)]
struct Tally {
    writes: usize,
    known: BTreeSet<String>,
    unknown: BTreeSet<String>,
}

fn tally(ended: &Ended, by_manager: bool, tallies: &mut BTreeMap<(String, String), Tally>) {
    let Some(definitions) = definitions() else { return };
    for write in ended.store.history() {
        let writes = [Verb::Create, Verb::Update, Verb::Patch].contains(&write.verb);
        if !writes || (write.user == manager_user()) != by_manager {
            continue;
        }
        let key = (write.resource.group.clone(), write.resource.plural.clone());
        let Some(versions) = definitions.get(&key) else {
            continue;
        };
        let sent: Value = serde_json::from_slice(&write.sent).unwrap_or_default();
        let version = sent["apiVersion"].as_str().and_then(|version| version.split_once('/'));
        let schema = version.and_then(|(_, version)| versions.get(version));
        // A patch does not say which version it is of; ours are all of the newest.
        let schema = schema.or(versions.values().next_back()).unwrap();
        let tally = tallies.entry(key).or_default();
        tally.writes += 1;
        for sent in merged(sent) {
            fields("", schema, &sent, &mut tally.known, &mut tally.unknown);
        }
    }
}

fn case(troubles: Troubles) -> Case {
    let mut case = Case::three_nodes();
    case.scenario.troubles = troubles;
    case
}

fn deleted(phase: Phase) -> Case {
    Case {
        user: vec![User::DeletesAt(phase)],
        ..Case::three_nodes()
    }
}

fn tried_again(troubles: Troubles) -> Case {
    Case {
        user: vec![User::MendsAndRetries],
        ..case(troubles)
    }
}

fn from_image() -> Case {
    let mut case = Case::three_nodes();
    case.scenario.shape.image = Some("uploaded".to_owned());
    case
}

/// Some steps of the cluster's upgrade are for clusters that run v1.8.
fn newer() -> Case {
    let mut case = Case::three_nodes();
    case.scenario.shape.from = "v1.8.0".to_owned();
    case.scenario.shape.to = "v1.9.0".to_owned();
    case
}

fn restoring() -> Case {
    let mut case = Case::three_nodes();
    case.restore_vm = true;
    case.scenario.shape.vms = 12;
    case
}

#[rstest]
#[case::several_nodes(&[Case::three_nodes(), restoring()])]
#[case::from_v1_8(&[newer()])]
#[case::one_node(&[Case::single_node()])]
#[case::an_image_instead_of_a_version(&[from_image()])]
#[case::held(&[Case::held()])]
#[case::tried_again(&[
    tried_again(failing_job(component::IMAGE_PRELOAD, None)),
    tried_again(failing_job(component::CLUSTER_UPGRADE, None)),
    tried_again(failing_job(component::NODE_UPGRADE, Some(job_type::PRE_DRAIN))),
    tried_again(failing_job(component::IMAGE_CLEANUP, None)),
    tried_again(failing_job(component::NODE_UPGRADE, Some(job_type::POST_DRAIN))),
])]
#[case::failed(&[
    case(Troubles { iso_failures: 100, ..Troubles::default() }),
    case(Troubles { full_disks: ["node-2".to_owned()].into(), ..Troubles::default() }),
    case(failing_job(component::IMAGE_PRELOAD, None)),
    case(failing_job(component::CLUSTER_UPGRADE, None)),
    case(failing_job(component::NODE_UPGRADE, Some(job_type::PRE_DRAIN))),
    case(failing_job(component::NODE_UPGRADE, Some(job_type::POST_DRAIN))),
    case(old_system()),
    case(failing_job(component::IMAGE_CLEANUP, None)),
])]
#[case::deleted(&[
    deleted(Phase::Initializing), deleted(Phase::ISODownloading), deleted(Phase::RepoCreating),
    deleted(Phase::MetadataPopulating), deleted(Phase::ImagePreloading), deleted(Phase::ClusterUpgrading), deleted(Phase::NodeUpgrading),
    deleted(Phase::CleaningUp),
])]
fn r01_whole_upgrades_write_no_field_that_the_real_definitions_do_not_have(#[case] cases: &[Case]) {
    let (mut of_manager, mut of_others) = (BTreeMap::new(), BTreeMap::new());
    let mut refused = BTreeSet::new();
    for case in cases {
        let ended = run(case);
        tally(&ended, true, &mut of_manager);
        tally(&ended, false, &mut of_others);
        refused.extend(ended.refused);
    }
    for (who, tallies) in [("the manager", &of_manager), ("the programs and the world", &of_others)] {
        let count = |of: fn(&Tally) -> usize| tallies.values().map(of).sum::<usize>();
        println!(
            "{} upgrades: {who} made {} writes of {} foreign kinds, with {} fields, {} of them unknown",
            cases.len(),
            count(|tally| tally.writes),
            tallies.len(),
            count(|tally| tally.known.len()),
            count(|tally| tally.unknown.len()),
        );
    }
    let unknown: Vec<String> = of_manager
        .iter()
        .chain(&of_others)
        .flat_map(|((group, plural), tally)| tally.unknown.iter().map(move |path| format!("{plural}.{group} {path}")))
        .collect();
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    assert!(refused.is_empty(), "{refused:#?}");
    if testbed::real_definitions().is_some() {
        assert!(!of_others.is_empty(), "the world writes foreign kinds in every upgrade");
    }
}
