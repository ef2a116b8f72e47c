//! What blocks an upgrade: pods that cannot start, waits that the programs of other pods report,
//! volumes that are not healthy, VMs that are still there.

use std::collections::BTreeMap;

use api::{
    Component, JobType, WaitingFor, annotations,
    foreign::{condition_is, longhorn::Volume},
    labels,
    pod::has_ended,
    quoted::{LONGEST_MESSAGE, LONGEST_NAME, plain, quoted},
    reasons,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use kube::ResourceExt;
use plan::observed::{ObservedPod, TerminationMessage};

use crate::watched::Watched;

/// Reasons of a waiting container that do not pass by themselves.
const STUCK: [&str; 8] = [
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    // Pods of the repository start again and again; those of Jobs do not.
    "CrashLoopBackOff",
];

/// Those of them that say that the image is the reason.
const NO_IMAGE: [&str; 4] = [
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
];

/// A pod of the plan that cannot start, and why; or whose program says what it waits for.
pub(crate) fn observe_pod(pod: &Pod) -> Option<ObservedPod> {
    let (problem, said, no_reboot) = (problem(pod), said(pod), says_no_reboot(pod));
    let armed_in = main_containers(pod).iter().find_map(armed_in);
    let termination_message = containers(pod).filter_map(termination_message).max();
    let mut owners = pod.owner_references().iter().filter(|owner| owner.kind == "Job");
    let owner = owners.next().map(|owner| owner.uid.clone());
    let works = owner.is_some() && !has_ended(pod);
    if problem.is_none()
        && said.is_empty()
        && termination_message.is_none()
        && !no_reboot
        && armed_in.is_none()
        && !works
    {
        return None;
    }
    let label = |key: &str| pod.labels().get(key).cloned();
    Some(ObservedPod {
        name: format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
        component: Component::of(&pod.metadata)?,
        job_type: JobType::of(&pod.metadata),
        node: label(labels::NODE).or_else(|| label(labels::SUC_NODE)),
        owner,
        problem,
        missing_image: containers(pod).find_map(missing_image),
        said,
        termination_message,
        no_reboot,
        armed_in,
        works,
    })
}

/// All containers of a pod, as far as they have something to say.
fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| {
        let first = status.init_container_statuses.iter().flatten();
        first.chain(status.container_statuses.iter().flatten())
    })
}

/// The image that a container waits for in vain.
fn missing_image(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let is_image = waiting.reason.as_deref().is_some_and(|why| NO_IMAGE.contains(&why));
    is_image.then(|| plain(&container.image, LONGEST_NAME))
}

/// The termination message of a failed container.
pub(crate) fn termination_message(container: &ContainerStatus) -> Option<TerminationMessage> {
    let ended = container.state.as_ref()?.terminated.as_ref()?;
    let text = ended
        .message
        .as_deref()
        .map(str::trim)
        .filter(|text| !text.is_empty())?;
    (ended.exit_code != 0).then(|| TerminationMessage {
        at: ended.finished_at.as_ref().map_or(Timestamp::MIN, |time| time.0),
        text: plain(text, LONGEST_MESSAGE),
    })
}

/// What the program of a pod says that it waits for. What cannot be read says nothing.
fn said(pod: &Pod) -> Vec<WaitingFor> {
    let text = pod.annotations().get(annotations::WAITING_FOR);
    let said: Vec<WaitingFor> = text
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    said.into_iter().map(bounded).collect()
}

/// An entry of which every text may be shown.
fn bounded(entry: WaitingFor) -> WaitingFor {
    WaitingFor {
        what: plain(&entry.what, LONGEST_NAME),
        object: entry.object.map(|text| plain(&text, LONGEST_NAME)),
        message: entry.message.map(|text| plain(&text, LONGEST_MESSAGE)),
        ..entry
    }
}

/// The program of a pod has ended well, and its termination message is that the node need not be rebooted.
fn says_no_reboot(pod: &Pod) -> bool {
    main_containers(pod).iter().any(ended_without_reboot)
}

/// The containers of a pod that are not there to prepare it.
fn main_containers(pod: &Pod) -> &[ContainerStatus] {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.container_statuses.as_deref())
        .unwrap_or_default()
}

