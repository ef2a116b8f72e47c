//! What a plan owns: created, adopted, removed.

use std::fmt::Debug;

use api::{
    Component, JobType, UpgradePlan,
    foreign::{harvester, suc},
    labels, names,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Secret, Service},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};
use plan::{Child, decision::ChildKind};
use serde::{Serialize, de::DeserializeOwned};

use super::{ActError, Actor, Versions, failed, note};
use crate::{
    objects, ours,
    watched::{Deletable, Writable},
};

/// How objects are deleted that run pods: they stay until their pods are gone, so that no program counts as ended that
/// still runs. Jobs of system-upgrade-controller do not keep their Plan; their pods are watched for that.
pub(super) fn with_pods() -> DeleteParams {
    DeleteParams::foreground()
}

impl Actor {
    pub(super) async fn create(
        &self,
        plan: &UpgradePlan,
        child: &Child,
        written: &mut Versions,
    ) -> Result<(), ActError> {
        let settings = &self.settings;
        match child {
            Child::IsoImage { url, checksum } => {
                let image = objects::iso_image::build(plan, url, checksum)?;
                self.create_one::<harvester::VirtualMachineImage>(plan, image, written)
                    .await
            }
            Child::RepoDeployment {
                replicas,
                claim,
                checksum,
                secret,
            } => {
                let iso = objects::repo::Iso {
                    claim,
                    checksum: checksum.as_deref(),
                };
                let deployment = objects::repo::deployment(plan, settings, *replicas, iso, secret)?;
                self.create_one::<Deployment>(plan, deployment, written).await
            }
            Child::RepoSecret { name } => self.store_key(plan, name).await,
            Child::RepoService => {
                self.create_one::<Service>(plan, objects::repo::service(plan)?, written)
                    .await
            }
            Child::SucPlan {
                plan: node_plan,
                concurrency,
                images,
            } => {
                let suc_plan = objects::suc_plan::build(plan, settings, *node_plan, *concurrency, images)?;
                let accounts = [settings.accounts.node_plans()];
                self.need_accounts(&called(&suc_plan), names::CATTLE_NAMESPACE, &accounts)
                    .await?;
                self.create_one::<suc::Plan>(plan, suc_plan, written).await
            }
            Child::ClusterJob => {
                let job = objects::job::cluster(plan, settings)?;
                let mut accounts = vec![settings.accounts.cluster_upgrade()];
                accounts.extend(settings.accounts.rancher_installer());
                self.need_accounts(&called(&job), names::HARVESTER_NAMESPACE, &accounts)
                    .await?;
                self.create_one::<Job>(plan, job, written).await
            }
            Child::NodeJob {
                job_type,
                node,
                suspend,
            } => {
                let job = objects::job::node(plan, settings, *job_type, node, *suspend)?;
                let accounts = [settings.accounts.node_upgrade()];
                self.need_accounts(&called(&job), names::HARVESTER_NAMESPACE, &accounts)
                    .await?;
                self.create_one::<Job>(plan, job, written).await
            }
            Child::RestoreJob { node } => {
                let job = objects::job::restore_vm(plan, settings, node)?;
                let accounts = [settings.accounts.vm_restore()];
                self.need_accounts(&called(&job), names::HARVESTER_NAMESPACE, &accounts)
                    .await?;
                self.create_one::<Job>(plan, job, written).await
            }
        }
    }

