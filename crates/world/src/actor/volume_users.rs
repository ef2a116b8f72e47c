//! Which VM or pod uses which volume, by the claims that they name. Remembers the claims of a VM that does not run now: its
//! volumes are detached, and attached again when it runs.

use std::collections::BTreeMap;

use api::{
    foreign::{kubevirt::VirtualMachineInstance, longhorn::Volume},
    pod::has_ended,
};
use k8s_openapi::api::core::v1::Pod;
use rules::migration;

use crate::{
    cluster::vms,
    context::{Context, annotation, node_of},
    inbox::Key,
    watched::key_of,
};

use super::workloads::CONTROLLED;

/// What uses a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum User {
    Vm(Key),
    Pod(Key),
}

#[derive(Default)]
pub(super) struct Users {
    /// The volume of each claim.
    volumes: BTreeMap<Key, Key>,
    /// The claims of each user.
    claims: BTreeMap<User, Vec<Key>>,
    /// The user of each claim.
    users: BTreeMap<Key, User>,
}

impl Users {
    /// Of all volumes that there are.
    pub(super) fn of(world: &Context) -> Self {
        let mut users = Self::default();
        for volume in world.volumes.list() {
            users.learn_volume(&volume);
        }
        users
    }

    pub(super) fn learn_volume(&mut self, volume: &Volume) {
        if let Some(claim) = claim_of(volume) {
            self.volumes.insert(claim, key_of(volume));
        }
    }

    /// A VM started, moved or stopped: the volumes that are to be looked at.
    pub(super) fn learn_vm(&mut self, key: &Key, vmi: Option<&VirtualMachineInstance>) -> Vec<Key> {
        let claims = vmi.map(|vmi| claims_of_vm(&key.0, vmi));
        self.learn(&User::Vm(key.clone()), claims)
    }

    /// A pod of users came or went: the volumes that are to be looked at. Pods of VMs are their VMs' matter.
    pub(super) fn learn_pod(&mut self, key: &Key, pod: Option<&Pod>) -> Vec<Key> {
        let ours = pod.filter(|pod| annotation(&pod.metadata, CONTROLLED).is_some());
        let claims = ours.map(|pod| claims_of_pod(&key.0, pod));
        self.learn(&User::Pod(key.clone()), claims)
    }

    fn learn(&mut self, user: &User, claims: Option<Vec<Key>>) -> Vec<Key> {
        if let Some(claims) = claims.filter(|claims| !claims.is_empty()) {
            for claim in &claims {
                self.users.insert(claim.clone(), user.clone());
            }
            self.claims.insert(user.clone(), claims);
        }
        let claims = self.claims.get(user).into_iter().flatten();
        claims.filter_map(|claim| self.volumes.get(claim).cloned()).collect()
    }

    /// Where a volume is used now; nothing when no user of it is known.
    pub(super) fn node_of(&self, world: &Context, volume: &Volume) -> Option<Option<String>> {
        let known = claim_of(volume).and_then(|claim| self.users.get(&claim).cloned());
        match known.or_else(|| vms::vm_of(volume).map(User::Vm))? {
            User::Vm(key) => {
                let vmi = world.vmis.at(&key).filter(|vmi| !migration::has_ended(vmi));
                Some(vmi.and_then(|vmi| vmi.status.node_name.clone()))
            }
            User::Pod(key) => {
                let pod = world.pods.at(&key).filter(|pod| !has_ended(pod));
                Some(pod.map(|pod| node_of(&pod).to_owned()).filter(|node| !node.is_empty()))
            }
        }
    }
}

fn claim_of(volume: &Volume) -> Option<Key> {
    let claim = volume.status.kubernetes_status.as_ref()?;
    Some((claim.namespace.clone()?, claim.pvc_name.clone()?))
}

fn claims_of_vm(namespace: &str, vmi: &VirtualMachineInstance) -> Vec<Key> {
    let volumes = vmi.spec.volumes.iter().flatten();
    let named = volumes.filter_map(|volume| {
        let claim = volume.persistent_volume_claim.as_ref();
        let claim = claim.and_then(|claim| claim.other.get("claimName")?.as_str());
        // The claim of a data volume has its name.
        let data = volume.data_volume.as_ref();
        claim.or_else(|| data.and_then(|data| data.other.get("name")?.as_str()))
    });
    named.map(|claim| (namespace.to_owned(), claim.to_owned())).collect()
}

fn claims_of_pod(namespace: &str, pod: &Pod) -> Vec<Key> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let named = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    named
        .map(|claim| (namespace.to_owned(), claim.claim_name.clone()))
        .collect()
}
