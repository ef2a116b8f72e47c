//! Reads the cluster for the record of an upgrade and for the checks before it: from the caches where a kind is watched, else by
//! lists, in pages, of the few fields that are used. What cannot be read is left out, and named in the record.

use std::{future::Future, time::Duration};

use api::{CheckSummary, UpgradePlan, foreign::kubevirt};
use checks::{
    NoAnswer, Shared,
    admission::Reads,
    postflight::{
        self, Record, Target,
        record::{crashes, power_states, robustness},
        stored::{self, StoredError},
    },
    preflight::{self, Question},
};
use clock::Clock;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;
use snapshot::{Listed, Snapshot};

use super::summary;
use crate::{
    lists::{
        Keep::{self, All, Fields},
        NAMED, Reader,
    },
    observe::insights::{self, listed},
    watched::Watched,
    webhook::facts::{Facts, no_answer},
};

/// How long a list may take. The upgrade waits for it, and begins without it then.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is read of a VM.
const VM: Keep = Fields(&[("metadata", NAMED), ("status", Fields(&[("printableStatus", All)]))]);
/// What is read of an addon.
const ADDON: Keep = Fields(&[("metadata", NAMED), ("spec", Fields(&[("enabled", All)]))]);
/// What is read of a container.
const CONTAINER: Keep = Fields(&[
    ("name", All),
    ("state", Fields(&[("waiting", Fields(&[("reason", All)]))])),
    // These are not read, but no container is without them.
    ("image", All),
    ("imageID", All),
    ("ready", All),
    ("restartCount", All),
]);
/// What is read of a pod.
const POD: Keep = Fields(&[
    (
        "metadata",
        Fields(&[
            ("name", All),
            ("namespace", All),
            ("labels", Fields(&[("pod-template-hash", All)])),
            ("ownerReferences", All),
        ]),
    ),
    (
        "status",
        Fields(&[("containerStatuses", CONTAINER), ("initContainerStatuses", CONTAINER)]),
    ),
]);

/// How the cluster is read.
#[derive(Clone)]
pub struct Look {
    client: Client,
    watched: Watched,
    clock: Clock,
}

impl Look {
    /// Through a client and the caches of a manager.
    #[must_use]
    pub fn new(client: Client, watched: Watched, clock: Clock) -> Self {
        Self { client, watched, clock }
    }

    /// The client.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The ConfigMaps with the record of a plan.
    pub(crate) async fn record(&self, plan: &UpgradePlan) -> Result<Vec<ConfigMap>, StoredError> {
        let record = self.now().await;
        let left_out = record.left_out();
        if !left_out.is_empty() {
            tracing::warn!(
                "the record of what is there before the upgrade lacks {}",
                left_out.join("; ")
            );
        }
        stored::config_maps(&plan.metadata, &record)
    }

    /// What the checks before an upgrade find, in short. Those that need what the manager does not read say nothing.
    pub(crate) async fn preflight(&self, plan: &UpgradePlan) -> CheckSummary {
        let at = self.clock.now_in_seconds();
        let facts = Facts::new(self.client.clone(), self.watched.clone(), self.clock.clone());
        let cluster = facts.read(Reads::Everything).await;
        let snapshot = Snapshot {
            v1_upgrades: cluster.v1_upgrades.clone(),
            ..insights::snapshot(&self.watched, at)
        };
        let question = Question {
            snapshot: &snapshot,
            cluster,
            plan: plan.clone(),
        };
        summary::of(&preflight::run_with(&question, &[]), at)
    }

    /// What is worse than before the upgrade, in short; nothing where the record cannot be read.
    pub(crate) async fn compare(&self, plan: &UpgradePlan) -> Option<CheckSummary> {
        let maps = self.watched.config_maps.list();
        let maps: Vec<ConfigMap> = maps.iter().map(|map| (**map).clone()).collect();
        let before = match stored::record(&plan.metadata, &maps) {
            Ok(before) => before?,
            Err(error) => {
                tracing::warn!(%error, "what was there before the upgrade cannot be compared");
                return None;
            }
        };
        drop(maps);
        let after = self.now().await;
        let report = postflight::compare(&before, &after, &Target::of(plan));
        Some(summary::of(&report, self.clock.now_in_seconds()))
    }

