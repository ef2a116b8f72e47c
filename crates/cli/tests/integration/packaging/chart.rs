//! The chart, rendered by the real Helm. What a cluster makes of it is tested in `testbed`.

use std::process::{Command, Output};

use manager::{
    rbac::{self, PROGRAMS},
    webhook::configurations,
};
use serde_json::json;

use crate::packaging::{documents::Documents, hack, root, skipped};

pub(crate) const RELEASE: &str = "harvester-upgrade-manager";
const NAMESPACE: &str = "harvester-system";
const PREFIX: &str = "harvester-upgrade-manager-";
const ACCOUNT: &str = "harvester-upgrade-manager-controller-manager";

/// Runs Helm; nothing when there is none, which is said.
fn helm(arguments: &[&str]) -> Option<Output> {
    let path = Command::new(hack("tool")).args(["path", "helm"]).output().unwrap();
    if !path.status.success() {
        let required = std::env::var("CLUSTER_TESTS").is_ok_and(|value| value == "required");
        assert!(!required, "there is no helm: hack/tool build helm");
        skipped("tests of the chart are", &String::from_utf8_lossy(&path.stderr));
        return None;
    }
    let helm = String::from_utf8(path.stdout).unwrap();
    let output = Command::new(helm.trim())
        .args(arguments)
        .current_dir(root())
        .env_remove("KUBECONFIG")
        .output();
    Some(output.unwrap())
}

pub(crate) fn template(release: &str, values: &[&str]) -> Option<Output> {
    let mut arguments = vec![
        "template",
        release,
        "charts/harvester-upgrade-manager",
        "--namespace",
        NAMESPACE,
    ];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    helm(&arguments)
}

/// What the chart renders with some values.
pub(crate) fn rendered(release: &str, values: &[&str]) -> Option<Documents> {
    let output = template(release, values)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let documents = Documents::read(&String::from_utf8(output.stdout).unwrap());
    documents.assert_whole();
    Some(documents)
}

#[test]
fn helm_finds_nothing_to_complain_about() {
    let Some(output) = helm(&["lint", "--strict", "charts/harvester-upgrade-manager"]) else {
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn by_default_the_objects_have_the_names_of_the_existing_chart() {
    let Some(chart) = rendered(RELEASE, &[]) else { return };
    let expected = [
        "ClusterRole harvester-upgrade-manager-kubelet-reader-role",
        "ClusterRole harvester-upgrade-manager-manager-role",
        "ClusterRole harvester-upgrade-manager-metrics-auth-role",
        "ClusterRole harvester-upgrade-manager-metrics-reader",
        "ClusterRole harvester-upgrade-manager-webhook-role",
        "ClusterRoleBinding harvester-upgrade-manager-kubelet-reader-rolebinding",
        "ClusterRoleBinding harvester-upgrade-manager-manager-rolebinding",
        "ClusterRoleBinding harvester-upgrade-manager-metrics-auth-rolebinding",
        "ClusterRoleBinding harvester-upgrade-manager-webhook-rolebinding",
        "CustomResourceDefinition upgradeplans.management.harvesterhci.io",
        "Deployment harvester-upgrade-manager-controller-manager",
        "MutatingWebhookConfiguration harvester-upgrade-manager-mutating-webhook-configuration",
        "NetworkPolicy harvester-upgrade-manager-allow-metrics-traffic",
        "NetworkPolicy harvester-upgrade-manager-allow-webhook-traffic",
        "NetworkPolicy harvester-upgrade-manager-cluster-upgrade",
        "NetworkPolicy harvester-upgrade-manager-default-deny",
        "NetworkPolicy harvester-upgrade-manager-repository",
        "NetworkPolicy harvester-upgrade-manager-restore-vm",
        "Role harvester-upgrade-manager-job-account-role",
        "Role harvester-upgrade-manager-kubelet-token-role",
        "Role harvester-upgrade-manager-leader-election-role",
        "Role harvester-upgrade-manager-machine-plan-role",
        "Role harvester-upgrade-manager-manager-addon-role",
        "Role harvester-upgrade-manager-manager-cattle-role",
        "Role harvester-upgrade-manager-manager-default-role",
        "Role harvester-upgrade-manager-manager-fleet-role",
        "Role harvester-upgrade-manager-manager-harvester-role",
        "Role harvester-upgrade-manager-manager-longhorn-role",
        "Role harvester-upgrade-manager-plan-account-role",
        "Role harvester-upgrade-manager-webhook-certificate-role",
        "RoleBinding harvester-upgrade-manager-job-account-rolebinding",
        "RoleBinding harvester-upgrade-manager-kubelet-token-rolebinding",
        "RoleBinding harvester-upgrade-manager-leader-election-rolebinding",
        "RoleBinding harvester-upgrade-manager-machine-plan-rolebinding",
        "RoleBinding harvester-upgrade-manager-manager-addon-rolebinding",
        "RoleBinding harvester-upgrade-manager-manager-cattle-rolebinding",
        "RoleBinding harvester-upgrade-manager-manager-default-rolebinding",
        "RoleBinding harvester-upgrade-manager-manager-fleet-rolebinding",
        "RoleBinding harvester-upgrade-manager-manager-harvester-rolebinding",
        "RoleBinding harvester-upgrade-manager-manager-longhorn-rolebinding",
        "RoleBinding harvester-upgrade-manager-plan-account-rolebinding",
        "RoleBinding harvester-upgrade-manager-webhook-certificate-rolebinding",
        "Service harvester-upgrade-manager-controller-manager-metrics-service",
        "Service harvester-upgrade-manager-webhook-service",
        "ServiceAccount harvester-upgrade-manager-controller-manager",
        "ServiceAccount harvester-upgrade-manager-kubelet-reader",
        "ValidatingWebhookConfiguration harvester-upgrade-manager-validating-webhook-configuration",
    ];
    // The accounts of Jobs and Plans are many objects, and compared with the code below.
    let is_of_jobs = |name: &String| {
        let mut accounts = PROGRAMS.iter().map(|program| format!(" {PREFIX}{}", program.account));
        !name.starts_with("NetworkPolicy") && accounts.any(|account| name.contains(&account))
    };
    let mut names = chart.names();
    names.retain(|name| !is_of_jobs(name));
    assert_eq!(names, expected);
    // A Deployment cannot change these: an upgrade from the existing chart would be refused.
    let deployment = chart.one("Deployment harvester-upgrade-manager-controller-manager");
    let selector = json!({"app.kubernetes.io/name": RELEASE, "control-plane": "controller-manager"});
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], selector);
}

