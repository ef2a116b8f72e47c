//! What an upgrade can wait for: the names in `status.waitingFor[].what`, each with what it means.

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
