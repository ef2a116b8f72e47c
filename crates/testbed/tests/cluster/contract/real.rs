//! A real API server as a target of the contract.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, runtime::wait};
use serde_json::Value;

use contract::{Answer, Later, Target, WIDGETS, header_map, request};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// How long a new kind may take to be served.
const DEADLINE: Duration = Duration::from_secs(30);

/// A real API server that serves the invented kind.
pub(crate) struct Real {
    client: Client,
}

impl Real {
    pub(crate) async fn new(client: Client) -> Self {
        let real = Self { client };
        let definition: Value = serde_saphyr::from_str(WIDGETS).unwrap();
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        real.create(DEFINITIONS, &definition).await;
        let definitions: Api<CustomResourceDefinition> = Api::all(real.client.clone());
        let established = wait::await_condition(definitions, &name, wait::conditions::is_crd_established());
        tokio::time::timeout(DEADLINE, established).await.unwrap().unwrap();
        real
    }

    async fn create(&self, path: &str, object: &Value) -> Value {
        let answer = self.send("POST", path, &BTreeMap::new(), object.to_string()).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        serde_json::from_str(&answer.text).unwrap()
    }
}

impl Target for Real {
    fn send<'a>(
        &'a self,
        method: &'a str,
        path: &'a str,
        headers: &'a BTreeMap<String, String>,
        body: String,
    ) -> Later<'a, Answer> {
        Box::pin(async move {
            let request = request(method, path, headers, body).map(kube::client::Body::from);
            let response = self.client.send(request).await.unwrap();
            let (parts, body) = response.into_parts();
            let bytes = body.collect_bytes().await.unwrap();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            Answer {
                status: parts.status.as_u16(),
                headers: header_map(&parts.headers),
                text,
            }
        })
    }

    fn bookmarks_at_will(&self) -> bool {
        true
    }

    fn namespace(&self) -> Later<'_, String> {
        Box::pin(async {
            let object =
                serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "contract-"}});
            let created = self.create("/api/v1/namespaces", &object).await;
            let name = created["metadata"]["name"].as_str().unwrap().to_owned();
            // What a controller would create, and pods need.
            let account =
                serde_json::json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
            self.create(&format!("/api/v1/namespaces/{name}/serviceaccounts"), &account)
                .await;
            name
        })
    }

    fn ensure_widgets(&self) -> Later<'_, ()> {
        // Defined for all cases at once.
        Box::pin(std::future::ready(()))
    }
}
