//! `restore-vm`: starts the VMs of a node again that were stopped for its upgrade, and waits until they run.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use api::{
    ProgramWait,
    foreign::kubevirt::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec, VirtualMachineSpec},
    reasons,
};
use cache::Cache;
use futures::FutureExt;
use kube::{Api, Client, runtime::watcher};
use rules::PlanEvent;
use tokio::sync::Notify;

use super::{Hypervisor, KubeVirt, VmName, power, restore_list};
use program::{
    error::{Error, Result},
    plan_events::Recorder,
    report::{Look, Reporter, Waiting},
    step::{self, Step, StepContext},
};

/// Between two health checks of KubeVirt, and between two attempts to start a VM: neither can be watched.
const PAUSE: Duration = Duration::from_secs(5);

/// The program. Each line is safe to repeat.
pub const STEPS: &[Step<Restore>] = &[
    Step {
        name: "read-list",
        limit: Duration::from_mins(5),
        run: |restore, _| restore.read().boxed(),
    },
    Step {
        name: "wait-for-kubevirt",
        limit: Duration::from_mins(30),
        run: |restore, ctx| restore.wait_for_kubevirt(ctx).boxed(),
    },
    Step {
        name: "start-vms",
        limit: Duration::from_mins(10),
        run: |restore, ctx| restore.start(ctx).boxed(),
    },
    Step {
        name: "wait-until-vms-run",
        limit: Duration::from_mins(15),
        run: |restore, ctx| restore.wait_until_they_run(ctx).boxed(),
    },
];

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The node whose VMs are started again.
    pub node: String,
    /// The plan whose list says which.
    pub upgrade: String,
}

/// What a list says about a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The VMs to start.
    pub vms: Vec<VmName>,
    /// Entries that name no VM.
    pub unreadable: Vec<String>,
}

/// Reads what is written down for a node.
#[must_use]
pub fn wanted(text: &str) -> Wanted {
    let mut wanted = Wanted::default();
    for entry in restore_list::entries(text) {
        match entry.parse::<VmName>() {
            Ok(vm) if wanted.vms.contains(&vm) => {}
            Ok(vm) => wanted.vms.push(vm),
            Err(_) => wanted.unreadable.push(entry.to_owned()),
        }
    }
    wanted
}

/// Starts the VMs again. VMs that run already are done; without a list there is nothing to do.
///
/// # Errors
/// The list could not be read, or not every VM runs: all that do not are named, each with the reason.
pub async fn run(client: &Client, options: Options, report: &Reporter) -> Result<()> {
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
) -> Result<()> {
    let events = Recorder::new(
        client.clone(),
        report.clock.clone(),
        &options.upgrade,
        reasons::SOURCE_RESTORE_VM,
        &options.node,
    );
    let restore = Restore {
        client: client.clone(),
        hypervisor,
        options,
        events,
        list: OnceLock::new(),
        outcomes: Mutex::default(),
    };
    let ended = step::run_all(&restore, STEPS, report).await;
    if let Err(error) = ended {
        if restore.list.get().is_none() {
            return Err(error);
        }
        restore.give_up(&error).await;
    }
    let ended = restore.finish().await;
    match &ended {
        Ok(()) => report.termination_message("done"),
        Err(error) => report.termination_message(&error.to_string()),
    }
    ended
}

/// How far a VM is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// KubeVirt was called; the status of the VM since.
    Asked(String),
    /// It runs.
    Runs,
    /// It will not run.
    Failed(String),
}

/// What the steps share.
pub struct Restore {
    client: Client,
    hypervisor: Arc<dyn Hypervisor>,
    options: Options,
    events: Recorder,
    /// What the list says; `None` when there is no list.
    list: OnceLock<Option<Wanted>>,
    outcomes: Mutex<BTreeMap<VmName, Outcome>>,
}

impl Restore {
    fn vms(&self) -> &[VmName] {
        let list = self.list.get().and_then(Option::as_ref);
        list.map(|list| list.vms.as_slice()).unwrap_or_default()
    }

