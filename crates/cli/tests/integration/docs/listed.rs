//! What can be set, seen or waited for is on the page that lists it, in both languages.

use std::{collections::BTreeSet, fs};

use api::{NodeState, Phase, ProgramWait, Wait};
use clap::CommandFactory;
use cli::command::Cli;
use regex::Regex;
use rules::deadlines::Deadlines;
use serde_json::Value;

use crate::docs::page::{self, Page};

/// Fails unless every word stands in backticks on the page and on its translation.
fn is_listed(page: &str, kind: &str, words: impl IntoIterator<Item = String>) {
    let words: BTreeSet<String> = words.into_iter().collect();
    assert!(words.len() > 4, "only {words:?}");
    let mut missing = Vec::new();
    for name in [format!("docs/{page}"), format!("docs/zh/{page}")] {
        let text = Page::read(&name).text;
        let absent = words.iter().filter(|word| !text.contains(&format!("`{word}`")));
        missing.extend(absent.map(|word| format!("{name}: {kind} {word}")));
    }
    assert!(missing.is_empty(), "missing:\n{}", missing.join("\n"));
}

/// Constants of a source file whose documentation `is_wanted`.
fn constants(file: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let text = fs::read_to_string(page::root().join(file)).unwrap();
    let constant = Regex::new(r#"(?m)^((?:/// .*\n)+)pub const \w+: &str =\s*"([^"]+)";"#).unwrap();
    let constants = constant.captures_iter(&text).filter(|found| is_wanted(&found[1]));
    constants.map(|found| found[2].to_owned()).collect()
}

#[test]
fn every_field_of_the_spec_is_documented() {
    let crd = api::crd::upgrade_plan();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut fields = Vec::new();
    leaves(spec, "", &mut fields);
    is_listed("options.md", "field", fields);
}

fn leaves(schema: &Value, prefix: &str, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        if field["properties"].is_object() {
            leaves(field, &format!("{path}."), found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn every_annotation_is_documented() {
    let is_ours = |text: &str| {
        ["/// User", "/// Set by users", "/// Ours", "/// Finalizer"]
            .iter()
            .any(|s| text.starts_with(s))
    };
    is_listed(
        "options.md",
        "annotation",
        constants("crates/api/src/annotations.rs", is_ours),
    );
}

#[test]
fn every_event_is_documented() {
    let is_event = |text: &str| text.starts_with("/// Event") || text.contains("also the event");
    is_listed("events.md", "event", constants("crates/api/src/reasons.rs", is_event));
}

#[test]
fn every_flag_variable_and_deadline_of_the_manager_is_documented() {
    let mut command = Cli::command();
    command.build();
    let manager = command.find_subcommand("manager").expect("there is a manager");
    let known = |long: &&str| !["help", "version"].contains(long);
    let flags = manager.get_arguments().filter_map(clap::Arg::get_long).filter(known);
    is_listed("options.md", "flag", flags.map(|flag| format!("--{flag}")));
    let variables = manager.get_arguments().filter_map(clap::Arg::get_env);
    is_listed(
        "options.md",
        "variable",
        variables.map(|name| name.display().to_string()),
    );
    for page in ["docs/options.md", "docs/zh/options.md"] {
        let text = Page::read(page).text;
        for (name, _, minutes) in Deadlines::TABLE {
            let row = format!("| `{}` | {minutes} |", name.replace('_', "-"));
            assert!(text.contains(&row), "{page}: no row {row}");
        }
    }
}

#[test]
fn every_phase_node_state_and_wait_is_documented() {
    is_listed("phases.md", "phase", Phase::ALL.map(|phase| phase.to_string()));
    // Node states are words of a diagram.
    for page in ["docs/phases.md", "docs/zh/phases.md"] {
        let text = Page::read(page).text;
        for state in NodeState::ALL {
            assert!(text.contains(&format!("--> {state}")), "{page}: no state {state}");
        }
    }
    for page in ["docs/phases.md", "docs/zh/phases.md"] {
        let text = Page::read(page).text;
        let of_plans = Wait::ALL.iter().map(|wait| wait.as_str());
        let of_programs = ProgramWait::ALL.iter().map(|wait| wait.as_str());
        let (plans, programs) = (waits(&text, 4), waits(&text, 3));
        let missing: Vec<&str> = of_plans
            .filter(|word| !plans.contains(word))
            .chain(of_programs.filter(|word| !programs.contains(word)))
            .collect();
        assert!(missing.is_empty(), "{page}: no row for {missing:?}");
    }
}

/// The words in a table of waits. The rows of a plan's waits are: phase, words, what is waited for, deadline; those of programs:
/// Job, words, where their steps are listed.
fn waits(page: &str, columns: usize) -> BTreeSet<&str> {
    let rows = page.lines().map(|line| line.split(" | ").collect::<Vec<_>>());
    let words = rows.filter(|row| row.len() == columns).map(|row| row[1]);
    words.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_value_of_the_chart_is_documented() {
    let Ok(values) = fs::read_to_string(page::root().join("charts/harvester-upgrade-manager/values.yaml")) else {
        return;
    };
    // A value is documented there by a comment that begins with dashes; its path is what it is indented under.
    let (mut path, mut documented, mut found) = (Vec::<(usize, String)>::new(), false, Vec::new());
    for line in values.lines().filter(|line| !line.trim().is_empty()) {
        let bare = line.trim_start();
        if bare.starts_with('#') {
            documented |= bare.starts_with("# --");
            continue;
        }
        let indent = line.len() - bare.len();
        let Some((key, _)) = bare.split_once(':') else { continue };
        path.retain(|(other, _)| *other < indent);
        path.push((indent, key.to_owned()));
        if std::mem::take(&mut documented) {
            let keys: Vec<&str> = path.iter().map(|(_, key)| key.as_str()).collect();
            found.push(keys.join("."));
        }
    }
    is_listed("install.md", "value", found);
}
