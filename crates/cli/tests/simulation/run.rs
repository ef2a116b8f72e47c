//! One simulated upgrade: starts a cluster, perturbs it, and follows the plan to its end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{Phase, UpgradePlan, annotations};
use cli::rehearsal::{Rehearsal, Scenario, Templates, beginning, manager_user};
use clock::Clock;
use kube::ResourceExt;
use serde_json::{Value, json};
use world::{Definitions, Shape};

use crate::{
    invariants,
    perturbation::{self, Perturbation},
    rbac, timeline,
    user::{self, User},
    writes::refused,
};

/// What is simulated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    pub scenario: Scenario,
    pub restore_vm: bool,
    /// Nodes that the plan holds.
    pub pause: Vec<String>,
    /// What the user does during the upgrade.
    pub user: Vec<User>,
    /// Which write of the manager, counted from 1 without renewals of its lease, and what happens to it.
    pub perturbed: Option<(u64, Perturbation)>,
    /// A rule that is taken out of the manager's roles: which role, which of its rules.
    pub without_rule: Option<(String, usize)>,
    /// When the run is given up; much longer than it takes when unset.
    pub limit: Option<Duration>,
    /// Where to note what the manager asks for.
    pub asked: Option<rbac::RequestedRights>,
    /// What else is different in this cluster, arranged before the manager starts.
    pub arranged: Option<fn(&Rehearsal)>,
}

impl Case {
    pub(crate) fn three_nodes() -> Self {
        let shape = Shape {
            nodes: 3,
            vms: 3,
            ..Shape::default()
        };
        Self {
            scenario: Scenario {
                shape,
                definitions: definitions(),
                ..Scenario::default()
            },
            ..Self::default()
        }
    }

    /// Three nodes, in a cluster where everything takes so long that waits are recorded.
    pub(crate) fn unhurried() -> Self {
        let mut case = Self::three_nodes();
        let durations = &mut case.scenario.durations;
        for duration in [
            &mut durations.answer,
            &mut durations.pod_ready,
            &mut durations.skip_manifests,
            &mut durations.garbage_collection,
        ] {
            *duration = Duration::from_secs(20);
        }
        case
    }

    pub(crate) fn single_node() -> Self {
        let mut case = Self::three_nodes();
        case.scenario.shape.nodes = 1;
        case
    }

    /// Three nodes, of which the second is paused until its turn has come and a user resumes it.
    pub(crate) fn paused() -> Self {
        Self {
            pause: vec!["node-2".to_owned()],
            user: vec![User::LetsGo],
            ..Self::three_nodes()
        }
    }
}

/// How it ended.
pub(crate) struct Ended {
    /// The plan, unless it is gone.
    pub plan: Option<UpgradePlan>,
    /// What is in the cluster at the end.
    pub store: apiserver::Store,
    /// What must be the same however the way was: the plan and the cluster, without times and identifiers.
    pub digest: Value,
    /// Writes of the manager: verb, resource, subresource, name, status code; without renewals of its lease.
    pub writes: Vec<String>,
    /// What must never be, and was.
    pub violations: Vec<String>,
    /// Writes that the API server refused because of what they said.
    pub refused: Vec<String>,
    /// The steps that programs began.
    pub steps: BTreeSet<&'static str>,
    /// What all clients together asked of the API server.
    pub requests: apiserver::Counters,
}

/// The clusters that runs begin with.
pub(crate) static TEMPLATES: Templates = Templates::new();

/// Longer than any upgrade of a small cluster takes.
const LIMIT: Duration = Duration::from_secs(12 * 3600);
/// So long a run continues after its plan has ended.
const AFTERWARDS: Duration = Duration::from_secs(300);

/// Runs something in time that passes only while all tasks wait.
pub(crate) fn in_paused_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(future)
}

/// Runs a case on a runtime of its own.
pub(crate) fn run(case: &Case) -> Ended {
    try_run(case).unwrap_or_else(|plans| panic!("the upgrade did not end: {plans}"))
}

/// The same for a case that may not end; then prints its plans.
pub(crate) fn try_run(case: &Case) -> Result<Ended, String> {
    in_paused_time(simulate(case))
}

/// The real definitions where there are any. They cost less than a tenth more than ours, so sweeps use them too.
pub(crate) fn definitions() -> Definitions {
    testbed::real_definitions().map_or(Definitions::Ours, Definitions::Given)
}

