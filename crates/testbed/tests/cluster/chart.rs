//! What people install, on a real API server: the chart by the real Helm, the installer by kubectl. No pod runs here;
//! what the manager does with the rights that it is given, this process does in its place.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use api::{UpgradePlan, UpgradePlanSpec, names};
use clock::Clock;
use k8s_openapi::{
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        apps::v1::Deployment,
        core::v1::{Namespace, Service},
        networking::v1::NetworkPolicy,
        rbac::v1::{ClusterRole, Role},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::PostParams,
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use manager::{
    tls::{
        Presented,
        managed::{Keeper, Managed},
    },
    webhook::configurations::service_names,
};
use serde_json::json;
use testbed::{ControlPlane, Part};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const RELEASE: &str = "harvester-upgrade-manager";
const ACCOUNT: &str = "harvester-upgrade-manager-controller-manager";
const CONFIGURATION: &str = "harvester-upgrade-manager-validating-webhook-configuration";
pub(crate) const CRD: &str = "upgradeplans.management.harvesterhci.io";
const LIMIT: Duration = Duration::from_secs(60);

/// Helm on a control plane.
pub(crate) struct Helm<'a> {
    pub(crate) program: String,
    pub(crate) control_plane: &'a ControlPlane,
}

impl Helm<'_> {
    fn run(&self, arguments: &[&str]) -> Output {
        let home = self.control_plane.directory().join("helm");
        Command::new(&self.program)
            .args(arguments)
            .current_dir(ROOT)
            .env("KUBECONFIG", self.control_plane.kubeconfig())
            .env("HELM_CACHE_HOME", home.join("cache"))
            .env("HELM_CONFIG_HOME", home.join("config"))
            .env("HELM_DATA_HOME", home.join("data"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Runs it; it must succeed.
    pub(crate) fn demand(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "helm {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Installs or upgrades the chart.
    fn chart(&self, verb: &str, release: &str, namespace: &str, more: &[&str]) -> Output {
        let mut arguments = vec![
            verb,
            release,
            "charts/harvester-upgrade-manager",
            "--namespace",
            namespace,
        ];
        arguments.extend(more);
        self.run(&arguments)
    }

    pub(crate) fn demand_chart(&self, verb: &str, more: &[&str]) {
        let output = self.chart(verb, RELEASE, names::HARVESTER_NAMESPACE, more);
        assert!(
            output.status.success(),
            "helm {verb}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// The path of Helm; nothing where there is none, unless these tests are required.
pub(crate) fn helm() -> Option<String> {
    let output = Command::new(Path::new(ROOT).join("hack/tool"))
        .args(["path", "helm"])
        .output()
        .unwrap();
    if output.status.success() {
        return Some(String::from_utf8(output.stdout).unwrap().trim().to_owned());
    }
    let required = std::env::var("CLUSTER_TESTS").is_ok_and(|value| value == "required");
    assert!(!required, "there is no helm: hack/tool build helm");
    None
}

/// What Harvester has before the manager is installed.
async fn prepare(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in [
        names::HARVESTER_NAMESPACE,
        names::CATTLE_NAMESPACE,
        names::FLEET_NAMESPACE,
        names::LONGHORN_NAMESPACE,
        // Rancher's, in every Harvester.
        "cattle-fleet-system",
        "cattle-fleet-local-system",
        "elsewhere",
    ] {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
}

/// What the manager does first: makes the certificate of its webhooks, with its own rights and no others.
async fn keep_certificate(control_plane: &ControlPlane) {
    let client = control_plane
        .client_of(names::HARVESTER_NAMESPACE, ACCOUNT, "manager")
        .await
        .unwrap();
    let managed = Managed {
        namespace: names::HARVESTER_NAMESPACE.to_owned(),
        names: service_names("harvester-upgrade-manager-webhook-service", names::HARVESTER_NAMESPACE),
        mutating: "harvester-upgrade-manager-mutating-webhook-configuration".to_owned(),
        validating: CONFIGURATION.to_owned(),
    };
    let keeper = Keeper::new(client, Clock::system(), managed, Presented::default());
    keeper.look().await.unwrap();
}

/// How many network policies there are, as the API server has taken them.
async fn policies(client: &Client) -> usize {
    let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE);
    let found = policies.list(&kube::api::ListParams::default()).await.unwrap();
    let peers = found
        .items
        .iter()
        .filter_map(|policy| policy.spec.as_ref()?.ingress.as_ref());
    let peers: usize = peers
        .flatten()
        .filter_map(|rule| rule.from.as_ref())
        .map(Vec::len)
        .sum();
    // The nodes' addresses are in two of them.
    assert!(found.items.is_empty() || peers > 2 * 256, "{peers} peers");
    found.items.len()
}

/// The authority that the API server trusts the webhooks by.
async fn authority(client: &Client) -> Option<Vec<u8>> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mut configuration = configurations.get(CONFIGURATION).await.unwrap();
    let webhook = configuration.webhooks.take().unwrap().remove(0);
    webhook.client_config.ca_bundle.map(|bundle| bundle.0)
}

async fn create_plan(client: &Client) -> kube::Result<UpgradePlan> {
    let spec = UpgradePlanSpec {
        version: Some("v1.8.0".to_owned()),
        ..UpgradePlanSpec::default()
    };
    let plans: Api<UpgradePlan> = Api::all(client.clone());
    plans
        .create(&PostParams::default(), &UpgradePlan::new("kept", spec))
        .await
}

#[test]
fn the_chart_is_installed_upgraded_uninstalled_and_installed_again() {
    if !testbed::is_wanted() {
        return;
    }
    let Some(program) = helm() else { return };
    let _turn = crate::turn();
    let control_plane = ControlPlane::start(&[Part::ControllerManager]).unwrap();
    let helm = Helm {
        program,
        control_plane: &control_plane,
    };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = control_plane.client_without_retries("test").await.unwrap();
        prepare(&client).await;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE);
        let services: Api<Service> = Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE);
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());

        helm.demand_chart("install", &["--dry-run=server"]);
        assert!(
            deployments.get_opt(ACCOUNT).await.unwrap().is_none(),
            "a dry run installs nothing"
        );
        helm.demand_chart("install", &[]);
        assert_eq!(deployments.get(ACCOUNT).await.unwrap().spec.unwrap().replicas, Some(1));
        assert_eq!(policies(&client).await, 6);
        let established = await_condition(crds.clone(), CRD, is_crd_established());
        tokio::time::timeout(LIMIT, established).await.unwrap().unwrap();
        let notes = helm.demand(&["get", "notes", RELEASE, "--namespace", names::HARVESTER_NAMESPACE]);
        assert!(
            notes.contains("kind: UpgradePlan") && notes.contains(ACCOUNT),
            "{notes}"
        );
        // No server answers the webhooks yet, so all requests are refused.
        let refused = create_plan(&client).await.unwrap_err().to_string();
        assert!(refused.contains("upgradeplan-v1beta1.kb.io"), "{refused}");

        // The manager's certificate survives upgrades of the chart.
        assert_eq!(authority(&client).await, None);
        keep_certificate(&control_plane).await;
        let before = authority(&client).await;
        assert!(before.is_some());
        helm.demand_chart("upgrade", &["--set", "webhook.port=10443,manager.replicas=2"]);
        assert_eq!(authority(&client).await, before);
        let service = services.get("harvester-upgrade-manager-webhook-service").await.unwrap();
        assert_eq!(
            service.spec.unwrap().ports.unwrap()[0].target_port,
            Some(serde_json::from_value(json!(10443)).unwrap())
        );

        // A second manager in the cluster is refused, by whatever name.
        let second = helm.chart("install", "other", "elsewhere", &["--set", "crd.enable=false"]);
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(
            !second.status.success() && said.contains("already manages the upgrades"),
            "{said}"
        );

        // Without webhooks plans are created unasked.
        helm.demand_chart("upgrade", &["--set", "webhook.enable=false"]);
        let created = async {
            loop {
                match create_plan(&client).await {
                    Ok(plan) => return plan,
                    // The API server forgets configurations a moment after they are gone.
                    Err(kube::Error::Api(status)) if status.code == 500 => {
                        tokio::time::sleep(Duration::from_millis(100)).await
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let plan = tokio::time::timeout(LIMIT, created).await.unwrap();

        helm.demand(&["uninstall", RELEASE, "--namespace", names::HARVESTER_NAMESPACE]);
        assert!(deployments.get_opt(ACCOUNT).await.unwrap().is_none());
        assert_eq!(policies(&client).await, 0);
        let roles: Api<ClusterRole> = Api::all(client.clone());
        assert!(
            roles
                .get_opt("harvester-upgrade-manager-manager-role")
                .await
                .unwrap()
                .is_none()
        );
        let fleet: Api<Role> = Api::namespaced(client.clone(), names::FLEET_NAMESPACE);
        assert!(
            fleet
                .get_opt("harvester-upgrade-manager-machine-plan-role")
                .await
                .unwrap()
                .is_none()
        );
        let plans: Api<UpgradePlan> = Api::all(client.clone());
        assert_eq!(plans.get("kept").await.unwrap().uid(), plan.uid(), "plans are kept");

        helm.demand_chart("upgrade", &["--install"]);
        assert!(deployments.get_opt(ACCOUNT).await.unwrap().is_some());
        assert_eq!(plans.get("kept").await.unwrap().uid(), plan.uid());
        helm.demand(&["uninstall", RELEASE, "--namespace", names::HARVESTER_NAMESPACE]);
    });
}

#[test]
fn what_make_deploy_applies_is_accepted_and_make_undeploy_removes_it() {
    if !testbed::is_wanted() {
        return;
    }
    let _turn = crate::turn();
    let control_plane = ControlPlane::start(&[Part::ControllerManager]).unwrap();
    let make = |target: &str| {
        let output = Command::new("make")
            .args([target, "IMG=localhost:5000/mine/toolkit:dev"])
            .current_dir(ROOT)
            .env("KUBECONFIG", control_plane.kubeconfig())
            .env("HOME", control_plane.directory())
            .env("XDG_CACHE_HOME", cache())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "make {target}: {said}");
    };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = control_plane.client("test").await.unwrap();
        prepare(&client).await;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE);
        make("deploy");
        let deployment = deployments.get("upgrade-toolkit-controller-manager").await.unwrap();
        let image = deployment
            .spec
            .unwrap()
            .template
            .spec
            .unwrap()
            .containers
            .remove(0)
            .image;
        assert_eq!(image.as_deref(), Some("localhost:5000/mine/toolkit:dev"));
        assert_eq!(policies(&client).await, 6);
        // Once more changes nothing and fails nowhere.
        make("deploy");
        make("undeploy");
        assert_eq!(policies(&client).await, 0);
        assert!(
            deployments
                .get_opt("upgrade-toolkit-controller-manager")
                .await
                .unwrap()
                .is_none()
        );
        let namespaces: Api<Namespace> = Api::all(client.clone());
        assert!(namespaces.get_opt(names::HARVESTER_NAMESPACE).await.unwrap().is_some());
    });
}

/// Where programs that were built before are found, although HOME is another.
fn cache() -> std::ffi::OsString {
    std::env::var_os("XDG_CACHE_HOME").unwrap_or_else(|| {
        let mut home = std::env::var_os("HOME").unwrap_or_default();
        home.push("/.cache");
        home
    })
}
