//! The page of a folder, as nginx's autoindex shows it. Pure.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::LISTED_NAMES;
use crate::iso::{Kind, Tree};

/// What stands for itself in one element of a path.
const ELEMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Width of the column of names.
const NAMES: usize = 70;

/// An element of a path as it stands in a URL.
pub(super) fn encode(name: &str) -> String {
    utf8_percent_encode(name, ELEMENT).to_string()
}

/// The page of a folder that has this path in the image and is shown under this title.
pub(super) fn page(tree: &Tree, path: &str, names: &[String], title: &str) -> String {
    let title = escape(title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html>\n<head><meta charset=\"utf-8\"><title>Index of {title}</title></head>\n<body>\n\
         <h1>Index of {title}</h1><hr><pre><a href=\"../\">../</a>\n"
    );
    for name in names.iter().take(LISTED_NAMES) {
        let Ok((_, node)) = tree.find(&format!("{path}/{name}")) else {
            continue;
        };
        let (slash, size) = match &node.kind {
            Kind::Directory(_) => ("/", "-".to_owned()),
            Kind::File(content) => ("", content.size().to_string()),
            Kind::Link(_) | Kind::Other => continue,
        };
        let modified = node
            .modified
            .map_or_else(|| "-".to_owned(), |when| when.strftime("%d-%b-%Y %H:%M").to_string());
        let gap = NAMES.saturating_sub(name.chars().count() + slash.len()) + 1;
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "<a href=\"{}{slash}\">{}{slash}</a>{:gap$}{modified} {size:>19}",
            encode(name),
            escape(name),
            "",
        );
    }
    if let Some(more) = names.len().checked_sub(LISTED_NAMES).filter(|more| *more > 0) {
        let _ = writeln!(page, "and {more} more");
    }
    page.push_str("</pre><hr></body>\n</html>\n");
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_only_names() {
        assert_eq!(encode("a b?#%<ü"), "a%20b%3F%23%25%3C%C3%BC");
        assert_eq!(encode("rke2-v1.2.tar.zst"), "rke2-v1.2.tar.zst");
        assert_eq!(escape("<script>\"&"), "&lt;script&gt;&quot;&amp;");
    }
}
