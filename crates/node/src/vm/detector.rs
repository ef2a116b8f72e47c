//! `vm-live-migrate-detector`: which VMs of a node cannot move to another one. They are put on the list of VMs to start
//! again, and then stopped, in this order: whatever happens in between, no VM is forgotten.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use api::{ProgramWait, foreign::kubevirt::VirtualMachineInstance, labels, names, reasons};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::ListParams};
use rules::PlanEvent;
use rules::migration::{self, Stuck, Unlisted, unlisted};

use super::{Hypervisor, KubeVirt, VmName, restore_list};
use program::{
    error::{Error, Result},
    plan_events::Recorder,
    report::{Reporter, Waiting},
    step::{self, Step, StepContext},
};

/// Between two tries to stop a VM while KubeVirt is not well.
const PAUSE: Duration = Duration::from_secs(5);

/// The program. Each line is safe to repeat.
pub const STEPS: &[Step<Detector>] = &[
    Step {
        name: "find-vms",
        limit: Duration::from_mins(5),
        run: |detector, _| detector.find().boxed(),
    },
    Step {
        name: "record-vms",
        limit: Duration::from_mins(5),
        run: |detector, _| detector.record().boxed(),
    },
    Step {
        name: "stop-vms",
        limit: Duration::from_mins(5),
        run: |detector, ctx| detector.stop(ctx).boxed(),
    },
];

/// A VM that cannot move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub vm: VmName,
    /// Why it cannot.
    pub why: Stuck,
    /// Why it is not to be started again, if it is not.
    pub unlisted: Option<Unlisted>,
}

/// Which of a node's running VMs must be stopped, why each, and which of them are to be started again. In the order
/// of `vmis`. VMs that have ended or are on their way down already are none of our business; nor are those that KubeVirt alone
/// says it cannot migrate: [`crate::evacuation`] handles them as the plan requests.
#[must_use]
pub fn decide<'a>(
    nodes: impl IntoIterator<Item = &'a Node>,
    vmis: impl IntoIterator<Item = &'a VirtualMachineInstance>,
) -> Vec<Found> {
    let hosts = migration::hosts(nodes);
    let staying = vmis.into_iter().filter(|vmi| vmi.metadata.deletion_timestamp.is_none());
    staying
        .filter_map(|vmi| {
            let why = migration::why_bound(vmi, &hosts)?;
            Some(Found {
                vm: VmName::of(vmi),
                why,
                unlisted: unlisted(vmi),
            })
        })
        .collect()
}

/// The VMs of them that are to be started again.
#[must_use]
pub fn listed(found: &[Found]) -> Vec<VmName> {
    let listed = found.iter().filter(|one| one.unlisted.is_none());
    listed.map(|one| one.vm.clone()).collect()
}

/// Looks at the cluster and decides about a node.
///
/// # Errors
/// The API server did not answer.
pub async fn look(client: &Client, node: &str) -> Result<Vec<Found>> {
    let vmis: Api<VirtualMachineInstance> = Api::all(client.clone());
    let on_node = ListParams::default().labels(&format!("{}={node}", labels::VMI_NODE));
    let vmis = vmis.list(&on_node).await;
    let vmis = vmis.map_err(|error| Error::api(format!("list the VMs of node {node}"), error))?;
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await;
    let nodes = nodes.map_err(|error| Error::api("list nodes", error))?;
    Ok(decide(&nodes.items, &vmis.items))
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The node whose VMs are looked at.
    pub node: String,
    /// The plan: its list is written and it gets the events. Without one there is neither.
    pub upgrade: Option<String>,
    /// Stop the VMs that are found.
    pub shutdown: bool,
}

/// Why a VM could not be stopped, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotStopped(String);

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detected {
    /// The VMs that cannot move.
    pub found: Vec<Found>,
    /// Those that were stopped, and those that could not be.
    pub stopped: BTreeMap<VmName, Result<(), NotStopped>>,
}

impl Detected {
    fn succeeded(&self) -> usize {
        self.stopped.values().filter(|ended| ended.is_ok()).count()
    }
}

/// Runs the detector. A VM that cannot be stopped does not fail it: the evacuation of the node waits for its VMs anyway
/// and sees which one stays.
///
/// # Errors
/// The VMs could not be found or put on the list. Then none was stopped.
pub async fn run(client: &Client, options: Options, report: &Reporter) -> Result<Detected> {
    run_on(client, Arc::new(KubeVirt(client.clone())), options, report).await
}