    /// Stores a key that this manager holds. A Secret that exists is known to contain it only if this manager has created
    /// it: it may not read it, and a name proves nothing.
    pub(super) async fn store_key(&self, plan: &UpgradePlan, name: &str) -> Result<(), ActError> {
        let uid = plan.uid().unwrap_or_default();
        let lost = |why: &'static str| ActError::LostKey {
            secret: format!("{}/{name}", names::HARVESTER_NAMESPACE),
            why,
        };
        let Some((identity, is_stored)) = self.keyring.of(&uid, name) else {
            return Err(lost("this manager does not have its key"));
        };
        let secret = objects::repo::secret(plan, name, &identity)?;
        let secrets = self.in_namespace::<Secret>(names::HARVESTER_NAMESPACE);
        self.fence()?;
        match secrets.create(&PostParams::default(), &secret).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() && is_stored => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.keyring.forget(&uid);
                return Err(lost("it exists already"));
            }
            Err(source) => {
                return Err(failed(
                    format!("create Secret {}/{name}", names::HARVESTER_NAMESPACE),
                    source,
                ));
            }
        }
        self.keyring.stored(&uid);
        Ok(())
    }

    /// Creates an object; one that exists is adopted if this plan owns it.
    async fn create_one<K>(&self, plan: &UpgradePlan, object: K, written: &mut Versions) -> Result<(), ActError>
    where
        K: Writable + Clone + Debug + Serialize + DeserializeOwned,
    {
        let name = object.name_any();
        let text = called(&object);
        let api = K::api(&self.client);
        let doing = || format!("create {text}");
        self.fence()?;
        let found = match api.create(&PostParams::default(), &object).await {
            Ok(created) => created,
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                api.get(&name).await.map_err(|source| failed(doing(), source))?
            }
            Err(source) => return Err(failed(doing(), source)),
        };
        if !ours::is_child(&found, plan) {
            return Err(ActError::NotOurs { object: text });
        }
        note(written, &found);
        Ok(())
    }

    pub(super) async fn delete(
        &self,
        plan: &UpgradePlan,
        kind: ChildKind,
        component: Component,
        job_type: Option<JobType>,
    ) -> Result<(), ActError> {
        let mut selector = format!(
            "{}={},{}={component}",
            labels::UPGRADE_PLAN,
            plan.name_any(),
            labels::UPGRADE_COMPONENT
        );
        if let Some(job_type) = job_type {
            selector = format!("{selector},{}={job_type}", labels::JOB_TYPE);
        }
        match kind {
            ChildKind::Image => {
                self.delete_owned::<harvester::VirtualMachineImage>(plan, &selector, DeleteParams::background())
                    .await
            }
            ChildKind::Deployment => {
                self.delete_owned::<Deployment>(plan, &selector, DeleteParams::background())
                    .await
            }
            ChildKind::Service => {
                self.delete_owned::<Service>(plan, &selector, DeleteParams::background())
                    .await
            }
            ChildKind::SucPlan => self.delete_owned::<suc::Plan>(plan, &selector, with_pods()).await,
            ChildKind::Job => self.delete_owned::<Job>(plan, &selector, with_pods()).await,
        }
    }

    /// Deletes what the plan owns of what a selector names: any user can put a label on their objects.
    async fn delete_owned<K>(&self, plan: &UpgradePlan, selector: &str, how: DeleteParams) -> Result<(), ActError>
    where
        K: Deletable + Clone + Debug + DeserializeOwned,
    {
        let api = K::api(&self.client);
        let found = api.list_metadata(&ListParams::default().labels(selector)).await;
        let found = found.map_err(|source| failed(format!("list each {} to delete", K::kind(&())), source))?;
        for object in found.items.iter().filter(|object| ours::is_child(*object, plan)) {
            self.delete_one(&api, &object.name_any(), object.uid(), how.clone())
                .await?;
        }
        Ok(())
    }

    /// Deletes an object by the UID that was seen, so that another one of its name stays.
    pub(super) async fn delete_one<K>(
        &self,
        api: &Api<K>,
        name: &str,
        uid: Option<String>,
        how: DeleteParams,
    ) -> Result<(), ActError>
    where
        K: Deletable + Clone + Debug + DeserializeOwned,
    {
        let how = DeleteParams {
            preconditions: Some(Preconditions {
                uid,
                resource_version: None,
            }),
            ..how
        };
        self.fence()?;
        match api.delete(name, &how).await {
            Ok(_) => Ok(()),
            // Gone already, or another one of its name.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(source) => {
                let kind = K::kind(&());
                let place = api
                    .namespace()
                    .map(|namespace| format!("{namespace}/"))
                    .unwrap_or_default();
                Err(failed(format!("delete {kind} {place}{name}"), source))
            }
        }
    }
}

/// An object as users see it.
fn called<K: Resource<DynamicType = ()>>(object: &K) -> String {
    let namespace = object.namespace().unwrap_or_default();
    format!("{} {namespace}/{}", K::kind(&()), object.name_any())
}
