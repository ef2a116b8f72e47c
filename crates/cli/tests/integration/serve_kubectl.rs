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
    let served = Served::start(&["--speed", "600", "--no-plan"]);
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
