//! Kinds of other projects that an upgrade reads or writes.
//!
//! Tolerant: every field we do not use is kept as it is, every field we use may be absent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub mod capi;
pub mod catalog;
pub mod cdi;
pub mod fleet;
pub mod harvester;
pub mod helm;
pub mod kubevirt;
pub mod longhorn;
pub mod management;
pub mod rancher;
pub mod suc;
pub mod whereabouts;

/// Fields that we do not use, kept.
pub type Other = BTreeMap<String, Value>;

/// A condition as foreign kinds write it: nothing but the type is sure to be there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForeignCondition {
    /// The aspect.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Why, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Other,
}

/// The status of the first condition of a type: `Some(true)` for True, `Some(false)` for False.
#[must_use]
pub fn condition_is(conditions: &[ForeignCondition], type_: &str) -> Option<bool> {
    conditions
        .iter()
        .find(|condition| condition.type_ == type_)
        .and_then(|condition| match condition.status.as_deref() {
            Some("True") => Some(true),
            Some("False") => Some(false),
            _ => None,
        })
}

/// A kind of another project: how it is addressed.
pub struct ForeignKind {
    /// API group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural, lower case.
    pub plural: &'static str,
    /// Lives in a namespace.
    pub namespaced: bool,
    /// Has a status subresource.
    pub has_status: bool,
    /// Short names for kubectl.
    pub short_names: &'static [&'static str],
    /// The fields that we use, as a schema.
    pub fields: fn() -> schemars::Schema,
}

/// All foreign kinds, for clusters that we simulate.
pub const ALL: &[&ForeignKind] = &[
    &harvester::Version::KIND,
    &harvester::Setting::KIND,
    &harvester::VirtualMachineImage::KIND,
    &harvester::Addon::KIND,
    &harvester::VirtualMachineBackup::KIND,
    &harvester::ScheduleVMBackup::KIND,
    &harvester::Upgrade::KIND,
    &rancher::Cluster::KIND,
    &rancher::ManagedChart::KIND,
    &capi::Machine::KIND,
    &longhorn::Volume::KIND,
    &longhorn::Setting::KIND,
    &longhorn::Replica::KIND,
    &longhorn::Engine::KIND,
    &kubevirt::KubeVirt::KIND,
    &kubevirt::VirtualMachine::KIND,
    &kubevirt::VirtualMachineInstance::KIND,
    &kubevirt::VirtualMachineInstanceMigration::KIND,
    &suc::Plan::KIND,
    &fleet::Bundle::KIND,
    &fleet::Cluster::KIND,
    &capi::Cluster::KIND,
    &catalog::ClusterRepo::KIND,
    &helm::HelmChartConfig::KIND,
    &longhorn::Node::KIND,
    &longhorn::InstanceManager::KIND,
    &management::Setting::KIND,
    &management::Cluster::KIND,
    // Read by checks only.
    &cdi::DataVolume::KIND,
    &fleet::BundleDeployment::KIND,
    &longhorn::BackingImage::KIND,
    &longhorn::BackupTarget::KIND,
    &longhorn::RecurringJob::KIND,
    &longhorn::ShareManager::KIND,
    &longhorn::VolumeAttachment::KIND,
    &rancher::RKEControlPlane::KIND,
    &whereabouts::IPPool::KIND,
];

/// How a type is addressed, if it is one of the foreign kinds.
#[must_use]
pub fn of<K: kube::Resource<DynamicType = ()>>() -> Option<&'static ForeignKind> {
    let (group, plural) = (K::group(&()), K::plural(&()));
    ALL.iter()
        .copied()
        .find(|kind| kind.group == group && kind.plural == plural)
}

