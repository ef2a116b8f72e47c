//! The command `rehearse`: rows of what people tripped over, and the troubles that it plays.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use assert_cmd::Command;
use serde_json::Value;

use crate::rehearse_cli::{THREE_NODES, plan_of, rehearse, text};

#[test]
fn u13_versions_that_harvester_does_not_upgrade_to_are_refused_at_once_and_named() {
    let cases: &[(&[&str], &str)] = &[
        (&["--to", "garbage"], "--to garbage: this is no version such as v1.8.0"),
        (&["--from", "x"], "--from x: this is no version such as v1.8.0"),
        (
            &["--to", "v99.0.0"],
            "v1.7.1 cannot be upgraded to v99.0.0: a minor version must not be skipped",
        ),
        (
            &["--to", "v1.9.0"],
            "v1.7.1 cannot be upgraded to v1.9.0: a minor version must not be skipped",
        ),
        (
            &["--from", "v1.9.0", "--to", "v1.8.0"],
            "v1.9.0 cannot be upgraded to v1.8.0: downgrading is prohibited",
        ),
    ];
    for (arguments, message) in cases {
        let output = rehearse(arguments);
        let said = text(&output.stderr);
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(2), 0),
            "{arguments:?}: {said}"
        );
        assert!(said.contains(message), "{arguments:?}: {said}");
    }
}

#[test]
fn u05_a_paused_node_is_resumed_half_an_hour_after_its_turn_has_come() {
    let (plan, progress) = plan_of(&["--pause", "node-2", "-o", "json"]);
    let time = |line: &str| -> i64 {
        let parts: Vec<i64> = line[..8].split(':').map(|part| part.parse().unwrap()).collect();
        parts[0] * 3600 + parts[1] * 60 + parts[2]
    };
    let at = |part: &str| {
        let found = progress.lines().find(|line| line.contains(part));
        time(found.unwrap_or_else(|| panic!("{part:?} is missing in:\n{progress}")))
    };
    let resumed = at("administrator resumes node-2");
    let others: Vec<i64> = progress
        .lines()
        .filter(|line| line.contains(": PostDrained") && time(line) < resumed)
        .map(time)
        .collect();
    assert!(!others.is_empty(), "it was resumed before its turn:\n{progress}");
    let waited = resumed - others.iter().max().unwrap();
    assert!((1800..2400).contains(&waited), "{waited} s:\n{progress}");
    assert!(at("node node-2: PreDraining") >= resumed);
    assert_eq!(plan["status"]["currentPhase"], "Succeeded");
}

