//! Whom the contract is asked of: the embedded server, or a real one.

use std::{collections::BTreeMap, pin::Pin};

use apiserver::{ApiServer, Config, Identity};
use http_body_util::BodyExt;

use crate::support;

/// An answer, read to its end.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) text: String,
}

type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A Kubernetes API.
pub(crate) trait Target {
    fn send<'a>(
        &'a self,
        method: &'a str,
        path: &'a str,
        headers: &'a BTreeMap<String, String>,
        body: String,
    ) -> Later<'a, Answer>;
    /// A namespace for one case.
    fn namespace(&self) -> Later<'_, String>;
    /// Makes sure that the invented kind is served.
    fn ensure_widgets(&self) -> Later<'_, ()>;
}

fn request(method: &str, path: &str, headers: &BTreeMap<String, String>, body: String) -> http::Request<Vec<u8>> {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if !headers.contains_key("content-type") {
        let patch = method == "PATCH";
        request = request.header(
            "content-type",
            if patch {
                "application/merge-patch+json"
            } else {
                "application/json"
            },
        );
    }
    if !headers.contains_key("accept") {
        request = request.header("accept", "application/json");
    }
    request.body(body.into_bytes()).unwrap()
}

fn header_map(headers: &http::HeaderMap) -> BTreeMap<String, String> {
    headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned()))
        .collect()
}

pub(crate) struct Embedded {
    server: ApiServer,
}

impl Embedded {
    pub(crate) fn new(watch_log: Option<usize>) -> Self {
        let mut config = Config::new(support::tokio_clock());
        config.watch_log = watch_log.unwrap_or(config.watch_log);
        Self {
            server: ApiServer::new(config),
        }
    }
}

impl Target for Embedded {
    fn send<'a>(
        &'a self,
        method: &'a str,
        path: &'a str,
        headers: &'a BTreeMap<String, String>,
        body: String,
    ) -> Later<'a, Answer> {
        Box::pin(async move {
            let request = request(method, path, headers, body).map(Into::into);
            let response = self.server.handle(&Identity::admin(), request).await;
            let (parts, body) = response.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            Answer {
                status: parts.status.as_u16(),
                headers: header_map(&parts.headers),
                text,
            }
        })
    }

    fn namespace(&self) -> Later<'_, String> {
        Box::pin(async { "default".to_owned() })
    }

    fn ensure_widgets(&self) -> Later<'_, ()> {
        Box::pin(async {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let answer = self
                .send("POST", path, &BTreeMap::new(), support::widget_crd().to_string())
                .await;
            assert_eq!(answer.status, 201, "{}", answer.text);
        })
    }
}

pub(crate) struct Real {
    client: kube::Client,
}

impl Real {
    pub(crate) async fn new(path: &str) -> Self {
        let config = kube::config::Kubeconfig::read_from(path).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
        Self {
            client: kube::Client::try_from(config).unwrap(),
        }
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

    fn namespace(&self) -> Later<'_, String> {
        Box::pin(async {
            let body = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"generateName":"contract-"}}"#;
            let answer = self
                .send("POST", "/api/v1/namespaces", &BTreeMap::new(), body.to_owned())
                .await;
            let created: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
            created["metadata"]["name"].as_str().unwrap().to_owned()
        })
    }

    fn ensure_widgets(&self) -> Later<'_, ()> {
        Box::pin(async {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let answer = self
                .send("POST", path, &BTreeMap::new(), support::widget_crd().to_string())
                .await;
            assert!(matches!(answer.status, 201 | 409), "{}", answer.text);
            // A real server takes a moment to serve a new kind.
            for _ in 0..100 {
                let answer = self
                    .send("GET", "/apis/example.io/v1/widgets", &BTreeMap::new(), String::new())
                    .await;
                if answer.status == 200 {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        })
    }
}
