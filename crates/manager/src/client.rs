//! The client of the product: it requests field validation for every write, and uses
//! kinds of Cluster API by the version that is served.

use http::{Request, Uri};
use kube::{Client, client::Body};

use crate::{
    capi_version::ServedVersion,
    field_validation::{self, Mode, Warnings},
};

/// The same client for the product, and the warnings that come back.
#[must_use]
pub fn for_product(client: Client, mode: Mode) -> (Client, Warnings) {
    let warnings = Warnings::default();
    let (namespace, kept, version) = (
        client.default_namespace().to_owned(),
        warnings.clone(),
        ServedVersion::default(),
    );
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, warnings, version) = (client.clone(), kept.clone(), version.clone());
        async move {
            let request = version.address(&client, request).await;
            if field_validation::is_write(request.method(), request.uri().path()) {
                field_validation::send(&client, request, mode, &warnings).await
            } else {
                client.send(request).await
            }
        }
    });
    (Client::new(service, namespace), warnings)
}

/// An address with another path or query. One that cannot be is left as it was.
pub(crate) fn readdressed(uri: &Uri, path_and_query: &str) -> Uri {
    let mut parts = uri.clone().into_parts();
    match path_and_query.parse() {
        Ok(path_and_query) => parts.path_and_query = Some(path_and_query),
        Err(_) => return uri.clone(),
    }
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}
