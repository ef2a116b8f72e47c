//! Removes images that the new release no longer has. Which ones go is a pure decision.

use std::{collections::BTreeSet, time::Duration};

use clock::Clock;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::presence::{full_name, last_segment};
use program::error::{Error, Result};

/// An image as the container runtime of a node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeImage {
    /// Its identifier.
    pub id: String,
    /// Its names with tags.
    pub repo_tags: Vec<String>,
    /// Its names with digests.
    pub repo_digests: Vec<String>,
    /// Whether the runtime needs it.
    pub pinned: bool,
}

/// The container runtime of a node.
pub trait Runtime: Send + Sync {
    /// All images.
    fn images(&self) -> BoxFuture<'_, Result<Vec<RuntimeImage>>>;
    /// Names and identifiers of the images of running containers.
    fn in_use(&self) -> BoxFuture<'_, Result<BTreeSet<String>>>;
    /// Removes an image with all its names.
    fn remove_image<'a>(&'a self, image: &'a RuntimeImage) -> BoxFuture<'a, Result<()>>;
}

/// Why an image goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its name was given.
    Named,
    /// Its name was given, with another registry or path in front.
    Mirrored,
    /// It has no name.
    Dangling,
}

/// Why an image stays that was given, or has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// The runtime needs it.
    Pinned,
    /// A running container needs it.
    InUse,
    /// It has another name that was not given, and would go with it.
    SharesName,
    /// Upgrades or volumes may still need it.
    Retained,
}

/// What is to be done with the images of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Images that go.
    pub removed: Vec<(RuntimeImage, Why)>,
    /// Images that stay although they were given, or have no name.
    pub kept: Vec<(RuntimeImage, Stays)>,
}

/// Decides which images go: those with a given name, whatever the registry, and those without any. Never one that is
/// pinned, in use, retained, or known by a further name.
#[must_use]
pub fn choose(images: &[RuntimeImage], in_use: &BTreeSet<String>, targets: &[String]) -> Choice {
    let targets: Vec<&String> = targets.iter().filter(|target| !is_exempt(target)).collect();
    let full: BTreeSet<String> = targets.iter().map(|target| full_name(target)).collect();
    let short: BTreeSet<&str> = targets.iter().map(|target| last_segment(target)).collect();
    let mut choice = Choice::default();
    for image in images {
        let names: Vec<&str> = image
            .repo_tags
            .iter()
            .map(String::as_str)
            .filter(|tag| is_name(tag))
            .collect();
        let named = |name: &str| full.contains(&full_name(name));
        let mirrored = |name: &str| short.contains(last_segment(name));
        let why = if names.is_empty() {
            Why::Dangling
        } else if names.iter().any(|name| named(name)) {
            Why::Named
        } else if names.iter().any(|name| mirrored(name)) {
            Why::Mirrored
        } else {
            continue;
        };
        match stays(image, in_use, &|name| named(name) || mirrored(name)) {
            Some(stays) => choice.kept.push((image.clone(), stays)),
            None => choice.removed.push((image.clone(), why)),
        }
    }
    choice
}

fn stays(image: &RuntimeImage, in_use: &BTreeSet<String>, is_target: &dyn Fn(&str) -> bool) -> Option<Stays> {
    let all_names = || image.repo_tags.iter().chain(&image.repo_digests);
    if image.pinned {
        Some(Stays::Pinned)
    } else if in_use.contains(&image.id) || all_names().any(|name| in_use.contains(name)) {
        Some(Stays::InUse)
    } else if all_names().any(|name| is_retained(name)) {
        Some(Stays::Retained)
    } else if image.repo_tags.iter().any(|name| is_name(name) && !is_target(name)) {
        Some(Stays::SharesName)
    } else {
        None
    }
}

/// A runtime says `<none>:<none>` of an image without a name.
fn is_name(tag: &str) -> bool {
    !tag.is_empty() && !tag.contains("<none>")
}

