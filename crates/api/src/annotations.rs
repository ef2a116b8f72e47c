//! Annotation keys, finalizers and Secret types: what users set, what we record, what we read of others.

/// User, on a plan: `"true"` bypasses the create-time checks, but for those that protect data.
pub const SKIP_WEBHOOK: &str = "management.harvesterhci.io/skip-webhook";
/// User, on a plan (ours): `"true"` together with [`SKIP_WEBHOOK`] bypasses the create-time checks that protect data, too.
pub const SKIP_DATA_CHECKS: &str = "management.harvesterhci.io/skip-data-checks";
/// Ours, on a plan: the last uses of options that need a separate permission: user, option and time, as JSON. Set by the webhook.
pub const OVERRIDES: &str = "management.harvesterhci.io/overrides";
/// User, on a plan: `"true"` skips the check for detached single-replica volumes.
pub const SKIP_SINGLE_REPLICA_DETACHED_VOL: &str = "management.harvesterhci.io/skip-single-replica-detached-vol";
/// User, on a plan: `"true"` allows deleting a progressing plan outside ClusterUpgrading and NodeUpgrading.
pub const ALLOW_DELETION: &str = "management.harvesterhci.io/allow-deletion";
/// User, on a plan: a boolean that skips the disk-space projection.
pub const SKIP_GC_THRESHOLD_CHECK: &str = "management.harvesterhci.io/skip-garbage-collection-threshold-check";
/// User, on a plan: the least number of days API server certificates must still be valid.
pub const MIN_CERTS_EXPIRATION_IN_DAY: &str = "management.harvesterhci.io/min-certs-expiration-in-day";
/// User, on a plan: `"true"` lets any version pass, everywhere, as `spec.force` does.
pub const SKIP_VERSION_CHECK: &str = "harvesterhci.io/skip-version-check";
/// User, on a plan: repository and name of the toolkit image, without tag.
pub const UPGRADE_TOOLKIT_IMAGE: &str = "management.harvesterhci.io/upgrade-toolkit-image";
/// Set by users on a plan: what serves the ISO, `toolkit` or `nginx`. Ours.
pub const REPO_SERVER: &str = "management.harvesterhci.io/repo-server";
/// User, on a plan (ours): Longhorn volumes, by name and with commas, that no node waits for before it is drained.
pub const SKIP_VOLUMES: &str = "management.harvesterhci.io/skip-volumes";
/// User, on a plan (ours): any new value on a failed plan resumes it.
pub const RETRY: &str = "management.harvesterhci.io/retry";
/// Ours, on a plan: the value of [`RETRY`] that the last try was for.
pub const RETRIED: &str = "management.harvesterhci.io/retried";
/// Ours, on a plan: `"true"` when it continues the upgrade of a failed plan, at the hooks that are in place.
pub const TAKEN_OVER: &str = "management.harvesterhci.io/taken-over";

/// Ours, on a plan: the manager's image when it made the plan's first workload. Workloads run it from then on, whatever the
/// manager is replaced by, unless the plan says otherwise.
pub const TOOLKIT_IMAGE: &str = "management.harvesterhci.io/toolkit-image";
/// Ours, on a plan: Longhorn's replica-replenishment-wait-interval before we raised it.
pub const SAVED_REPLENISHMENT_INTERVAL: &str = "management.harvesterhci.io/replica-replenishment-wait-interval";
/// Ours, on a plan: `"true"` when we turned the descheduler addon off.
pub const DESCHEDULER_WAS_ENABLED: &str = "management.harvesterhci.io/descheduler-was-enabled";
/// Ours, on a plan: `"true"` once the skip-manifests Plan may have touched nodes, so that it must be undone.
pub const SKIP_MANIFESTS_APPLIED: &str = "management.harvesterhci.io/skip-manifests-applied";
/// Ours, on a plan: the Rancher cluster's upgradeStrategy before we replaced it, as JSON.
pub const SAVED_UPGRADE_STRATEGY: &str = "management.harvesterhci.io/saved-upgrade-strategy";
/// Ours, on the Rancher cluster: the operating system of the release that its nodes are being upgraded to, while our hooks are
/// in place.
pub const GATED_RELEASE: &str = "management.harvesterhci.io/gated-release";
/// Ours, on a plan and on that chart: what ManagedChart `harvester` made of KubeVirt's workloadUpdateMethods before we emptied them, as JSON.
pub const SAVED_CHART_METHODS: &str = "management.harvesterhci.io/saved-chart-workload-update-methods";
/// Ours, on a plan of an older version: KubeVirt's workloadUpdateMethods before we emptied them, as JSON. Only restored.
pub const SAVED_WORKLOAD_UPDATE_METHODS: &str = "management.harvesterhci.io/saved-workload-update-methods";

