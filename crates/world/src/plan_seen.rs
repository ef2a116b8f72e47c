//! An UpgradePlan with no more of its status than programs read: the rest is as large as the cluster, changes all the
//! time, and is nobody's business in the world.

use std::borrow::Cow;

use api::{UpgradePlanSpec, UpgradePlanStatus, upgrade_plan::ReleaseMetadata};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

/// What the world sees of a plan.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct UpgradePlan {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: UpgradePlanSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    previous_version: Option<String>,
    release_metadata: Option<ReleaseMetadata>,
}

impl UpgradePlan {
    /// The plan as a program reads it.
    pub(crate) fn as_read(&self) -> api::UpgradePlan {
        let Self { metadata, spec, status } = self.clone();
        api::UpgradePlan {
            metadata,
            spec,
            status: Some(UpgradePlanStatus {
                previous_version: status.previous_version,
                release_metadata: status.release_metadata,
                ..UpgradePlanStatus::default()
            }),
        }
    }
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