/// Declares a foreign kind: its address and those of its fields that we use. Unknown fields are kept in `other`.
macro_rules! foreign_kind {
    (
        $(#[$doc:meta])*
        $name:ident: $group:literal / $version:literal / $plural:literal, $scope:ident, status: $has_status:literal
        $(, short: [$($short:literal),*])?
        { $( $(#[$field_doc:meta])* $field:ident: $type:ty ),* $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// API version; empty when the object came without one, as items of lists may.
            #[serde(default)]
            pub api_version: String,
            /// Kind; empty when the object came without one.
            #[serde(default)]
            pub kind: String,
            /// Name, namespace, labels and the like.
            #[serde(default)]
            #[schemars(with = "crate::foreign::Other")]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $(
                $(#[$field_doc])*
                #[serde(default, deserialize_with = "crate::foreign::null_is_nothing")]
                pub $field: $type,
            )*
            /// Everything else.
            #[serde(flatten)]
            pub other: $crate::foreign::Other,
        }

        impl $name {
            /// How this kind is addressed.
            pub const KIND: $crate::foreign::ForeignKind = $crate::foreign::ForeignKind {
                group: $group,
                version: $version,
                kind: stringify!($name),
                plural: $plural,
                namespaced: $crate::foreign::namespaced::$scope,
                has_status: $has_status,
                short_names: &[$($($short),*)?],
                fields: $crate::crd::fields::<Self>,
            };

            /// An empty object of this kind.
            #[must_use]
            pub fn named(name: &str) -> Self {
                Self {
                    api_version: api_version_of::<Self>(),
                    kind: kind_of::<Self>(),
                    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                        name: Some(name.to_owned()),
                        ..Default::default()
                    },
                    $( $field: Default::default(), )*
                    other: Default::default(),
                }
            }
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = k8s_openapi::$scope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                stringify!($name).into()
            }
            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn api_version(_: &()) -> std::borrow::Cow<'_, str> {
                concat!($group, "/", $version).into()
            }
            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// Reads a field that its schema allows to be null, such as the value of a setting of Rancher.
pub(crate) fn null_is_nothing<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Declares a part of a foreign kind: the fields that we use; the others are kept.
macro_rules! foreign_part {
    (
        $(#[$doc:meta])*
        $name:ident { $( $(#[$field_doc:meta])* $field:ident: $type:ty ),* $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            $( $(#[$field_doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$type>, )*
            /// Everything else.
            #[serde(flatten)]
            pub other: $crate::foreign::Other,
        }
    };
}

pub(crate) use {foreign_kind, foreign_part};

/// Scope names as constants, for the macro.
#[allow(non_upper_case_globals)]
pub(crate) mod namespaced {
    pub(crate) const NamespaceResourceScope: bool = true;
    pub(crate) const ClusterResourceScope: bool = false;
}

pub(crate) fn api_version_of<K: kube::Resource<DynamicType = ()>>() -> String {
    K::api_version(&()).into_owned()
}

pub(crate) fn kind_of<K: kube::Resource<DynamicType = ()>>() -> String {
    K::kind(&()).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_we_do_not_know_survive_a_round_trip() {
        let given = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Volume", "metadata": {"name": "v"},
            "spec": {"numberOfReplicas": 3, "frontend": "blockdev"},
            "status": {"robustness": "healthy", "frontendDisabled": false},
            "extra": [1, 2]
        });
        let volume: longhorn::Volume = serde_json::from_value(given.clone()).unwrap();
        assert_eq!(volume.spec.number_of_replicas, Some(3));
        assert_eq!(serde_json::to_value(volume).unwrap(), given);
    }

    #[test]
    fn an_empty_object_of_every_kind_can_be_read() {
        let cluster: rancher::Cluster = serde_json::from_value(json!({"metadata": {"name": "local"}})).unwrap();
        assert_eq!(cluster.spec, rancher::Cluster::named("local").spec);
        assert_eq!(
            rancher::Cluster::named("local").api_version,
            "provisioning.cattle.io/v1"
        );
    }

    #[test]
    fn r51_a_setting_of_rancher_without_a_value_can_be_read() {
        let given = json!({"metadata": {"name": "server-url"}, "value": null, "default": null, "source": null});
        let setting: management::Setting = serde_json::from_value(given).unwrap();
        assert_eq!((setting.value.as_str(), setting.default.as_str()), ("", ""));
    }

    #[test]
    fn r54_a_replica_knows_nothing_of_modes_and_rebuilds_and_its_engine_does() {
        let status = |plural: &str| {
            let definitions = crate::crd::foreign().into_iter();
            let mut of_kind = definitions.filter(|definition| definition["spec"]["names"]["plural"] == plural);
            let definition = of_kind.next().unwrap();
            definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"].clone()
        };
        for field in ["replicaModeMap", "rebuildStatus"] {
            assert!(status("replicas").get(field).is_none(), "{field}");
            assert!(status("engines").get(field).is_some(), "{field}");
        }
    }

    #[test]
    fn the_first_condition_of_a_type_decides() {
        let conditions: Vec<ForeignCondition> = serde_json::from_value(json!([
            {"type": "Imported", "status": "True", "lastUpdateTime": "x"}, {"type": "Imported", "status": "False"},
            {"type": "Odd"}
        ]))
        .unwrap();
        assert_eq!(condition_is(&conditions, "Imported"), Some(true));
        assert_eq!(condition_is(&conditions, "Odd"), None);
        assert_eq!(condition_is(&conditions, "Absent"), None);
    }
}
