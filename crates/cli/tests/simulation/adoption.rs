//! Objects that exist already when the manager is about to create them.

use std::{
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
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use manager::objects;
use serde_json::Value;

use crate::{
    run::{Case, in_paused_time, run},
    timeline::{holds, versions},
};

/// Holds watches of a kind back for a while, as a slow API server does.
fn hold_back(server: &ApiServer, clock: &Clock, resource: ResourceId, time: Duration) {
    let (server, clock) = (server.clone(), clock.clone());
    server.hold_watches(&manager_user(), &resource, true);
    tokio::spawn(async move {
        clock.sleep(time).await;
        server.hold_watches(&manager_user(), &resource, false);
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
            hold_back(&server, &clock, ResourceId::new("batch", "jobs"), late);
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

/// A Service as the manager would create it for a plan's repository.
fn repository(plan: &UpgradePlan) -> Service {
    objects::repo::service(plan).unwrap()
}

/// Runs an upgrade whose repository's Service exists already, and tells how the plan looked from then on. `touch` makes
/// the Service from the one that the manager would create; `remove` says whether a person removes it after a while.
fn with_service(touch: fn(&mut Service), remove: bool) -> (Vec<String>, Vec<Arc<Value>>, Option<Phase>) {
    in_paused_time(async move {
        let clock = Clock::simulated(beginning(), 1.0);
        let rehearsal = Rehearsal::start(Case::three_nodes().scenario, clock.clone())
            .await
            .unwrap();
        let _manager = rehearsal.start_manager("manager-1");
        let plan = rehearsal.create(&rehearsal.plan(false, &[])).await.unwrap();
        let name = plan.name_any();
        let importing = |plan: &UpgradePlan| plan.phase() == Some(Phase::ISODownloading);
        rehearsal.follow(&name, None, importing).await.unwrap();
        let services: Api<Service> = Api::namespaced(rehearsal.server.client(), names::HARVESTER_NAMESPACE);
        let mut service = repository(&plan);
        touch(&mut service);
        // The manager does not hear of it: as when it was created by a manager that died before it could tell.
        let unheard = ResourceId::new("", "services");
        hold_back(&rehearsal.server, &clock, unheard, Duration::from_secs(7 * 60));
        services.create(&PostParams::default(), &service).await.unwrap();
        if remove {
            clock.sleep(Duration::from_secs(30 * 60)).await;
            let found = services.get(&names::repo(&name)).await.unwrap();
            assert!(found.owner_references().is_empty(), "it was adopted");
            services
                .delete(&names::repo(&name), &DeleteParams::default())
                .await
                .unwrap();
        }
        let over = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty();
        let limit = Duration::from_secs(12 * 3600);
        let plan = rehearsal.follow(&name, Some(limit), over).await;
        let store = rehearsal.server.store();
        let refused = store.history().into_iter();
        let refused = refused.filter(|write| write.user == manager_user() && write.code == 409);
        (
            refused
                .map(|write| format!("{} {}", write.verb.name(), write.resource.plural))
                .collect(),
            versions(store, "upgradeplans")
                .into_iter()
                .map(|(_, version)| version)
                .collect(),
            plan.and_then(|plan| plan.phase()),
        )
    })
}

fn degraded(versions: &[Arc<Value>]) -> Vec<&str> {
    versions.iter().filter_map(|plan| holds(plan, "Degraded")).collect()
}

#[test]
fn w11_an_object_of_the_plan_that_exists_already_is_taken_as_created() {
    let (refused, versions, phase) = with_service(|_| (), false);
    assert!(
        refused.iter().any(|write| write == "create services"),
        "nobody tried: {refused:?}"
    );
    assert_eq!(degraded(&versions), [""; 0]);
    assert_eq!(phase, Some(Phase::Succeeded));
}

#[test]
fn w11_somebody_elses_object_of_the_same_name_is_named_and_not_adopted() {
    let strangers = |service: &mut Service| {
        service.metadata.owner_references = None;
        service.labels_mut().remove(labels::UPGRADE_PLAN);
    };
    let (_, versions, phase) = with_service(strangers, true);
    let plan = versions.first().unwrap()["metadata"]["name"].as_str().unwrap();
    let wanted = format!(
        "Service harvester-system/{} exists and does not belong to this UpgradePlan; delete it to go on",
        names::repo(plan)
    );
    let said = degraded(&versions);
    assert!(said.contains(&wanted.as_str()), "{said:#?}");
    assert_eq!(phase, Some(Phase::Succeeded), "and then it goes on");
}
