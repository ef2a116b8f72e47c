//! Which image the upgrade's own workloads run.

use api::image::Image;
use plan::observed::Settings;

/// The image that workloads run: the one that is given, else that of the pod this runs in, else the one of this release.
pub(super) async fn own_image(
    client: &kube::Client,
    given: Option<Image>,
    tag: Option<String>,
    pod: Option<(&str, &str)>,
) -> anyhow::Result<Image> {
    let mut image = match (given, pod) {
        (Some(image), _) => image,
        (None, Some((namespace, name))) => {
            let found = manager::own_image::find(client, namespace, name).await?;
            found.unwrap_or_else(|| {
                let image = Settings::default().own_image;
                tracing::warn!(namespace, pod = name, %image, "the manager's own pod is not there: set POD_NAME or --toolkit-image");
                image
            })
        }
        (None, None) => Settings::default().own_image,
    };
    if let Some(tag) = tag.filter(|tag| !tag.is_empty()) {
        image.tag = Some(tag);
        image.digest = None;
    }
    tracing::info!(%image, "workloads of upgrades run this image, unless a plan says otherwise");
    Ok(image)
}

/// What is given is no image, or no part of one.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImageArgumentError {
    /// No image.
    #[error("{0:?} is not REPOSITORY[:TAG][@DIGEST]")]
    Image(String),
    /// A part that breaks this rule.
    #[error("{0}")]
    Part(&'static str),
}

/// An image, checked.
pub(super) fn image(text: &str) -> Result<Image, ImageArgumentError> {
    Image::parse(text).ok_or_else(|| ImageArgumentError::Image(text.to_owned()))
}

/// A tag, checked. An empty one is none.
pub(super) fn tag(text: &str) -> Result<String, ImageArgumentError> {
    if text.is_empty() || api::image::is_tag(text) {
        return Ok(text.to_owned());
    }
    Err(ImageArgumentError::Part(api::image::TAG_RULE))
}

/// A repository, checked.
pub(super) fn repository(text: &str) -> Result<String, ImageArgumentError> {
    if api::image::is_repository(text) {
        Ok(text.to_owned())
    } else {
        Err(ImageArgumentError::Part(api::image::REPOSITORY_RULE))
    }
}