#[test]
fn u09_a_speed_out_of_range_is_refused() {
    for speed in ["1e300", "1e9", "3601", "0.001", "-1", "inf"] {
        let output = rehearse(&[&format!("--speed={speed}"), "--nodes", "1"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{speed}: {said}");
        assert!(
            said.contains("--speed must be a number from 0.01 to 3600"),
            "{speed}: {said}"
        );
    }
}

#[test]
fn u18_the_help_says_how_fast_a_served_cluster_is() {
    let help = text(&rehearse(&["--help"]).stdout);
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "with --serve 60 unless given",
        "the default without --serve",
        "Run N times faster than real time",
    ] {
        assert!(words.contains(part), "{part}: {help}");
    }
}

#[test]
fn u20_while_images_are_preloaded_the_archive_is_named_with_its_number_in_all() {
    let (_, progress) = &*THREE_NODES;
    let of_node: Vec<&str> = progress
        .lines()
        .filter_map(|line| line.split("waiting: node node-1: \"importing ").nth(1))
        .collect();
    assert!(of_node.len() >= 3, "{progress}");
    let archives: Vec<&str> = of_node.iter().filter_map(|line| line.split(':').next()).collect();
    assert!(
        archives.iter().any(|archive| archive.ends_with(", archive 1 of 2")),
        "{archives:?}"
    );
    assert!(
        archives.iter().any(|archive| archive.ends_with(", archive 2 of 2")),
        "{archives:?}"
    );
    // How far one archive is never decreases.
    for archive in &archives {
        let bytes: Vec<f64> = of_node
            .iter()
            .filter(|line| line.starts_with(archive))
            .filter_map(|line| line.split(": ").nth(1)?.split(' ').next()?.parse().ok())
            .collect();
        assert!(bytes.is_sorted(), "{archive}: {bytes:?}");
    }
}

#[test]
fn the_list_of_troubles_explains_each_as_text_and_as_data() {
    let output = rehearse(&["--trouble", "list"]);
    assert_eq!(output.status.code(), Some(0));
    let list = text(&output.stdout);
    for part in [
        "drain-blocked[=NODE]\n",
        "capi-paused[@PHASE]\n",
        "    shows:  D02\n",
        "    begins: NodeUpgrade\n",
        "PHASE is one of Initialize, ISODownload, ",
    ] {
        assert!(list.contains(part), "{part:?} is missing in:\n{list}");
    }
    let data: Value = serde_json::from_slice(&rehearse(&["--trouble", "list", "-o", "json"]).stdout).unwrap();
    let data = data.as_array().unwrap();
    assert!(data.len() > 40, "{}", data.len());
    let capi = data.iter().find(|row| row["name"] == "capi-paused").unwrap();
    assert_eq!(capi["situations"], serde_json::json!(["D20"]));
}

#[test]
fn a_trouble_that_makes_no_sense_is_refused_with_what_is_allowed() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["--trouble", "lunch"],
            "--trouble lunch: there is no such trouble; choose one of certificate-ends, disk-full, ",
        ),
        (
            &["--trouble", "D40"],
            "--trouble D40: the simulated cluster cannot play this situation; it plays D02, ",
        ),
        (
            &["--trouble", "drain-blocked=node-9"],
            "the cluster has no NODE node-9; choose one of node-1, node-2, node-3",
        ),
        (
            &["--trouble", "migration-stuck=default/none"],
            "the cluster has no NAMESPACE/VM default/none; choose one of ",
        ),
        (
            &["--trouble", "migration-stuck", "--vms", "0"],
            "the cluster has no such VM; use more --vms",
        ),
        (
            &["--trouble", "chart-stuck=lunch"],
            "choose one of harvester, harvester-crd",
        ),
        (
            &["--trouble", "job-hangs=lunch"],
            "choose one of image-preload, cluster-upgrade, pre-drain",
        ),
        (&["--trouble", "job-killed=lunch"], "choose one of "),
        (
            &["--trouble", "certificate-ends=90"],
            "choose one of 0, 1, 2, 3, 4, 5, 6",
        ),
        (&["--trouble", "capi-paused=local"], "it takes no object"),
        (
            &["--trouble", "capi-paused@Lunch"],
            "it cannot begin at Lunch; choose one of Initialize, ISODownload, ",
        ),
        (
            &["--trouble", "iso-import-fails@NodeUpgrade"],
            "it cannot begin at NodeUpgrade; choose one of Initialize, ISODownload",
        ),
        (&["--trouble", "disk-full@NodeUpgrade"], "it takes no phase"),
        (
            &["--trouble", "capi-paused", "--nodes", "1"],
            "it needs at least 2 --nodes",
        ),
        (
            &["--trouble", "chart-left-paused"],
            "it begins after the upgrade, so it needs --serve",
        ),
    ];
    for (arguments, message) in cases {
        let output = rehearse(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(message), "{arguments:?}: {said}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
}

#[test]
fn u16_a_served_rehearsal_that_is_cut_off_in_an_upgrade_exits_1() {
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("upgrade-toolkit"))
        .args(["rehearse", "--serve", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(lines.any(|line| line.contains("phase Initializing")));
    let sent = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    lines.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn u16_an_unknown_command_exits_as_the_help_says() {
    let run = |arguments: &[&str]| {
        let mut command = Command::cargo_bin("upgrade-toolkit").unwrap();
        command.args(arguments).output().unwrap()
    };
    let help = text(&run(&["--help"]).stdout);
    assert!(
        help.contains("1 it failed or there is no such command, 2 wrong usage"),
        "{help}"
    );
    assert_eq!(run(&["lunch"]).status.code(), Some(1));
    assert_eq!(run(&["rehearse", "--lunch"]).status.code(), Some(2));
}