/// Names that are not to be removed even when they are given. The driver packages of `vmdp` are chosen by users.
fn is_exempt(target: &str) -> bool {
    last_segment(target).starts_with("vmdp:") || is_retained(target)
}

/// The rule of the manager, so that no list removes more than the manager's own.
fn is_retained(name: &str) -> bool {
    rules::stale_images::stale(&[name.to_owned()], &[]).is_empty()
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Images that are gone, by name.
    pub removed: Vec<String>,
    /// Images that could not be removed, and why.
    pub failed: Vec<(String, String)>,
    /// Images that stay, and why.
    pub kept: Vec<(String, Stays)>,
}

/// How long one image may take.
const EACH: Duration = Duration::from_mins(2);

/// How long removing images may take.
#[derive(Clone, Debug)]
pub struct Time {
    clock: Clock,
    /// When to leave the rest.
    until: Timestamp,
}

impl Time {
    /// So much from now on.
    #[must_use]
    pub fn of(clock: Clock, span: Duration) -> Self {
        let until = clock.now().saturating_add(span).unwrap_or(Timestamp::MAX);
        Self { clock, until }
    }

    /// Removes an image, or leaves it when its time is up.
    async fn remove(&self, runtime: &dyn Runtime, image: &RuntimeImage) -> Result<()> {
        let left = self.until.duration_since(self.clock.now());
        let left = Duration::try_from(left).unwrap_or_default().min(EACH);
        if left.is_zero() {
            return Err(Error::Transient("there was no time left for it".to_owned()));
        }
        tokio::select! {
            biased;
            removed = runtime.remove_image(image) => removed,
            () = self.clock.sleep(left) => Err(Error::Transient(format!("it was not gone after {} s", left.as_secs()))),
        }
    }
}

/// Removes what is to go, one after the other. One that cannot be removed, or not in time, does not stop the others.
///
/// # Errors
/// When the runtime does not say what is there.
pub async fn clean(runtime: &dyn Runtime, targets: &[String], time: &Time) -> Result<Cleaned> {
    let images = runtime.images().await?;
    let in_use = runtime.in_use().await?;
    let choice = choose(&images, &in_use, targets);
    let mut cleaned = Cleaned::default();
    for (image, stays) in &choice.kept {
        tracing::info!(image = label(image), reason = ?stays, "an image stays");
        cleaned.kept.push((label(image), *stays));
    }
    for (image, why) in &choice.removed {
        match time.remove(runtime, image).await {
            Ok(()) => {
                tracing::info!(image = label(image), reason = ?why, "removed an image");
                cleaned.removed.push(label(image));
            }
            Err(error) => {
                tracing::warn!(image = label(image), %error, "failed to remove an image");
                cleaned.failed.push((label(image), error.to_string()));
            }
        }
    }
    let (removed, failed, kept) = (cleaned.removed.len(), cleaned.failed.len(), cleaned.kept.len());
    tracing::info!(removed, failed, kept, "cleaned up images");
    Ok(cleaned)
}

