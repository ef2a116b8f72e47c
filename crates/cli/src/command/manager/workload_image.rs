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

/// An image, checked.
pub(super) fn image(text: &str) -> Result<Image, String> {
    Image::parse(text).ok_or_else(|| format!("{text:?} is not REPOSITORY[:TAG][@DIGEST]"))
}

/// A tag, checked. An empty one is none.
pub(super) fn tag(text: &str) -> Result<String, String> {
    if text.is_empty() || api::image::is_tag(text) {
        return Ok(text.to_owned());
    }
    Err(api::image::TAG_RULE.to_owned())
}

/// A repository, checked.
pub(super) fn repository(text: &str) -> Result<String, String> {
    if api::image::is_repository(text) {
        Ok(text.to_owned())
    } else {
        Err(api::image::REPOSITORY_RULE.to_owned())
    }
}
