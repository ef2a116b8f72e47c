//! `vm-live-migrate-detector`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use api::foreign::kubevirt::VirtualMachine;
use apiserver::{Fault, FaultPlan, Verb};
use kube::{Api, api::DeleteParams};
use node::vm::{
    VmName,
    detector::{Options, run},
    restore_list::{self, Added},
};
use serde_json::json;
use tokio::sync::Notify;

use crate::vm::harness::{Harness, PLAN};

fn options() -> Options {
    Options {
        node: "node-1".to_owned(),
        upgrade: Some(PLAN.to_owned()),
        shutdown: true,
    }
}

fn device() -> serde_json::Value {
    json!({"domain": {"devices": {"hostDevices": [{"name": "d"}]}}})
}

fn name(text: &str) -> VmName {
    text.parse().unwrap()
}

/// Two VMs of node-1 that cannot move, one that can, one of another node.
async fn two_nodes() -> Harness {
    let harness = Harness::new(&["node-1", "node-2"]).await;
    harness
        .vm(
            "default",
            "gpu",
            "node-1",
            json!({"domain": {"devices": {"gpus": [{"name": "g"}]}}}),
        )
        .await;
    harness.vm("dev", "nic", "node-1", device()).await;
    harness.vm("default", "web", "node-1", json!({})).await;
    harness.vm("default", "elsewhere", "node-2", device()).await;
    harness
}