#[test]
fn roles_crd_and_webhooks_are_those_of_the_code() {
    let Some(chart) = rendered(RELEASE, &["rbacHelpers.enable=true"]) else {
        return;
    };
    chart.assert_has(&rbac::objects(PREFIX, NAMESPACE, ACCOUNT));
    chart.assert_has(&rbac::accounts(PREFIX, NAMESPACE));
    chart.assert_has(&[rbac::metrics_reader(PREFIX)]);
    chart.assert_has(&rbac::people(PREFIX));
    chart.assert_has(&configurations(PREFIX, NAMESPACE, ACCOUNT, None));
    chart.assert_has(&[api::crd::upgrade_plan()]);
    let crd = chart.one("CustomResourceDefinition upgradeplans.management.harvesterhci.io");
    assert_eq!(crd["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
}

#[test]
fn the_manager_gets_what_it_needs_and_the_defaults_of_the_existing_chart() {
    let Some(chart) = rendered(RELEASE, &[]) else { return };
    let version = env!("CARGO_PKG_VERSION");
    let manager = chart.manager();
    assert_eq!(
        manager["image"],
        format!("rancher/harvester-upgrade-toolkit:v{version}")
    );
    assert_eq!(manager["imagePullPolicy"], "IfNotPresent");
    assert_eq!(manager["command"], json!(["upgrade-toolkit", "manager"]));
    let arguments = [
        "--metrics-bind-address=:8443",
        "--health-probe-bind-address=:8081",
        "--webhook-bind-address=:9443",
        "--leader-elect",
    ];
    assert_eq!(chart.arguments(), arguments);
    for (name, value) in [("ENABLE_WEBHOOKS", "true"), ("WEBHOOK_NAME_PREFIX", PREFIX)] {
        assert_eq!(chart.variable(name), Some(value), "{name}");
    }
    // Jobs and Plans run as the accounts of the chart.
    for name in ["UPGRADE_JOB_SERVICE_ACCOUNT", "UPGRADE_PLAN_SERVICE_ACCOUNT"] {
        assert_eq!(chart.variable(name), None, "{name}");
    }
    assert_eq!(
        manager["resources"]["limits"],
        json!({"cpu": "500m", "memory": "128Mi"})
    );
    assert_eq!(
        manager["resources"]["requests"],
        json!({"cpu": "10m", "memory": "64Mi"})
    );
    let security = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
    });
    assert_eq!(manager["securityContext"], security);
    let pod = &chart.one(&format!("Deployment {ACCOUNT}"))["spec"]["template"]["spec"];
    let security = json!({
        "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"},
    });
    assert_eq!(pod["securityContext"], security);
}

