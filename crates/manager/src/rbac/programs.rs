//! What the programs of an upgrade may do: rules per account and namespace. `docs/security-jobs.md` says which step needs
//! which, and a test compares it with these tables.

use api::{accounts, names};

use super::{ALL, role::Rule};

/// Where Fleet's controller runs.
const FLEET_SYSTEM: &str = "cattle-fleet-system";
/// Where Fleet's agent of the local cluster runs.
const FLEET_AGENT_SYSTEM: &str = "cattle-fleet-local-system";

/// What an upgrade of Rancher remembers.
const RANCHER_JOURNAL: &str = "upgrade-toolkit-rancher";

const LOOK: &[&str] = &["list", "watch"];
const READ: &[&str] = &["get", "list", "watch"];
const CHANGE: &[&str] = &["get", "patch"];
/// An apply of what is not there needs the right to create it, by its name.
const APPLY: &[&str] = &["get", "create", "patch"];
const FOLLOW: &[&str] = &["get", "list", "watch", "patch"];

/// The account of a program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name, behind the prefix of an installation.
    pub account: &'static str,
    /// Where its pods are.
    pub namespace: &'static str,
    /// Its pods get a token although they do not request it.
    pub automount: bool,
    /// Rules for the whole cluster.
    pub cluster: &'static [Rule],
    /// Rules by namespace.
    pub inside: &'static [(&'static str, &'static [Rule])],
    /// Accounts, behind the same prefix, that it may get tokens of.
    pub tokens_of: &'static [&'static str],
    /// A ClusterRole of Kubernetes' own that it has.
    pub bound_to: Option<&'static str>,
}

/// All accounts of programs.
pub const PROGRAMS: [Program; 5] = [CLUSTER_UPGRADE, RANCHER_INSTALLER, NODE_UPGRADE, VM_RESTORE, NODE_PLANS];

/// A program reports its waits on its pod. By the subresource, which changes no image of any pod.
const BOARD: Rule = ("", &["pods/status"], &["patch"], ALL);
/// Events on a plan.
const EVENTS: &[Rule] = &[("", &["events"], &["create"], ALL)];

const ADDONS: &[&str] = &[
    "descheduler",
    "harvester-seeder",
    "kubeovn-operator",
    "nvidia-driver-toolkit",
    "pcidevices-controller",
    "rancher-logging",
    "rancher-monitoring",
    "vm-import-controller",
];

/// Those of them that are installed where they are not there.
const INSTALLED_ADDONS: &[&str] = &[
    "descheduler",
    "harvester-seeder",
    "kubeovn-operator",
    "nvidia-driver-toolkit",
    "pcidevices-controller",
    "vm-import-controller",
];