#[tokio::test(start_paused = true)]
async fn r52_vms_of_these_tests_are_whole_and_others_are_refused() {
    let harness = two_nodes().await;
    for (kind, whole) in [
        ("virtualmachines", "/spec/template/spec/domain"),
        ("virtualmachineinstances", "/spec/domain"),
    ] {
        let there = harness.server.store().list("kubevirt.io", kind, None);
        assert_eq!(there.len(), 4);
        for object in &there {
            assert!(object.pointer(whole).is_some(), "{object}");
        }
    }
    if testbed::real_definitions().is_none() {
        return;
    }
    for (kind, spec) in [
        ("VirtualMachine", json!({"runStrategy": "Always"})),
        ("VirtualMachineInstance", serde_json::Value::Null),
    ] {
        let mut half =
            json!({"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {"name": "half", "namespace": "dev"}});
        if !spec.is_null() {
            half["spec"] = spec;
        }
        assert!(harness.refuses(&half).await, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn vms_that_cannot_move_are_listed_then_stopped_and_the_plan_says_so() {
    let harness = two_nodes().await;
    let detected = run(&harness.client(), options(), &harness.reporter()).await.unwrap();
    assert_eq!(detected.found.len(), 2);
    assert_eq!(harness.list("node-1").await.as_deref(), Some("default/gpu,dev/nic"));
    assert_eq!(harness.asked(), ["stop default/gpu", "stop dev/nic"]);
    assert_eq!(
        harness.events().await,
        [
            "Normal RestoreVMConfigMapCreated vm-live-migrate-detector/node-1: ConfigMap harvester-system/up-restore-vm created",
            "Normal VMShutdownCompleted vm-live-migrate-detector/node-1: Shutdown completed for 2 VM(s) on node node-1, \
             success: 2, failed: 0 ",
        ]
    );
    assert!(
        harness.clock.elapsed() < Duration::from_secs(1),
        "events are waited for, not slept for"
    );
    // It writes a ConfigMap and events, and KubeVirt does the rest.
    assert_eq!(harness.kinds_written().unwrap_or_default(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn without_shutdown_nothing_is_stopped_and_without_a_plan_nothing_is_written() {
    let harness = two_nodes().await;
    let look_only = Options {
        shutdown: false,
        ..options()
    };
    run(&harness.client(), look_only, &harness.reporter()).await.unwrap();
    assert_eq!(harness.list("node-1").await.as_deref(), Some("default/gpu,dev/nic"));
    let events = harness.events().await;
    assert!(
        events[1].ends_with("Shutdown completed for 2 VM(s) on node node-1, success: 0, failed: 0 "),
        "{events:?}"
    );
    assert!(harness.asked().is_empty());

    let harness = two_nodes().await;
    let alone = Options {
        upgrade: None,
        ..options()
    };
    run(&harness.client(), alone, &harness.reporter()).await.unwrap();
    assert_eq!(harness.list("node-1").await, None);
    assert!(harness.events().await.is_empty());
    assert_eq!(harness.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn killed_between_list_and_stop_or_between_two_stops_no_vm_is_forgotten() {
    // The first write creates the list; it is killed at once.
    let harness = two_nodes().await;
    let killed = Arc::new(Notify::new());
    let bell = killed.clone();
    harness.server.set_faults(FaultPlan::writes(move |write| {
        if write.verb == Verb::Create && write.resource.plural == "configmaps" {
            Fault::CrashAfter(bell.clone())
        } else {
            Fault::None
        }
    }));
    let (client, reporter) = (harness.client(), harness.reporter());
    tokio::select! {
        _ = run(&client, options(), &reporter) => panic!("it was to be killed"),
        () = killed.notified() => {}
    }
    harness.server.set_faults(FaultPlan::none());
    assert!(
        harness.asked().is_empty(),
        "nothing is stopped before the list is written"
    );
    // Again, and killed after the first stop: the second run finds one VM less.
    let client = harness.client();
    node::vm::power::stop(&client, &name("default/gpu")).await.unwrap();
    let detected = run(&client, options(), &harness.reporter()).await.unwrap();
    assert_eq!(detected.found.len(), 1);
    assert_eq!(harness.list("node-1").await.as_deref(), Some("default/gpu,dev/nic"));
    // A third run finds none, and the list stays.
    run(&client, options(), &harness.reporter()).await.unwrap();
    assert_eq!(harness.list("node-1").await.as_deref(), Some("default/gpu,dev/nic"));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_another_client_writes_at_the_same_time_keeps_both() {
    let harness = two_nodes().await;
    // Another node's detector is faster: between our look and our create there is a list.
    let once = Arc::new(AtomicUsize::new(0));
    let count = once.clone();
    harness.server.set_faults(FaultPlan::writes(move |write| {
        let ours = write.resource.plural == "configmaps";
        if ours && count.fetch_add(1, Ordering::SeqCst) < 3 {
            Fault::ConflictBefore
        } else {
            Fault::None
        }
    }));
    let client = harness.client();
    let added = restore_list::add(&client, PLAN, "node-2", &[name("default/elsewhere")]).await;
    assert_eq!(added.unwrap(), Added::Created);
    once.store(0, Ordering::SeqCst);
    run(&client, options(), &harness.reporter()).await.unwrap();
    assert!(once.load(Ordering::SeqCst) > 3, "it was tried again");
    assert_eq!(harness.list("node-1").await.as_deref(), Some("default/gpu,dev/nic"));
    assert_eq!(harness.list("node-2").await.as_deref(), Some("default/elsewhere"));
}

#[tokio::test(start_paused = true)]
async fn two_nodes_that_create_the_list_at_once_are_both_on_it() {
    let harness = two_nodes().await;
    let client = harness.client();
    let (one, other) = ([name("default/gpu")], [name("default/elsewhere")]);
    let (first, second) = tokio::join!(
        restore_list::add(&client, PLAN, "node-1", &one),
        restore_list::add(&client, PLAN, "node-2", &other),
    );
    let added = [first.unwrap(), second.unwrap()];
    assert!(
        added.contains(&Added::Created) && added.contains(&Added::Updated),
        "{added:?}"
    );
    assert_eq!(harness.list("node-1").await.as_deref(), Some("default/gpu"));
    assert_eq!(harness.list("node-2").await.as_deref(), Some("default/elsewhere"));
}

#[tokio::test(start_paused = true)]
async fn where_the_list_cannot_be_written_no_vm_is_stopped() {
    let harness = two_nodes().await;
    harness.server.set_faults(FaultPlan::writes(|write| {
        if write.resource.plural == "configmaps" {
            Fault::Reject(403)
        } else {
            Fault::None
        }
    }));
    let error = run(&harness.client(), options(), &harness.reporter())
        .await
        .unwrap_err();
    assert!(error.to_string().starts_with("failed to write ConfigMap"), "{error}");
    assert!(harness.asked().is_empty());
    let events = harness.events().await;
    assert_eq!(events.len(), 1);
    assert!(events[0].starts_with("Warning RestoreVMConfigMapFailed vm-live-migrate-detector/node-1: failed to write"));
    let word = harness.board.termination_message.lock().unwrap().clone();
    assert!(word.starts_with("record-vms: failed to write ConfigMap"), "{word}");
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_stands_still_already_is_no_failure_and_one_that_refuses_is_a_warning() {
    let harness = two_nodes().await;
    // A user has just stopped it: it is halted, but its instance is still there.
    harness.answer(
        "stop default/gpu",
        409,
        "Halted only supports manual stop requests with a shorter graceperiod",
    );
    let vms: Api<VirtualMachine> = Api::namespaced(harness.server.client(), "default");
    let halted = kube::api::Patch::Merge(json!({"spec": {"runStrategy": "Halted"}}));
    vms.patch("gpu", &Default::default(), &halted).await.unwrap();
    harness.answer("stop dev/nic", 403, "not allowed");
    // An instance without a VM cannot be stopped.
    harness.instance("dev", "alone", "node-1", device()).await;
    let detected = run(&harness.client(), options(), &harness.reporter()).await.unwrap();
    assert_eq!(detected.stopped[&name("default/gpu")], Ok(()));
    let events = harness.events().await;
    let warnings: Vec<&String> = events.iter().filter(|event| event.starts_with("Warning")).collect();
    assert_eq!(warnings.len(), 2, "{events:?}");
    assert_eq!(
        warnings[0],
        "Warning VMShutdownFailed vm-live-migrate-detector/node-1: Failed to shut down VM dev/alone on node node-1: \
         failed to stop VM dev/alone: there is no VirtualMachine of that name"
    );
    assert!(
        warnings[1].ends_with("VM dev/nic on node node-1: failed to stop VM dev/nic: not allowed"),
        "{events:?}"
    );
    assert!(
        events
            .iter()
            .any(|event| event.ends_with("for 3 VM(s) on node node-1, success: 1, failed: 2 "))
    );
}

#[tokio::test(start_paused = true)]
async fn kubevirt_that_restarts_is_waited_for_and_one_that_stays_away_is_a_warning() {
    let harness = two_nodes().await;
    harness.answer(
        "stop default/gpu",
        503,
        "the server is currently unable to handle the request",
    );
    let (client, reporter, answers, clock) = (
        harness.client(),
        harness.reporter(),
        harness.answers.clone(),
        harness.clock.clone(),
    );
    let well_again = async {
        clock.sleep(Duration::from_mins(2)).await;
        answers.lock().unwrap().clear();
        std::future::pending::<()>().await;
    };
    let detected = tokio::select! {
        detected = run(&client, options(), &reporter) => detected.unwrap(),
        () = well_again => unreachable!(),
    };
    assert!(detected.stopped.values().all(Result::is_ok));
    let waits = harness.board.waits.lock().unwrap().clone();
    assert_eq!(waits[0].object.as_deref(), Some("VirtualMachine default/gpu"));

    let harness = two_nodes().await;
    harness.answer(
        "stop default/gpu",
        503,
        "the server is currently unable to handle the request",
    );
    let detected = run(&harness.client(), options(), &harness.reporter()).await.unwrap();
    assert!(detected.stopped[&name("default/gpu")].is_err());
    assert_eq!(detected.stopped[&name("dev/nic")], Ok(()));
    assert!(
        harness
            .events()
            .await
            .iter()
            .any(|event| event.starts_with("Warning VMShutdownFailed"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_gone_stops_nothing() {
    let harness = two_nodes().await;
    let plans: Api<api::UpgradePlan> = Api::all(harness.server.client());
    plans.delete(PLAN, &DeleteParams::default()).await.unwrap();
    let error = run(&harness.client(), options(), &harness.reporter())
        .await
        .unwrap_err();
    assert!(
        error.to_string().starts_with("failed to read UpgradePlan up"),
        "{error}"
    );
    assert!(harness.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_retry_of_the_plan_reports_its_events_again() {
    let harness = two_nodes().await;
    let recorder = program::plan_events::Recorder::new(harness.client(), harness.clock.clone(), "up", "any", "node-1");
    let record = || recorder.record(rules::PlanEvent::warning("Any", "it broke"));
    record().await;
    record().await;
    assert_eq!(harness.events().await.len(), 1);
    let plans: kube::Api<api::UpgradePlan> = kube::Api::all(harness.strict());
    let at = "2026-03-13T03:57:09Z";
    let history = ["NodeUpgrading", "Failed", "ClusterUpgraded"];
    let history: Vec<_> = history
        .iter()
        .map(|phase| json!({"phase": phase, "phaseTransitionTimestamp": at}))
        .collect();
    let patch = kube::api::Patch::Merge(json!({"status": {"phaseTransitionTimestamps": history}}));
    plans.patch_status("up", &Default::default(), &patch).await.unwrap();
    record().await;
    record().await;
    assert_eq!(harness.events().await.len(), 2);
}
