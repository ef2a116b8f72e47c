//! Stops and starts a VM, whatever state it is in: what is wanted already is no error.
//!
//! KubeVirt answers 409 both when there is nothing to do and when another client wrote at the same time. So after a
//! refusal the VM itself is looked at, and what it is decides.

use api::foreign::kubevirt::{VirtualMachine, VirtualMachineInstance};
use kube::{Api, Client};
use rules::migration::has_ended;

use super::{VmName, subresource};
use program::error::{Error, Result};

/// Requests that a VM stops. Does not wait until it has.
///
/// # Errors
/// KubeVirt refused or was not reached; whether trying again may help, the error says.
pub async fn stop(client: &Client, name: &VmName) -> Result<()> {
    let Err(error) = subresource::stop(client, name).await else {
        return Ok(());
    };
    if !is_about_state(&error) {
        return Err(Error::api(format!("stop VM {name}"), error));
    }
    let (vm, vmi) = look(client, name).await?;
    if stops(vm.as_ref(), vmi.as_ref()) {
        return Ok(());
    }
    Err(refused("stop", name, vm.as_ref(), error))
}

/// Requests that a VM starts. Does not wait until it runs.
///
/// # Errors
/// KubeVirt refused or was not reached; whether trying again may help, the error says.
pub async fn start(client: &Client, name: &VmName) -> Result<()> {
    let Err(error) = subresource::start(client, name).await else {
        return Ok(());
    };
    if !is_about_state(&error) {
        return Err(Error::api(format!("start VM {name}"), error));
    }
    let (vm, vmi) = look(client, name).await?;
    if starts(vm.as_ref(), vmi.as_ref()) {
        return Ok(());
    }
    Err(refused("start", name, vm.as_ref(), error))
}

/// The VM runs: its instance has come up and is not going away.
#[must_use]
pub fn runs(vmi: &VirtualMachineInstance) -> bool {
    vmi.status.phase.as_deref() == Some("Running") && vmi.metadata.deletion_timestamp.is_none()
}

/// The VM is off, or shutting down: without a running instance, or by its own run strategy.
fn stops(vm: Option<&VirtualMachine>, vmi: Option<&VirtualMachineInstance>) -> bool {
    !vmi.is_some_and(lives)
        || vm.is_some_and(|vm| {
            vm.spec.run_strategy.as_deref() == Some("Halted")
                || vm.spec.running == Some(false)
                || is_asked_to(vm, "Stop")
        })
}

/// The VM runs, or is about to.
fn starts(vm: Option<&VirtualMachine>, vmi: Option<&VirtualMachineInstance>) -> bool {
    vm.is_some_and(|vm| {
        vmi.is_some_and(lives)
            || vm.spec.run_strategy.as_deref() == Some("Always")
            || vm.spec.running == Some(true)
            || is_asked_to(vm, "Start")
    })
}

fn lives(vmi: &VirtualMachineInstance) -> bool {
    !has_ended(vmi) && vmi.metadata.deletion_timestamp.is_none()
}

/// KubeVirt has noted such a request on the VM and has not carried it out yet.
fn is_asked_to(vm: &VirtualMachine, action: &str) -> bool {
    let requests = vm
        .status
        .other
        .get("stateChangeRequests")
        .and_then(|list| list.as_array());
    requests.is_some_and(|list| list.iter().any(|request| request["action"] == action))
}

fn is_about_state(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}

/// A refusal that the state of the VM does not explain.
fn refused(verb: &str, name: &VmName, vm: Option<&VirtualMachine>, error: kube::Error) -> Error {
    match (vm, &error) {
        (None, _) => absent(verb, name),
        // The VM is there, so it is KubeVirt's API that is not.
        (Some(_), kube::Error::Api(status)) if status.code == 404 => {
            Error::Transient(format!("failed to {verb} VM {name}: KubeVirt's API is not served"))
        }
        _ => Error::api(format!("{verb} VM {name}"), error),
    }
}

/// There is no such VM, and there will be none.
#[must_use]
pub fn absent(verb: &str, name: &VmName) -> Error {
    Error::Permanent(format!(
        "failed to {verb} VM {name}: there is no VirtualMachine of that name"
    ))
}

async fn look(client: &Client, name: &VmName) -> Result<(Option<VirtualMachine>, Option<VirtualMachineInstance>)> {
    let vms: Api<VirtualMachine> = Api::namespaced(client.clone(), &name.namespace);
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &name.namespace);
    let vm = vms.get_opt(&name.name).await;
    let vm = vm.map_err(|error| Error::api(format!("read VirtualMachine {name}"), error))?;
    let vmi = vmis.get_opt(&name.name).await;
    let vmi = vmi.map_err(|error| Error::api(format!("read VirtualMachineInstance {name}"), error))?;
    Ok((vm, vmi))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[allow(
        clippy::needless_pass_by_value,
        reason = "values are written out where they are passed"
    )]
    fn vm(spec: Value, status: Value) -> VirtualMachine {
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec, "status": status})).unwrap()
    }

    fn vmi(phase: &str) -> VirtualMachineInstance {
        serde_json::from_value(json!({"metadata": {"name": "a"}, "status": {"phase": phase}})).unwrap()
    }

    #[rstest]
    #[case::stopped(json!({"runStrategy": "Halted"}), json!({}), None, true, false)]
    #[case::stopping(json!({"runStrategy": "Halted"}), json!({}), Some("Running"), true, true)]
    #[case::stopping_in_the_older_form(json!({"running": false}), json!({}), Some("Running"), true, true)]
    #[case::running(json!({"runStrategy": "Always"}), json!({}), Some("Running"), false, true)]
    #[case::about_to_start(json!({"runStrategy": "Always"}), json!({}), None, true, true)]
    #[case::shut_down_from_within(json!({"runStrategy": "RerunOnFailure"}), json!({}), Some("Succeeded"), true, false)]
    #[case::asked_to_stop(json!({"runStrategy": "Manual"}), json!({"stateChangeRequests": [{"action": "Stop"}]}), Some("Running"), true, true)]
    #[case::asked_to_start(json!({"runStrategy": "Manual"}), json!({"stateChangeRequests": [{"action": "Start"}]}), None, true, true)]
    #[case::manual_and_off(json!({"runStrategy": "Manual"}), json!({}), None, true, false)]
    fn what_a_vm_is_about_to_do_is_read_from_the_vm(
        #[case] spec: Value,
        #[case] status: Value,
        #[case] phase: Option<&str>,
        #[case] stopping: bool,
        #[case] starting: bool,
    ) {
        let (vm, vmi) = (vm(spec, status), phase.map(vmi));
        assert_eq!(stops(Some(&vm), vmi.as_ref()), stopping, "stops");
        assert_eq!(starts(Some(&vm), vmi.as_ref()), starting, "starts");
    }
}
