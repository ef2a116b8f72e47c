//! A cluster before anything happens in it: how the API server is configured, what is installed, and copies of it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use api::names;
use apiserver::{ApiServer, Identity, Template};
use clock::Clock;
use jiff::Timestamp;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use manager::{client::for_product, field_validation::Mode};
use world::{Definitions, Shape};

use super::{PREFIX, SERVICE_ACCOUNT, admission::Admission};

/// How many clusters are kept: a test has one or a few.
const KEPT: usize = 8;

/// Clusters that were set up in this process, to begin again with. A run that begins with a copy is the same as one that begins
/// with a cluster of its own.
#[derive(Debug, Default)]
pub struct Templates(Mutex<Vec<(Beginning, Template)>>);

/// All that a new cluster depends on.
#[derive(Debug)]
pub(super) struct Beginning {
    shape: Shape,
    open: bool,
    definitions: Definitions,
    at: Timestamp,
}

impl Beginning {
    pub(super) fn new(shape: &Shape, open: bool, definitions: Definitions, clock: &Clock) -> Self {
        Self {
            shape: shape.clone(),
            open,
            definitions,
            at: clock.now(),
        }
    }
}

impl PartialEq for Beginning {
    fn eq(&self, other: &Self) -> bool {
        let same_definitions = match (self.definitions, other.definitions) {
            (Definitions::Ours, Definitions::Ours) => true,
            // Megabytes, which are there once.
            (Definitions::Given(these), Definitions::Given(those)) => std::ptr::eq(these, those),
            _ => false,
        };
        same_definitions && self.open == other.open && self.at == other.at && self.shape == other.shape
    }
}

impl Templates {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    pub(super) fn find(&self, beginning: &Beginning) -> Option<Template> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|(known, _)| known == beginning)?;
        // What is used again stays longest.
        let found = kept.remove(found);
        let template = found.1.clone();
        kept.push(found);
        Some(template)
    }

    pub(super) fn keep(&self, beginning: Beginning, template: Template) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push((beginning, template));
    }
}

/// How the API server of a rehearsal is configured.
pub(super) fn config(seed: u64, open: bool, clock: &Clock) -> apiserver::Config {
    let clock = clock.clone();
    apiserver::Config {
        seed,
        enforce_rbac: true,
        // Every watch here follows closely, and a large plan has large versions.
        watch_log: 500,
        watch_log_per_object: 5,
        // Clients restart a watch that is silent for 295 s, from a version that may have left the log by then.
        bookmark_every: Duration::from_mins(4),
        shortest_watch: Duration::from_hours(1),
        track_owners: open,
        // kubectl sends no token over plain HTTP; every client that reaches the loopback port may do everything.
        without_token: Some(Identity::admin()),
        ..apiserver::Config::new(Arc::new(move || clock.now()))
    }
}

/// Sets the cluster up: its objects, the roles of the manager, its webhooks.
///
/// # Errors
/// The API server refused an object.
pub(super) async fn install(
    server: &ApiServer,
    shape: &Shape,
    definitions: Definitions,
    validation: Mode,
) -> anyhow::Result<()> {
    let (client, _) = for_product(server.client(), validation);
    world::install_by(&client, definitions, &shape.objects())
        .await
        .context("failed to set the cluster up")?;
    install_roles(&client, PREFIX, SERVICE_ACCOUNT)
        .await
        .context("failed to install the manager's roles")?;
    Admission::configure(server).await
}

/// Gives a service account of the manager the roles that ship, and nothing else, and installs the accounts that ship in addition to
/// it. Their names begin with a prefix.
///
/// # Errors
/// The API server refused one.
pub async fn install_roles(client: &kube::Client, prefix: &str, account: &str) -> anyhow::Result<()> {
    let mut objects = manager::rbac::accounts(prefix, names::HARVESTER_NAMESPACE);
    objects.extend(manager::rbac::objects(prefix, names::HARVESTER_NAMESPACE, account));
    for object in objects {
        let object: DynamicObject = serde_json::from_value(object)?;
        let kind = object.types.clone().unwrap_or_default();
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&kind)?);
        let api: Api<DynamicObject> = match object.metadata.namespace.as_deref() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        api.create(&PostParams::default(), &object).await?;
    }
    Ok(())
}
