//! What people tripped over, row by row (docs/rows.md): the rows of the commands for administrators.

use super::{Ran, cluster::Cluster, toolkit};

fn run(arguments: &[&str]) -> Ran {
    Ran::of(toolkit().args(arguments).output().unwrap())
}

#[test]
fn u22_help_has_the_commands_of_people_first_and_those_of_jobs_under_a_heading() {
    let help = run(&["--help"]).ended(0);
    let (people, jobs) = help.out.split_once("Commands that an upgrade runs by itself:").unwrap();
    for name in [
        "preflight",
        "upgrade",
        "status",
        "doctor",
        "wait",
        "pause",
        "resume",
        "retry",
        "delete",
        "postflight",
        "snapshot",
        "rehearse",
        "man",
    ] {
        assert!(people.contains(&format!("\n  {name} ")), "{name}: {people}");
    }
    for name in [
        "manager",
        "repo",
        "node",
        "cluster-upgrade",
        "vm-live-migrate-detector",
        "restore-vm",
        "version-guard",
    ] {
        assert!(jobs.contains(&format!("\n  {name} ")), "{name}: {jobs}");
    }
    let examples = help.out.split_once("Examples:").unwrap().1;
    let wrapped = examples
        .lines()
        .filter(|line| line.starts_with("  ") && !line.contains("upgrade-toolkit "));
    assert_eq!(
        wrapped.collect::<Vec<_>>(),
        [""; 0],
        "an example is broken in the middle"
    );
}

#[test]
fn u17_both_ways_to_ask_for_the_version_agree_and_negative_numbers_are_named() {
    let long = run(&["version"]).ended(0);
    let version = long
        .out
        .lines()
        .next()
        .unwrap()
        .strip_prefix("Version: ")
        .unwrap()
        .to_owned();
    assert_eq!(run(&["--version"]).ended(0).out, format!("upgrade-toolkit {version}\n"));
    run(&["rehearse", "--nodes", "-5"])
        .ended(2)
        .complains("-5 is not in 1..=1000");
}

#[test]
fn u08_errors_of_the_api_server_are_shown_once_in_its_own_words() {
    let cluster = Cluster::start("u08", 0);
    let refused = cluster
        .run(&["upgrade", "--version", "v9.9.9", "--yes", "--skip-preflight"])
        .ended(1);
    let refused = refused.complains("failed to create the UpgradePlan: ");
    assert_eq!(
        refused.err.matches("v9.9.9").count(),
        refused.err.matches("Not found: \"v9.9.9\"").count(),
        "{}",
        refused.err
    );
}

#[test]
fn u23_usage_of_the_plugin_has_the_name_that_people_type_and_the_flags_of_kubectl() {
    let folder = super::folder("u23");
    let link = folder.join("kubectl-upgrade_toolkit");
    std::os::unix::fs::symlink(super::binary(), &link).unwrap();
    let help = Ran::of(
        std::process::Command::new(&link)
            .args(["status", "--help"])
            .output()
            .unwrap(),
    )
    .ended(0);
    assert!(
        help.out.contains("Usage: kubectl upgrade-toolkit status"),
        "{}",
        help.out
    );
    for flag in ["--context <NAME>", "--kubeconfig <FILE>", "-n, --namespace <NAME>"] {
        assert!(help.out.contains(flag), "{flag}: {}", help.out);
    }
}

/// Sentences that people did not understand.
const NOT_ENGLISH: [&str; 7] = [
    concat!("is to go", " on"),
    "copies are whole",
    "One of the nodes only votes",
    concat!("Reckon", " with"),
    "so that of several managers one works",
    concat!("administrator", " lets"),
    "so many times as fast",
];

#[test]
fn u24_sentences_that_were_no_english_are_gone() {
    let mut found = Vec::new();
    let root = crate::docs::root();
    for folder in ["crates", "docs", "charts"] {
        gather(&root.join(folder), &mut found);
    }
    assert!(found.is_empty(), "{found:#?}");
}

fn gather(folder: &std::path::Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            // Tests may quote what is gone.
            if entry.file_name() != "tests" {
                gather(&path, found);
            }
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let said = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let wrong = said.filter(|line| NOT_ENGLISH.iter().any(|words| line.contains(words)));
            found.extend(wrong.map(|line| format!("{}: {line}", path.display())));
        }
    }
}

#[test]
fn u17_the_log_of_the_repository_has_no_colours_in_a_file() {
    let folder = super::folder("u17");
    let iso = folder.join("no.iso");
    std::fs::write(&iso, [0; 40_960]).unwrap();
    let ran = run(&[
        "repo",
        "--iso",
        iso.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--log-format",
        "console",
    ]);
    assert!(!ran.err.is_empty() && !ran.err.contains('\u{1b}'), "{ran:?}");
    let help = run(&["--help"]);
    assert!(help.out.contains("\n  man "), "{}", help.out);
}

#[test]
fn u10_an_annotation_that_is_not_understood_is_refused_with_the_values_that_are() {
    let cluster = Cluster::start("u10", 0);
    let refused = cluster.refused(&serde_json::json!({
        "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
        "metadata": {"name": "up", "annotations": {"management.harvesterhci.io/skip-webhook": "yes"}},
        "spec": {"version": "v1.8.0"},
    }));
    assert!(
        refused.contains("metadata.annotations[management.harvesterhci.io/skip-webhook]: Invalid value: \"yes\": must be \"true\" or \"false\""),
        "{refused}"
    );
}
