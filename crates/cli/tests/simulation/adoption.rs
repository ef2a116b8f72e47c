//! Objects that exist already when the manager is about to create them.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use api::{Phase, UpgradePlan, labels, names};
use apiserver::{ApiServer, Fault, FaultPlan, ResourceId, Verb};
use cli::rehearsal::{Rehearsal, beginning, manager_user};
use clock::Clock;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};
use manager::objects;
use plan::observed::Settings;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    run::{Case, in_paused_time, run},
    timeline::{holds, versions},
    watched::Watched,
};

/// Delays watches of a kind for a while, as a slow API server does.
fn delay_watches_for(server: &ApiServer, clock: &Clock, resource: ResourceId, time: Duration) {
    let (server, clock) = (server.clone(), clock.clone());
    server.delay_watches(&manager_user(), &resource, true);
    tokio::spawn(async move {
        clock.sleep(time).await;
        server.delay_watches(&manager_user(), &resource, false);
    });
}

/// Shows the manager each of its Jobs some seconds late, the first time it creates one.
fn shows_jobs_late(rehearsal: &Rehearsal) {
    let (server, clock) = (rehearsal.server.clone(), rehearsal.clock.clone());
    let begun = AtomicBool::new(false);
    rehearsal.server.set_faults(FaultPlan::writes(move |write| {
        let creates = write.who.user == manager_user() && write.verb == Verb::Create && write.resource.plural == "jobs";
        if creates && !begun.swap(true, Ordering::SeqCst) {
            let late = Duration::from_secs(5);
            delay_watches_for(&server, &clock, ResourceId::new("batch", "jobs"), late);
        }
        Fault::None
    }));
}

#[test]
fn w11_what_was_created_and_does_not_show_yet_is_waited_for_and_not_created_again() {
    let ended = run(&Case {
        arranged: Some(shows_jobs_late),
        ..Case::three_nodes()
    });
    assert_eq!(ended.plan.as_ref().unwrap().phase(), Some(Phase::Succeeded));
    for write in &ended.writes {
        assert!(write.ends_with(" 200") || write.ends_with(" 201"), "{write}");
    }
}

/// What came of an upgrade that found an object where it wanted to create its own.
struct Outcome {
    /// Writes of the manager, each as verb, kind and status code, with its moment.
    writes: Vec<(Timestamp, String)>,
    /// When the manager heard of the object at last.
    heard: Timestamp,
    /// Every version of the plan.
    versions: Vec<Arc<Value>>,
    phase: Option<Phase>,
}

/// Runs an upgrade that finds an object. The manager does not hear of it for a while: as when it was created by a manager
/// that died before it could record it. `removed` says that a person removes it later.
fn find<K>(resource: ResourceId, make: fn(&UpgradePlan) -> K, removed: bool) -> Outcome
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
{
    in_paused_time(async move {
        let clock = Clock::simulated(beginning(), 1.0);
        let rehearsal = Watched::start(Case::three_nodes().scenario, clock.clone()).await;
        let _manager = rehearsal.start_manager("manager-1");
        let plan = rehearsal.create_unchecked(rehearsal.plan(false, &[])).await.unwrap();
        let name = plan.name_any();
        let importing = |plan: &UpgradePlan| plan.phase() == Some(Phase::ISODownloading);
        rehearsal.follow(&name, None, importing).await.unwrap();
        let objects: Api<K> = Api::namespaced(rehearsal.server.client(), names::HARVESTER_NAMESPACE);
        let object = make(&plan);
        let unheard = Duration::from_secs(7 * 60);
        let heard = clock.now().saturating_add(unheard).unwrap();
        delay_watches_for(&rehearsal.server, &clock, resource, unheard);
        objects.create(&PostParams::default(), &object).await.unwrap();
        if removed {
            clock.sleep(Duration::from_secs(30 * 60)).await;
            let found = objects.get(&object.name_any()).await.unwrap();
            assert!(found.owner_references().is_empty(), "it was adopted");
            let how = DeleteParams::default();
            objects.delete(&object.name_any(), &how).await.unwrap();
        }
        let over = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty();
        let limit = Duration::from_secs(12 * 3600);
        let plan = rehearsal.follow(&name, Some(limit), over).await;
        let store = rehearsal.server.store();
        let writes = store.history().into_iter().filter(|write| write.user == manager_user());
        let text = |write: &apiserver::Write| format!("{} {} {}", write.verb.name(), write.resource.plural, write.code);
        let versions = versions(store, "upgradeplans").into_iter();
        Outcome {
            writes: writes.map(|write| (write.at, text(&write))).collect(),
            heard,
            versions: versions.map(|(_, version)| version).collect(),
            phase: plan.and_then(|plan| plan.phase()),
        }
    })
}

fn degraded(versions: &[Arc<Value>]) -> Vec<&str> {
    versions.iter().filter_map(|plan| holds(plan, "Degraded")).collect()
}

#[test]
fn w11_an_object_of_the_plan_that_exists_already_is_taken_as_created() {
    let deployment = |plan: &UpgradePlan| {
        let claim = names::iso_image(&plan.name_any());
        let iso = objects::repo::Iso {
            claim: &claim,
            checksum: None,
        };
        // With a certificate that is not recorded: once the manager observes it, it deploys its own.
        objects::repo::deployment(plan, &Settings::default(), 2, iso, "up-repo-unknown").unwrap()
    };
    let found = find(ResourceId::new("apps", "deployments"), deployment, false);
    let first = |wanted: &str| {
        found
            .writes
            .iter()
            .find(|(_, write)| write == wanted)
            .map(|(at, _)| *at)
    };
    let refused = first("create deployments 409").expect("the manager tries to create its own");
    // What comes after it is not delayed until the manager observes it.
    let service = first("create services 201").unwrap();
    assert!(refused <= service && service < found.heard, "{refused} {service}");
    assert_eq!(degraded(&found.versions), [""; 0]);
    assert_eq!(found.phase, Some(Phase::Succeeded));
}

#[test]
fn w11_a_foreign_object_of_the_same_name_is_named_and_not_adopted() {
    let strangers = |plan: &UpgradePlan| {
        let mut service = objects::repo::service(plan).unwrap();
        service.metadata.owner_references = None;
        service.labels_mut().remove(labels::UPGRADE_PLAN);
        service
    };
    let found = find(ResourceId::new("", "services"), strangers, true);
    let plan = found.versions.first().unwrap()["metadata"]["name"].as_str().unwrap();
    let wanted = format!(
        "Service harvester-system/{} exists and does not belong to this UpgradePlan; delete it to continue",
        names::repo(plan)
    );
    let said = degraded(&found.versions);
    assert!(said.contains(&wanted.as_str()), "{said:#?}");
    assert_eq!(found.phase, Some(Phase::Succeeded), "and then it continues");
}