async fn simulate(case: &Case) -> Result<Ended, String> {
    let clock = Clock::simulated(beginning(), 1.0);
    let scenario = Scenario {
        definitions: definitions(),
        ..case.scenario.clone()
    };
    let rehearsal = Rehearsal::start_again(scenario, clock, &TEMPLATES).await.unwrap();
    if let Some((role, rule)) = &case.without_rule {
        rbac::take_away(&rehearsal, role, *rule).await;
    }
    let violations = invariants::watch(&rehearsal, case.user.contains(&User::FixesAndRetries));
    let steps: Arc<Mutex<BTreeSet<&'static str>>> = Arc::default();
    let begun = steps.clone();
    rehearsal.observe_steps(move |started| {
        begun.lock().unwrap().insert(started.step.name);
    });
    if let Some(asked) = &case.asked {
        rbac::note(&rehearsal, asked);
    }
    if let Some(arrange) = case.arranged {
        arrange(&rehearsal);
    }
    let signals = perturbation::perturb(&rehearsal, case.perturbed);
    let mut manager = rehearsal.start_manager(perturbation::FIRST);
    let overlapping = matches!(case.perturbed, Some((_, Perturbation::Overlap)));
    let standby = overlapping.then(|| rehearsal.start_manager("manager-standby"));
    let plan = rehearsal.plan(case.restore_vm, &case.pause);
    // Without `restoreVM` the webhook refuses VMs that cannot move.
    let plan = if case.restore_vm {
        rehearsal.create(&plan).await
    } else {
        rehearsal.create_unchecked(plan).await
    };
    let plan = plan.map_err(|error| format!("{error:#}"))?;
    let name = plan.name_any();
    let end = async {
        let plan = end_of(&rehearsal, &name, case).await?;
        // What follows a plan's end (garbage collection, VMs that start again, the comparison with before) takes its time
        // too, and a manager that dies by then is followed by another one.
        rehearsal.clock.sleep(AFTERWARDS).await;
        Ok::<_, String>(match plan {
            Some(_) => rehearsal.follow(&name, Some(Duration::ZERO), |_| true).await,
            None => None,
        })
    };
    let users = futures::future::join_all(case.user.iter().map(|user| user::act(&rehearsal, &name, user)));
    tokio::pin!(end, users);
    let (mut generation, mut acting) = (1, true);
    let plan = loop {
        tokio::select! {
            biased;
            () = signals.deaf.notified() => {
                tokio::spawn(perturbation::be_deaf(rehearsal.server.clone(), rehearsal.clock.clone(), signals.deaf_to.clone()));
            }
            () = signals.crashed.notified() => {
                manager.abort();
                generation += 1;
                manager = rehearsal.start_manager(&format!("manager-{generation}"));
            }
            _ = &mut users, if acting => acting = false,
            plan = &mut end => break plan?,
        }
    };
    manager.abort();
    if let Some(standby) = standby {
        standby.abort();
    }
    Ok(Ended {
        digest: digest(&rehearsal, &case.scenario.shape.objects(), plan.as_deref()),
        writes: writes(&rehearsal),
        violations: violations.lock().unwrap().clone(),
        refused: refused(rehearsal.server.store()),
        steps: steps.lock().unwrap().clone(),
        requests: rehearsal.server.store().counters(),
        plan: plan.map(|plan| (*plan).clone()),
        store: rehearsal.server.store().clone(),
    })
}

