//! Fleet after an upgrade of Rancher: its agent redeployed, its configuration restored, its cluster imported.

use std::time::Duration;

use api::{
    ProgramWait,
    foreign::{ForeignCondition, condition_is, fleet::Cluster},
    names,
    pod::is_ready,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod},
};
use kube::runtime::watcher;
use serde_json::json;

use crate::{context::Context, rollout};
use program::{
    error::Result,
    report::{Look, Waiting},
    step::StepContext,
};

use super::{FLEET_AGENT_SYSTEM, FLEET_SYSTEM, capi, fleet_config, journal};

const AGENT: &str = "fleet-agent";
pub(super) const CONTROLLER: &str = "fleet-controller";
/// Timestamps are in seconds, and two controllers write them.
const SLACK: SignedDuration = SignedDuration::from_secs(5);
/// How long Fleet's configuration is waited for once Helm has deployed it.
const CONFIG_PATIENCE: Duration = Duration::from_secs(5 * 60);
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// How long the times that Fleet writes are waited for to fit.
const IMPORT_PATIENCE: Duration = Duration::from_secs(5 * 60);

/// Makes Fleet redeploy its agent, once per upgrade of Rancher, and waits until it has.
pub(crate) async fn redeploy_agent(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let Some(mut journal) = journal::unsettled(context).await? else {
        return Ok(());
    };
    capi::wait(context, ctx).await?;
    let clusters = context.namespaced::<Cluster>(names::FLEET_NAMESPACE);
    let deployments = context.namespaced::<Deployment>(FLEET_AGENT_SYSTEM);
    let cluster = clusters.need(names::LOCAL_CLUSTER).await?;
    let agent = match journal.agent.clone() {
        Some(agent) => agent,
        None => {
            let agent = journal::Agent {
                generation: next_generation(&cluster),
                created_before: created(
                    deployments
                        .need(AGENT)
                        .await?
                        .metadata
                        .creation_timestamp
                        .map(|at| at.0),
                ),
            };
            journal.agent = Some(agent.clone());
            journal::write(context, &journal).await?;
            agent
        }
    };
    if cluster.spec.redeploy_agent_generation.unwrap_or(0) < agent.generation {
        let patch = json!({"spec": {"redeployAgentGeneration": agent.generation}});
        clusters.merge(names::LOCAL_CLUSTER, &patch).await?;
    }
    let called = deployments.called(AGENT);
    deployments
        .until(ctx, AGENT, |deployment| {
            let at = deployment.and_then(|deployment| deployment.metadata.creation_timestamp.as_ref());
            if at.is_none_or(|at| at.0.to_string() <= agent.created_before) {
                let message = format!("Fleet has not redeployed {called}");
                let what = ProgramWait::FleetAgent;
                return Look::wait(Waiting {
                    what,
                    object: called.clone(),
                    message,
                });
            }
            rollout::look(&called, deployment)
        })
        .await
}

/// RFC 3339 in UTC orders as text.
fn created(at: Option<Timestamp>) -> String {
    at.map_or_else(String::new, |at| at.to_string())
}

/// A generation that Fleet has not deployed and that was not requested.
#[must_use]
pub(super) fn next_generation(cluster: &Cluster) -> i64 {
    let deployed = cluster.status.agent_deployed_generation.unwrap_or(0);
    let asked = cluster.spec.redeploy_agent_generation.unwrap_or(0);
    deployed.max(asked) + 1
}

/// Fleet has deployed that generation of its agent, or one that came after it.
fn has_deployed(cluster: &Cluster, generation: i64) -> bool {
    cluster.status.agent_deployed_generation.unwrap_or(0) >= generation
}

/// Fleet of the new Rancher is in place, agents call the address they called before, and the cluster is imported.
pub(crate) async fn settle(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let Some(mut journal) = journal::unsettled(context).await? else {
        return Ok(());
    };
    wait_config(context, ctx).await?;
    let maps = context.namespaced::<ConfigMap>(FLEET_SYSTEM);
    let map = maps.get(CONTROLLER).await?;
    if let Some(patch) = fleet_config::restored(map.as_ref(), &journal.server_url, &journal.server_ca)? {
        maps.merge(CONTROLLER, &patch).await?;
        let object = maps.called(CONTROLLER);
        let taking_in = Waiting {
            what: ProgramWait::FleetConfig,
            message: format!("waiting until Fleet has observed the restored address of {object}"),
            object,
        };
        context.give_time(ctx, taking_in, context.pauses.fleet_config).await;
    }
    wait_import(context, ctx, journal.agent.as_ref()).await?;
    let clusters = context.namespaced::<Cluster>(names::FLEET_NAMESPACE);
    let is_ready = |cluster: &Cluster| condition_is(conditions(cluster), "Ready") == Some(true);
    let ready = wait_for(
        ctx,
        &clusters,
        names::LOCAL_CLUSTER,
        ProgramWait::FleetCluster,
        "is not Ready",
        is_ready,
    );
    if !context.at_most(READY_PATIENCE, ready).await? {
        context.note(format!(
            "Fleet's {} is not Ready",
            clusters.called(names::LOCAL_CLUSTER)
        ));
    }
    journal.settled = true;
    journal::write(context, &journal).await
}

/// Fleet's configuration is the one that the new chart brings: only then does it stay as restored. Helm reports this
/// already, so that a configuration that is unclear causes a note and not a failure.
async fn wait_config(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let Some(fleet) = context.release()?.rancher_dependencies.get("fleet") else {
        return Ok(());
    };
    let maps = context.namespaced::<ConfigMap>(FLEET_SYSTEM);
    let lacks = format!("does not name the agent of Fleet {}", fleet.app);
    let is_new = |map: &ConfigMap| fleet_config::is_of(map, &fleet.app);
    let named = wait_for(ctx, &maps, CONTROLLER, ProgramWait::FleetConfig, &lacks, is_new);
    if !context.at_most(CONFIG_PATIENCE, named).await? {
        context.note(format!("{} {lacks}", maps.called(CONTROLLER)));
    }
    Ok(())
}

