//! The embedded server, fresh for every case.

use std::collections::BTreeMap;

use apiserver::{ApiServer, Config, Identity};
use http_body_util::BodyExt;

use contract::{Answer, Later, Target, header_map, request};

use crate::support;

/// An embedded server.
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

    fn bookmarks_at_will(&self) -> bool {
        false
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