/// A container whose termination message is that its node need not be rebooted.
pub(crate) fn ended_without_reboot(container: &ContainerStatus) -> bool {
    good_word(container).is_some_and(|word| word.starts_with(reasons::NO_REBOOT))
}

/// The termination message of a container that succeeded.
fn good_word(container: &ContainerStatus) -> Option<&str> {
    let ended = container.state.as_ref()?.terminated.as_ref()?;
    ended.message.as_deref().filter(|_| ended.exit_code == 0)
}

/// The boot in which a container says that it armed the reboot of its node. What no kernel calls a boot is none.
pub(crate) fn armed_in(container: &ContainerStatus) -> Option<String> {
    let word = good_word(container)?.strip_prefix(reasons::REBOOT_ARMED)?;
    let boot = word.strip_prefix(':')?.trim();
    let is_id = |boot: &str| boot.len() <= LONGEST_NAME && boot.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    (!boot.is_empty() && is_id(boot)).then(|| boot.to_owned())
}

/// Why a pod cannot start, if it cannot.
fn problem(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.as_deref().unwrap_or_default();
    if let Some(condition) = conditions.iter().find(|condition| is_unschedulable(condition)) {
        return Some(reason("Unschedulable", condition.message.as_deref()));
    }
    containers(pod).find_map(stuck)
}

/// The condition of a pod that fits no node.
pub(crate) fn is_unschedulable(condition: &PodCondition) -> bool {
    condition.type_ == "PodScheduled"
        && condition.status == "False"
        && condition.reason.as_deref() == Some("Unschedulable")
}

/// Why a container does not start, unless it is just about to.
pub(crate) fn stuck(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let why = waiting.reason.as_deref().filter(|why| STUCK.contains(why))?;
    Some(reason(why, waiting.message.as_deref()))
}

fn reason(word: &str, message: Option<&str>) -> String {
    match message.filter(|message| !message.is_empty()) {
        Some(message) => format!("{word}: {}", quoted(message)),
        None => word.to_owned(),
    }
}

/// Volumes that are in use and not healthy, by the claim they serve.
pub(crate) fn unhealthy_volumes(watched: &Watched) -> Vec<String> {
    watched
        .volumes
        .list()
        .iter()
        .filter_map(|volume| unhealthy(volume))
        .collect()
}

fn unhealthy(volume: &Volume) -> Option<String> {
    let robustness = volume
        .status
        .robustness
        .as_deref()
        .filter(|word| ["degraded", "faulted"].contains(word))?;
    let claim = volume.status.kubernetes_status.as_ref();
    let claim = claim.and_then(|claim| Some(format!("{}/{}", claim.namespace.as_ref()?, claim.pvc_name.as_ref()?)));
    Some(format!("{} ({robustness})", claim.unwrap_or_else(|| volume.name_any())))
}

/// Whether KubeVirt can move a VM.
pub(crate) const LIVE_MIGRATABLE: &str = "LiveMigratable";

/// Running VMs that are killed where their node is drained, by node: KubeVirt cannot migrate them, or must not.
pub(crate) fn immovable_vms(watched: &Watched) -> BTreeMap<String, Vec<String>> {
    let mut by_node: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for instance in watched.instances.list() {
        let conditions = instance.status.conditions.as_deref().unwrap_or_default();
        let can_move = condition_is(conditions, LIVE_MIGRATABLE) == Some(true);
        let stays = instance.spec.eviction_strategy.as_deref() == Some("None");
        let is_killed = !rules::migration::has_ended(&instance) && (stays || !can_move);
        if let Some(node) = instance.status.node_name.as_ref().filter(|_| is_killed) {
            let name = format!("{}/{}", instance.namespace().unwrap_or_default(), instance.name_any());
            by_node.entry(node.clone()).or_default().push(name);
        }
    }
    by_node
}

