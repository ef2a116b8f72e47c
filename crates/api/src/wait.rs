//! What an upgrade can wait for: the names in `status.waitingFor[].what`, each with what it means. The plan and the programs
//! in its Jobs have names of their own.

use crate::wire_enum::wire_enum;

wire_enum! {
    /// What is waited for. A wait that is not here cannot be written down.
    pub enum Wait {
        /// A user who starts a plan that another manager left.
        StartRequest = "StartRequest",
        /// An older plan that runs.
        OlderUpgrade = "OlderUpgrade",
        /// The plan that runs before a retry.
        OtherUpgrade = "OtherUpgrade",
        /// The Version with an ISO.
        Version = "Version",
        /// The version that runs.
        ServerVersion = "ServerVersion",
        /// Nodes that Harvester manages.
        Nodes = "Nodes",
        /// Kubelets and API servers that answer.
        Preflight = "Preflight",
        /// The import of the ISO.
        IsoImport = "ISOImport",
        /// An annotation that can be used.
        Annotation = "Annotation",
        /// The certificate of the repository.
        RepositoryCertificate = "RepositoryCertificate",
        /// The repository that serves.
        Repository = "Repository",
        /// The digests of the release.
        ReleaseManifest = "ReleaseManifest",
        /// What the ISO says about its release.
        ReleaseMetadata = "ReleaseMetadata",
        /// The sizes of the new images, and the disks.
        NewImages = "NewImages",
        /// Images that are loaded onto nodes.
        ImagePreload = "ImagePreload",
        /// A node that can run the toolkit's image.
        ToolkitImage = "ToolkitImage",
        /// The Job that failed, to be seen.
        FailedJob = "FailedJob",
        /// Our change takes effect.
        Setting = "Setting",
        /// A chart that Fleet applies.
        ManagedChart = "ManagedChart",
        /// The Job of the cluster's components.
        ClusterUpgradeJob = "ClusterUpgradeJob",
        /// The Rancher cluster.
        Cluster = "Cluster",
        /// The Plan that makes RKE2 skip a manifest.
        SkipManifestsApply = "SkipManifestsApply",
        /// The Plan that undoes it.
        SkipManifestsRemove = "SkipManifestsRemove",
        /// Rancher, which takes the next node.
        RancherNextNode = "RancherNextNode",
        /// A user who pauses a node.
        Paused = "Paused",
        /// Nodes after a paused node.
        BehindPaused = "BehindPaused",
        /// The Job that empties a node.
        PreDrainJob = "PreDrainJob",
        /// Rancher, which drains a node and updates RKE2.
        RancherUpdate = "RancherUpdate",
        /// The Job that installs the operating system.
        PostDrainJob = "PostDrainJob",
        /// The Job that upgrades a single node.
        SingleNodeJob = "SingleNodeJob",
        /// A node that reboots.
        Reboot = "Reboot",
        /// VMs that cannot move and that a drain would kill.
        ImmovableVms = "ImmovableVMs",
        /// The nodes before this one.
        Turn = "Turn",
        /// Rancher, which completes what it does with nodes.
        RancherCompletion = "RancherCompletion",
        /// The lists of images.
        ImageLists = "ImageLists",
        /// Stale images that are removed.
        ImageCleanup = "ImageCleanup",
        /// A pod that cannot start.
        Pod = "Pod",
        /// More than is shown.
        More = "More",
        /// Programs of the upgrade that still run.
        StillRunning = "StillRunning",
        /// What is restored.
        PutBack = "PutBack",
        /// VMs that start again.
        RestoreVm = "RestoreVM",
    }
}

wire_enum! {
    /// What a program in a Job waits for. The plan shows it beside its own waits.
    pub enum ProgramWait {
        /// A step that failed, and is run again.
        Retry = "Retry",
        /// A kind that the API server does not serve.
        Kind = "Kind",
        /// The first list of a kind.
        List = "List",
        /// The repository that serves.
        Repository = "Repository",
        /// A file that is downloaded.
        Download = "Download",
        /// Images that are imported on a node.
        ImagePreload = "ImagePreload",
        /// A volume that is not healthy, or whose last copy is on the node.
        LonghornVolume = "LonghornVolume",
        /// All volumes of a node that are waited for: how many they are. Its beginning is the last time that one was
        /// whole again.
        VolumesLeft = "VolumesLeft",
        /// A volume that is attached and that nothing uses.
        StaleAttachment = "StaleAttachment",
        /// A VM that has to leave the node.
        VmEvacuation = "VMEvacuation",
        /// All VMs of a node that is evacuated: how many are left. Its beginning is the last time that one left.
        VmsLeft = "VMsLeft",
        /// The taint that makes KubeVirt move VMs.
        DrainTaint = "DrainTaint",
        /// A VM that is stopped.
        VmShutdown = "VMShutdown",
        /// A disruption budget of KubeVirt that a drain would meet.
        EvacuationBudget = "EvacuationBudget",
        /// The upgrade of RKE2 on a node.
        Rke2 = "RKE2",
        /// A bundle that Fleet applies before the only node is upgraded.
        FleetBundle = "FleetBundle",
        /// KubeVirt, which has to serve before VMs start.
        KubeVirt = "KubeVirt",
        /// A VM that starts again.
        VmStart = "VMStart",
        /// The Plan that suspends agents.
        Plan = "Plan",
        /// A node whose agent is not suspended.
        NodeAgent = "NodeAgent",
        /// The cluster in the new Cluster API.
        CapiCluster = "CAPICluster",
        /// A Helm release.
        HelmRelease = "HelmRelease",
        /// The version that Rancher runs.
        RancherVersion = "RancherVersion",
        /// A repository of charts that Rancher reads again.
        ClusterRepo = "ClusterRepo",
        /// The agent of Fleet.
        FleetAgent = "FleetAgent",
        /// The configuration of Fleet.
        FleetConfig = "FleetConfig",
        /// The controller of Fleet.
        FleetController = "FleetController",
        /// The cluster in Fleet.
        FleetCluster = "FleetCluster",
        /// A workload that rolls out.
        Rollout = "Rollout",
        /// A chart that Fleet applies.
        ManagedChart = "ManagedChart",
        /// A bundle that Fleet applies.
        Bundle = "Bundle",
        /// The Helm controller, which takes in a HelmChartConfig.
        HelmChartConfig = "HelmChartConfig",
        /// The version that KubeVirt runs.
        KubeVirtVersion = "KubeVirtVersion",
        /// The managers of Longhorn.
        LonghornManager = "LonghornManager",
        /// The instance managers of Longhorn.
        InstanceManager = "InstanceManager",
        /// The kind Addon, which has to know a field.
        AddonKind = "AddonKind",
        /// An addon.
        Addon = "Addon",
    }
}
