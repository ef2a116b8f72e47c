//! The command `rehearse` as a user runs it: exit codes, streams, what it prints.

use std::{
    io::{BufRead, BufReader},
    process::{Output, Stdio},
    sync::LazyLock,
};

use assert_cmd::Command;
use serde_json::Value;

/// The plan that three nodes end with, and the output. Rehearsed once for all tests that look at it.
pub(crate) static THREE_NODES: LazyLock<(Value, String)> = LazyLock::new(|| plan_of(&["-o", "json"]));

pub(crate) fn rehearse(arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("upgrade-toolkit").unwrap();
    command.arg("rehearse").args(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The final plan of a rehearsal that succeeds, read from standard output alone, and what was on standard error.
pub(crate) fn plan_of(arguments: &[&str]) -> (Value, String) {
    let output = rehearse(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let plan = serde_saphyr::from_str(&text(&output.stdout)).unwrap();
    (plan, text(&output.stderr))
}

/// What a rehearsal that succeeds prints.
fn story_of(arguments: &[&str]) -> String {
    let output = rehearse(arguments);
    let story = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{story}{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    story
}

/// The plan that a real cluster of three nodes ended with.
fn seed() -> Value {
    serde_saphyr::from_str(include_str!("seed_003.yaml")).unwrap()
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

fn phases(plan: &Value) -> Vec<&Value> {
    let changes = plan["status"]["phaseTransitionTimestamps"].as_array().unwrap();
    changes.iter().map(|change| &change["phase"]).collect()
}

#[test]
fn three_nodes_end_with_the_conditions_of_a_real_cluster() {
    let conditions = |plan: &Value| -> Vec<[Value; 4]> {
        let conditions = plan["status"]["conditions"].as_array().unwrap();
        let fields = ["type", "status", "reason", "message"];
        conditions
            .iter()
            .map(|condition| fields.map(|field| condition[field].clone()))
            .collect()
    };
    assert_eq!(conditions(&THREE_NODES.0), conditions(&seed()));
    for condition in THREE_NODES.0["status"]["conditions"].as_array().unwrap() {
        assert_eq!(condition["observedGeneration"], THREE_NODES.0["metadata"]["generation"]);
    }
}

#[test]
fn three_nodes_pass_the_seventeen_phases_of_a_real_cluster_in_order() {
    let plan = &THREE_NODES.0;
    assert_eq!(phases(plan), phases(&seed()));
    assert_eq!(phases(plan).len(), 17);
    let changes = plan["status"]["phaseTransitionTimestamps"].as_array().unwrap();
    let times: Vec<&str> = changes
        .iter()
        .map(|change| change["phaseTransitionTimestamp"].as_str().unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn three_nodes_end_with_the_fields_of_a_real_cluster_and_what_is_recorded_and_no_others() {
    let (ours, real) = (&THREE_NODES.0["status"], &seed()["status"]);
    // The existing toolkit records no digests and no certificate (S-07), and its notes in annotations (S-03).
    let mut wanted = keys(real);
    wanted.extend(["notes", "preflight", "progress", "releaseDigests", "repository"]);
    wanted.sort_unstable();
    assert_eq!(keys(ours), wanted);
    assert_eq!(ours["releaseDigests"]["isoVerified"], true);
    assert_eq!(ours["releaseDigests"]["isoSHA512"], ours["version"]["isoChecksum"]);
    assert_eq!(keys(&ours["releaseMetadata"]), keys(&real["releaseMetadata"]));
    assert_eq!(keys(&ours["version"]), keys(&real["version"]));
    for same in ["currentPhase", "previousVersion", "provisionGeneration"] {
        assert_eq!(ours[same], real[same], "{same}");
    }
    let name = THREE_NODES.0["metadata"]["name"].as_str().unwrap();
    assert!(
        name.starts_with("hvst-upgrade-") && name.len() == "hvst-upgrade-864fh".len(),
        "{name}"
    );
    assert_eq!(ours["isoImageID"], format!("{name}-iso"));
    assert_eq!(ours["releaseMetadata"]["harvester"], "v1.8.0");
    assert_eq!(
        ours["releaseMetadata"]["kubernetes"],
        real["releaseMetadata"]["kubernetes"]
    );
}

#[test]
fn every_node_ends_cleaned_and_reports_when_it_was_upgraded() {
    let nodes = &THREE_NODES.0["status"]["nodeUpgradeStatuses"];
    assert_eq!(keys(nodes), ["node-1", "node-2", "node-3"]);
    // In the order of their machines' names, which is not that of their own.
    let mut in_turn: Vec<(&String, &Value)> = nodes.as_object().unwrap().iter().collect();
    in_turn.sort_by_key(|(_, node)| node["startedAt"].as_str().map(str::to_owned));
    assert_eq!(in_turn[0].0, "node-1", "the cluster began with it");
    let mut before = String::new();
    for (name, node) in in_turn {
        assert_eq!(node["state"], "ImageCleaned", "{name}");
        assert_eq!(keys(node), ["finishedAt", "startedAt", "state"], "{name}");
        let (started, finished) = (
            node["startedAt"].as_str().unwrap(),
            node["finishedAt"].as_str().unwrap(),
        );
        assert!(
            before.as_str() <= started && started < finished,
            "{name} overlaps with the one before"
        );
        finished.clone_into(&mut before);
    }
}

#[test]
fn with_an_output_format_progress_goes_to_standard_error_alone() {
    let (plan, progress) = &*THREE_NODES;
    let name = plan["metadata"]["name"].as_str().unwrap();
    assert!(progress.contains("phase Initializing\n"), "{progress}");
    assert!(progress.contains("node node-3: PreDraining\n"), "{progress}");
    assert!(progress.ends_with("phase Succeeded\n"), "{progress}");
    assert!(
        progress.contains(&format!("image {name}-iso is being imported")),
        "{progress}"
    );
    let (yaml, _) = plan_of(&["-o", "yaml"]);
    assert_eq!(&yaml, plan, "both formats print the same plan");
}

#[test]
fn without_an_output_format_the_story_and_its_summary_are_printed() {
    let story = story_of(&[]);
    for part in [
        "phase Initializing",
        "node node-1: WaitingReboot",
        "\nPhases\n  Initialize",
        "\n  ISODownload             4:44\n",
        "\nNodes\n  node-1 ",
        "\nVMs\n",
        "\nEvents\n",
        "Entering phase ISODownload",
        "succeeded: v1.7.1 → v1.8.0 in ",
    ] {
        assert!(story.contains(part), "{part:?} is missing in:\n{story}");
    }
    assert!(!story.contains("Warning"), "{story}");
}

#[test]
fn the_same_seed_gives_the_same_output_and_another_seed_another_one() {
    let [first, again, other] = ["7", "7", "8"].map(|seed| story_of(&["--seed", seed]));
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[test]
fn a_single_node_is_upgraded_by_its_own_job() {
    let (plan, progress) = plan_of(&["--nodes", "1", "-o", "json"]);
    assert_eq!(plan["status"]["singleNode"], "node-1");
    assert_eq!(plan["status"]["nodeUpgradeStatuses"]["node-1"]["state"], "ImageCleaned");
    assert_eq!(plan["status"]["provisionGeneration"], Value::Null);
    let states: Vec<&str> = progress
        .lines()
        .filter_map(|line| line.split("node node-1: ").nth(1))
        .collect();
    let states: Vec<&str> = states.into_iter().filter(|state| !state.contains(' ')).collect();
    assert_eq!(
        states,
        [
            "ImagePreloading",
            "ImagePreloaded",
            "SingleNodeUpgrading",
            "WaitingReboot",
            "SingleNodeUpgraded",
            "ImageCleaning",
            "ImageCleaned"
        ]
    );
}

#[test]
fn an_uploaded_image_takes_the_place_of_a_version() {
    let (plan, _) = plan_of(&["--image", "my-iso", "-o", "json"]);
    assert_eq!(plan["spec"], serde_json::json!({"image": "my-iso", "restoreVM": true}));
    assert_eq!(plan["status"]["isoImageID"], "my-iso");
    assert_eq!(plan["status"]["version"], Value::Null);
}

#[test]
fn a_witness_is_upgraded_like_the_others() {
    let (plan, _) = plan_of(&["--witness", "-o", "json"]);
    for node in ["node-1", "node-2", "node-3"] {
        assert_eq!(plan["status"]["nodeUpgradeStatuses"][node]["state"], "ImageCleaned");
    }
}

#[test]
fn a_paused_node_waits_until_the_administrator_resumes_it() {
    let (plan, progress) = plan_of(&["--pause", "node-2", "-o", "json"]);
    let at = |part: &str| {
        let found = progress.lines().position(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("{part:?} is missing in:\n{progress}"))
    };
    assert!(at("node node-2: UpgradePaused") < at("node upgrade paused: node-2"));
    assert!(at("node upgrade paused: node-2") < at("administrator resumes node-2"));
    assert!(at("administrator resumes node-2") < at("node node-2: PreDraining"));
    assert_eq!(plan["status"]["nodeUpgradeStatuses"]["node-2"]["state"], "ImageCleaned");
    assert_eq!(
        plan["metadata"]["generation"], 2,
        "the administrator changed the spec once"
    );
}

#[test]
fn vms_that_were_shut_down_start_again() {
    let vms = |story: &str| {
        story
            .lines()
            .find(|line| line.contains(" shut down, "))
            .unwrap()
            .trim()
            .to_owned()
    };
    let with = story_of(&["--vms", "12"]);
    assert_eq!(with, story_of(&["--vms", "12", "--restore-vm"]), "it is the default");
    let number = |line: &str, word: &str| -> usize {
        let part = line.split(", ").find(|part| part.ends_with(word)).unwrap();
        part.split(' ').next().unwrap().parse().unwrap()
    };
    let (shut_down, restored) = (number(&vms(&with), "shut down"), number(&vms(&with), "restored"));
    assert!(shut_down > 0 && restored == shut_down, "{}", vms(&with));
    assert!(with.contains("RestoreVMCompleted"), "{with}");
}

#[test]
fn r31_a_rehearsal_is_refused_with_the_message_of_the_webhook() {
    let output = rehearse(&["--restore-vm=false"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let expected = "Error: failed to create the UpgradePlan: admission webhook \"vupgradeplan-v1beta1.kb.io\" denied the \
                    request: UpgradePlan.management.harvesterhci.io \"";
    assert!(said.starts_with(expected), "{said}");
    let expected = "is invalid: spec: Forbidden: there are non-live migratable VMs that need to be shut off before \
                    initiating the upgrade";
    assert!(said.contains(expected) && said.contains("default/db-2"), "{said}");
    assert_eq!(text(&output.stdout), "", "nothing was begun");
}

#[test]
fn an_upgrade_that_fails_says_why_and_exits_1() {
    let output = rehearse(&["--trouble", "disk-full=node-2", "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let story = text(&output.stderr);
    assert!(story.contains("trouble: disk-full=node-2"), "{story}");
    let failures: Vec<&str> = story.lines().filter(|line| line.contains("failed:")).collect();
    assert_eq!(failures.len(), 1, "{story}");
    assert!(failures[0].contains("Node node-2 will reach"), "{story}");
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["status"]["currentPhase"], "Failed");
    let message = plan["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains("Node node-2 will reach"), "{message}");
}

#[test]
fn wrong_usage_says_what_is_wrong_and_exits_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["--nope"], "unexpected argument '--nope'"),
        (&["--nodes", "0"], "0 is not in 1..=1000"),
        (&["--nodes", "many"], "invalid value 'many'"),
        (
            &["--pause", "node-9"],
            "no such node; its nodes are node-1, node-2, node-3",
        ),
        (&["--serve", "0.0.0.0:8001"], "--serve must be a loopback address"),
        (&["--serve", "localhost"], "invalid value 'localhost'"),
        (&["--speed", "0"], "--speed must be a number from 0.01 to 3600"),
        (&["--speed", "NaN"], "--speed must be a number from 0.01 to 3600"),
        (&["--speed", "2", "--instant"], "cannot be used with"),
        (&["--serve", "127.0.0.1:0", "--instant"], "cannot be used with"),
        (&["--witness", "--nodes", "2"], "--witness needs at least 3 --nodes"),
        (&["--no-plan"], "--serve <ADDR>"),
        (&["-o", "xml"], "invalid value 'xml'"),
    ];
    for (arguments, message) in cases {
        let output = rehearse(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
        assert!(
            stderr.contains("Usage: upgrade-toolkit rehearse") || stderr.contains("For more information"),
            "{stderr}"
        );
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
}

#[test]
fn a_reader_that_leaves_early_does_not_end_the_upgrade() {
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("upgrade-toolkit"))
        .args(["rehearse", "--nodes", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::with_capacity(16, child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "03:57:09  phase Initializing\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn s16_however_a_served_rehearsal_ends_its_kubeconfig_is_removed() {
    for signal in ["-TERM", "-INT"] {
        let folder = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("upgrade-toolkit"))
            .args(["rehearse", "--serve", "127.0.0.1:0", "--no-plan", "--token"])
            .env("TMPDIR", folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let path = lines.find_map(|line| line.split("export KUBECONFIG=").nth(1).map(str::to_owned));
        let config = std::fs::read_to_string(path.expect("it says where its kubeconfig is")).unwrap();
        let config: Value = serde_saphyr::from_str(&config).unwrap();
        assert_eq!(
            config["users"][0]["user"]["token"].as_str().unwrap().len(),
            32,
            "{config}"
        );
        let sent = std::process::Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        lines.for_each(drop);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{signal} leaves {left:?}");
    }
}
