//! Admission in a rehearsal: the webhooks of the manager, called by the embedded API without a socket.
//!
//! Configurations, handlers and what they read of the cluster are those of a real one, and they read with the rights of the
//! manager. Only the way there differs: no Service, no certificate. They do not depend on a manager that runs, as those of
//! an installation with several replicas.

use std::sync::Arc;

use anyhow::Context;
use api::{labels, names};
use apiserver::{ApiServer, Identity, WebhookHandler};
use clock::Clock;
use futures::FutureExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
};
use manager::{
    watched::Watched,
    webhook::{
        configurations,
        configurations::{MUTATING_PATH, SERVICE, VALIDATING_PATH},
        facts::Facts,
        server,
    },
};
use serde_json::{Value, json};

use super::{PREFIX, SERVICE_ACCOUNT, beginning};

/// The webhooks of a cluster. They are down once this is dropped: their handlers own clients of the server that owns them.
pub(super) struct Admission {
    server: ApiServer,
}

impl Admission {
    /// Makes the API server call the webhooks, once they are configured.
    pub(super) fn start(server: &ApiServer) -> Self {
        let account = Identity::service_account(names::HARVESTER_NAMESPACE, SERVICE_ACCOUNT);
        // Caches that stay empty: everything is listed on request, as before a manager's caches are filled.
        // It waits for answers of this process: in the time of this machine, however fast that of the cluster runs.
        let clock = Clock::simulated(beginning(), 1.0);
        let facts = Facts::new(server.client_as(account), Watched::default(), clock);
        let of_mutation = facts.clone();
        let validate: WebhookHandler = Arc::new(move |review| {
            let facts = facts.clone();
            async move { value(&server::validate(&facts, review.to_string().as_bytes()).await) }.boxed()
        });
        let mutate: WebhookHandler = Arc::new(move |review| {
            let now = of_mutation.now();
            async move { value(&server::mutate(review.to_string().as_bytes(), now)) }.boxed()
        });
        server.set_webhook_handler(&address(VALIDATING_PATH), validate);
        server.set_webhook_handler(&address(MUTATING_PATH), mutate);
        Self { server: server.clone() }
    }

    /// Configures the webhooks.
    ///
    /// # Errors
    /// The API server refused their configurations.
    pub(super) async fn configure(server: &ApiServer) -> anyhow::Result<()> {
        let client = server.client();
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE);
        slices
            .create(&PostParams::default(), &serde_json::from_value(endpoints())?)
            .await
            .context("failed to create the endpoints of the webhooks")?;
        for (api, object) in objects(&client)? {
            api.create(&PostParams::default(), &object)
                .await
                .context("failed to install the webhook configurations")?;
        }
        Ok(())
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        for path in [VALIDATING_PATH, MUTATING_PATH] {
            self.server.remove_webhook_handler(&address(path));
        }
    }
}

/// Takes the webhook configurations away, as an administrator can: from now on nothing is refused.
///
/// # Errors
/// The API server refused.
pub(super) async fn take_away(client: &Client) -> anyhow::Result<()> {
    for (api, object) in objects(client)? {
        let name = object.metadata.name.unwrap_or_default();
        match api.delete(&name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error).with_context(|| format!("failed to delete {name}")),
        }
    }
    Ok(())
}

/// The configurations that ship, each with the way to its kind.
fn objects(client: &Client) -> anyhow::Result<Vec<(Api<DynamicObject>, DynamicObject)>> {
    let shipped = configurations(PREFIX, names::HARVESTER_NAMESPACE, SERVICE_ACCOUNT, None).into_iter();
    let with_api = shipped.map(|object| {
        let object: DynamicObject = serde_json::from_value(object)?;
        let kind = GroupVersionKind::try_from(&object.types.clone().unwrap_or_default())?;
        Ok((Api::all_with(client.clone(), &ApiResource::from_gvk(&kind)), object))
    });
    with_api.collect()
}

/// Who serves the webhooks: this process, which is no pod.
fn endpoints() -> Value {
    let service = format!("{PREFIX}{SERVICE}");
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": format!("{service}-rehearsal"), "namespace": names::HARVESTER_NAMESPACE,
            "labels": {labels::SERVICE_NAME: service},
        },
        "endpoints": [{"addresses": ["10.52.0.2"], "conditions": {"ready": true, "serving": true}}],
        "ports": [{"name": "webhook", "port": 9443, "protocol": "TCP"}],
    })
}

/// Where the API server finds a webhook of the Service.
fn address(path: &str) -> String {
    let path = path.trim_start_matches('/');
    format!("{}/{PREFIX}{SERVICE}/{path}", names::HARVESTER_NAMESPACE)
}

/// An answer as it goes over the wire.
fn value(answer: &manager::webhook::review::Answer) -> Value {
    serde_json::to_value(answer).unwrap_or_default()
}
