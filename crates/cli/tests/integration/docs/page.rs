//! Pages of the documentation, and the commands in them.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap()
}

/// What a page has in store for a reader's shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Lines of a shell.
    Sh,
    /// Lines behind `$ ` are of a shell, the others what it prints.
    Console,
    /// Hidden from readers: makes the state that the next block is about.
    Hidden,
}

/// Some commands.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) kind: Kind,
    /// What the fence says behind the language.
    pub(crate) words: Vec<String>,
    pub(crate) lines: Vec<String>,
    /// Where it begins.
    pub(crate) at: usize,
}

impl Block {
    pub(crate) fn is(&self, word: &str) -> bool {
        self.words.iter().any(|found| found == word)
    }

    /// Why it is not run, if it is not.
    pub(crate) fn norun(&self) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix("norun="))
    }

    /// What is to be run.
    pub(crate) fn commands(&self) -> String {
        let lines = self.lines.iter().map(String::as_str);
        let lines: Vec<&str> = match self.kind {
            Kind::Sh | Kind::Hidden => lines.collect(),
            Kind::Console => lines.filter_map(|line| line.strip_prefix("$ ")).collect(),
        };
        lines.join("\n")
    }

    /// The output that the page shows.
    pub(crate) fn shown(&self) -> Vec<&str> {
        if self.kind != Kind::Console {
            return Vec::new();
        }
        let lines = self.lines.iter().map(String::as_str);
        lines.filter(|line| !line.starts_with("$ ")).collect()
    }
}

/// A file of the documentation.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Its path, from the root.
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn read(name: &str) -> Self {
        let text = fs::read_to_string(root().join(name));
        Self {
            name: name.to_owned(),
            text: text.unwrap_or_else(|error| panic!("{name}: {error}")),
        }
    }

    /// All commands, in order.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut found = Vec::new();
        let mut open: Option<(Option<Block>, &str, usize)> = None;
        for (index, line) in self.text.lines().enumerate() {
            let bare = line.trim();
            match &mut open {
                None if bare == "<!-- test:" => {
                    open = Some((Some(block(Kind::Hidden, &[], index)), "-->", 0));
                }
                None => {
                    if let Some(info) = bare.strip_prefix("```") {
                        let words: Vec<&str> = info.split_whitespace().collect();
                        let begun = match words.split_first() {
                            Some((&"sh", words)) => Some(block(Kind::Sh, words, index)),
                            Some((&"console", words)) => Some(block(Kind::Console, words, index)),
                            _ => None,
                        };
                        open = Some((begun, "```", line.len() - line.trim_start().len()));
                    }
                }
                Some((_, end, _)) if bare == *end => found.extend(open.take().and_then(|(block, _, _)| block)),
                Some((Some(block), _, indent)) => {
                    block.lines.push(line.get(*indent..).unwrap_or_default().to_owned());
                }
                Some((None, _, _)) => {}
            }
        }
        assert!(open.is_none(), "{}: a block does not end", self.name);
        found
    }

    /// The text without fenced blocks, comments and inline code, where nothing is a link or a heading.
    pub(crate) fn prose(&self) -> Vec<(usize, String)> {
        let mut fenced = false;
        let mut prose = Vec::new();
        for (index, line) in self.text.lines().enumerate() {
            let bare = line.trim();
            if bare.starts_with("```") || bare == "<!-- test:" || (fenced && bare == "-->") {
                fenced = !fenced;
            } else if !fenced {
                prose.push((index + 1, line.to_owned()));
            }
        }
        prose
    }
}

fn block(kind: Kind, words: &[&str], index: usize) -> Block {
    Block {
        kind,
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        lines: Vec::new(),
        at: index + 1,
    }
}

/// Every Markdown file of the repository.
pub(crate) fn all() -> Vec<Page> {
    let mut found = Vec::new();
    gather(&root(), "", &mut found);
    assert!(found.len() > 20, "{found:?}");
    found.iter().map(|name| Page::read(name)).collect()
}

/// Pages whose commands are run: the README and the documentation in English.
pub(crate) fn with_commands() -> Vec<Page> {
    let is_run = |page: &Page| {
        page.name == "README.md" || (page.name.starts_with("docs/") && !page.name.starts_with("docs/zh/"))
    };
    all().into_iter().filter(is_run).collect()
}

/// Pages in Chinese, each with its original.
pub(crate) fn translated() -> Vec<(Page, Page)> {
    let pages = all().into_iter();
    let pages = pages.filter(|page| page.name.starts_with("docs/zh/") && page.name != "docs/zh/README.md");
    pages
        .map(|page| (Page::read(&page.name.replace("docs/zh/", "docs/")), page))
        .collect()
}

fn gather(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            // Folders that builds write, and those of tools.
            if !name.starts_with('.') && !["target", "dist", "bin"].contains(&name.as_str()) {
                gather(&entry.path(), &format!("{prefix}{name}/"), found);
            }
        } else if name.ends_with(".md") {
            found.push(format!("{prefix}{name}"));
        }
    }
    found.sort();
}
