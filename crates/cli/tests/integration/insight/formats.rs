//! `preflight` and `doctor` for people, scripts and CI systems, and the file of known issues.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::cluster::Cluster;

/// What Python's parser makes of XML: names of elements and the attribute `name`, in order.
fn elements(xml: &str) -> Vec<String> {
    const READ: &str = "import sys, xml.etree.ElementTree as tree
for element in tree.parse(sys.stdin).iter(): print(element.tag, element.get('name', ''))";
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let mut child = Command::new(python)
        .args(["-c", READ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("there is no python3: run hack/prepare");
    child.stdin.take().unwrap().write_all(xml.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}\n{xml}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

fn ids(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap();
    findings
        .iter()
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_simulated_cluster_is_clean_and_what_is_wrong_with_it_is_found_in_every_format() {
    let cluster = Cluster::start("formats", 0);
    let version = ["preflight", "--version", "v1.8.0"];
    let with = |more: &[&str]| cluster.run(&[version.as_slice(), more].concat());
    // Without a manager, and with known issues of the path, there are warnings.
    let clean = with(&[]).ended(0).says("0 errors");
    assert!(!clean.out.contains("\nerror "), "{}", clean.out);
    cluster.run(&["doctor"]).ended(0).says("0 errors, 0 warnings");

    cluster.put(&[serde_json::json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
        "metadata": {"name": "nightly", "namespace": "default"},
        "spec": {"source": {"kind": "VirtualMachine", "name": "web", "apiGroup": "kubevirt.io"}},
        "status": {"readyToUse": false, "progress": 40},
    })]);
    let text = with(&[]).ended(1);
    let first = text.out.lines().next().unwrap();
    assert_eq!(first, "== vms: 1 error ==", "the worst group comes first");
    assert!(
        text.out.contains("\nerror P08  ") && text.out.contains("\n  Remedy: "),
        "{}",
        text.out
    );
    assert!(text.out.contains("docs/preflight.md#p08"), "{}", text.out);

    let json: Value = serde_json::from_str(&with(&["-o", "json"]).ended(1).out).unwrap();
    assert_eq!(json["findings"][0]["id"], "P08");
    let yaml: Value = serde_saphyr::from_str(&with(&["-o", "yaml"]).ended(1).out).unwrap();
    assert_eq!(ids(&yaml), ids(&json));

    let elements = elements(&with(&["-o", "junit"]).ended(1).out);
    let failures = elements.iter().filter(|element| *element == "failure").count();
    let cases = elements
        .iter()
        .filter(|element| element.starts_with("testcase "))
        .count();
    assert_eq!(failures, 1, "{elements:#?}");
    assert!(cases >= checks::preflight::CHECKS.len(), "{cases}");
    assert!(
        elements.iter().any(|element| element.starts_with("testcase P08")),
        "{elements:#?}"
    );

    with(&["-o", "xml"]).ended(2);
    with(&["--image", "iso"]).says_usage("cannot be used with");
    cluster
        .run(&["preflight", "--version", "v9.9.9"])
        .ended(1)
        .says("error P01")
        .says("v9.9.9");
}

#[test]
fn known_issues_of_a_file_are_added_or_replace_and_a_malformed_file_is_refused_by_place() {
    let cluster = Cluster::start("known-issues", 0);
    let check = |file: &str| cluster.run(&["preflight", "--version", "v1.8.0", "--known-issues", file]);
    let issue = |id: &str, more: &str| {
        format!(
            "- id: {id}\n  title: The site lost power.\n  from: '>=1.7.0, <1.8.0'\n  to: '>=1.8.0'\n  severity: warning\n  \
             remedy: Wait for power.\n  reference: https://issues.example.com/1\n{more}"
        )
    };
    let good = cluster.write("good.yaml", &(issue("KI-OURS", "") + &issue("KI-10359", "")));
    let ran = check(&good).ended(0).says("warning KI-OURS\n  The site lost power.");
    assert!(
        ran.out.contains("warning KI-10359\n  The site lost power."),
        "it replaces: {}",
        ran.out
    );
    let elsewhere = cluster.write("elsewhere.yaml", &issue("KI-OURS", "").replace(">=1.8.0", ">=1.9.0"));
    assert!(!check(&elsewhere).ended(0).out.contains("KI-OURS"), "another path");

    for (name, text, place) in [
        (
            "unknown-field",
            issue("KI-OURS", "  colour: red\n"),
            "known issue KI-OURS: unknown field `colour`",
        ),
        (
            "range",
            issue("KI-OURS", "").replace(">=1.8.0", "soon"),
            "known issue KI-OURS: field to: \"soon\" is no range",
        ),
        ("id", issue("ours", ""), "known issue ours: field id: "),
        (
            "twice",
            issue("KI-A", "") + &issue("KI-A", ""),
            "known issue KI-A: field id: another entry",
        ),
        (
            "condition",
            issue("KI-A", "  condition: moonlight\n"),
            "field condition: \"moonlight\" is no condition; there are ",
        ),
        ("syntax", "- id: KI-A\n  title: [\n- x".to_owned(), "line 3"),
        ("no-list", "id: KI-A\n".to_owned(), "not a YAML list"),
    ] {
        let file = cluster.write(&format!("{name}.yaml"), &text);
        let ran = check(&file)
            .ended(2)
            .complains(place)
            .complains(&format!("{name}.yaml cannot be used"));
        assert_eq!(ran.out, "", "nothing is checked with half of a file");
    }
    check("/nonexistent.yaml")
        .ended(2)
        .complains("failed to read /nonexistent.yaml");
}