    fn outcomes(&self) -> MutexGuard<'_, BTreeMap<VmName, Outcome>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The VMs of which this holds, in the order of the list.
    fn those(&self, holds: impl Fn(Option<&Outcome>) -> bool) -> Vec<VmName> {
        let outcomes = self.outcomes();
        let those = self.vms().iter().filter(|vm| holds(outcomes.get(vm)));
        those.cloned().collect()
    }

    async fn read(&self) -> Result<()> {
        let list = restore_list::of_plan(&self.client, &self.options.upgrade).await?;
        let list = list.map(|list| wanted(restore_list::of_node(&list, &self.options.node).unwrap_or_default()));
        for entry in list.iter().flat_map(|list| &list.unreadable) {
            tracing::warn!(entry, "skipped: it names no VM");
        }
        // Set once; a step that has ended is not run again.
        let _ = self.list.set(list);
        Ok(())
    }

    async fn wait_for_kubevirt(&self, ctx: StepContext<'_>) -> Result<()> {
        if self.vms().is_empty() {
            return Ok(());
        }
        while let Err(error) = self.hypervisor.is_well().await {
            let waiting = Waiting {
                what: ProgramWait::KubeVirt,
                object: "KubeVirt harvester-system/kubevirt".to_owned(),
                message: error.to_string(),
            };
            ctx.report.waiting(&[waiting], Some(ctx.deadline));
            ctx.report.clock.sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Starts all of them through KubeVirt; one that fails does not delay the others.
    async fn start(&self, ctx: StepContext<'_>) -> Result<()> {
        loop {
            let mut waiting = Vec::new();
            for vm in self.those(|outcome| outcome.is_none()) {
                match self.hypervisor.start(&vm).await {
                    Ok(()) => {
                        self.outcomes().insert(vm, Outcome::Asked("not seen yet".to_owned()));
                    }
                    Err(error) if error.is_transient() => waiting.push(waiting_for(&vm, error.to_string())),
                    Err(error) => self.fail(&vm, error.to_string()).await,
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            ctx.report.waiting(&waiting, Some(ctx.deadline));
            ctx.report.clock.sleep(PAUSE).await;
        }
    }

    async fn wait_until_they_run(&self, ctx: StepContext<'_>) -> Result<()> {
        if self.asked().is_empty() {
            return Ok(());
        }
        let bell = Arc::new(Notify::new());
        let vms = Cache::<VirtualMachine>::default();
        let vmis = Cache::<VirtualMachineInstance>::default();
        let all = watcher::Config::default;
        let watch_vms = vms
            .clone()
            .run(Api::all(self.client.clone()), all(), prune_vm, bell.clone());
        let watch_vmis = vmis
            .clone()
            .run(Api::all(self.client.clone()), all(), prune_vmi, bell.clone());
        tokio::select! {
            biased;
            done = ctx.until(&bell, || self.look(&vms, &vmis)) => done,
            () = watch_vms => Err(Error::Transient("the watch of VMs ended".to_owned())),
            () = watch_vmis => Err(Error::Transient("the watch of running VMs ended".to_owned())),
        }
    }

    /// The VMs that KubeVirt was asked to start and that do not run yet.
    fn asked(&self) -> Vec<VmName> {
        self.those(|outcome| matches!(outcome, Some(Outcome::Asked(_))))
    }

    fn look(&self, vms: &Cache<VirtualMachine>, vmis: &Cache<VirtualMachineInstance>) -> Look {
        if !vms.is_synced() || !vmis.is_synced() {
            let waiting = self
                .asked()
                .into_iter()
                .map(|vm| waiting_for(&vm, format!("VM {vm} is starting")));
            return Look::of(waiting.collect());
        }
        let mut waiting = Vec::new();
        for vm in self.asked() {
            let vmi = vmis.get(&vm.namespace, &vm.name);
            let outcome = match vmi.as_deref() {
                Some(vmi) if power::runs(vmi) => Outcome::Runs,
                vmi => Outcome::Asked(stands(vms.get(&vm.namespace, &vm.name).as_deref(), vmi)),
            };
            if let Outcome::Asked(stands) = &outcome {
                waiting.push(waiting_for(&vm, format!("VM {vm} is starting: {stands}")));
            }
            self.outcomes().insert(vm, outcome);
        }
        Look::of(waiting)
    }

    async fn fail(&self, vm: &VmName, why: String) {
        let Options { node, upgrade } = &self.options;
        let text = format!("Failed to restore VM {vm} on node {node} during upgrade {upgrade}: {why}");
        self.events
            .record(PlanEvent::warning(reasons::RESTORE_VM_FAILED, text))
            .await;
        self.outcomes().insert(vm.clone(), Outcome::Failed(why));
    }

    /// Time is up for those that do not run.
    async fn give_up(&self, error: &Error) {
        for vm in self.those(|outcome| matches!(outcome, None | Some(Outcome::Asked(_)))) {
            let stands = match self.outcomes().get(&vm) {
                Some(Outcome::Asked(stands)) => Some(stands.clone()),
                _ => None,
            };
            let why = match (stands, error) {
                (Some(stands), Error::Deadline { limit, .. }) => {
                    format!(
                        "it does not run {} minutes after it was started: {stands}",
                        limit.as_secs() / 60
                    )
                }
                _ => error.to_string(),
            };
            self.fail(&vm, why).await;
        }
    }

    async fn finish(&self) -> Result<()> {
        let Options { node, upgrade } = &self.options;
        let Some(Some(list)) = self.list.get() else {
            let event = PlanEvent::warning(reasons::RESTORE_VM_FAILED, "ConfigMap not found");
            self.events.record(event).await;
            return Ok(());
        };
        let total = list.vms.len() + list.unreadable.len();
        let outcomes = self.outcomes().clone();
        let failed: Vec<String> = list
            .vms
            .iter()
            .filter_map(|vm| match outcomes.get(vm) {
                Some(Outcome::Failed(why)) => Some(format!("{vm} ({why})")),
                _ => None,
            })
            .collect();
        let text = if total == 0 {
            format!("Restored 0 VM for node {node} during upgrade {upgrade}")
        } else {
            let succeeded = list.vms.len() - failed.len();
            let failed = failed.len();
            format!(
                "Restored {total} VMs for node {node} during upgrade {upgrade}, success: {succeeded}, failed: {failed}"
            )
        };
        self.events
            .record(PlanEvent::normal(reasons::RESTORE_VM_COMPLETED, text))
            .await;
        if failed.is_empty() {
            return Ok(());
        }
        let names = failed.join("; ");
        Err(Error::Permanent(format!(
            "failed to start {} of {total} VMs again: {names}",
            failed.len()
        )))
    }
}

fn waiting_for(vm: &VmName, message: String) -> Waiting {
    Waiting {
        what: ProgramWait::VmStart,
        object: format!("VirtualMachine {vm}"),
        message,
    }
}

/// The state of a VM that does not run yet, as KubeVirt reports it.
fn stands(vm: Option<&VirtualMachine>, vmi: Option<&VirtualMachineInstance>) -> String {
    let Some(vm) = vm else {
        return "it is gone".to_owned();
    };
    let phase = vmi.and_then(|vmi| vmi.status.phase.clone());
    let status = vm.status.printable_status.clone().or(phase);
    status.unwrap_or_else(|| "nothing is known of it yet".to_owned())
}

/// Of a VM, only its status in one word is read.
fn prune_vm(vm: &mut VirtualMachine) {
    vm.spec = VirtualMachineSpec::default();
    vm.status.other.clear();
    vm.other.clear();
    vm.metadata.annotations = None;
    vm.metadata.labels = None;
}

/// Of a running VM, only its phase is read.
fn prune_vmi(vmi: &mut VirtualMachineInstance) {
    vmi.spec = VirtualMachineInstanceSpec::default();
    vmi.status.other.clear();
    vmi.status.conditions = None;
    vmi.status.migration_state = None;
    vmi.other.clear();
    vmi.metadata.annotations = None;
    vmi.metadata.labels = None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_entry_by_entry_and_what_names_no_vm_is_set_aside() {
        let wanted = wanted(" default/a,,dev/b , nonsense,default/a,a/b/c");
        let vms: Vec<String> = wanted.vms.iter().map(VmName::to_string).collect();
        assert_eq!(vms, ["default/a", "dev/b"]);
        assert_eq!(wanted.unreadable, ["nonsense", "a/b/c"]);
        assert_eq!(super::wanted("  "), Wanted::default());
    }
}
