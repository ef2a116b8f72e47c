//! Lists of container images: one reference a line. Pure: text in, value out.

use std::collections::BTreeSet;

/// The largest list of a release has some hundred lines.
pub const LARGEST_BYTES: u64 = 16 * 1024 * 1024;
/// No registry takes a longer reference.
const LONGEST_REFERENCE: usize = 512;

/// The folder of the lists of whole releases, one folder per version in it.
pub const ARCHIVE: &str = "bundle/harvester/images-lists-archive";
/// The name of the list of this release in [`ARCHIVE`].
pub const CURRENT: &str = "current";

/// Where the list of all images of a release is; `version` may be [`CURRENT`].
#[must_use]
pub fn path_of(version: &str) -> String {
    format!("{ARCHIVE}/{version}/image_list_all.txt")
}

/// Why a text is not a list of images.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not the name of an image: {text:?}")]
pub struct ImageListError {
    /// Which line, from one.
    pub line: usize,
    /// How it begins.
    pub text: String,
}

/// Reads a list. Blank lines are dropped; what is there twice is there once.
///
/// # Errors
/// When a line cannot be an image: a page that says 404 must not pass for a release without images.
pub fn parse(text: &str) -> Result<BTreeSet<String>, ImageListError> {
    let mut images = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let image = line.trim();
        if image.is_empty() {
            continue;
        }
        if !is_reference(image) {
            return Err(ImageListError {
                line: index + 1,
                text: image.chars().take(60).collect(),
            });
        }
        images.insert(image.to_owned());
    }
    Ok(images)
}

/// Whether a text can be an image reference: the characters of registry, path, tag and digest, and no others.
fn is_reference(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
    text.len() <= LONGEST_REFERENCE
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn images_come_sorted_and_once() {
        let images = parse("\n b/x:2 \r\nregistry.example:5000/a@sha256:00\n\n\tb/x:2\n").unwrap();
        assert_eq!(
            images.into_iter().collect::<Vec<_>>(),
            ["b/x:2", "registry.example:5000/a@sha256:00"]
        );
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn a_page_of_an_error_is_not_a_list() {
        let error = parse("a/b:1\n<html>404</html>").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2 is not the name of an image: \"<html>404</html>\""
        );
        assert_eq!(parse("Not Found").unwrap_err().line, 1);
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_an_error(text in "\\PC*|([a-z/:.]{1,9}\n){0,20}") {
            if let Ok(images) = parse(&text) {
                prop_assert!(images.iter().all(|image| !image.contains(char::is_whitespace)));
            }
        }
    }
}
