//! The cluster's manifests: charts to their new versions one after another, KubeVirt, addons. Of Rancher's own upgrade
//! the simulated world shows only the time.

use api::{
    foreign::{kubevirt::KubeVirt, longhorn, rancher::ManagedChart},
    names,
};
use futures::FutureExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use node::{
    Error, Result,
    cluster::{self, called, charts, harvester_chart, repository, settings},
    report::Reporter,
    step::Pace,
};
use serde_json::{Value, json};

use super::{
    Call, addons,
    walk::{Line, UNSEEN, walk},
};

pub(super) const LINES: &[Line] = &[
    ("wait-repository", |call, pace| wait_for_repository(call, pace).boxed()),
    ("read-release", |call, _| {
        async { repository::is_complete(&call.release()?.0) }.boxed()
    }),
    ("read-plan", |call, _| async { read_plan(call) }.boxed()),
    ("guard-multus", UNSEEN),
    ("preserve-overcommit", UNSEEN),
    ("pause-charts", |call, _| pause_charts(call).boxed()),
    ("hold-agents", UNSEEN),
    ("allow-internal-names", UNSEEN),
    ("mark-administrated", UNSEEN),
    ("prepare-rancher", UNSEEN),
    // What the chart of Harvester and the addons leave of the time.
    ("upgrade-rancher", |call, _| {
        let durations = &call.world.durations;
        let follows = durations.chart + durations.addon * 3;
        let takes = durations.cluster_upgrade.saturating_sub(follows);
        call.take(takes).map(Ok).boxed()
    }),
    ("wait-rancher-version", UNSEEN),
    ("refresh-rancher-charts", UNSEEN),
    ("wait-rancher-charts", UNSEEN),
    ("wait-rancher-rollouts", UNSEEN),
    ("redeploy-fleet-agent", UNSEEN),
    ("settle-fleet", UNSEEN),
    ("complete-local-cluster", |call, _| complete_local_cluster(call).boxed()),
    ("upgrade-cluster-repo", UNSEEN),
    ("apply-cdi", UNSEEN),
    ("upgrade-harvester-crd", |call, pace| {
        upgrade_chart(call, pace, charts::HARVESTER_CRD, Value::Null).boxed()
    }),
    ("upgrade-harvester", |call, pace| upgrade_harvester(call, pace).boxed()),
    ("wait-kubevirt", |call, pace| wait_for_kubevirt(call, pace).boxed()),
    ("settle-longhorn", UNSEEN),
    ("upgrade-monitoring-crd", |call, pace| {
        upgrade_chart(call, pace, charts::MONITORING_CRD, Value::Null).boxed()
    }),
    ("upgrade-logging-crd", |call, pace| {
        upgrade_chart(call, pace, charts::LOGGING_CRD, Value::Null).boxed()
    }),
    ("wait-addon-kind", UNSEEN),
    ("upgrade-vm-import-controller", |call, pace| {
        addons::upgrade(call, pace, names::HARVESTER_NAMESPACE, "vm-import-controller").boxed()
    }),
    ("upgrade-pcidevices-controller", |call, pace| {
        addons::upgrade(call, pace, names::HARVESTER_NAMESPACE, "pcidevices-controller").boxed()
    }),
    ("upgrade-harvester-seeder", |call, pace| {
        addons::upgrade(call, pace, names::HARVESTER_NAMESPACE, "harvester-seeder").boxed()
    }),
    ("upgrade-descheduler", |call, pace| {
        addons::upgrade(call, pace, names::KUBE_SYSTEM_NAMESPACE, names::DESCHEDULER_ADDON).boxed()
    }),
    ("upgrade-monitoring", |call, pace| {
        addons::upgrade_monitoring(call, pace).boxed()
    }),
    ("upgrade-logging", |call, pace| {
        addons::upgrade_logging(call, pace).boxed()
    }),
    // The simulated cluster has neither of these.
    ("upgrade-nvidia-driver-toolkit", UNSEEN),
    ("upgrade-kubeovn", UNSEEN),
    ("settle-bundles", |call, _| {
        call.take(call.world.durations.cluster_upgrade).map(Ok).boxed()
    }),
    ("configure-traefik", UNSEEN),
];

pub(super) async fn run(call: &Call, report: &Reporter) -> Result<()> {
    walk(call, cluster::STEPS, &[LINES], report).await
}

