//! Condition types, condition reasons, event reasons and event sources, to the letter.

/// Condition: the plan can still do something.
pub const AVAILABLE: &str = "Available";
/// Condition: the upgrade is under way.
pub const PROGRESSING: &str = "Progressing";
/// Condition: something is wrong that a person should look at.
pub const DEGRADED: &str = "Degraded";

/// Available=True: the plan may run.
pub const EXECUTABLE: &str = "Executable";
/// Available=False and Progressing=False: another manager left the plan without starting it, and no user has requested it. Ours.
pub const NOT_STARTED: &str = "NotStarted";
/// Available=False: the plan ended.
pub const EXECUTED: &str = "Executed";
/// Available=False: an older plan runs; also the event that says so.
pub const CONCURRENT_UPGRADE_BLOCKED: &str = "ConcurrentUpgradeBlocked";
/// Degraded=False: nothing is wrong.
pub const RECONCILE_SUCCESS: &str = "ReconcileSuccess";
/// Degraded=True: something failed and is tried again; also the event that says so.
pub const RECONCILE_ERROR: &str = "ReconcileError";
/// Degraded=True: a wait is past its deadline; also the event that says so. Ours.
pub const STALLED: &str = "Stalled";

/// Event: a known situation explains why a wait is past its deadline. Ours.
pub const INSIGHT: &str = "Insight";

/// Event: a check has found something before the upgrade began. Ours.
pub const PREFLIGHT: &str = "Preflight";

/// Event: something is worse than before the upgrade. Ours.
pub const POSTFLIGHT: &str = "Postflight";

/// Event: the cluster before the upgrade could not be recorded. Ours.
pub const NOT_RECORDED: &str = "NotRecorded";

/// Message of Available=False on a plan that ended.
pub const EXECUTED_MESSAGE: &str = "Entered one of the terminal phases";
/// Message of Progressing=False on a plan that succeeded.
pub const COMPLETED_MESSAGE: &str = "UpgradePlan has completed";

/// Event: a phase begins.
pub const PHASE_TRANSITION: &str = "PhaseTransition";
/// Event: a phase ended well.
pub const PHASE_COMPLETED: &str = "PhaseCompleted";
/// Event: the whole upgrade ended well.
pub const UPGRADE_SUCCEEDED: &str = "UpgradeSucceeded";
/// Event: the upgrade failed.
pub const UPGRADE_FAILED: &str = "UpgradeFailed";
/// Event: a user used an option that needs a separate permission.
pub const OVERRIDE_USED: &str = "OverrideUsed";
/// Event: the repository has no image lists, so nothing is removed from the nodes.
pub const IMAGE_CLEANUP_SKIPPED: &str = "ImageCleanupSkipped";
/// Event: the ISO or what nodes install is not verified, and why. Ours.
pub const RELEASE_NOT_VERIFIED: &str = "ReleaseNotVerified";
/// Event: a Job was created that starts the VMs of a node again.
pub const RESTORE_VM_JOB_DISPATCHED: &str = "RestoreVMJobDispatched";
/// Event: a Job that starts the VMs of a node again has failed. Ours.
pub const RESTORE_VM_JOB_FAILED: &str = "RestoreVMJobFailed";
/// Event of the detector: the list of VMs to start again was written.
pub const RESTORE_VM_CONFIG_MAP_CREATED: &str = "RestoreVMConfigMapCreated";
/// Event of the detector: the list of VMs to start again could not be written.
pub const RESTORE_VM_CONFIG_MAP_FAILED: &str = "RestoreVMConfigMapFailed";
/// Event of the detector: the VMs that cannot migrate were stopped.
pub const VM_SHUTDOWN_COMPLETED: &str = "VMShutdownCompleted";
/// Event of the detector: a VM could not be stopped.
pub const VM_SHUTDOWN_FAILED: &str = "VMShutdownFailed";
/// Event of restore-vm: the VMs of a node were started again.
pub const RESTORE_VM_COMPLETED: &str = "RestoreVMCompleted";
/// Event of restore-vm: a VM could not be started.
pub const RESTORE_VM_FAILED: &str = "RestoreVMFailed";

/// Event and node reason: a node left the cluster during the upgrade. Ours.
pub const NODE_REMOVED: &str = "NodeRemoved";
/// Event: a node joined the cluster during the upgrade. Ours.
pub const NODE_JOINED: &str = "NodeJoined";
/// Node reason: it came back from its reboot with the old operating system. Ours.
pub const OLD_OS_IMAGE: &str = "OldOSImage";

/// Node reason: what its state says failed is being tried again. Ours.
pub const RETRYING: &str = "Retrying";
/// Node reason: an administrator has resumed the node, and it waits for its turn. Ours.
pub const RELEASED: &str = "Released";
/// Message that goes with [`RELEASED`].
pub const RELEASED_MESSAGE: &str = "Node upgrade was released by the user and waits for its turn";
/// First word of the termination message of a program that installs an operating system and had none to install: the node runs it
/// already, so it is not rebooted. Ours.
pub const NO_REBOOT: &str = "NoReboot";
/// First word of the termination message of a program that has installed an operating system and armed the reboot; the boot that it was
/// armed in follows. Ours.
pub const REBOOT_ARMED: &str = "RebootArmed";

/// Node reason: an administrator paused the node.
pub const ADMINISTRATIVELY_PAUSED: &str = "AdministrativelyPaused";
/// Message that goes with [`ADMINISTRATIVELY_PAUSED`].
pub const PAUSED_MESSAGE: &str = "Node upgrade paused as requested by the user";

/// Source of the manager's events.
pub const SOURCE_MANAGER: &str = "upgradeplan-controller";
/// Source of the detector's events.
pub const SOURCE_DETECTOR: &str = "vm-live-migrate-detector";
/// Source of restore-vm's events.
pub const SOURCE_RESTORE_VM: &str = "restore-vm";
