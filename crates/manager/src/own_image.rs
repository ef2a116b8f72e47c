//! The image that this manager runs: its workloads run it too. Kubernetes gives a container much information about its pod,
//! but not this, so the pod is read.

use std::time::Duration;

use api::image::Image;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::ListParams};

/// The manager's container, in the chart and in `config/`.
const CONTAINER: &str = "manager";
/// How often the pod is read when the API server does not respond, and how long between.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_secs(3);

/// Why the image is not known.
#[derive(Debug, thiserror::Error)]
pub enum OwnImageError {
    /// No response.
    #[error(
        "failed to read Pod {namespace}/{name}, whose image the upgrade's workloads run; set --toolkit-image instead"
    )]
    Unread {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// It says something that is no image.
    #[error("Pod {namespace}/{name} runs {found:?}, which is no image; set --toolkit-image")]
    NoImage {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What it says.
        found: String,
    },
}

/// The image of a pod's manager, repository and tag as it was deployed; nothing when there is no such pod.
///
/// # Errors
/// The pod cannot be read, or says nonsense.
pub async fn find(client: &Client, namespace: &str, name: &str) -> Result<Option<Image>, OwnImageError> {
    // Listing is what the manager may do with pods.
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let which = ListParams::default().fields(&format!("metadata.name={name}"));
    let mut tries = 1;
    let found = loop {
        match pods.list(&which).await {
            Ok(found) => break found,
            Err(error) if tries < TRIES => {
                tracing::warn!(%error, pod = name, "failed to read the manager's own pod; trying again");
                tries += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(source) => {
                return Err(OwnImageError::Unread {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    source: Box::new(source),
                });
            }
        }
    };
    let Some(text) = found.items.first().and_then(image_of) else {
        return Ok(None);
    };
    Image::parse(&text).map(Some).ok_or_else(|| OwnImageError::NoImage {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        found: text,
    })
}

/// The image of the manager's container, or of the first where none is called so.
fn image_of(pod: &Pod) -> Option<String> {
    let containers = &pod.spec.as_ref()?.containers;
    let own = containers.iter().find(|container| container.name == CONTAINER);
    own.or(containers.first())?.image.clone()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_container_of_the_manager_is_found_among_others() {
        let pod = |names: &[&str]| -> Pod {
            let containers: Vec<_> = names
                .iter()
                .map(|name| json!({"name": name, "image": format!("me/{name}:v1")}))
                .collect();
            serde_json::from_value(json!({"spec": {"containers": containers}})).unwrap()
        };
        assert_eq!(image_of(&pod(&["proxy", "manager"])).as_deref(), Some("me/manager:v1"));
        assert_eq!(image_of(&pod(&["mine"])).as_deref(), Some("me/mine:v1"));
        assert_eq!(image_of(&Pod::default()), None);
    }
}