async fn wait_for_repository(call: &Call, pace: Pace<'_>) -> Result<()> {
    let world = &call.world;
    let inbox = world.inbox();
    world.deployments.subscribe(&inbox);
    let name = names::repo(&call.plan);
    let called = called::<Deployment>(names::HARVESTER_NAMESPACE, &name);
    let look = || {
        let deployment = world.deployments.get(names::HARVESTER_NAMESPACE, &name);
        repository::is_served(&called, deployment.as_deref())
    };
    pace.until(inbox.bell(), look).await?;
    call.release().map(drop)
}

fn read_plan(call: &Call) -> Result<()> {
    let plan = call.world.upgrade_plans.get("", &call.plan);
    let plan = plan.ok_or_else(|| Error::Passing(format!("UpgradePlan {} does not exist", call.plan)))?;
    repository::may_be_upgraded(&plan.as_read(), &call.release()?.0).map(drop)
}

fn chart_key(name: &str) -> (String, String) {
    (names::FLEET_NAMESPACE.to_owned(), name.to_owned())
}

async fn pause_charts(call: &Call) -> Result<()> {
    for (name, version) in charts::targets(&call.release()?.0) {
        let key = chart_key(name);
        let chart = call.world.charts.at(&key);
        if chart.is_some_and(|chart| charts::is_to_pause(&chart, &call.plan, version)) {
            call.world
                .charts
                .patch(&key, &json!({"spec": {"paused": true}}))
                .await?;
        }
    }
    Ok(())
}

async fn complete_local_cluster(call: &Call) -> Result<()> {
    let key = chart_key(names::LOCAL_CLUSTER);
    let Some(cluster) = call.world.clusters.at(&key) else {
        return Ok(());
    };
    // The simulated Rancher has written its status from the beginning.
    let (labels, _) = settings::local_cluster_changes(&cluster);
    if let Some(patch) = labels {
        call.world.clusters.patch(&key, &patch).await?;
    }
    Ok(())
}

/// Upgrades a chart and waits until it is ready.
async fn upgrade_chart(call: &Call, pace: Pace<'_>, name: &str, values: Value) -> Result<()> {
    let world = &call.world;
    let targets = charts::targets(&call.release()?.0);
    let version = targets.iter().find(|target| target.0 == name).map(|target| target.1);
    let version = version.unwrap_or_default();
    let key = chart_key(name);
    let called = called::<ManagedChart>(&key.0, name);
    let chart = world.charts.at(&key);
    let chart = chart.ok_or_else(|| Error::Passing(format!("{called} does not exist")))?;
    if let Some(patch) = charts::upgrade_patch(&chart, &call.plan, version, &values, world.clock.now()) {
        world.charts.patch(&key, &patch).await?;
        call.a_moment().await;
    }
    let inbox = world.inbox();
    world.charts.subscribe(&inbox);
    let look = || charts::look(&called, world.charts.at(&key).as_deref(), version);
    pace.until(inbox.bell(), look).await
}

/// The Harvester chart, with the values that an upgrade settles. The simulated cluster has no storage classes.
async fn upgrade_harvester(call: &Call, pace: Pace<'_>) -> Result<()> {
    let chart = call.world.charts.at(&chart_key(names::HARVESTER_CHART));
    let current = chart.and_then(|chart| chart.spec.values.clone()).unwrap_or_default();
    let drain_policy = longhorn_setting(call, harvester_chart::DRAIN_POLICY).await?;
    let detach = longhorn_setting(call, harvester_chart::DETACH_WHEN_CORDONED).await?;
    let values = harvester_chart::value_changes(&current, &[], drain_policy.as_deref(), detach.as_deref());
    upgrade_chart(call, pace, names::HARVESTER_CHART, values).await
}

async fn longhorn_setting(call: &Call, name: &str) -> Result<Option<String>> {
    let settings: Api<longhorn::Setting> = Api::namespaced(call.world.client.clone(), names::LONGHORN_NAMESPACE);
    let found = settings.get_opt(name).await;
    let found = found.map_err(|error| Error::api(format!("read Setting {name}"), error))?;
    Ok(found.map(|setting| setting.value))
}

async fn wait_for_kubevirt(call: &Call, pace: Pace<'_>) -> Result<()> {
    let world = &call.world;
    let version = call.release()?.0.kubevirt.clone().unwrap_or_default();
    let called = called::<KubeVirt>(names::HARVESTER_NAMESPACE, names::KUBEVIRT);
    let inbox = world.inbox();
    world.kubevirts.subscribe(&inbox);
    let look = || {
        let kubevirt = world.kubevirts.get(names::HARVESTER_NAMESPACE, names::KUBEVIRT);
        harvester_chart::kubevirt_look(&called, kubevirt.as_deref(), &version)
    };
    pace.until(inbox.bell(), look).await
}
