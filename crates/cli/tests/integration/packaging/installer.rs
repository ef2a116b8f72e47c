//! What `make deploy` and `make build-installer` install.

use std::process::{Command, Output};

use api::{UpgradePlan, names::HARVESTER_NAMESPACE};
use cli::manifests::kustomize::{PREFIX, SERVICE_ACCOUNT};
use manager::{rbac, webhook::configurations};

use crate::packaging::{documents::Documents, hack, root, skipped};

/// Runs the installer; nothing where neither kubectl nor Go gives a kustomize, which is said.
fn installer(image: &[&str]) -> Option<Output> {
    let output = Command::new(hack("installer")).args(image).output().unwrap();
    if output.status.code() == Some(3) {
        skipped("tests of the installer are", &String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(output)
}

pub(crate) fn installed(image: &[&str]) -> Option<Documents> {
    let output = installer(image)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let documents = Documents::read(&String::from_utf8(output.stdout).unwrap());
    documents.assert_whole();
    Some(documents)
}

#[test]
fn it_installs_what_the_code_says() {
    let Some(documents) = installed(&[]) else { return };
    documents.assert_has(&rbac::objects(PREFIX, HARVESTER_NAMESPACE, SERVICE_ACCOUNT));
    documents.assert_has(&[rbac::metrics_reader(PREFIX)]);
    documents.assert_has(&configurations(PREFIX, HARVESTER_NAMESPACE, SERVICE_ACCOUNT, None));
    documents.assert_has(&[api::crd::upgrade_plan()]);
    assert_eq!(documents.variable("WEBHOOK_NAME_PREFIX"), Some(PREFIX));
    let version = format!("v{}", env!("CARGO_PKG_VERSION"));
    let image = format!("rancher/harvester-upgrade-toolkit:{version}");
    assert_eq!(documents.manager()["image"], image);
    // Harvester's own namespace must survive `make undeploy`.
    assert!(documents.names().iter().all(|name| !name.starts_with("Namespace")));
}

#[test]
fn r29_the_requested_image_runs_whole_and_its_jobs_get_no_other() {
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    for (image, runs) in [
        ("mine/toolkit:dev", "mine/toolkit:dev"),
        ("localhost:5000/mine/toolkit:1.0", "localhost:5000/mine/toolkit:1.0"),
        ("localhost:5000/toolkit", "localhost:5000/toolkit:latest"),
        (
            &format!("localhost:5000/toolkit@{digest}"),
            &format!("localhost:5000/toolkit@{digest}"),
        ),
    ] {
        let Some(documents) = installed(&[image]) else { return };
        assert_eq!(documents.manager()["image"], runs);
        // They run what the manager finds in its own pod, whose name and namespace it gets.
        let manager = documents.manager().to_string();
        assert!(!manager.contains("UPGRADE_TOOLKIT"), "{image}: {manager}");
        assert!(manager.contains("\"fieldPath\":\"metadata.name\""), "{manager}");
        assert!(manager.contains("\"fieldPath\":\"metadata.namespace\""), "{manager}");
    }
    for nothing in ["mine/toolkit@", "mine/toolkit:", ":dev"] {
        let refused = installer(&[nothing]).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{nothing}");
    }
}

#[test]
fn the_installer_and_the_chart_run_the_same_manager() {
    let Some(documents) = installed(&[]) else { return };
    let values = std::fs::read_to_string(root().join("charts/harvester-upgrade-manager/values.yaml")).unwrap();
    let values: serde_json::Value = serde_saphyr::from_str(&values).unwrap();
    let deployment = documents.one(&format!("Deployment {SERVICE_ACCOUNT}"));
    let (pod, manager) = (&deployment["spec"]["template"]["spec"], documents.manager());
    assert_eq!(pod["securityContext"], values["manager"]["podSecurityContext"]);
    assert_eq!(manager["securityContext"], values["manager"]["securityContext"]);
    assert_eq!(manager["resources"], values["manager"]["resources"]);
    for variable in values["manager"]["env"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap();
        assert_eq!(documents.variable(name), variable["value"].as_str());
    }
}

#[test]
fn every_part_of_the_tree_can_be_built_and_samples_are_upgrade_plans() {
    for part in ["prometheus", "network-policy", "samples"] {
        let directory = root().join("config").join(part);
        let list = std::fs::read_to_string(directory.join("kustomization.yaml")).unwrap();
        let list: serde_json::Value = serde_saphyr::from_str(&list).unwrap();
        let mut listed: Vec<&str> = list["resources"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|r| r.as_str())
            .collect();
        listed.push("kustomization.yaml");
        if part == "prometheus" {
            // Not for the cluster: people import it into Grafana.
            listed.push("dashboard.json");
        }
        let mut there: Vec<String> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        listed.sort_unstable();
        there.sort();
        assert_eq!(listed, there, "config/{part}");
        for file in listed.iter().filter(|file| file.contains("upgradeplan")) {
            let text = std::fs::read_to_string(directory.join(file)).unwrap();
            let plan: UpgradePlan = serde_saphyr::from_str(&text).unwrap();
            assert!(plan.spec.version.is_some() != plan.spec.image.is_some(), "{file}");
        }
    }
}
