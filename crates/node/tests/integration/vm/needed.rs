//! restore-vm runs as its account, with the roles that ship. Without any of their rules something is different, and every verb
//! is asked for.

use std::time::Duration;

use api::{
    accounts::VM_RESTORE,
    foreign::kubevirt::{VirtualMachine, VirtualMachineInstance},
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use node::vm::{
    restore::{Options, run},
    restore_list,
};
use serde_json::json;

use crate::vm::harness::{Harness, PLAN};
use testbed::rights::{self, Asked};

/// Two VMs on the list: one that KubeVirt refuses to start since it starts already, and one that does not exist.
async fn listed() -> Harness {
    let harness = Harness::new(&["node-1"]).await;
    harness.vm("default", "a", "node-1", json!({})).await;
    let vms = ["default/a", "dev/gone"].map(|name| name.parse().unwrap());
    restore_list::add(&harness.client(), PLAN, "node-1", &vms)
        .await
        .unwrap();
    let all: Api<VirtualMachine> = Api::namespaced(harness.server.client(), "default");
    let always = Patch::Merge(json!({"spec": {"runStrategy": "Always"}}));
    all.patch("a", &PatchParams::default(), &always).await.unwrap();
    harness.answer("start default/a", 409, "it runs already");
    becomes(&harness, "Scheduling").await;
    harness
}

/// The instance of the VM is in a phase from now on.
async fn becomes(harness: &Harness, phase: &str) {
    let instances: Api<VirtualMachineInstance> = Api::namespaced(harness.server.client(), "default");
    let patch = Patch::Merge(json!({"status": {"phase": phase}}));
    instances.patch("a", &PatchParams::default(), &patch).await.unwrap();
}

async fn outcome(harness: &Harness) -> (Result<(), String>, Vec<String>, Vec<String>) {
    let options = Options {
        node: "node-1".to_owned(),
        upgrade: PLAN.to_owned(),
    };
    let (client, reporter) = (harness.client_of(VM_RESTORE), harness.reporter());
    let comes_up = async {
        harness.clock.sleep(Duration::from_mins(5)).await;
        becomes(harness, "Running").await;
    };
    let (ended, ()) = tokio::join!(run(&client, options, &reporter), comes_up);
    (
        ended.map_err(|error| error.to_string()),
        harness.asked(),
        harness.events().await,
    )
}

#[tokio::test(start_paused = true)]
async fn s06_every_verb_that_the_roles_of_restore_vm_allow_is_requested() {
    let asked = Asked::default();
    let harness = listed().await;
    asked.listen(&harness.server, VM_RESTORE);
    let (_, of_kubevirt, _) = outcome(&harness).await;
    assert_eq!(of_kubevirt, ["healthz", "start default/a", "start dev/gone"]);
    asked.take_writes(&harness.server, VM_RESTORE);
    // KubeVirt's API is not the embedded one's; what is waited for is shown in the simulation.
    let elsewhere = ["pods/status", "healthz", "virtualmachines/start"];
    let never = asked.never(VM_RESTORE, &elsewhere);
    assert!(never.is_empty(), "allowed and never asked for: {never:#?}");
}

#[tokio::test(start_paused = true)]
async fn s06_without_any_rule_of_its_roles_vms_are_not_restored_as_they_should_be() {
    let whole = outcome(&listed().await).await;
    let mut unneeded = Vec::new();
    for (role, number) in rights::rules(VM_RESTORE) {
        let text = rights::shown(&role, number);
        let harness = listed().await;
        rights::take_away(&harness.server, &role, number).await;
        if !text.contains("pods/status") && outcome(&harness).await == whole {
            unneeded.push(text);
        }
    }
    assert!(unneeded.is_empty(), "nothing breaks without: {unneeded:#?}");
}
