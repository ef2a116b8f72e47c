//! Every pod that we make has no more of its node and of the cluster than its program needs: it keeps to the strict list, or
//! stands in the table with what it does not keep to and why.

use std::collections::BTreeSet;

use api::{JobType, NodePlan};
use serde_json::{Value, json};

use crate::packaging::{
    chart::{RELEASE, rendered},
    documents::Documents,
    installer::installed,
    pods,
};

/// What a pod does not keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// A container has all rights of its node.
    Privileged,
    /// A container may be root.
    Root,
    /// A process may gain more rights than its parent.
    Escalation,
    /// A container keeps capabilities, or adds some.
    Capabilities,
    /// A container may call anything of the kernel.
    SystemCalls,
    /// A container may write to its root file system.
    WritableRoot,
    /// Network, processes or IPC are the node's.
    Host,
    /// Files of the node are mounted.
    HostFiles,
    /// A token of the API is mounted.
    Token,
}

use Fault::{Capabilities, Escalation, Host, HostFiles, Privileged, Root, SystemCalls, Token, WritableRoot};

/// Root on its node, in all but name.
const NODE_ROOT: &[Fault] = &[
    Privileged,
    Root,
    Escalation,
    Capabilities,
    SystemCalls,
    WritableRoot,
    Host,
    HostFiles,
    Token,
];

fn faults(template: &Value) -> BTreeSet<Fault> {
    let spec = &template["spec"];
    let mut found = BTreeSet::new();
    let mut unless = |kept: bool, fault: Fault| {
        if !kept {
            found.insert(fault);
        }
    };
    let is_set = |value: &Value| *value == json!(true);
    let shares = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    unless(shares.into_iter().all(|what| !is_set(&spec[what])), Host);
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    unless(
        volumes.into_iter().all(|volume| volume.get("hostPath").is_none()),
        HostFiles,
    );
    unless(spec["automountServiceAccountToken"] == json!(false), Token);
    let initial = spec["initContainers"].as_array().into_iter().flatten();
    let containers = spec["containers"].as_array().unwrap().iter().chain(initial);
    for container in containers {
        let own = &container["securityContext"];
        // What a container does not say, its pod says.
        let said = |field: &str| {
            if own[field].is_null() {
                &spec["securityContext"][field]
            } else {
                &own[field]
            }
        };
        unless(!is_set(&own["privileged"]), Privileged);
        let is_not_root = said("runAsUser").as_u64().is_some_and(|user| user > 0);
        unless(is_set(said("runAsNonRoot")) && is_not_root, Root);
        unless(own["allowPrivilegeEscalation"] == json!(false), Escalation);
        unless(own["capabilities"] == json!({"drop": ["ALL"]}), Capabilities);
        unless(
            said("seccompProfile") == &json!({"type": "RuntimeDefault"}),
            SystemCalls,
        );
        unless(is_set(&own["readOnlyRootFilesystem"]), WritableRoot);
    }
    found
}

fn manager(documents: Option<Documents>) -> Option<Value> {
    let documents = documents?.0;
    let mut deployments = documents.into_iter().filter(|one| one["kind"] == "Deployment");
    Some(deployments.next().unwrap()["spec"]["template"].take())
}

#[test]
fn every_pod_keeps_to_the_strict_list_or_stands_in_the_table_with_its_reason() {
    let node = |step: JobType| Some(pods::node_job(step).template);
    let suc = |runs: NodePlan| Some(pods::suc(runs).template);
    let repository = |server: &str| Some(pods::repository(server).template);
    // What makes a pod, what it does not keep to, and why.
    let table: Vec<(&str, Option<Value>, &[Fault], &str)> = vec![
        (
            "the manager, by the chart",
            manager(rendered(RELEASE, &[])),
            &[Token],
            "it works on the API",
        ),
        (
            "the manager, by the installer",
            manager(installed(&[])),
            &[Token],
            "it works on the API",
        ),
        ("the repository", repository("toolkit"), &[], ""),
        (
            "the repository by nginx, on request",
            repository("nginx"),
            &[Privileged, Root, Escalation, Capabilities, SystemCalls, WritableRoot],
            "it mounts the ISO over a loop device",
        ),
        (
            "cluster-upgrade",
            Some(pods::cluster_upgrade().template),
            &[Token],
            "it works on the API",
        ),
        (
            "restore-vm",
            Some(pods::restore_vm().template),
            &[Token],
            "it works on the API",
        ),
        (
            "pre-drain",
            node(JobType::PreDrain),
            NODE_ROOT,
            "it stops VMs and changes files of the node",
        ),
        (
            "post-drain",
            node(JobType::PostDrain),
            NODE_ROOT,
            "it installs the node's system and reboots it",
        ),
        (
            "single-node-upgrade",
            node(JobType::SingleNodeUpgrade),
            NODE_ROOT,
            "both at once",
        ),
        (
            "prepare",
            suc(NodePlan::ImagePreload),
            NODE_ROOT,
            "it loads images into the node's containerd",
        ),
        (
            "clean-images",
            suc(NodePlan::ImageCleanup),
            NODE_ROOT,
            "it removes images from the node's containerd",
        ),
        (
            "skip-manifests apply",
            suc(NodePlan::SkipManifestsApply),
            NODE_ROOT,
            "it writes a file of RKE2's",
        ),
        (
            "skip-manifests remove",
            suc(NodePlan::SkipManifestsRemove),
            NODE_ROOT,
            "it removes that file",
        ),
        (
            "suspend-agent",
            Some(pods::suspend_agent().template),
            NODE_ROOT,
            "it writes a unit of the node's systemd",
        ),
        (
            "image-check",
            suc(NodePlan::ImageCheck),
            &[Host, HostFiles, Token],
            "system-upgrade-controller gives these to every pod, and a Plan has no word for them",
        ),
    ];
    for (name, template, allowed, why) in table {
        let Some(template) = template else { continue };
        let expected: BTreeSet<Fault> = allowed.iter().copied().collect();
        assert_eq!(faults(&template), expected, "{name}");
        assert_eq!(allowed.is_empty(), why.is_empty(), "{name}");
    }
}

/// A program whose root cannot be written to has a place for what it writes.
#[test]
fn who_writes_has_a_volume_for_it() {
    let template = pods::cluster_upgrade().template;
    assert_eq!(template["spec"]["volumes"], json!([{"name": "work", "emptyDir": {}}]));
    let container = &template["spec"]["containers"][0];
    assert_eq!(
        container["volumeMounts"],
        json!([{"name": "work", "mountPath": "/tmp"}])
    );
}