const CLUSTER_UPGRADE: Program = Program {
    account: accounts::CLUSTER_UPGRADE,
    namespace: names::HARVESTER_NAMESPACE,
    automount: false,
    cluster: &[
        ("", &["nodes"], LOOK, ALL),
        (
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations"],
            &["get", "delete"],
            &["mutating-webhook-configuration"],
        ),
        (
            "admissionregistration.k8s.io",
            &["validatingwebhookconfigurations"],
            &["get", "delete"],
            &["validating-webhook-configuration"],
        ),
        (
            "apiextensions.k8s.io",
            &["customresourcedefinitions"],
            LOOK,
            &["addons.harvesterhci.io"],
        ),
        // Which definitions CDI has is known with its release only.
        (
            "apiextensions.k8s.io",
            &["customresourcedefinitions"],
            &["create", "patch"],
            ALL,
        ),
        (
            "catalog.cattle.io",
            &["clusterrepos"],
            &["list", "watch", "patch"],
            &["harvester-charts", "rancher-charts"],
        ),
        (
            "catalog.cattle.io",
            &["clusterrepos"],
            &["get", "delete"],
            &["rancher-charts", "rancher-rke2-charts", "rancher-partner-charts"],
        ),
        ("fleet.cattle.io", &["bundles"], LOOK, ALL),
        // In four namespaces, of which not every cluster has all.
        ("harvesterhci.io", &["addons"], FOLLOW, ADDONS),
        ("harvesterhci.io", &["addons"], &["create"], INSTALLED_ADDONS),
        ("harvesterhci.io", &["settings"], CHANGE, &["overcommit-config"]),
        (
            "harvesterhci.io",
            &["settings"],
            &["get"],
            &["longhorn-v2-data-engine-enabled"],
        ),
        ("management.cattle.io", &["clusters"], CHANGE, &[names::LOCAL_CLUSTER]),
        ("management.cattle.io", &["settings"], LOOK, &["server-version"]),
        (
            "management.cattle.io",
            &["settings"],
            &["get", "delete"],
            &["chart-default-branch"],
        ),
        (
            "management.cattle.io",
            &["settings"],
            APPLY,
            &["tls-internal-cn-allowed-services"],
        ),
        ("management.harvesterhci.io", &["upgradeplans"], &["get"], ALL),
        ("storage.k8s.io", &["storageclasses"], &["list"], ALL),
    ],
    inside: &[
        (
            names::HARVESTER_NAMESPACE,
            &[
                BOARD,
                // Where programs of older releases keep their journal. An upgrade that began with them continues with them.
                // Others may write there: ours is next to Fleet's configuration.
                ("", &["configmaps"], APPLY, &[RANCHER_JOURNAL]),
                ("", &["secrets"], &["list"], ALL),
                ("apps", &["deployments"], LOOK, ALL),
                ("kubevirt.io", &["kubevirts"], LOOK, &[names::KUBEVIRT]),
            ],
        ),
        (
            names::CATTLE_NAMESPACE,
            &[
                ("", &["secrets"], LOOK, ALL),
                ("", &["secrets"], APPLY, &["stv-aggregation"]),
                ("apps", &["deployments"], LOOK, &["rancher", "rancher-webhook"]),
                ("apps", &["deployments"], FOLLOW, &["harvester-cluster-repo"]),
                (
                    "upgrade.cattle.io",
                    &["plans"],
                    &["get", "list", "watch", "create", "patch", "delete"],
                    ALL,
                ),
            ],
        ),
        (
            FLEET_SYSTEM,
            &[
                ("", &["configmaps"], FOLLOW, &["fleet-controller"]),
                ("", &["configmaps"], APPLY, &[RANCHER_JOURNAL]),
                ("", &["pods"], LOOK, ALL),
                ("", &["secrets"], LOOK, ALL),
                ("apps", &["deployments"], LOOK, &["fleet-controller"]),
            ],
        ),
        (
            FLEET_AGENT_SYSTEM,
            &[
                ("", &["pods"], LOOK, ALL),
                ("apps", &["deployments"], READ, &["fleet-agent"]),
            ],
        ),
        (
            names::FLEET_NAMESPACE,
            &[
                ("cluster.x-k8s.io", &["clusters"], LOOK, &[names::LOCAL_CLUSTER]),
                ("fleet.cattle.io", &["clusters"], FOLLOW, &[names::LOCAL_CLUSTER]),
                (
                    "management.cattle.io",
                    &["managedcharts"],
                    FOLLOW,
                    &names::MANAGED_CHARTS,
                ),
                (
                    "management.cattle.io",
                    &["managedcharts"],
                    &["get", "list", "watch", "create", "patch"],
                    &["kubeovn-operator-crd"],
                ),
                ("provisioning.cattle.io", &["clusters"], CHANGE, &[names::LOCAL_CLUSTER]),
                (
                    "provisioning.cattle.io",
                    &["clusters/status"],
                    &["patch"],
                    &[names::LOCAL_CLUSTER],
                ),
            ],
        ),
        (
            names::KUBE_SYSTEM_NAMESPACE,
            &[(
                "helm.cattle.io",
                &["helmchartconfigs"],
                APPLY,
                &["rke2-multus", "rke2-traefik"],
            )],
        ),
        (
            names::LONGHORN_NAMESPACE,
            &[
                ("apps", &["daemonsets"], LOOK, &["longhorn-manager"]),
                ("longhorn.io", &["instancemanagers"], LOOK, ALL),
                ("longhorn.io", &["nodes"], &["list"], ALL),
                (
                    "longhorn.io",
                    &["settings"],
                    &["get"],
                    &[
                        "default-instance-manager-image",
                        "detach-manually-attached-volumes-when-cordoned",
                        "node-drain-policy",
                        "v2-data-engine",
                    ],
                ),
            ],
        ),
    ],
    tokens_of: &[accounts::RANCHER_INSTALLER],
    bound_to: None,
};

