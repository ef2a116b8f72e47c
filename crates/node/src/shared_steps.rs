//! Steps that several programs of a node have in common.

use futures::future::ready;
use program::step::Step;

use crate::{
    host::{rke2_config, system_agent},
    limits::Limits,
    node_run::NodeRun,
    rke2_steps,
};

/// The agent of Rancher works again, whatever an earlier attempt left.
pub(crate) fn recover_agent(limits: &Limits) -> Step<NodeRun> {
    Step {
        name: "recover-system-agent",
        limit: limits.host,
        run: |run, _| Box::pin(system_agent::recover(&run.root, run.tools.as_ref())),
    }
}

/// The repository serves.
pub(crate) fn wait_for_repository(limits: &Limits) -> Step<NodeRun> {
    Step {
        name: "wait-for-repository",
        limit: limits.repository,
        run: |run, ctx| Box::pin(rke2_steps::wait_for_repository(run, ctx)),
    }
}

/// What an older release configured for Canal is gone.
pub(crate) fn remove_canal_config(limits: &Limits) -> Step<NodeRun> {
    Step {
        name: "remove-canal-config",
        limit: limits.host,
        run: |run, _| Box::pin(ready(rke2_config::remove_canal_config(&run.root))),
    }
}

/// RKE2 leaves the charts alone that Harvester brings itself.
pub(crate) fn disable_charts(limits: &Limits) -> Step<NodeRun> {
    Step {
        name: "disable-charts",
        limit: limits.host,
        run: |run, _| Box::pin(ready(rke2_config::disable_charts(&run.root))),
    }
}

/// The ingress controller of the node is chosen.
pub(crate) fn choose_ingress(limits: &Limits) -> Step<NodeRun> {
    Step {
        name: "choose-ingress",
        limit: limits.request,
        run: |run, ctx| Box::pin(rke2_steps::choose_ingress(run, ctx)),
    }
}

/// RKE2 is upgraded.
pub(crate) fn wait_for_rke2(limits: &Limits) -> Step<NodeRun> {
    Step {
        name: "wait-for-rke2",
        limit: limits.rke2,
        run: |run, ctx| Box::pin(rke2_steps::wait_for_rke2(run, ctx)),
    }
}

/// The archives that RKE2 was upgraded from are gone.
pub(crate) fn remove_archives(limits: &Limits) -> Step<NodeRun> {
    Step {
        name: "remove-rke2-archives",
        limit: limits.host,
        run: |run, ctx| Box::pin(rke2_steps::remove_archives(run, ctx)),
    }
}
