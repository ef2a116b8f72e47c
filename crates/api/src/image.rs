//! References to container images: read, checked and written. `registry:5000/path/name:tag@sha256:…`, with everything but
//! the name left out at will.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{UpgradePlan, annotations};

/// Longest name of an image, in bytes.
const NAME_LIMIT: usize = 255;
/// Longest tag, in bytes.
const TAG_LIMIT: usize = 128;

/// The rule for a repository, as shown in a refusal.
pub const REPOSITORY_RULE: &str = "must be the repository and name of an image, as in registry.example.com:5000/me/mine, without tag and digest; \
     spec.upgrade holds the tag";
/// The rule for a tag, as shown in a refusal.
pub const TAG_RULE: &str =
    "must be the tag of an image: at most 128 letters, digits, '_', '.' and '-', and not '.' or '-' first";

/// A container image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Registry, path and name.
    pub repository: String,
    /// Which version; none where the digest says it.
    #[serde(default)]
    pub tag: Option<String>,
    /// Which content, as `sha256:…`.
    #[serde(default)]
    pub digest: Option<String>,
}

impl Image {
    /// Reads a reference; nothing when it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        // A colon behind the last slash begins the tag; one before it, the port of a registry.
        let last = name.rfind('/').map_or(0, |slash| slash + 1);
        let (repository, tag) = match name[last..].split_once(':') {
            Some((_, tag)) => (&name[..name.len() - tag.len() - 1], Some(tag)),
            None => (name, None),
        };
        let whole = is_repository(repository) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
        whole.then(|| Self {
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }
}

impl fmt::Display for Image {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.repository)?;
        if let Some(tag) = &self.tag {
            write!(out, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(out, "@{digest}")?;
        }
        Ok(())
    }
}

/// Registry, path and name, without tag and digest.
#[must_use]
pub fn is_repository(text: &str) -> bool {
    if text.is_empty() || text.len() > NAME_LIMIT {
        return false;
    }
    let (registry, path) = match text.split_once('/') {
        // As everywhere: a first part is a registry if it looks like a host.
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (Some(first), rest),
        _ => (None, text),
    };
    registry.is_none_or(is_registry) && path.split('/').all(is_path_element)
}

/// A host, perhaps with a port.
fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_label = |label: &str| {
        let inner = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    host.split('.').all(is_label)
        && port.is_none_or(|port| !port.is_empty() && port.chars().all(|digit| digit.is_ascii_digit()))
}

/// Lower-case letters and digits, with single separators between them: a dot, one or two underscores, or dashes.
fn is_path_element(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let separators = text.split(is_plain).filter(|between| !between.is_empty());
    let is_separator = |text: &str| matches!(text, "." | "_" | "__") || text.chars().all(|letter| letter == '-');
    text.starts_with(is_plain) && text.ends_with(is_plain) && separators.into_iter().all(is_separator)
}

/// A tag.
#[must_use]
pub fn is_tag(text: &str) -> bool {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let is_inner = |letter: char| is_word(letter) || letter == '.' || letter == '-';
    text.starts_with(is_word) && text.len() <= TAG_LIMIT && text.chars().all(is_inner)
}

fn is_digest(text: &str) -> bool {
    text.split_once(':').is_some_and(|(algorithm, hex)| {
        let is_algorithm = |letter: char| letter.is_ascii_alphanumeric() || "+._-".contains(letter);
        algorithm.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && algorithm.chars().all(is_algorithm)
            && hex.len() >= 32
            && hex.chars().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// The repository that a plan names, if it does. What is empty is no choice.
#[must_use]
pub fn chosen_repository(plan: &UpgradePlan) -> Option<&str> {
    plan.annotation(annotations::UPGRADE_TOOLKIT_IMAGE)
        .filter(|image| !image.is_empty())
}

/// Where images may come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The manager's own image.
    pub own: Image,
    /// Other repositories.
    pub others: Vec<String>,
}

/// The repository that a plan names and that it may not: neither the manager's own nor one of `others`.
#[must_use]
pub fn forbidden_repository<'a>(plan: &'a UpgradePlan, own: &Image, others: &[String]) -> Option<&'a str> {
    chosen_repository(plan).filter(|chosen| *chosen != own.repository && !others.iter().any(|other| other == chosen))
}

/// Why a repository may not be chosen, and what may.
#[must_use]
pub fn forbidden_text(own: &Image, others: &[String]) -> String {
    let allowed: Vec<&str> = std::iter::once(own.repository.as_str())
        .chain(others.iter().map(String::as_str))
        .collect();
    format!(
        "images come only from the repositories that the manager allows ({}); its flag --allow-image-repository allows another \
         one",
        allowed.join(", ")
    )
}

/// Where a plan says what image its workloads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The annotation that names the repository.
    Repository,
    /// `spec.upgrade`, which holds the tag.
    Tag,
}

impl Place {
    /// As people write it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Repository => format!("annotation {}", annotations::UPGRADE_TOOLKIT_IMAGE),
            Self::Tag => "spec.upgrade".to_owned(),
        }
    }
}

/// Something that a plan says of its image and that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault<'a> {
    /// Where it stands.
    pub place: Place,
    /// What it is.
    pub given: &'a str,
    /// What it should be.
    pub rule: &'static str,
}

/// What a plan says of its image and cannot be. What is empty is no choice.
#[must_use]
pub fn faults(plan: &UpgradePlan) -> Vec<Fault<'_>> {
    let repository = chosen_repository(plan).filter(|given| !is_repository(given));
    let tag = plan.spec.upgrade.as_deref();
    let tag = tag.filter(|given| !given.is_empty() && !is_tag(given));
    let fault = |place, rule| move |given| Fault { place, given, rule };
    let repository = repository.map(fault(Place::Repository, REPOSITORY_RULE));
    let tag = tag.map(fault(Place::Tag, TAG_RULE));
    repository.into_iter().chain(tag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn a_reference_is_read_in_its_parts_and_written_as_it_was() {
        for (text, repository, tag, digest) in [
            ("rancher/toolkit:v1", "rancher/toolkit", Some("v1"), None),
            ("toolkit", "toolkit", None, None),
            ("localhost:5000/toolkit", "localhost:5000/toolkit", None, None),
            ("reg.test:5000/a/b:dev", "reg.test:5000/a/b", Some("dev"), None),
            (&format!("me/mine@{DIGEST}"), "me/mine", None, Some(DIGEST)),
            (
                &format!("reg.test:5000/me/mine:v3@{DIGEST}"),
                "reg.test:5000/me/mine",
                Some("v3"),
                Some(DIGEST),
            ),
        ] {
            let image = Image::parse(text).unwrap();
            assert_eq!(
                (image.repository.as_str(), image.tag.as_deref(), image.digest.as_deref()),
                (repository, tag, digest)
            );
            assert_eq!(image.to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_no_reference() {
        for text in [
            "",
            ":v1",
            "a b",
            "UPPER/case",
            "me//mine",
            "me/mine:",
            "me/mine:a b",
            "me/mine@sha256:00",
            "-a",
            "a..b",
            "http://me/mine",
        ] {
            assert_eq!(Image::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_repository_has_neither_tag_nor_digest() {
        for text in [
            "me/mine",
            "mine",
            "localhost:5000/me/mine",
            "reg.example.test/a_b/c__d/e-f.g",
        ] {
            assert!(is_repository(text), "{text}");
        }
        for text in [
            "me/mine:v3",
            "mine:v3",
            "me/mine@sha256:00",
            "me/Mine",
            "https://reg/me",
            "reg.test:/me",
            "",
        ] {
            assert!(!is_repository(text), "{text}");
        }
    }
}
