//! Calls of KubeVirt's own API: stop a VM, start a VM, health.

use kube::Client;

use super::VmName;

/// KubeVirt's own API.
const ROOT: &str = "/apis/subresources.kubevirt.io/v1";

/// Asks KubeVirt to shut a VM down, with the grace period that the VM has.
///
/// # Errors
/// KubeVirt refused (409 when the VM does not run, 404 when there is none) or was not reached.
pub async fn stop(client: &Client, vm: &VmName) -> Result<(), kube::Error> {
    put(client, vm, "stop").await
}

/// Asks KubeVirt to start a VM.
///
/// # Errors
/// KubeVirt refused (409 when the VM runs already, 404 when there is none) or was not reached.
pub async fn start(client: &Client, vm: &VmName) -> Result<(), kube::Error> {
    put(client, vm, "start").await
}

/// Asks KubeVirt's API whether it is healthy.
///
/// # Errors
/// It is not, or was not reached.
pub async fn healthz(client: &Client) -> Result<(), kube::Error> {
    let request = http::Request::get(healthz_path()).body(Vec::new());
    client
        .request_text(request.map_err(kube::Error::HttpError)?)
        .await
        .map(drop)
}

/// The health endpoint of KubeVirt's API.
#[must_use]
pub fn healthz_path() -> String {
    format!("{ROOT}/healthz")
}

async fn put(client: &Client, vm: &VmName, verb: &str) -> Result<(), kube::Error> {
    let VmName { namespace, name } = vm;
    let request = http::Request::put(format!("{ROOT}/namespaces/{namespace}/virtualmachines/{name}/{verb}"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(b"{}".to_vec());
    // KubeVirt answers with 202 and no body.
    client
        .request_text(request.map_err(kube::Error::HttpError)?)
        .await
        .map(drop)
}
