//! A served rehearsal, followed and acted on with the real kubectl.

use crate::support::Served;
use serde_json::Value;

const PLAN: &str = "apiVersion: management.harvesterhci.io/v1beta1
kind: UpgradePlan
metadata:
  generateName: mine-
spec:
  version: v1.8.0
  restoreVM: true
";

/// Creates a plan of one's own; returns its name.
fn create(served: &Served, plan: &str) -> String {
    let (succeeded, text) = served.kubectl_with(&["create", "-f", "-"], plan);
    assert!(succeeded, "{text}");
    let name = text.trim().strip_prefix("upgradeplan.management.harvesterhci.io/");
    name.and_then(|name| name.strip_suffix(" created")).unwrap().to_owned()
}

#[test]
fn a_person_follows_an_upgrade_from_beginning_to_end() {
    let served = Served::start(&["--speed", "600"]);
    let name = served.kubectl_lines(&["get", "up", "-w"], |lines| {
        let header = lines.find("the header", |line| Some(line.to_owned()));
        let columns: Vec<&str> = header.split_whitespace().collect();
        assert_eq!(
            columns,
            [
                "NAME",
                "VERSION",
                "CURRENTPHASE",
                "AVAILABLE",
                "PROGRESSING",
                "DEGRADED",
                "AGE"
            ]
        );
        let mut phases = Vec::new();
        lines.find("three phases one after another", |line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            // Before the first status there is no phase to show.
            let phase = cells.get(2).filter(|_| cells.len() == 7)?;
            if phases.last().map(String::as_str) != Some(*phase) {
                phases.push((*phase).to_owned());
            }
            (phases.len() == 3).then(|| cells[0].to_owned())
        })
    });
    served.wait_until_ended(&name);
    if served.kubectl_minor() >= 23 {
        let until = "--for=jsonpath={.status.currentPhase}=Succeeded";
        served.kubectl(&["wait", until, "--timeout=60s", &format!("upgradeplan/{name}")]);
    }
    let table = served.kubectl(&["get", "upgradeplans"]);
    let cells: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        cells[..6],
        [name.as_str(), "v1.8.0", "Succeeded", "False", "False", "False"]
    );

    let description = served.kubectl(&["describe", "upgradeplan", &name]);
    for part in [
        "PhaseTransition",
        "upgradeplan-controller",
        "Entering phase ISODownload",
        "Completed phase ImageCleanup",
        "Upgrade completed successfully",
    ] {
        assert!(description.contains(part), "{part:?} is missing in:\n{description}");
    }
    served.lines.find("the rehearsal says that it continues", |line| {
        line.contains("still serving; Ctrl-C ends").then_some(())
    });
}