/// Rancher's chart is what its release says: accounts, roles and bindings (its own to `cluster-admin`), hooks that make more
/// of them, Deployments that run as those. In Kubernetes no account can grant rights that it does not have.
const RANCHER_INSTALLER: Program = Program {
    account: accounts::RANCHER_INSTALLER,
    namespace: names::HARVESTER_NAMESPACE,
    automount: false,
    cluster: &[],
    inside: &[],
    tokens_of: &[],
    bound_to: Some("cluster-admin"),
};

const NODE_UPGRADE: Program = Program {
    account: accounts::NODE_UPGRADE,
    namespace: names::HARVESTER_NAMESPACE,
    automount: false,
    cluster: &[
        ("", &["nodes"], FOLLOW, ALL),
        ("", &["pods"], LOOK, ALL),
        ("fleet.cattle.io", &["bundles"], LOOK, ALL),
        (
            "kubevirt.io",
            &["virtualmachineinstancemigrations"],
            &["list", "watch", "delete"],
            ALL,
        ),
        ("kubevirt.io", &["virtualmachineinstances"], FOLLOW, ALL),
        ("kubevirt.io", &["virtualmachines"], &["get"], ALL),
        ("management.harvesterhci.io", &["upgradeplans"], READ, ALL),
        ("policy", &["poddisruptionbudgets"], LOOK, ALL),
        ("subresources.kubevirt.io", &["virtualmachines/stop"], &["update"], ALL),
    ],
    inside: &[
        (
            names::HARVESTER_NAMESPACE,
            &[
                BOARD,
                // The list of VMs to start again, whose name follows the plan's.
                ("", &["configmaps"], &["get", "create", "update"], ALL),
                ("apps", &["deployments"], LOOK, ALL),
            ],
        ),
        (names::DEFAULT_NAMESPACE, EVENTS),
        (
            names::FLEET_NAMESPACE,
            &[("provisioning.cattle.io", &["clusters"], CHANGE, &[names::LOCAL_CLUSTER])],
        ),
        (
            names::LONGHORN_NAMESPACE,
            &[
                ("longhorn.io", &["engines", "replicas", "volumes"], LOOK, ALL),
                ("longhorn.io", &["settings"], LOOK, &["node-drain-policy"]),
            ],
        ),
    ],
    tokens_of: &[],
    bound_to: None,
};

const VM_RESTORE: Program = Program {
    account: accounts::VM_RESTORE,
    namespace: names::HARVESTER_NAMESPACE,
    automount: false,
    cluster: &[
        (
            "kubevirt.io",
            &["virtualmachineinstances", "virtualmachines"],
            READ,
            ALL,
        ),
        ("management.harvesterhci.io", &["upgradeplans"], &["get"], ALL),
        // A path without a name is a list to Kubernetes.
        ("subresources.kubevirt.io", &["healthz"], &["list"], ALL),
        ("subresources.kubevirt.io", &["virtualmachines/start"], &["update"], ALL),
    ],
    inside: &[
        (
            names::HARVESTER_NAMESPACE,
            &[BOARD, ("", &["configmaps"], &["get"], ALL)],
        ),
        (names::DEFAULT_NAMESPACE, EVENTS),
    ],
    tokens_of: &[],
    bound_to: None,
};

const NODE_PLANS: Program = Program {
    account: accounts::NODE_PLANS,
    namespace: names::CATTLE_NAMESPACE,
    // A Plan has no field for it.
    automount: true,
    cluster: &[("management.harvesterhci.io", &["upgradeplans"], &["get"], ALL)],
    inside: &[(names::CATTLE_NAMESPACE, &[BOARD])],
    tokens_of: &[],
    bound_to: None,
};