/// Waits until all plans have ended as the case wants; the plan, unless it is gone.
async fn end_of(rehearsal: &Rehearsal, name: &str, case: &Case) -> Result<Option<Arc<UpgradePlan>>, String> {
    let retries = case.user.contains(&User::FixesAndRetries);
    let deletes = |user: &User| matches!(user, User::DeletesAt(_) | User::DeletesAtNode(..));
    let deleted = case.user.iter().any(deletes);
    let store = rehearsal.server.store();
    let expected = if case.user.contains(&User::FixesAndStartsOver) {
        2
    } else {
        1
    };
    let others_ended = || {
        let plans = store.list("management.harvesterhci.io", "upgradeplans", None);
        plans.len() >= expected
            && plans.iter().all(|plan| {
                ["Succeeded", "Failed"].contains(&plan["status"]["currentPhase"].as_str().unwrap_or_default())
                    && plan["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
            })
    };
    let ended = |plan: &UpgradePlan| {
        let wanted = if retries {
            plan.phase() == Some(Phase::Succeeded)
        } else {
            plan.phase().is_some_and(Phase::is_terminal)
        };
        wanted && plan.finalizers().is_empty() && others_ended()
    };
    let gone = async {
        if deleted {
            user::until_gone(rehearsal, name).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let too_long = || {
        let plans = store.list("management.harvesterhci.io", "upgradeplans", None);
        let plans: Vec<String> = plans.iter().map(|plan| format!("{:#}", plan["status"])).collect();
        format!("{}\nrefused: {:#?}", plans.join("\n"), refused(store))
    };
    let limit = case.limit.unwrap_or(LIMIT);
    tokio::select! {
        biased;
        () = gone => Ok(None),
        plan = rehearsal.follow(name, Some(limit), ended) => match plan {
            Some(plan) => Ok(Some(plan)),
            None => Err(too_long()),
        },
    }
}

fn writes(rehearsal: &Rehearsal) -> Vec<String> {
    let user = manager_user();
    let writes = rehearsal.server.store().history().into_iter();
    writes
        .filter(|write| write.user == user && write.resource.plural != "leases")
        .map(|write| {
            let subresource = write.subresource.map(|sub| format!("/{sub}")).unwrap_or_default();
            format!(
                "{} {}{subresource} {} {}",
                write.verb.name(),
                write.resource.plural,
                write.name,
                write.code
            )
        })
        .collect()
}

/// The plan and the cluster at the end, without times and identifiers, and without Deployments that it had from the
/// beginning.
fn digest(rehearsal: &Rehearsal, had: &[Value], plan: Option<&UpgradePlan>) -> Value {
    let status = plan
        .map(|plan| timeline::without_times(&plan.status))
        .unwrap_or_default();
    let store = rehearsal.server.store();
    let one = |group: &str, plural: &str, namespace: &str, name: &str| {
        store
            .get(group, plural, namespace, name)
            .map(|object| (*object).clone())
            .unwrap_or_default()
    };
    let names = |group: &str, plural: &str| -> Vec<String> {
        rehearsal
            .objects(group, plural)
            .iter()
            .filter(|object| !object.labels().contains_key(world::FORGED))
            .map(ResourceExt::name_any)
            .collect()
    };
    let left_of = |kind: &str, names: Vec<String>| -> Vec<String> {
        let had = |name: &String| {
            let mut of_kind = had.iter().filter(|object| object["kind"] == kind);
            of_kind.any(|object| object["metadata"]["name"] == name.as_str())
        };
        names.into_iter().filter(|name| !had(name)).collect()
    };
    let nodes: BTreeMap<String, Value> = rehearsal
        .objects("", "nodes")
        .iter()
        .map(|node| {
            let ours = [annotations::PENDING_OS_IMAGE, annotations::BOOT_ID_BEFORE_UPGRADE];
            let left: Vec<_> = ours
                .into_iter()
                .filter(|key| node.annotations().contains_key(*key))
                .collect();
            let labels: Vec<_> = node
                .labels()
                .keys()
                .filter(|key| key.starts_with("plan.upgrade.cattle.io/"))
                .collect();
            let info = &node.data["status"]["nodeInfo"];
            let state = json!({
                "osImage": info["osImage"], "kubeletVersion": info["kubeletVersion"], "annotations": left,
                "labels": labels, "cordoned": node.data["spec"]["unschedulable"], "taints": node.data["spec"]["taints"],
            });
            (node.name_any(), state)
        })
        .collect();
    let cluster = one("provisioning.cattle.io", "clusters", "fleet-local", "local");
    let vms: BTreeMap<String, Value> = rehearsal
        .objects("kubevirt.io", "virtualmachines")
        .iter()
        .map(|vm| (vm.name_any(), vm.data["status"]["printableStatus"].clone()))
        .collect();
    let mut events: Vec<String> = rehearsal
        .objects("", "events")
        .iter()
        .map(|event| format!("{} {}", event.data["reason"], event.data["message"]))
        .map(|event| timeline::without_pod_ids(&event))
        .collect();
    events.sort();
    json!({
        "status": status,
        "finalizers": plan.map(|plan| plan.finalizers().to_vec()).unwrap_or_default(),
        "nodes": nodes,
        "cluster": cluster["spec"],
        "longhorn": one("longhorn.io", "settings", "longhorn-system", "replica-replenishment-wait-interval")["value"],
        "descheduler": one("harvesterhci.io", "addons", "kube-system", "descheduler")["spec"]["enabled"],
        "kubevirt": one("kubevirt.io", "kubevirts", "harvester-system", "kubevirt")["spec"],
        "charts": charts(rehearsal),
        "jobs": names("batch", "jobs"),
        "plans": names("upgrade.cattle.io", "plans"),
        "deployments": left_of("Deployment", names("apps", "deployments")),
        "services": names("", "services"),
        "images": names("harvesterhci.io", "virtualmachineimages"),
        "vms": vms,
        "events": events,
    })
}

/// What an upgrade changes on Harvester's charts on its way.
fn charts(rehearsal: &Rehearsal) -> BTreeMap<String, Value> {
    let store = rehearsal.server.store();
    let of = |name: &str| {
        let chart = store.get("management.cattle.io", "managedcharts", "fleet-local", name);
        let chart = chart.map(|chart| (*chart).clone()).unwrap_or_default();
        let paused_by = &chart["metadata"]["annotations"][annotations::CHART_PAUSED_BY];
        json!({
            "paused": chart["spec"]["paused"] == true, "pausedBy": paused_by, "diff": chart["spec"]["diff"],
            "kubevirt": chart["spec"]["values"]["kubevirt"],
        })
    };
    api::names::MANAGED_CHARTS
        .map(|name| (name.to_owned(), of(name)))
        .into()
}
