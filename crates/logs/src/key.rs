//! What a log belongs to: the pod, the container, and which start of that container.
//!
//! Names come from objects of others. They become part of paths in archives, so they are checked here, once.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whose log it is. When space is short, logs of the cluster go before those of the upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Of the upgrade itself: its plan owns the pod, by UID.
    Own,
    /// Of a component of the cluster that an upgrade touches.
    System,
}

/// A container of one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContainerKey {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The UID of the pod; for a static pod, the hash of its file, which stays when its mirror is created again.
    pub uid: String,
    /// The name of the container.
    pub container: String,
}

/// One start of a container: what one log file of the kubelet is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamKey {
    /// The container.
    #[serde(flatten)]
    pub container: ContainerKey,
    /// How often it was restarted before.
    pub instance: u32,
}

/// What is known of a log in addition to its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamInfo {
    /// Whose log it is.
    pub class: Class,
    /// Which part of the upgrade or of the cluster the pod serves.
    pub component: String,
    /// The node of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

impl ContainerKey {
    /// The key of a container, if all names are ones that Kubernetes allows.
    #[must_use]
    pub fn new(namespace: &str, pod: &str, uid: &str, container: &str) -> Option<Self> {
        let names = [namespace, pod, container];
        (names.iter().all(|name| is_name(name)) && is_uid(uid)).then(|| Self {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid: uid.to_owned(),
            container: container.to_owned(),
        })
    }

    /// `namespace/pod`, as users name it.
    #[must_use]
    pub fn pod_name(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }
}

impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ContainerKey {
            namespace,
            pod,
            container,
            ..
        } = &self.container;
        write!(f, "{namespace}/{pod}/{container}#{}", self.instance)
    }
}

/// A DNS subdomain, as names of pods are. It has no slash and does not begin with a dot, so it stays in its folder.
fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let outer = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    bytes.len() <= 253
        && bytes.iter().copied().all(allowed)
        && outer(bytes.first())
        && outer(bytes.last())
        && !text.contains("..")
}

fn is_uid(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && text.len() <= 64 && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::a_parent_folder("..")]
    #[case::a_path("a/b")]
    #[case::a_path_to_the_root("/etc")]
    #[case::parents_within("a..b")]
    #[case::hidden(".a")]
    #[case::empty("")]
    #[case::a_backslash("a\\b")]
    #[case::a_null_byte("a\0")]
    fn a_name_that_could_leave_its_folder_is_no_name(#[case] name: &str) {
        assert_eq!(ContainerKey::new("ns", name, "u", "c"), None);
        assert_eq!(ContainerKey::new(name, "pod", "u", "c"), None);
        assert_eq!(ContainerKey::new("ns", "pod", "u", name), None);
        assert_eq!(ContainerKey::new("ns", "pod", name, "c"), None);
    }

    #[test]
    fn names_of_pods_are_names() {
        assert!(ContainerKey::new("kube-system", "etcd-node-0.example", "0a-1", "etcd").is_some());
    }
}