/// Running VMs, by node.
pub(crate) fn vms_by_node(watched: &Watched) -> BTreeMap<String, Vec<String>> {
    let mut by_node: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for instance in watched.instances.list() {
        if let Some(node) = &instance.status.node_name {
            let name = format!("{}/{}", instance.namespace().unwrap_or_default(), instance.name_any());
            by_node.entry(node.clone()).or_default().push(name);
        }
    }
    by_node
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod of plan `up` with these annotations, as the cache keeps it.
    fn speaking(phase: &str, annotations: &serde_json::Value) -> Pod {
        let labels = json!({labels::UPGRADE_PLAN: "up", labels::UPGRADE_COMPONENT: "node-upgrade",
            labels::JOB_TYPE: "pre-drain", labels::NODE: "node-1"});
        let mut pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "harvester-system", "labels": labels, "annotations": annotations},
            "spec": {"containers": []}, "status": {"phase": phase},
        }))
        .unwrap();
        crate::watched::prune_pod(&mut pod);
        pod
    }

    #[test]
    fn what_the_program_of_a_pod_waits_for_is_read_while_it_runs() {
        let entry = json!({"what": "VMEvacuation", "object": "VirtualMachine default/web-1", "message": "it moves",
            "since": "2026-03-13T03:57:09Z", "deadline": "2026-03-13T04:27:09Z"});
        let annotations = json!({annotations::WAITING_FOR: json!([entry]).to_string(), "other/one": "x".repeat(100)});
        let observed = observe_pod(&speaking("Running", &annotations)).unwrap();
        assert_eq!(json!(observed.said), json!([entry]));
        assert_eq!((observed.problem, observed.node.as_deref()), (None, Some("node-1")));
        for ended in ["Succeeded", "Failed"] {
            assert!(observe_pod(&speaking(ended, &annotations)).is_none(), "{ended}");
        }
        assert_eq!(
            speaking("Running", &annotations).annotations().len(),
            1,
            "the others are not kept"
        );
    }

    #[test]
    fn a_pod_that_says_nothing_or_nonsense_has_nothing_to_say() {
        for text in ["", "[]", "{}", "[{\"what\": 1}]", "waiting"] {
            let pod = speaking("Running", &json!({annotations::WAITING_FOR: text}));
            assert!(observe_pod(&pod).is_none(), "{text:?}");
        }
        assert!(observe_pod(&speaking("Running", &json!({}))).is_none());
    }

    fn pod(status: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap()
    }

    #[test]
    fn a_pod_whose_image_cannot_be_pulled_says_so() {
        let waiting = json!({"reason": "ImagePullBackOff", "message": "no such image"});
        let status = json!({"containerStatuses": [
            {"name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": waiting}}
        ]});
        assert_eq!(
            problem(&pod(&status)).as_deref(),
            Some("ImagePullBackOff: \"no such image\"")
        );
    }

    #[test]
    fn the_boot_in_which_a_program_armed_the_reboot_is_read_from_its_last_word() {
        let ended = |exit_code: i32, message: &str| {
            let mut pod = speaking("Succeeded", &json!({}));
            let status = json!({"phase": "Succeeded", "containerStatuses": [
                {"name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                 "state": {"terminated": {"exitCode": exit_code, "message": message}}}
            ]});
            pod.status = serde_json::from_value(status).unwrap();
            crate::watched::prune_pod(&mut pod);
            observe_pod(&pod).and_then(|observed| observed.armed_in)
        };
        let boot = "4f8a9c02-6f3e-4d0a-9d7f-0c8a8a3f1b11";
        let said = node_says(boot);
        assert_eq!(ended(0, &said).as_deref(), Some(boot));
        assert_eq!(ended(1, &said), None, "it failed");
        for nonsense in [
            "RebootArmed",
            "RebootArmed:",
            "RebootArmed: a b",
            "RebootArmed: \u{1b}[2J",
            "done",
        ] {
            assert_eq!(ended(0, nonsense), None, "{nonsense:?}");
        }
        assert_eq!(ended(0, &node_says(&"a".repeat(1000))), None);
    }

    fn node_says(boot: &str) -> String {
        format!("{}: {boot}", reasons::REBOOT_ARMED)
    }

    #[test]
    fn a_pod_that_fits_no_node_says_so() {
        let status = json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
        ]});
        assert_eq!(
            problem(&pod(&status)).as_deref(),
            Some("Unschedulable: \"0/3 nodes are available\"")
        );
    }

    #[test]
    fn a_pod_that_is_just_starting_has_no_problem() {
        let status = json!({"containerStatuses": [
            {"name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0,
             "state": {"waiting": {"reason": "ContainerCreating"}}}
        ]});
        assert_eq!(problem(&pod(&status)), None);
    }
}
