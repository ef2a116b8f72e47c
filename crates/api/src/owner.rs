//! Who owns an object: the UID decides, never a label or a name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use crate::UpgradePlan;

/// A plan as the owner of an object, so that the object goes when the plan goes.
#[must_use]
pub fn reference(plan: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: UpgradePlan::api_version(&()).into_owned(),
        kind: UpgradePlan::kind(&()).into_owned(),
        name: plan.name.clone().unwrap_or_default(),
        uid: plan.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

/// A plan as the owner that controls an object and is deleted after it. The writer needs permission to update the
/// finalizers of plans, where the cluster enforces that.
#[must_use]
pub fn controller_reference(plan: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        controller: Some(true),
        block_owner_deletion: Some(true),
        ..reference(plan)
    }
}

/// An object names this UID as one of its owners.
#[must_use]
pub fn is_owned_by<K: Resource>(object: &K, uid: &str) -> bool {
    let mut owners = object.meta().owner_references.iter().flatten();
    !uid.is_empty() && owners.any(|owner| owner.uid == uid)
}

/// An object is a plan's own.
#[must_use]
pub fn is_owned_by_plan<K: Resource>(object: &K, plan: &ObjectMeta) -> bool {
    plan.uid.as_deref().is_some_and(|uid| is_owned_by(object, uid))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn plan(uid: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            name: Some("up".to_owned()),
            uid: uid.map(str::to_owned),
            ..ObjectMeta::default()
        }
    }

    fn owned(owner: OwnerReference) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.owner_references = Some(vec![owner]);
        object
    }

    #[test]
    fn s01_an_object_is_owned_by_uid_and_never_by_name() {
        let (mine, other) = (plan(Some("u-1")), plan(Some("u-2")));
        assert!(is_owned_by_plan(&owned(reference(&mine)), &mine));
        assert!(!is_owned_by_plan(&owned(reference(&other)), &mine));
        let nameless = plan(None);
        assert!(!is_owned_by_plan(&owned(reference(&nameless)), &nameless));
    }

    #[test]
    fn a_controller_blocks_the_deletion_of_its_owner() {
        let owner = controller_reference(&plan(Some("u-1")));
        assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
        assert_eq!(reference(&plan(Some("u-1"))).controller, None);
    }
}
