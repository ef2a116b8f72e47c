//! `restore-vm`.

use std::time::Duration;

use api::{accounts, foreign::kubevirt::VirtualMachineInstance};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use node::vm::{
    power,
    restore::{Options, run},
    restore_list,
};
use serde_json::json;

use crate::vm::harness::{Harness, PLAN};

fn options() -> Options {
    Options {
        node: "node-1".to_owned(),
        upgrade: PLAN.to_owned(),
    }
}

/// VMs that are on the list and stopped.
async fn stopped(vms: &[&str]) -> Harness {
    let harness = Harness::new(&["node-1"]).await;
    let client = harness.client();
    for vm in vms {
        let (namespace, name) = vm.split_once('/').unwrap();
        harness.vm(namespace, name, "node-1", json!({})).await;
        let vm = vm.parse().unwrap();
        restore_list::add(&client, PLAN, "node-1", &[vm]).await.unwrap();
        power::stop(&client, &vm_name(namespace, name)).await.unwrap();
    }
    harness.asked.lock().unwrap().clear();
    harness
}

fn vm_name(namespace: &str, name: &str) -> node::vm::VmName {
    format!("{namespace}/{name}").parse().unwrap()
}

/// The instance of a VM comes up so many seconds from now.
async fn comes_up(harness: &Harness, namespace: &str, name: &str, seconds: u64) {
    harness.clock.sleep(Duration::from_secs(seconds)).await;
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(harness.server.client(), namespace);
    let patch = Patch::Merge(json!({"status": {"phase": "Running"}}));
    vmis.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn vms_are_started_and_waited_for_until_they_run() {
    let harness = stopped(&["default/a", "dev/b"]).await;
    let (client, reporter) = (harness.client_of(accounts::VM_RESTORE), harness.reporter());
    let (ended, (), ()) = tokio::join!(
        run(&client, options(), &reporter),
        comes_up(&harness, "default", "a", 60),
        comes_up(&harness, "dev", "b", 200),
    );
    ended.unwrap();
    assert_eq!(harness.clock.elapsed().as_secs(), 200, "it ends when the last one runs");
    assert_eq!(harness.asked(), ["healthz", "start default/a", "start dev/b"]);
    assert_eq!(
        harness.events().await,
        [
            "Normal RestoreVMCompleted restore-vm/node-1: Restored 2 VMs for node node-1 during upgrade up, success: 2, failed: 0"
        ]
    );
    let waits = harness.board.waits.lock().unwrap().clone();
    assert_eq!(
        (waits[0].what.as_str(), waits[0].object.as_deref()),
        ("VMStart", Some("VirtualMachine default/a"))
    );
    assert!(waits[0].deadline.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_runs_already_is_a_success() {
    let harness = stopped(&["default/a"]).await;
    let client = harness.client_of(accounts::VM_RESTORE);
    power::start(&client, &vm_name("default", "a")).await.unwrap();
    comes_up(&harness, "default", "a", 0).await;
    run(&client, options(), &harness.reporter()).await.unwrap();
    assert!(harness.events().await[0].ends_with("success: 1, failed: 0"));
}

#[tokio::test(start_paused = true)]
async fn each_vm_that_does_not_come_up_is_a_warning_and_the_program_fails_with_all_their_names() {
    let harness = stopped(&["default/a", "default/gone", "dev/b"]).await;
    let vms: Api<api::foreign::kubevirt::VirtualMachine> = Api::namespaced(harness.server.client(), "default");
    vms.delete("gone", &DeleteParams::default()).await.unwrap();
    let vms: Api<api::foreign::kubevirt::VirtualMachine> = Api::namespaced(harness.server.client(), "dev");
    let status = Patch::Merge(json!({"status": {"printableStatus": "ErrorUnschedulable"}}));
    vms.patch_status("b", &PatchParams::default(), &status).await.unwrap();
    let (client, reporter) = (harness.client_of(accounts::VM_RESTORE), harness.reporter());
    let (ended, ()) = tokio::join!(
        run(&client, options(), &reporter),
        comes_up(&harness, "default", "a", 60)
    );
    let error = ended.unwrap_err().to_string();
    assert_eq!(
        error,
        "failed to start 2 of 3 VMs again: default/gone (failed to start VM default/gone: there is no VirtualMachine of \
         that name); dev/b (it does not run 15 minutes after it was started: ErrorUnschedulable)"
    );
    assert_eq!(*harness.board.termination_message.lock().unwrap(), error);
    let events = harness.events().await;
    assert_eq!(events.len(), 3);
    assert!(
        events[0].ends_with("Restored 3 VMs for node node-1 during upgrade up, success: 1, failed: 2"),
        "{events:?}"
    );
    assert!(
        events[1].starts_with("Warning RestoreVMFailed restore-vm/node-1: Failed to restore VM default/gone on node")
    );
    assert!(events[2].starts_with("Warning RestoreVMFailed restore-vm/node-1: Failed to restore VM dev/b on node"));
    // Once the cause is gone, another run succeeds: what runs is left as it is.
    harness.vm("default", "gone", "node-1", json!({})).await;
    let (ended, ()) = tokio::join!(run(&client, options(), &reporter), comes_up(&harness, "dev", "b", 60));
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn kubevirt_is_waited_for_visibly_and_not_for_ever() {
    let harness = stopped(&["default/a"]).await;
    harness.answer("healthz", 503, "service unavailable");
    let (client, reporter, answers, clock) = (
        harness.client_of(accounts::VM_RESTORE),
        harness.reporter(),
        harness.answers.clone(),
        harness.clock.clone(),
    );
    let well_again = async {
        clock.sleep(Duration::from_mins(20)).await;
        answers.lock().unwrap().clear();
        clock.sleep(Duration::from_secs(30)).await;
        comes_up(&harness, "default", "a", 0).await;
    };
    let (ended, ()) = tokio::join!(run(&client, options(), &reporter), well_again);
    ended.unwrap();
    let waits = harness.board.waits.lock().unwrap().clone();
    assert_eq!(waits[0].what, "KubeVirt");
    assert!(
        waits[0]
            .message
            .as_ref()
            .unwrap()
            .contains("it is not ready: service unavailable"),
        "{waits:?}"
    );

    let harness = stopped(&["default/a"]).await;
    harness.answer("healthz", 503, "service unavailable");
    let error = run(&harness.client_of(accounts::VM_RESTORE), options(), &harness.reporter())
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(harness.clock.elapsed().as_secs(), 30 * 60);
    assert!(
        error.starts_with("failed to start 1 of 1 VMs again: default/a (step wait-for-kubevirt"),
        "{error}"
    );
    assert!(
        harness
            .events()
            .await
            .iter()
            .any(|event| event.starts_with("Warning RestoreVMFailed"))
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_list_or_with_nothing_on_it_there_is_nothing_to_do() {
    let harness = Harness::new(&["node-1"]).await;
    run(&harness.client_of(accounts::VM_RESTORE), options(), &harness.reporter())
        .await
        .unwrap();
    assert_eq!(
        harness.events().await,
        ["Warning RestoreVMFailed restore-vm/node-1: ConfigMap not found"]
    );

    let harness = Harness::new(&["node-1"]).await;
    restore_list::add(&harness.client(), PLAN, "node-1", &[]).await.unwrap();
    run(&harness.client_of(accounts::VM_RESTORE), options(), &harness.reporter())
        .await
        .unwrap();
    assert_eq!(
        harness.events().await,
        ["Normal RestoreVMCompleted restore-vm/node-1: Restored 0 VM for node node-1 during upgrade up"]
    );
    assert!(harness.asked().is_empty());
}
