//! An UpgradePlan without its status, which is as large as the cluster, changes all the time, and is not used in
//! the world.

use std::borrow::Cow;

use api::UpgradePlanSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

/// What the world sees of a plan.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct UpgradePlan {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: UpgradePlanSpec,
}

impl Resource for UpgradePlan {
    type DynamicType = ();
    type Scope = <api::UpgradePlan as Resource>::Scope;

    fn kind(of: &()) -> Cow<'_, str> {
        api::UpgradePlan::kind(of)
    }

    fn group(of: &()) -> Cow<'_, str> {
        api::UpgradePlan::group(of)
    }

    fn version(of: &()) -> Cow<'_, str> {
        api::UpgradePlan::version(of)
    }

    fn plural(of: &()) -> Cow<'_, str> {
        api::UpgradePlan::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
