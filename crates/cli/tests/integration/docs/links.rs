//! Every link inside the repository leads to a file, and to a heading of it.

use std::{collections::BTreeMap, path::Path};

use regex::Regex;

use crate::docs::page::{self, Page};

#[test]
fn every_link_leads_somewhere() {
    let pages = page::all();
    let anchors: BTreeMap<&str, Vec<String>> = pages.iter().map(|page| (page.name.as_str(), anchors(page))).collect();
    let mut broken = Vec::new();
    let mut count = 0;
    for page in &pages {
        for (line, target) in links(page) {
            count += 1;
            if let Some(why) = fault(page, &target, &anchors) {
                broken.push(format!("{}:{line}: {target}: {why}", page.name));
            }
        }
    }
    assert!(count > 60, "only {count} links");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// What is wrong with a link, if anything.
fn fault(page: &Page, target: &str, anchors: &BTreeMap<&str, Vec<String>>) -> Option<String> {
    if target.contains("://") {
        // Tests open no connections; a link elsewhere should at least be a safe one.
        return (!target.starts_with("https://")).then(|| "not https".to_owned());
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let name = if file.is_empty() {
        page.name.clone()
    } else {
        let folder = Path::new(&page.name).parent().unwrap_or(Path::new(""));
        let found = page::root().join(folder).join(file).canonicalize();
        let Ok(found) = found else {
            return Some("no such file".to_owned());
        };
        let Ok(found) = found.strip_prefix(page::root()).map(Path::to_path_buf) else {
            return Some("outside the repository".to_owned());
        };
        found.display().to_string()
    };
    if anchor.is_empty() {
        return None;
    }
    let known = anchors.get(name.as_str())?;
    (!known.iter().any(|known| known == anchor)).then(|| format!("{name} has no such heading"))
}

/// Targets of links, with their lines.
fn links(page: &Page) -> Vec<(usize, String)> {
    let code = Regex::new("`[^`]*`").unwrap();
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let mut found = Vec::new();
    for (number, line) in page.prose() {
        let line = code.replace_all(&line, "");
        found.extend(link.captures_iter(&line).map(|link| (number, link[1].to_owned())));
    }
    found
}

/// Anchors of headings, as GitHub makes them.
fn anchors(page: &Page) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (_, line) in page.prose() {
        // Rows of tables have anchors of their own.
        let rows = line.split("<a id=\"").skip(1);
        found.extend(rows.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        let bare = line.trim_start_matches('#');
        if bare.len() == line.len() || !bare.starts_with(' ') {
            continue;
        }
        let anchor = slug(bare.trim());
        let same = found.iter().filter(|other| **other == anchor).count();
        found.push(if same == 0 { anchor } else { format!("{anchor}-{same}") });
    }
    found
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.collect::<String>().to_lowercase()
}

#[test]
fn headings_become_anchors_as_on_github() {
    assert_eq!(slug("RancherNextNode, RancherUpdate"), "ranchernextnode-rancherupdate");
    assert_eq!(slug("It succeeded, but …"), "it-succeeded-but-");
    assert_eq!(slug("状况（Conditions）"), "状况conditions");
}

#[test]
fn broken_links_are_found() {
    let page = Page {
        name: "docs/README.md".to_owned(),
        text: "# A\n[a](install.md#values) [b](nowhere.md) [c](install.md#nothing) `[d](code.md)` [e](#a)".to_owned(),
    };
    let install = Page::read("docs/install.md");
    let known = BTreeMap::from([
        ("docs/README.md", anchors(&page)),
        ("docs/install.md", anchors(&install)),
    ]);
    let faults: Vec<String> = links(&page)
        .iter()
        .filter_map(|(_, target)| fault(&page, target, &known))
        .collect();
    assert_eq!(faults, ["no such file", "docs/install.md has no such heading"]);
}
