//! One line of the log per decision that changes anything: which plan, which phase, which nodes, and what is done. Names
//! and states only: values of annotations, tokens and the like stay out of it.

use api::{UpgradePlan, annotations};
use kube::ResourceExt;
use plan::{Action, Child, Decision};

use crate::status_throttle::StatusWrite;

/// Logs a decision, unless it changes nothing.
pub(crate) fn log(plan: &UpgradePlan, decision: &Decision, write: StatusWrite) {
    let changes_status = write == StatusWrite::Now;
    let finalizer = plan.finalizers().iter().any(|one| one == annotations::FINALIZER) != decision.finalizer;
    if !changes_status && !finalizer && decision.actions.is_empty() && decision.annotations.is_empty() {
        return;
    }
    let waiting = decision.status.waiting_for.first();
    tracing::info!(
        plan = %plan.name_any(),
        phase = decision.status.current_phase.as_deref().unwrap_or_default(),
        node = changed_nodes(plan, decision).join(", "),
        waiting = waiting.and_then(|wait| wait.message.as_deref()).unwrap_or_default(),
        actions = decision.actions.iter().map(describe).collect::<Vec<_>>().join(", "),
        "decided"
    );
}

/// Nodes whose state is about to change, with the new one.
fn changed_nodes(plan: &UpgradePlan, decision: &Decision) -> Vec<String> {
    let before = plan.status.as_ref().map(|status| &status.node_upgrade_statuses);
    let changed = decision.status.node_upgrade_statuses.iter().filter(|(name, node)| {
        let known = before.and_then(|nodes| nodes.get(*name));
        known.and_then(|known| known.state()) != node.state()
    });
    changed
        .map(|(name, node)| format!("{name}: {}", node.state().unwrap_or_default()))
        .collect()
}

/// What an action does and to what.
fn describe(action: &Action) -> String {
    match action {
        Action::Create(child) => format!("create {}", describe_child(child)),
        Action::StoreRecord => "store what is there before the upgrade".to_owned(),
        Action::ResumeJob { name } => format!("resume Job {name}"),
        Action::DeleteJob { name, .. } => format!("delete Job {name}"),
        Action::Delete { kind, component, .. } => format!("delete {} of {component}", kind.name()),
        Action::AnnotateNode { node, .. } => format!("annotate Node {node}"),
        Action::UnlabelNode { node, .. } => format!("unlabel Node {node}"),
        Action::UntaintNode { node } => format!("remove the drain taint of Node {node}"),
        Action::AnswerHook { secret, hook, .. } => format!("answer {hook} of {secret}"),
        Action::ProvisionCluster { to, .. } => format!("provision the cluster, generation {to}"),
        Action::RestoreUpgradeStrategy { .. } => "put the upgradeStrategy back".to_owned(),
        Action::SetReplenishmentInterval { value } => format!("set the replenishment interval to {value}"),
        Action::EnableDescheduler { enabled } => {
            format!("turn the descheduler {}", if *enabled { "on" } else { "off" })
        }
        Action::SetChartMethods { methods, .. } => format!("have the chart set workloadUpdateMethods to {methods}"),
        Action::PauseChart { name } => format!("pause ManagedChart {name}"),
        Action::ResumeChart { name } => format!("resume ManagedChart {name}"),
        Action::SetWorkloadUpdateMethods { methods } => {
            format!("set KubeVirt's workloadUpdateMethods to [{}]", methods.join(", "))
        }
        Action::StopIgnoringWorkloadUpdateMethods => "let the chart keep workloadUpdateMethods".to_owned(),
    }
}

fn describe_child(child: &Child) -> String {
    match child {
        Child::IsoImage { .. } => "the ISO image".to_owned(),
        Child::RepoSecret { name } => format!("Secret {name}"),
        Child::RepoDeployment { .. } => "the repository".to_owned(),
        Child::RepoService => "the repository's Service".to_owned(),
        Child::SucPlan { plan, .. } => format!("Plan {}", plan.component()),
        Child::ClusterJob => "Job cluster-upgrade".to_owned(),
        Child::NodeJob { job_type, node, .. } => format!("Job {job_type} of {node}"),
        Child::RestoreJob { node } => format!("Job restore-vm of {node}"),
    }
}