    /// The cluster as it is.
    async fn now(&self) -> Record {
        let reader = Reader::new(self.client.clone());
        let (vms, addons, pods) = futures::join!(
            self.list::<kubevirt::VirtualMachine>(&reader, VM, |_| true),
            self.list(&reader, ADDON, |_| true),
            self.list(&reader, POD, crashes),
        );
        let watched = &self.watched;
        let few = Snapshot {
            nodes: listed(&watched.nodes),
            managed_charts: listed(&watched.managed_charts),
            longhorn_settings: listed(&watched.longhorn_settings),
            kubevirts: listed(&watched.kubevirts),
            rancher_clusters: listed(&watched.clusters),
            addons: addons.map(Shared::from),
            pods: pods.map(Shared::from),
            ..Snapshot::unknown(self.clock.now_in_seconds(), "not read")
        };
        // Of these there may be very many: they are not copied.
        let (volumes, instances) = (watched.volumes.list(), watched.instances.list());
        Record {
            vms: vms.map(|vms| power_states(&vms, instances.iter().map(AsRef::as_ref))),
            volumes: Ok(robustness(volumes.iter().map(AsRef::as_ref))),
            ..Record::of(&few)
        }
    }

    async fn list<K>(&self, reader: &Reader, keep: Keep, wanted: fn(&K) -> bool) -> Listed<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let (all, api) = (ListParams::default(), Api::all(self.client.clone()));
        let listed = self.patiently(reader.list(&api, &all, keep, wanted)).await?;
        listed.map_err(|error| no_answer(&error))
    }

    async fn patiently<T>(&self, list: impl Future<Output = T>) -> Result<T, NoAnswer> {
        tokio::select! {
            biased;
            listed = list => Ok(listed),
            () = self.clock.sleep(PATIENCE) => Err(format!("no answer within {} seconds", PATIENCE.as_secs()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::body::Bytes;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    const VMS: usize = 10_000;

    /// An API server with very many VMs, and nothing else.
    async fn answer(request: Request<Body>) -> Result<Response<Full<Bytes>>, Infallible> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let of = |key: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == key)?.1.parse::<usize>().ok()
        };
        let (from, limit) = (of("continue").unwrap_or_default(), of("limit").unwrap_or(VMS));
        let to = (from + limit).min(VMS);
        let is_of_vms = request.uri().path().ends_with("/virtualmachines");
        let vm = |index: usize| {
            json!({
                "metadata": {"name": format!("a-vm-of-a-tenant-{index:05}"), "namespace": format!("project-{}", index % 40),
                    "annotations": {"large": "x".repeat(1_000)}},
                "spec": {"template": {"spec": {"domain": {"cpu": {"cores": 4}}}}},
                "status": {"printableStatus": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            })
        };
        let items: Vec<Value> = if is_of_vms {
            (from..to).map(vm).collect()
        } else {
            Vec::new()
        };
        let token = if is_of_vms && to < VMS {
            to.to_string()
        } else {
            String::new()
        };
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"continue": token}, "items": items});
        Ok(Response::new(Full::new(Bytes::from(list.to_string()))))
    }

    #[tokio::test]
    async fn ten_thousand_vms_are_within_what_the_manager_keeps_and_fit_one_config_map() {
        let client = Client::new(tower::service_fn(answer), "default");
        let look = Look::new(client, Watched::default(), Clock::system());
        let record = look.now().await;
        assert_eq!(record.left_out(), [""; 0]);
        assert_eq!(record.vms.as_ref().map(|vms| vms.len()), Ok(VMS));
        let maps = look.record(&UpgradePlan::new("up", Default::default())).await.unwrap();
        let bytes = serde_json::to_string(&maps).unwrap().len();
        assert!(
            maps.len() == 1 && bytes < 900 * 1024,
            "{} ConfigMaps with {bytes} bytes",
            maps.len()
        );
    }
}