#[test]
fn the_binary_knows_every_argument_that_the_chart_gives_it() {
    let Some(chart) = rendered(RELEASE, &[]) else { return };
    for argument in chart.arguments() {
        let output = Command::new(assert_cmd::cargo::cargo_bin("upgrade-toolkit"))
            .args(["manager", argument, "--help"])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{argument}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn without_webhooks_nothing_of_them_is_left() {
    let Some(chart) = rendered(RELEASE, &["webhook.enable=false"]) else {
        return;
    };
    assert_eq!(chart.variable("ENABLE_WEBHOOKS"), Some("false"));
    let left: Vec<String> = chart
        .names()
        .into_iter()
        .filter(|name| name.to_lowercase().contains("webhook"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!chart.manager().to_string().contains("9443"));
}

#[test]
fn the_port_of_the_webhooks_is_the_one_that_is_requested() {
    let Some(chart) = rendered(RELEASE, &["webhook.port=10443"]) else {
        return;
    };
    assert!(chart.arguments().contains(&"--webhook-bind-address=:10443"));
    let ports = chart.manager()["ports"].as_array().unwrap();
    assert!(
        ports
            .iter()
            .any(|port| port["name"] == "webhook-server" && port["containerPort"] == 10443)
    );
    let service = chart.one("Service harvester-upgrade-manager-webhook-service");
    assert_eq!(service["spec"]["ports"][0]["port"], 443);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 10443);
}

#[test]
fn pull_secrets_and_placement_reach_the_pod() {
    let values = [
        "manager.imagePullSecrets[0].name=mine",
        "manager.nodeSelector.disk=fast",
        "manager.tolerations[0].operator=Exists",
        "manager.envOverrides.UPGRADE_JOB_SERVICE_ACCOUNT=other",
        "manager.envOverrides.RUST_LOG=debug",
        "manager.image.repository=example.test/toolkit",
        "manager.image.tag=dev",
    ];
    let Some(chart) = rendered(RELEASE, &values) else {
        return;
    };
    let pod = &chart.one(&format!("Deployment {ACCOUNT}"))["spec"]["template"]["spec"];
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "mine"}]));
    assert_eq!(pod["nodeSelector"], json!({"disk": "fast"}));
    assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(chart.variable("UPGRADE_JOB_SERVICE_ACCOUNT"), Some("other"));
    assert_eq!(
        chart
            .manager()
            .to_string()
            .matches("UPGRADE_JOB_SERVICE_ACCOUNT")
            .count(),
        1
    );
    assert_eq!(chart.variable("RUST_LOG"), Some("debug"));
    assert_eq!(chart.manager()["image"], "example.test/toolkit:dev");
    assert!(!chart.manager().to_string().contains("UPGRADE_TOOLKIT"));
}

#[test]
fn r29_the_image_of_the_chart_is_whole_with_port_tag_and_digest() {
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let pinned = format!("manager.image.digest={digest}");
    for (values, runs) in [
        (
            vec![
                "manager.image.repository=localhost:5000/me/toolkit",
                "manager.image.tag=dev",
            ],
            "localhost:5000/me/toolkit:dev".to_owned(),
        ),
        (
            vec!["manager.image.repository=localhost:5000/me/toolkit", &pinned],
            format!("localhost:5000/me/toolkit@{digest}"),
        ),
        (
            vec!["manager.image.tag=v1", &pinned],
            format!("rancher/harvester-upgrade-toolkit:v1@{digest}"),
        ),
    ] {
        let Some(chart) = rendered(RELEASE, &values) else {
            return;
        };
        assert_eq!(chart.manager()["image"], runs);
    }
}

