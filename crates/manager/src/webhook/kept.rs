//! What the checks of admission read of those kinds of which tenants may have very many objects. Nothing else is taken in.

use crate::lists::{
    Keep::{self, All, Any, Fields},
    NAMED,
};

const CONDITIONS: Keep = Fields(&[("type", All), ("status", All)]);

pub(super) const VOLUME: Keep = Fields(&[
    ("metadata", NAMED),
    ("spec", Fields(&[("numberOfReplicas", All)])),
    (
        "status",
        Fields(&[
            ("state", All),
            ("robustness", All),
            ("kubernetesStatus", Fields(&[("namespace", All), ("pvcName", All)])),
        ]),
    ),
]);

pub(super) const VM_BACKUP: Keep = Fields(&[
    ("metadata", NAMED),
    // What the error is does not matter.
    ("status", Fields(&[("readyToUse", All), ("error", Fields(&[]))])),
]);

pub(super) const BACKUP_SCHEDULE: Keep = Fields(&[("metadata", NAMED), ("status", Fields(&[("suspended", All)]))]);

pub(super) const VM: Keep = Fields(&[
    ("metadata", NAMED),
    (
        "spec",
        Fields(&[(
            "template",
            Fields(&[("spec", Fields(&[("volumes", Fields(&[("name", All)]))]))]),
        )]),
    ),
    ("status", Fields(&[("volumeRequests", Any)])),
]);

const HOTPLUGGABLE: Keep = Fields(&[("hotpluggable", All)]);
const NODE_AFFINITY: Keep = Fields(&[("requiredDuringSchedulingIgnoredDuringExecution", All)]);

pub(super) const VMI: Keep = Fields(&[
    ("metadata", NAMED),
    (
        "spec",
        Fields(&[
            ("nodeSelector", All),
            ("affinity", Fields(&[("nodeAffinity", NODE_AFFINITY)])),
            (
                "domain",
                Fields(&[("devices", Fields(&[("hostDevices", Any), ("gpus", Any)]))]),
            ),
            (
                "volumes",
                Fields(&[
                    ("name", All),
                    ("persistentVolumeClaim", HOTPLUGGABLE),
                    ("dataVolume", HOTPLUGGABLE),
                ]),
            ),
        ]),
    ),
    (
        "status",
        Fields(&[("phase", All), ("nodeName", All), ("conditions", CONDITIONS)]),
    ),
]);

pub(super) const MANAGED_CHART: Keep =
    Fields(&[("metadata", NAMED), ("status", Fields(&[("conditions", CONDITIONS)]))]);

pub(super) const ADDON: Keep = Fields(&[
    ("metadata", NAMED),
    ("spec", Fields(&[("enabled", All)])),
    ("status", Fields(&[("status", All)])),
]);

pub(super) const V1_UPGRADE: Keep = Fields(&[
    (
        "metadata",
        Fields(&[
            ("name", All),
            ("namespace", All),
            ("labels", Fields(&[("harvesterhci.io/upgradeState", All)])),
        ]),
    ),
    ("status", Fields(&[("conditions", CONDITIONS)])),
]);