fn label(image: &RuntimeImage) -> String {
    let name = image.repo_tags.iter().find(|tag| is_name(tag));
    name.unwrap_or(&image.id).clone()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rstest::rstest;

    use super::*;

    fn image(id: &str, tags: &[&str]) -> RuntimeImage {
        RuntimeImage {
            id: format!("sha256:{id}"),
            repo_tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..RuntimeImage::default()
        }
    }

    fn targets(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn verdict(image: &RuntimeImage, in_use: &[&str], names: &[&str]) -> (Option<Why>, Option<Stays>) {
        let in_use = in_use.iter().map(|name| (*name).to_owned()).collect();
        let choice = choose(std::slice::from_ref(image), &in_use, &targets(names));
        (
            choice.removed.first().map(|(_, why)| *why),
            choice.kept.first().map(|(_, stays)| *stays),
        )
    }

    #[rstest]
    #[case(&["docker.io/rancher/x:v1"], Some(Why::Named), None)]
    #[case(&["registry.example:5000/mirror/x:v1"], Some(Why::Mirrored), None)]
    #[case(&["docker.io/rancher/x:v1", "registry.example/x:v1"], Some(Why::Named), None)]
    #[case(&["docker.io/rancher/x:v2"], None, None)]
    #[case(&["docker.io/rancher/my-x:v1"], None, None)]
    #[case(&["docker.io/rancher/x:v1", "docker.io/rancher/y:v9"], None, Some(Stays::SharesName))]
    #[case(&[], Some(Why::Dangling), None)]
    #[case(&["<none>:<none>"], Some(Why::Dangling), None)]
    fn f24_given_names_go_whatever_the_registry_and_nothing_else_does(
        #[case] tags: &[&str],
        #[case] why: Option<Why>,
        #[case] stays: Option<Stays>,
    ) {
        assert_eq!(verdict(&image("a", tags), &[], &["rancher/x:v1"]), (why, stays));
    }

    #[test]
    fn pinned_and_used_images_stay() {
        let mut pinned = image("a", &["docker.io/rancher/x:v1"]);
        pinned.pinned = true;
        assert_eq!(verdict(&pinned, &[], &["rancher/x:v1"]), (None, Some(Stays::Pinned)));
        let used = image("b", &["docker.io/rancher/x:v1"]);
        let in_use = (None, Some(Stays::InUse));
        assert_eq!(verdict(&used, &["sha256:b"], &["rancher/x:v1"]), in_use);
        assert_eq!(verdict(&used, &["docker.io/rancher/x:v1"], &["rancher/x:v1"]), in_use);
        assert_eq!(verdict(&image("c", &[]), &["sha256:c"], &[]), in_use);
    }

    #[rstest]
    #[case("docker.io/rancher/harvester-upgrade-toolkit:v1")]
    #[case("registry.example:5000/rancher/harvester-upgrade:v1")]
    #[case("docker.io/longhornio/longhorn-engine:v1")]
    #[case("docker.io/suse/vmdp:2.5")]
    fn f24_retained_images_stay_even_when_they_are_given(#[case] name: &str) {
        assert_eq!(verdict(&image("a", &[name]), &[], &[name]).0, None);
    }

    #[test]
    fn an_unnamed_image_of_a_retained_repository_stays() {
        let mut engine = image("a", &[]);
        engine.repo_digests = vec!["docker.io/longhornio/longhorn-engine@sha256:00".to_owned()];
        assert_eq!(verdict(&engine, &[], &[]), (None, Some(Stays::Retained)));
    }

    struct Stubborn(Mutex<Vec<String>>);

    impl Runtime for Stubborn {
        fn images(&self) -> BoxFuture<'_, Result<Vec<RuntimeImage>>> {
            Box::pin(async {
                Ok(vec![
                    image("a", &["a/x:1"]),
                    image("b", &["a/y:1"]),
                    image("c", &["a/z:1"]),
                ])
            })
        }

        fn in_use(&self) -> BoxFuture<'_, Result<BTreeSet<String>>> {
            Box::pin(async { Ok(BTreeSet::new()) })
        }

        fn remove_image<'a>(&'a self, image: &'a RuntimeImage) -> BoxFuture<'a, Result<()>> {
            Box::pin(async move {
                if image.id == "sha256:b" {
                    return Err(Error::Permanent("busy".to_owned()));
                }
                self.0.lock().unwrap().push(image.id.clone());
                Ok(())
            })
        }
    }

    #[tokio::test]
    async fn one_image_that_cannot_be_removed_does_not_stop_the_others() {
        let runtime = Stubborn(Mutex::default());
        let time = Time::of(Clock::system(), Duration::from_mins(1));
        let cleaned = clean(&runtime, &targets(&["a/x:1", "a/y:1", "a/z:1"]), &time)
            .await
            .unwrap();
        assert_eq!(*runtime.0.lock().unwrap(), ["sha256:a", "sha256:c"]);
        assert_eq!(cleaned.removed, ["a/x:1", "a/z:1"]);
        assert_eq!(cleaned.failed, [("a/y:1".to_owned(), "busy".to_owned())]);
    }
}
