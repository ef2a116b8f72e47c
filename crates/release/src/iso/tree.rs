//! What an image holds, by path. A plain value: finding something in it reads nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// Symbolic links followed for one path, as in Linux.
const MOST_LINKS: usize = 40;

/// A run of bytes in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
}

/// Something with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// When it was modified, as far as the image says so.
    pub modified: Option<Timestamp>,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The names in it, sorted.
    Directory(Vec<String>),
    /// A file.
    File(Content),
    /// A symbolic link and its target.
    Link(String),
    /// A device, a socket, or a file that is not stored as its bytes.
    Other,
}

/// The bytes of a file: all of its extents, in order, lie in the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    extents: Vec<Extent>,
    size: u64,
}

impl Content {
    /// Adds an extent; one that follows the last without a gap becomes part of it.
    pub(super) fn push(&mut self, extent: Extent) {
        if extent.length == 0 {
            return;
        }
        self.size += extent.length;
        match self.extents.last_mut() {
            Some(last) if last.offset + last.length == extent.offset => last.length += extent.length,
            _ => self.extents.push(extent),
        }
    }

    /// Bytes of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where its extents are.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Where `length` bytes from `begin` on are, as far as the file goes.
    #[must_use]
    pub fn part(&self, begin: u64, length: u64) -> Vec<Extent> {
        let (mut skip, mut left) = (begin, length);
        let mut part = Vec::new();
        for extent in &self.extents {
            let skipped = skip.min(extent.length);
            skip -= skipped;
            let taken = (extent.length - skipped).min(left);
            left -= taken;
            if taken > 0 {
                part.push(Extent {
                    offset: extent.offset + skipped,
                    length: taken,
                });
            }
        }
        part
    }
}

/// Why nothing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// Nothing has that path.
    #[error("there is nothing of that name")]
    Missing,
    /// The path or a symbolic link on it leads out of the image.
    #[error("it leads out of the image")]
    Outside,
    /// Symbolic links that do not end.
    #[error("its symbolic links do not end")]
    Endless,
}

/// Everything in an image, by path: no slash at either end, the root is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
}

impl Tree {
    pub(super) fn insert(&mut self, path: String, node: Node) {
        self.nodes.entry(path).or_insert(node);
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn contains(&self, path: &str) -> bool {
        self.nodes.contains_key(path)
    }

    /// Everything, by path, links not followed.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// What has exactly this path; links are not followed.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// What a path leads to, links followed, and the path that it really has.
    ///
    /// # Errors
    /// When there is nothing, or the way there leaves the image. An absolute link leaves it: mounted somewhere, it
    /// would lead to the machine's own files.
    pub fn find(&self, path: &str) -> Result<(String, &Node), FindError> {
        let mut ahead: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut at = String::new();
        let mut links = 0;
        while let Some(step) = ahead.pop() {
            match step.as_str() {
                "" | "." => continue,
                ".." if at.is_empty() => return Err(FindError::Outside),
                ".." => {
                    at.truncate(at.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let next = join(&at, &step);
            match &self.nodes.get(&next).ok_or(FindError::Missing)?.kind {
                Kind::Link(target) if target.starts_with('/') => return Err(FindError::Outside),
                Kind::Link(target) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(FindError::Endless);
                    }
                    ahead.extend(target.split('/').rev().map(str::to_owned));
                }
                _ => at = next,
            }
        }
        let node = self.nodes.get(&at).ok_or(FindError::Missing)?;
        Ok((at, node))
    }
}

/// A name in a directory.
pub(super) fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() {
        name.to_owned()
    } else {
        format!("{directory}/{name}")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        let mut add = |path: &str, kind| {
            let modified = None;
            tree.insert(path.to_owned(), Node { kind, modified });
        };
        let link = |target: &str| Kind::Link(target.to_owned());
        add("", Kind::Directory(vec!["d".into()]));
        add("d", Kind::Directory(vec![]));
        add("d/f", Kind::File(Content::default()));
        add("to-f", link("d/f"));
        add("d/up", link("../to-f"));
        add("d/away", link("../../f"));
        add("etc", link("/etc/passwd"));
        add("a", link("b"));
        add("b", link("a"));
        tree
    }

    #[rstest]
    #[case("", Ok(""))]
    #[case("/d//f", Ok("d/f"))]
    #[case("d/./f", Ok("d/f"))]
    #[case("d/../d/f", Ok("d/f"))]
    #[case("to-f", Ok("d/f"))]
    #[case("d/up", Ok("d/f"))]
    #[case("d/none", Err(FindError::Missing))]
    #[case("d/f/g", Err(FindError::Missing))]
    #[case("..", Err(FindError::Outside))]
    #[case("d/away", Err(FindError::Outside))]
    #[case("etc", Err(FindError::Outside))]
    #[case("a", Err(FindError::Endless))]
    fn where_paths_lead(#[case] path: &str, #[case] found: Result<&str, FindError>) {
        let tree = tree();
        assert_eq!(tree.find(path).map(|(path, _)| path), found.map(str::to_owned));
    }

    #[test]
    fn a_part_of_a_file_may_span_extents() {
        let mut content = Content::default();
        for (offset, length) in [(100, 10), (110, 10), (0, 0), (300, 5)] {
            content.push(Extent { offset, length });
        }
        assert_eq!(content.size(), 25);
        let part = |begin, length| {
            let part = content.part(begin, length);
            part.iter().map(|e| (e.offset, e.length)).collect::<Vec<_>>()
        };
        assert_eq!(part(0, 25), [(100, 20), (300, 5)]);
        assert_eq!(part(19, 2), [(119, 1), (300, 1)]);
        assert_eq!(part(20, 100), [(300, 5)]);
        assert_eq!(part(25, 1), []);
    }
}