/// What the manager notes about a plan, in its status. Managers before this one noted it in annotations of these names.
pub const NOTES: [&str; 9] = [
    RETRIED,
    TOOLKIT_IMAGE,
    TAKEN_OVER,
    SAVED_REPLENISHMENT_INTERVAL,
    DESCHEDULER_WAS_ENABLED,
    SKIP_MANIFESTS_APPLIED,
    SAVED_UPGRADE_STRATEGY,
    SAVED_CHART_METHODS,
    SAVED_WORKLOAD_UPDATE_METHODS,
];

/// Ours, on a machine-plan Secret: reports to Rancher that the pre-drain hook is done, by repeating its token.
pub const PRE_HOOK: &str = "management.harvesterhci.io/pre-hook";
/// Ours, on a machine-plan Secret: reports to Rancher that the post-drain hook is done, by repeating its token.
pub const POST_HOOK: &str = "management.harvesterhci.io/post-hook";
/// Rancher's, on a machine-plan Secret: the token of the pre-drain hook.
pub const RKE_PRE_DRAIN: &str = "rke.cattle.io/pre-drain";
/// Rancher's, on a machine-plan Secret: the token of the post-drain hook.
pub const RKE_POST_DRAIN: &str = "rke.cattle.io/post-drain";
/// Type of Rancher's machine-plan Secrets.
pub const MACHINE_PLAN_SECRET_TYPE: &str = "rke.cattle.io/machine-plan";

/// Ours, on a pod of a plan: what its program waits for, as a JSON list of `waitingFor` entries.
pub const WAITING_FOR: &str = "management.harvesterhci.io/waiting-for";
/// Ours, on a pod of a plan: the step that its program was at when it last said what it waits for: `NAME (N of M)`.
pub const STEP: &str = "management.harvesterhci.io/step";

/// Ours, on a VirtualMachineInstance: `<plan>=<n>`, how often its failed evacuation was tried again for a plan.
pub const EVACUATION_RETRIES: &str = "management.harvesterhci.io/evacuation-retries";
/// On a ManagedChart: the plan that upgraded it last.
pub const CHART_UPGRADED_BY: &str = "upgrade.harvesterhci.io/last-upgrade-name";
/// On a ManagedChart: the version it was upgraded to last.
pub const CHART_UPGRADED_TO: &str = "upgrade.harvesterhci.io/last-upgrade-target-version";
/// On a ManagedChart: when it was upgraded last.
pub const CHART_UPGRADED_AT: &str = "upgrade.harvesterhci.io/last-upgrade-time";
/// Ours, on a ManagedChart: its observedGeneration before it was upgraded last. A newer one has seen the upgrade.
pub const CHART_OBSERVED_BEFORE: &str = "management.harvesterhci.io/observed-generation-before";
/// Ours, on a ManagedChart: the uid of the plan whose Job paused it, so that its clean-up resumes it.
pub const CHART_PAUSED_BY: &str = "management.harvesterhci.io/paused-by";
/// Ours, on a ClusterRepo: what it was last read again for.
pub const REFRESHED_FOR: &str = "management.harvesterhci.io/refreshed-for";
/// Ours, on an Addon: the values it was upgraded with last, before the user's own were merged in.
pub const ADDON_DEFAULTS: &str = "management.harvesterhci.io/addon-defaults";

/// Ours, on a Node: the osImage expected after its reboot.
pub const PENDING_OS_IMAGE: &str = "management.harvesterhci.io/pendingOSImage";
/// Ours, on a Node: its bootID before the Job that reboots it was created. A reboot is a bootID that differs.
pub const BOOT_ID_BEFORE_UPGRADE: &str = "management.harvesterhci.io/bootIDBeforeUpgrade";
/// Cluster API's, on a Node: its Machine.
pub const MACHINE: &str = "cluster.x-k8s.io/machine";
/// `"True"` on a VirtualMachineImage that holds an upgrade ISO.
pub const OS_UPGRADE_IMAGE: &str = "harvesterhci.io/os-upgrade-image";

/// Ours, on the Deployment of a repository: `"true"` when it serves a manifest. One of an older version does not.
pub const SERVES_MANIFEST: &str = "management.harvesterhci.io/serves-manifest";

/// Ours, on the Deployment of a repository: the Secret with the certificate that it serves with. One of an older version has
/// none, and serves over plain HTTP only.
pub const REPO_SECRET: &str = "management.harvesterhci.io/repo-secret";

/// Finalizer on a plan: our changes have not been restored yet.
pub const FINALIZER: &str = "management.harvesterhci.io/upgradeplan-cleanup";