/// The same on any hypervisor.
///
/// # Errors
/// As of [`run`].
pub async fn run_on(
    client: &Client,
    hypervisor: Arc<dyn Hypervisor>,
    options: Options,
    report: &Reporter,
) -> Result<Detected> {
    let events = options.upgrade.as_ref().map(|plan| {
        let (client, clock) = (client.clone(), report.clock.clone());
        Recorder::new(client, clock, plan, reasons::SOURCE_DETECTOR, &options.node)
    });
    let detector = Detector {
        client: client.clone(),
        hypervisor,
        options,
        events,
        found: OnceLock::new(),
        recorded: OnceLock::new(),
        stopped: Mutex::default(),
    };
    let ended = step::run_all(&detector, STEPS, report).await;
    if let Err(error) = ended {
        if detector.recorded.get().is_none() {
            if detector.found.get().is_some() {
                let event = PlanEvent::warning(reasons::RESTORE_VM_CONFIG_MAP_FAILED, error.to_string());
                detector.record_event(event).await;
            }
            return Err(error);
        }
        // They are on the list, and time is up for stopping them.
        detector.give_up(&error.to_string()).await;
    }
    Ok(detector.finish(report).await)
}

/// What the steps share.
pub struct Detector {
    client: Client,
    hypervisor: Arc<dyn Hypervisor>,
    options: Options,
    events: Option<Recorder>,
    /// Decided once: a second check after some VMs were stopped would not find them.
    found: OnceLock<Vec<Found>>,
    recorded: OnceLock<()>,
    stopped: Mutex<BTreeMap<VmName, Result<(), NotStopped>>>,
}

impl Detector {
    fn found(&self) -> &[Found] {
        self.found.get().map(Vec::as_slice).unwrap_or_default()
    }

    async fn find(&self) -> Result<()> {
        let found = self.hypervisor.immovable(&self.options.node).await?;
        for one in &found {
            match one.unlisted {
                None => tracing::info!(vm = %one.vm, "cannot move: {}", one.why),
                Some(unlisted) => {
                    tracing::info!(vm = %one.vm, "cannot move: {}; not to be started again: {unlisted}", one.why);
                }
            }
        }
        // Set once; a step that has ended is not run again.
        let _ = self.found.set(found);
        Ok(())
    }

    async fn record(&self) -> Result<()> {
        if let Some(plan) = &self.options.upgrade {
            let vms = listed(self.found());
            let added = restore_list::add(&self.client, plan, &self.options.node, &vms).await?;
            if added == restore_list::Added::Created {
                let list = restore_list::shown(&names::restore_config_map(plan));
                let text = format!("{list} created");
                self.record_event(PlanEvent::normal(reasons::RESTORE_VM_CONFIG_MAP_CREATED, text))
                    .await;
            }
        }
        let _ = self.recorded.set(());
        Ok(())
    }

    /// Stops all of them, those without errors first: one that fails does not delay the others.
    async fn stop(&self, ctx: StepContext<'_>) -> Result<()> {
        if !self.options.shutdown {
            return Ok(());
        }
        loop {
            let mut waiting = Vec::new();
            for vm in self.open() {
                match self.hypervisor.stop(&vm).await {
                    Ok(()) => self.note(&vm, Ok(())).await,
                    Err(error) if error.is_transient() => waiting.push(Waiting {
                        what: ProgramWait::VmShutdown,
                        object: format!("VirtualMachine {vm}"),
                        message: error.to_string(),
                    }),
                    Err(error) => self.note(&vm, Err(NotStopped(error.to_string()))).await,
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            ctx.report.waiting(&waiting, Some(ctx.deadline));
            ctx.report.clock.sleep(PAUSE).await;
        }
    }

    /// Those whose stopping has not ended, well or badly.
    fn open(&self) -> Vec<VmName> {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.found().iter().filter(|one| !stopped.contains_key(&one.vm));
        open.map(|one| one.vm.clone()).collect()
    }

    async fn note(&self, vm: &VmName, ended: Result<(), NotStopped>) {
        if let Err(why) = &ended {
            let text = format!("Failed to shut down VM {vm} on node {}: {why}", self.options.node);
            self.record_event(PlanEvent::warning(reasons::VM_SHUTDOWN_FAILED, text))
                .await;
        }
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        stopped.insert(vm.clone(), ended);
    }

    async fn give_up(&self, why: &str) {
        for vm in self.open() {
            self.note(&vm, Err(NotStopped(why.to_owned()))).await;
        }
    }

    async fn record_event(&self, event: PlanEvent) {
        if let Some(events) = &self.events {
            events.record(event).await;
        }
    }

    async fn finish(self, report: &Reporter) -> Detected {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let detected = Detected {
            found: self.found().to_vec(),
            stopped,
        };
        let (total, succeeded) = (detected.found.len(), detected.succeeded());
        let failed = detected.stopped.len() - succeeded;
        let node = &self.options.node;
        // The blank at the end is part of the message that others wait for.
        let text =
            format!("Shutdown completed for {total} VM(s) on node {node}, success: {succeeded}, failed: {failed} ");
        report.termination_message(text.trim_end());
        self.record_event(PlanEvent::normal(reasons::VM_SHUTDOWN_COMPLETED, text))
            .await;
        detected
    }
}

#[cfg(test)]
mod tests;
