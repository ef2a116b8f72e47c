//! Which version of Cluster API is served.
//!
//! Rancher up to 2.13 works on `v1beta1`, later ones on `v1beta2`; what is stored in one and read in the other goes
//! through a conversion webhook on every read, and the older one will be removed. An upgrade of Harvester upgrades
//! Rancher during an upgrade, so it changes while the manager runs: it is discovered with every list.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request};
use kube::{Client, client::Body};
use serde_json::Value;

use crate::client::readdressed;

const GROUP: &str = "/apis/cluster.x-k8s.io";
/// The version that our types are of.
const NEWEST: &str = "v1beta2";
/// What else they can be read from: the fields that we use are the same.
const OLDER: &str = "v1beta1";

/// The version that was served when it was last discovered.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServedVersion(Arc<Mutex<Option<&'static str>>>);

impl ServedVersion {
    /// The request, addressed by the version that is served if it is one of Cluster API.
    pub(crate) async fn address(&self, client: &Client, request: Request<Body>) -> Request<Body> {
        let uri = request.uri();
        let Some(rest) = uri.path().strip_prefix(GROUP).and_then(|path| {
            let rest = path.strip_prefix('/')?.strip_prefix(NEWEST)?;
            rest.starts_with('/').then_some(rest)
        }) else {
            return request;
        };
        let query = uri.query().unwrap_or_default();
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let version = match known {
            // A watch uses the version of its list.
            Some(version) if is_watch(query) => version,
            _ => self.ask(client).await,
        };
        if version == NEWEST {
            return request;
        }
        let address = match query {
            "" => format!("{GROUP}/{version}{rest}"),
            query => format!("{GROUP}/{version}{rest}?{query}"),
        };
        let address = readdressed(uri, &address);
        let (mut parts, body) = request.into_parts();
        parts.uri = address;
        Request::from_parts(parts, body)
    }

    /// Asks the API server. If it does not respond, the newest is tried, and that request returns the error.
    async fn ask(&self, client: &Client) -> &'static str {
        let request = Request::builder().method(Method::GET).uri(GROUP).body(Vec::new());
        let Ok(request) = request else { return NEWEST };
        let served = client.request::<Value>(request).await.unwrap_or_default();
        let version = pick(&served);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(version);
        version
    }
}

/// The version to use, from what the API server says of the group.
fn pick(group: &Value) -> &'static str {
    let versions = group["versions"].as_array().into_iter().flatten();
    let served: Vec<&str> = versions.filter_map(|version| version["version"].as_str()).collect();
    if !served.contains(&NEWEST) && served.contains(&OLDER) {
        OLDER
    } else {
        NEWEST
    }
}

fn is_watch(query: &str) -> bool {
    query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(&["v1beta2", "v1beta1"], "v1beta2")]
    #[case(&["v1beta1", "v1alpha4"], "v1beta1")]
    #[case(&["v1"], "v1beta2")]
    #[case(&[], "v1beta2")]
    fn r36_the_newest_version_that_we_know_and_that_is_served_is_used(#[case] served: &[&str], #[case] used: &str) {
        let versions: Vec<_> = served.iter().map(|version| json!({ "version": version })).collect();
        assert_eq!(pick(&json!({ "versions": versions })), used);
    }
}
