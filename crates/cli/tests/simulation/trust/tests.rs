//! What must never be, done: it is seen.

use cli::rehearsal::beginning;
use clock::Clock;
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use rstest::rstest;
use serde_json::json;

use crate::{
    run::{Case, in_paused_time},
    watched::Watched,
};

/// However KubeVirt is asked to.
#[rstest]
#[case::that_always_runs("spec")]
#[case::that_is_only_asked("status")]
#[case::whose_instance_is_deleted("instance")]
fn s01_a_vm_that_is_stopped_and_on_no_list_is_seen(#[case] how: &str) {
    in_paused_time(async {
        let case = Case::three_nodes();
        let rehearsal = Watched::start(case.scenario, Clock::simulated(beginning(), 1.0)).await;
        let vms = rehearsal.objects("kubevirt.io", "virtualmachineinstances");
        let name = vms[0].metadata.name.clone().unwrap();
        let namespace = vms[0].metadata.namespace.clone().unwrap();
        let api = |kind: &str| -> Api<DynamicObject> {
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", kind));
            Api::namespaced_with(rehearsal.server.client(), &namespace, &kind)
        };
        let asked = PatchParams::default();
        match how {
            "spec" => {
                let patch = Patch::Merge(json!({"spec": {"runStrategy": "Halted"}}));
                api("VirtualMachine").patch(&name, &asked, &patch).await.unwrap();
            }
            "status" => {
                let patch = Patch::Merge(json!({"status": {"stateChangeRequests": [{"action": "Stop"}]}}));
                api("VirtualMachine").patch_status(&name, &asked, &patch).await.unwrap();
            }
            _ => {
                let instances = api("VirtualMachineInstance");
                instances.delete(&name, &DeleteParams::default()).await.unwrap();
            }
        }
        let seen = rehearsal.take_violations();
        assert!(seen[0].contains(&format!("{namespace}/{name}")), "{seen:?}");
    });
}