/// Fleet has imported the cluster, as far as its timestamps show; if they never match, it is enough that the agent is the one we
/// requested. Fleet records the time of the import once the agent is deployed, which may be much later, and a
/// controller that moved to another node is newer than everything it did before.
async fn wait_import(context: &Context, ctx: StepContext<'_>, agent: Option<&journal::Agent>) -> Result<()> {
    let Some(agent) = agent else {
        return wait_import_by_times(context, ctx).await;
    };
    if context
        .at_most(IMPORT_PATIENCE, wait_import_by_times(context, ctx))
        .await?
    {
        return Ok(());
    }
    let clusters = context.namespaced::<Cluster>(names::FLEET_NAMESPACE);
    wait_for(
        ctx,
        &clusters,
        names::LOCAL_CLUSTER,
        ProgramWait::FleetAgent,
        "does not show that its agent was redeployed",
        |cluster| has_deployed(cluster, agent.generation),
    )
    .await?;
    context.wait_rollout(ctx, FLEET_AGENT_SYSTEM, AGENT).await?;
    context.note(format!(
        "the times of Fleet's {} do not show that its import is complete; its agent is the requested one",
        clusters.called(names::LOCAL_CLUSTER)
    ));
    Ok(())
}

/// The cluster was imported by the Fleet controller that runs now, and the agent came after that.
async fn wait_import_by_times(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let mut since = Timestamp::MAX;
    let controllers = watcher::Config::default().labels("app=fleet-controller");
    let pods = context.namespaced::<Pod>(FLEET_SYSTEM);
    pods.watch(ctx, controllers, None, |pods| {
        let ready = pods.iter().filter(|pod| is_ready(pod));
        match ready
            .filter_map(|pod| pod.metadata.creation_timestamp.as_ref())
            .map(|at| at.0)
            .min()
        {
            Some(at) => {
                since = at;
                Look::Done
            }
            None => waiting(
                ProgramWait::FleetController,
                format!("Pod {FLEET_SYSTEM}/fleet-controller"),
                "no pod is Ready",
            ),
        }
    })
    .await?;
    let mut imported = Timestamp::MAX;
    let clusters = context.namespaced::<Cluster>(names::FLEET_NAMESPACE);
    let called = clusters.called(names::LOCAL_CLUSTER);
    clusters
        .until(ctx, names::LOCAL_CLUSTER, |cluster| {
            match cluster.and_then(imported_at) {
                Some(at) if at >= since => {
                    imported = at;
                    Look::Done
                }
                _ => waiting(
                    ProgramWait::FleetCluster,
                    called.clone(),
                    "it has not been imported by the new Fleet",
                ),
            }
        })
        .await?;
    let agents = watcher::Config::default().labels("app=fleet-agent");
    let pods = context.namespaced::<Pod>(FLEET_AGENT_SYSTEM);
    pods.watch(ctx, agents, None, |pods| {
        let mut created = pods.iter().filter_map(|pod| pod.metadata.creation_timestamp.as_ref());
        if created.any(|at| at.0 + SLACK >= imported) {
            return Look::Done;
        }
        let object = format!("Pod {FLEET_AGENT_SYSTEM}/{AGENT}");
        waiting(
            ProgramWait::FleetAgent,
            object,
            "no pod is newer than the import of the cluster",
        )
    })
    .await
}

fn waiting(what: ProgramWait, object: String, why: &str) -> Look {
    let message = format!("{object}: {why}");
    Look::wait(Waiting { what, object, message })
}

async fn wait_for<K: crate::objects::Kind>(
    ctx: StepContext<'_>,
    objects: &crate::objects::Objects<K>,
    name: &str,
    what: ProgramWait,
    lacks: &str,
    test: impl Fn(&K) -> bool,
) -> Result<()> {
    let called = objects.called(name);
    objects
        .until(ctx, name, |found| {
            if found.is_some_and(&test) {
                return Look::Done;
            }
            let message = format!("{called} {lacks}");
            Look::wait(Waiting {
                what,
                object: called.clone(),
                message,
            })
        })
        .await
}

fn conditions(cluster: &Cluster) -> &[ForeignCondition] {
    cluster.status.conditions.as_deref().unwrap_or_default()
}

fn imported_at(cluster: &Cluster) -> Option<Timestamp> {
    let imported = conditions(cluster)
        .iter()
        .find(|condition| condition.type_ == "Imported")?;
    imported.other.get("lastUpdateTime")?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_generation_is_new_to_all() {
        let mut cluster = Cluster::named("local");
        assert_eq!(next_generation(&cluster), 1);
        cluster.status.agent_deployed_generation = Some(3);
        assert_eq!(next_generation(&cluster), 4);
        cluster.spec.redeploy_agent_generation = Some(5);
        assert_eq!(next_generation(&cluster), 6);
    }

    #[test]
    fn an_agent_that_was_only_requested_is_not_deployed() {
        let mut cluster = Cluster::named("local");
        cluster.spec.redeploy_agent_generation = Some(3);
        assert!(!has_deployed(&cluster, 3));
        cluster.status.agent_deployed_generation = Some(2);
        assert!(!has_deployed(&cluster, 3));
        cluster.status.agent_deployed_generation = Some(3);
        assert!(has_deployed(&cluster, 3));
    }
}
