//! Network policies as a network carries them out: who reaches whom. A pod that no policy selects is open; one that is
//! selected is reached by whom a rule names, and by the node it runs on, which no policy keeps out.

use std::{net::Ipv4Addr, str::FromStr};

use serde_json::Value;

use crate::packaging::documents::Documents;

/// A client on the network: a pod, or a program on the host network of a node when there are no labels.
pub(crate) struct Peer<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) labels: Option<&'a Value>,
    pub(crate) address: &'a str,
}

/// The policies of an installation.
pub(crate) struct Policies<'a>(Vec<&'a Value>);

impl<'a> Policies<'a> {
    pub(crate) fn of(documents: &'a Documents) -> Self {
        let policies = documents.0.iter().filter(|one| one["kind"] == "NetworkPolicy");
        Self(policies.collect())
    }

    /// The names of the policies that a pod is under.
    pub(crate) fn selecting(&self, pod: &Peer<'_>) -> Vec<&'a str> {
        let policies = self.0.iter().filter(|policy| is_under(policy, pod));
        policies
            .map(|policy| policy["metadata"]["name"].as_str().unwrap())
            .collect()
    }

    /// Whether a connection comes through: out of the one pod and into the other.
    pub(crate) fn lets(&self, from: &Peer<'_>, to: &Peer<'_>, port: u64) -> bool {
        self.one_way("Egress", "egress", "to", from, to, port)
            && self.one_way("Ingress", "ingress", "from", to, from, port)
    }

    fn one_way(&self, kind: &str, rules: &str, peers: &str, pod: &Peer<'_>, other: &Peer<'_>, port: u64) -> bool {
        let is_of_kind = |policy: &&&Value| policy["spec"]["policyTypes"].as_array().unwrap().contains(&kind.into());
        let mut over = self
            .0
            .iter()
            .filter(|policy| is_under(policy, pod))
            .filter(is_of_kind)
            .peekable();
        let is_open = over.peek().is_none();
        is_open
            || over.any(|policy| {
                let rules = policy["spec"][rules].as_array().into_iter().flatten();
                let namespace = policy["metadata"]["namespace"].as_str().unwrap();
                rules.into_iter().any(|rule| {
                    let ports = rule["ports"].as_array();
                    let is_port = ports.is_none_or(|ports| ports.iter().any(|one| one["port"] == port));
                    let named = rule[peers].as_array();
                    is_port && named.is_none_or(|named| named.iter().any(|one| is_meant(one, namespace, other)))
                })
            })
    }
}

fn is_under(policy: &Value, pod: &Peer<'_>) -> bool {
    let in_namespace = policy["metadata"]["namespace"] == pod.namespace;
    in_namespace
        && pod
            .labels
            .is_some_and(|labels| selects(&policy["spec"]["podSelector"], labels))
}

fn is_meant(peer: &Value, namespace: &str, other: &Peer<'_>) -> bool {
    if let Some(block) = peer.get("ipBlock") {
        let excepted = block["except"].as_array().into_iter().flatten();
        let mut excepted = excepted.filter_map(Value::as_str);
        return contains(block["cidr"].as_str().unwrap(), other.address)
            && !excepted.any(|range| contains(range, other.address));
    }
    // Who is on the host network has no labels that count.
    let Some(labels) = other.labels else { return false };
    let of_namespace = serde_json::json!({"kubernetes.io/metadata.name": other.namespace});
    let in_namespace = match peer.get("namespaceSelector") {
        Some(selector) => selects(selector, &of_namespace),
        None => other.namespace == namespace,
    };
    in_namespace && peer.get("podSelector").is_none_or(|selector| selects(selector, labels))
}

fn selects(selector: &Value, labels: &Value) -> bool {
    let exact = selector["matchLabels"].as_object().into_iter().flatten();
    let terms = selector["matchExpressions"].as_array().into_iter().flatten();
    exact.into_iter().all(|(label, value)| labels.get(label) == Some(value))
        && terms.into_iter().all(|term| {
            assert_eq!(term["operator"], "Exists", "this test knows no other");
            labels.get(term["key"].as_str().unwrap()).is_some()
        })
}

fn contains(range: &str, address: &str) -> bool {
    let (network, bits) = range.split_once('/').unwrap();
    let number = |text: &str| u32::from(Ipv4Addr::from_str(text).unwrap());
    let mask = u32::MAX.checked_shl(32 - bits.parse::<u32>().unwrap()).unwrap_or(0);
    number(network) & mask == number(address) & mask
}