#[test]
fn metrics_come_and_go_as_a_whole() {
    let Some(off) = rendered(RELEASE, &["metrics.enable=false"]) else {
        return;
    };
    assert!(
        off.names().iter().all(|name| !name.contains("metrics")),
        "{:?}",
        off.names()
    );
    assert!(off.arguments().iter().all(|argument| !argument.contains("metrics")));
    let on = rendered(RELEASE, &["metrics.port=9090", "prometheus.enable=true"]).unwrap();
    assert!(on.arguments().contains(&"--metrics-bind-address=:9090"));
    let service = on.one("Service harvester-upgrade-manager-controller-manager-metrics-service");
    assert_eq!(service["spec"]["ports"][0]["port"], 9090);
    let monitor = on.one("ServiceMonitor harvester-upgrade-manager-controller-manager-metrics-monitor");
    for (label, value) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&service["metadata"]["labels"][label], value);
    }
    let alerts = on.one("PrometheusRule harvester-upgrade-manager-upgrade-rules");
    let written = std::fs::read_to_string(root().join("config/prometheus/rules.yaml")).unwrap();
    assert_eq!(alerts["spec"], Documents::read(&written).0[0]["spec"]);
    let refused = template(RELEASE, &["metrics.enable=false", "prometheus.enable=true"]).unwrap();
    assert!(!refused.status.success());
}

#[test]
fn any_release_name_gives_names_that_fit_each_other() {
    let long = "a-release-with-a-name-as-long-as-helm-allows-which-is-53";
    let Some(chart) = rendered(&long[..53], &[]) else {
        return;
    };
    assert!(chart.names().iter().any(|name| name.ends_with("-webhook-service")));
    let short = rendered("mine", &[]).unwrap();
    assert_eq!(
        short.variable("WEBHOOK_NAME_PREFIX"),
        Some("mine-harvester-upgrade-manager-")
    );
    let own = rendered("mine", &["fullnameOverride=harvester-upgrade-manager"]).unwrap();
    assert_eq!(own.variable("WEBHOOK_NAME_PREFIX"), Some(PREFIX));
}

#[test]
fn the_same_values_give_the_same_result() {
    let Some(once) = template(RELEASE, &[]) else { return };
    assert_eq!(once.stdout, template(RELEASE, &[]).unwrap().stdout);
    assert!(!String::from_utf8(once.stdout).unwrap().contains("kind: Secret"));
}

#[test]
fn without_the_crd_or_without_keeping_it() {
    let Some(none) = rendered(RELEASE, &["crd.enable=false"]) else {
        return;
    };
    assert!(
        none.names()
            .iter()
            .all(|name| !name.starts_with("CustomResourceDefinition"))
    );
    let loose = rendered(RELEASE, &["crd.keep=false"]).unwrap();
    let crd = loose.one("CustomResourceDefinition upgradeplans.management.harvesterhci.io");
    assert!(crd["metadata"]["annotations"].is_null());
}

#[test]
fn values_that_mean_nothing_are_refused() {
    for value in [
        "webhook.prot=9443",
        "metrics.port=80",
        "manager.replicas=-1",
        "manager.image.pullPolicy=Sometimes",
        "manager.imagePullSecrets[0]=mine",
        "webhook.enable=perhaps",
        "networkPolicy.podCIDR=10.52.0.0",
        "networkPolicy.podCIDR=10.0.0.0/8",
        "networkPolicy.nodeCIDRs=",
    ] {
        let Some(output) = template(RELEASE, &[value]) else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("schema"), "{value}: {said}");
    }
}

#[test]
fn the_chart_has_the_version_of_the_toolkit() {
    let chart = std::fs::read_to_string(root().join("charts/harvester-upgrade-manager/Chart.yaml")).unwrap();
    let chart: serde_json::Value = serde_saphyr::from_str(&chart).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(chart["version"], version);
    assert_eq!(chart["appVersion"], format!("v{version}"));
}

#[test]
fn the_readme_of_the_chart_has_the_values_of_the_chart() {
    let output = Command::new(hack("chart-readme")).arg("--check").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn u17_two_servers_on_one_port_are_refused() {
    let Some(refused) = template(RELEASE, &["metrics.port=9443"]) else {
        return;
    };
    assert!(!refused.status.success());
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(error.contains("metrics.port and webhook.port must differ"), "{error}");
    let without = template(RELEASE, &["metrics.port=9443", "webhook.enable=false"]).unwrap();
    assert!(without.status.success());
}
