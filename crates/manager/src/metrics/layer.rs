//! Counts requests to the API server, around whatever client sends them.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use tower::{Layer, Service};

use super::Metrics;

/// Puts a counter around a client.
#[derive(Clone, Debug)]
pub struct CountRequests(pub Metrics);

impl<S> Layer<S> for CountRequests {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            metrics: self.0.clone(),
        }
    }
}

/// A client whose requests are counted.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    inner: S,
    metrics: Metrics,
}

impl<S, A, B> Service<Request<A>> for Counted<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let verb = verb(
            request.method(),
            request.uri().path(),
            request.uri().query().unwrap_or_default(),
        );
        let metrics = self.metrics.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            match &answer {
                Ok(response) => metrics.requested(verb, response.status().as_str()),
                // No response.
                Err(_) => metrics.requested(verb, "none"),
            }
            answer
        })
    }
}

/// The verb that Kubernetes would authorise a request by.
fn verb(method: &Method, path: &str, query: &str) -> &'static str {
    let watches = query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1");
    match *method {
        Method::GET if watches => "watch",
        Method::GET if is_collection(path) => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if is_collection(path) => "deletecollection",
        Method::DELETE => "delete",
        _ => "other",
    }
}

/// Whether a path names a kind rather than an object: `/apis/{group}/{version}[/namespaces/{namespace}]/{kind}`.
fn is_collection(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (["api", _, rest @ ..] | ["apis", _, _, rest @ ..]) = parts.as_slice() else {
        return false;
    };
    matches!(rest, [_] | ["namespaces", _, _])
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Method::GET, "/api/v1/nodes", "", "list")]
    #[case(Method::GET, "/api/v1/nodes", "watch=true&resourceVersion=1", "watch")]
    #[case(Method::GET, "/api/v1/nodes/a", "", "get")]
    #[case(Method::GET, "/api/v1/namespaces/a/pods", "limit=1", "list")]
    #[case(Method::GET, "/api/v1/namespaces/a/pods/b", "", "get")]
    #[case(Method::DELETE, "/apis/batch/v1/namespaces/a/jobs", "", "deletecollection")]
    #[case(Method::DELETE, "/apis/batch/v1/namespaces/a/jobs/b", "", "delete")]
    #[case(
        Method::PUT,
        "/apis/management.harvesterhci.io/v1beta1/upgradeplans/a/status",
        "",
        "update"
    )]
    #[case(Method::PATCH, "/api/v1/nodes/a", "", "patch")]
    #[case(Method::GET, "/version", "", "get")]
    fn a_request_has_its_verb(#[case] method: Method, #[case] path: &str, #[case] query: &str, #[case] word: &str) {
        assert_eq!(verb(&method, path, query), word);
    }
}