#[test]
fn a_user_pauses_a_node_of_their_own_plan_and_resumes_it() {
    let served = Served::start(&["--speed", "600", "--no-plan"]);
    let name = create(&served, PLAN);
    assert!(name.starts_with("mine-") && name.len() == "mine-".len() + 5, "{name}");
    let hold = |nodes: &str| {
        let patch = format!(r#"{{"spec":{{"nodeUpgradeOption":{{"pauseNodes":{nodes}}}}}}}"#);
        served.kubectl(&["patch", "upgradeplan", &name, "--type", "merge", "-p", &patch])
    };
    hold(r#"["node-2"]"#);
    let state = "jsonpath={.status.nodeUpgradeStatuses.node-2.state}{\"\\n\"}";
    served.kubectl_lines(&["get", "upgradeplan", &name, "-w", "-o", state], |lines| {
        lines.find("node-2 is paused", |line| (line == "UpgradePaused").then_some(()));
        hold("[]");
        lines.find("node-2 continues", |line| (line == "PreDraining").then_some(()));
    });
    served.wait_until_ended(&name);
    let plan: Value = serde_json::from_str(&served.kubectl(&["get", "up", &name, "-o", "json"])).unwrap();
    assert_eq!(plan["status"]["currentPhase"], "Succeeded");
}

#[test]
fn a_plan_that_breaks_the_rules_is_refused_and_nothing_is_changed() {
    let served = Served::start(&["--no-plan"]);
    let (succeeded, text) = served.kubectl_with(
        &["create", "-f", "-"],
        &PLAN.replace("  version: v1.8.0", "  force: true"),
    );
    assert!(!succeeded);
    assert!(
        text.contains("at least one of spec.version or spec.image must be set"),
        "{text}"
    );
    assert_eq!(served.kubectl(&["get", "up", "-o", "name"]), "");

    let name = create(&served, PLAN);
    let (succeeded, text) = served.kubectl_with(
        &[
            "patch",
            "up",
            &name,
            "--type",
            "merge",
            "-p",
            r#"{"spec":{"version":"v1.9.0"}}"#,
        ],
        "",
    );
    assert!(!succeeded);
    assert!(text.contains("spec.version is immutable after creation"), "{text}");
    let version = served.kubectl(&["get", "up", &name, "-o", "jsonpath={.spec.version}"]);
    assert_eq!(version, "v1.8.0");
}

#[test]
fn r31_an_administrator_sees_the_refusals_of_a_real_cluster() {
    let served = Served::start(&["--speed", "120", "--no-plan"]);
    let refused = |arguments: &[&str], input: &str| {
        let (succeeded, text) = served.kubectl_with(arguments, input);
        assert!(!succeeded, "{text}");
        // kubectl makes this of the causes that the webhook gives.
        assert!(
            text.starts_with("The UpgradePlan \"") && text.contains("\" is invalid: "),
            "{text}"
        );
        text
    };
    let unknown = refused(&["create", "-f", "-"], &PLAN.replace("v1.8.0", "v9.9.9"));
    assert!(unknown.contains("spec.version: Not found: \"v9.9.9\""), "{unknown}");
    let immovable = refused(&["create", "-f", "-"], &PLAN.replace("  restoreVM: true\n", ""));
    assert!(
        immovable.contains("non-live migratable VMs that need to be shut off") && immovable.contains("default/db-2"),
        "{immovable}"
    );
    let unnamed = refused(
        &["create", "-f", "-"],
        &format!("{PLAN}  nodeUpgradeOption: {{pauseNodes: [node-9]}}\n"),
    );
    assert!(
        unnamed.contains("spec.nodeUpgradeOption.pauseNodes[0]: Not found: \"node-9\""),
        "{unnamed}"
    );
    assert_eq!(served.kubectl(&["get", "up", "-o", "name"]), "");

    let name = create(&served, PLAN);
    served.kubectl_lines(&["get", "up", "-w"], |lines| {
        lines.find("it progresses", |line| line.contains("True").then_some(()));
    });
    let second = refused(&["create", "-f", "-"], PLAN);
    assert!(
        second.contains(&format!("another upgrade \"{name}\" is in progress")),
        "{second}"
    );
    let early = refused(&["delete", "up", &name], "");
    assert!(
        early.contains(
            "cannot delete a progressing UpgradePlan without the management.harvesterhci.io/allow-deletion annotation"
        ),
        "{early}"
    );
    served.kubectl_lines(&["get", "up", "-w"], |lines| {
        lines.find("nodes are upgraded", |line| {
            line.contains("NodeUpgrading").then_some(())
        });
    });
    served.kubectl(&[
        "annotate",
        "up",
        &name,
        "management.harvesterhci.io/allow-deletion=true",
    ]);
    let late = refused(&["delete", "up", &name], "");
    assert!(
        late.contains("cannot delete UpgradePlan while nodes are being upgraded"),
        "{late}"
    );
    served.wait_until_ended(&name);
}

#[test]
fn u01_each_plan_that_a_user_creates_is_followed_to_its_summary() {
    let served = Served::start(&["--speed", "600", "--no-plan", "--nodes", "1"]);
    let name = create(&served, PLAN);
    for part in [
        "phase Initializing".to_owned(),
        "node node-1: ImagePreloaded".to_owned(),
        format!("{name} succeeded: v1.7.1 → v1.8.0 in "),
        "still serving; Ctrl-C ends".to_owned(),
    ] {
        served.lines.find(&part, |line| line.contains(&part).then_some(()));
    }
    // The same version again is allowed, and is followed too.
    let again = create(&served, PLAN);
    served.lines.find("the second plan begins", |line| {
        line.contains("phase Initializing").then_some(())
    });
    served.wait_until_ended(&again);
}

#[test]
fn u06_a_plan_that_pauses_an_unknown_node_is_refused() {
    let served = Served::start(&["--no-plan"]);
    let plan = format!("{PLAN}  nodeUpgradeOption: {{pauseNodes: [node-77]}}\n");
    let (succeeded, said) = served.kubectl_with(&["create", "-f", "-"], &plan);
    assert!(
        !succeeded && said.contains("pauseNodes[0]: Not found: \"node-77\""),
        "{said}"
    );
}

#[test]
fn u13_a_plan_for_a_lower_version_or_without_an_address_of_its_iso_is_refused_when_it_is_created() {
    let served = Served::start(&["--no-plan"]);
    let refused = |name: &str, address: &str| {
        let version = format!(
            "apiVersion: harvesterhci.io/v1beta1\nkind: Version\nmetadata: {{name: {name}, namespace: harvester-system}}\n\
             spec: {{isoURL: {address}}}\n"
        );
        let (succeeded, said) = served.kubectl_with(&["create", "-f", "-"], &version);
        assert!(succeeded, "{said}");
        let plan = PLAN.replace("v1.8.0", name);
        let (succeeded, said) = served.kubectl_with(&["create", "-f", "-"], &plan);
        assert!(!succeeded, "{said}");
        said
    };
    let said = refused("v1.6.1", "https://releases.test/v1.6.1.iso");
    assert!(
        said.contains("v1.7.1 cannot be upgraded to v1.6.1: downgrading is prohibited"),
        "{said}"
    );
    let said = refused("v1.8.1", "not a url");
    assert!(
        said.contains(
            "spec.isoURL of Version harvester-system/v1.8.1 is \"not a url\", which is no http or https address"
        ),
        "{said}"
    );
    assert_eq!(served.kubectl(&["get", "up", "-o", "name"]), "");
}

#[test]
fn u14_a_number_beyond_int64_is_refused() {
    let served = Served::start(&["--no-plan"]);
    let plan = format!("{PLAN}  imagePreloadOption: {{concurrency: 9223372036854775808}}\n");
    let (succeeded, said) = served.kubectl_with(&["create", "-f", "-"], &plan);
    assert!(!succeeded, "{said}");
    assert!(said.contains("invalid") || said.contains("Invalid"), "{said}");
    assert_eq!(served.kubectl(&["get", "up", "-o", "name"]), "");
}

#[test]
fn u19_vms_pods_and_events_look_as_on_a_real_cluster() {
    let served = Served::start(&["--speed", "600", "--no-plan"]);
    let vms = served.kubectl(&["get", "vm", "-A"]);
    let header: Vec<&str> = vms.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAMESPACE", "NAME", "AGE", "STATUS", "READY"], "{vms}");
    assert!(vms.contains("Running"), "{vms}");
    let is_running = |line: &&str| line.contains(" Running ");
    let not_ready = |pods: &str| {
        let found = pods.lines().filter(is_running).filter(|line| line.contains(" 0/"));
        found.map(str::to_owned).collect::<Vec<_>>()
    };
    // Deployments take some seconds until their pods are ready.
    let name = create(&served, PLAN);
    served.kubectl_lines(&["get", "up", "-w"], |lines| {
        lines.find("images are preloaded", |line| {
            line.contains("ImagePreloading").then_some(())
        });
    });
    let pods = served.kubectl(&["get", "pods", "-n", "cattle-system"]);
    assert_eq!(not_ready(&pods), [""; 0], "{pods}");
    let launchers = served.kubectl(&["get", "pods", "-n", "default"]);
    assert_eq!(not_ready(&launchers), [""; 0], "{launchers}");
    let events = served.kubectl(&["get", "events", "-n", "default", "--no-headers"]);
    let first = events.lines().next().unwrap_or_default();
    let age = first.split_whitespace().next().unwrap_or_default();
    assert!(!age.is_empty() && !age.contains('d') && age != "<unknown>", "{events}");
    served.wait_until_ended(&name);
}

#[test]
fn a_trouble_is_found_with_doctor_and_repaired_with_kubectl() {
    let served = Served::start(&["--speed", "600", "--trouble", "D20"]);
    served.lines.find("the trouble begins", |line| {
        line.contains("trouble: capi-paused").then_some(())
    });
    let doctor = || {
        let mut command = assert_cmd::Command::cargo_bin("upgrade-toolkit").unwrap();
        let output = command
            .arg("doctor")
            .env("KUBECONFIG", &served.kubeconfig)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let said = doctor();
    assert!(said.contains("D20"), "{said}");
    let command = said.lines().find_map(|line| {
        line.trim()
            .strip_prefix("$ ")
            .or(Some(line.trim()))
            .filter(|line| line.starts_with("kubectl -n fleet-local patch"))
    });
    assert!(command.is_some(), "{said}");
    served.kubectl(&[
        "-n",
        "fleet-local",
        "patch",
        "clusters.cluster.x-k8s.io",
        "local",
        "--type",
        "merge",
        "-p",
        r#"{"spec":{"paused":false}}"#,
    ]);
    served.lines.find("the upgrade succeeds", |line| {
        line.contains(" succeeded: ").then_some(())
    });
}

#[test]
fn explain_teaches_the_fields_of_a_plan() {
    let served = Served::start(&["--no-plan"]);
    let spec = served.kubectl(&["explain", "upgradeplans.spec"]);
    for field in [
        "force",
        "image",
        "imagePreloadOption",
        "nodeUpgradeOption",
        "restoreVM",
        "upgrade",
        "version",
    ] {
        let taught = spec
            .lines()
            .any(|line| line.trim_start().starts_with(&format!("{field}\t")));
        assert!(taught, "{field} is missing in:\n{spec}");
    }
    assert!(spec.contains("Skip the check"), "{spec}");
    let nodes = served.kubectl(&["explain", "upgradeplans.spec.nodeUpgradeOption.pauseNodes"]);
    assert!(nodes.contains("DESCRIPTION:"), "{nodes}");
}

#[test]
fn ctrl_c_ends_a_served_rehearsal_cleanly() {
    let served = Served::start(&["--no-plan"]);
    let kubeconfig = std::path::PathBuf::from(&served.kubeconfig);
    assert!(kubeconfig.exists());
    let status = served.interrupt();
    assert_eq!(status.code(), Some(0));
    assert!(!kubeconfig.exists() && !kubeconfig.parent().unwrap().exists());
}
