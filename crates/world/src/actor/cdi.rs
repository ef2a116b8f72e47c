//! Image imports: a VirtualMachineImage of source type `download` fills up, gets a volume and is Imported; a failed
//! import is tried again as often as the image says. Which volume it gets depends on its backend and on the annotation of
//! upgrade images.

use std::{sync::Arc, time::Duration};

use api::{
    annotations,
    foreign::{condition_is, harvester::VirtualMachineImage},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    context::{Context, after, annotation, controlled_by},
    error::Result,
    inbox::{Inbox, Key, Kind},
};

/// How often the progress is written on the way.
const STEPS: u32 = 10;
/// How soon an importer that cannot start is looked at again.
const PENDING: Duration = Duration::from_secs(15);
pub(crate) const ISO_BYTES: u64 = 7_516_192_768;

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.images.subscribe(&inbox);
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = sync(&world, &inbox, &key).await;
        inbox.settle("cdi", (kind, key), outcome);
    }
}

fn failures(image: &VirtualMachineImage) -> u64 {
    image
        .status
        .other
        .get("failed")
        .and_then(Value::as_u64)
        .unwrap_or_default()
}

/// When the import under way began.
fn began(image: &VirtualMachineImage) -> Option<Timestamp> {
    let conditions = image.status.conditions.iter().flatten();
    let initialized = conditions
        .into_iter()
        .find(|condition| condition.type_ == "Initialized")?;
    initialized.other.get("lastUpdateTime")?.as_str()?.parse().ok()
}

async fn sync(world: &Context, inbox: &Inbox, key: &Key) -> Result<()> {
    let Some(image) = world
        .images
        .at(key)
        .filter(|image| image.metadata.deletion_timestamp.is_none())
    else {
        return Ok(());
    };
    let conditions = image.status.conditions.clone().unwrap_or_default();
    let ended = condition_is(&conditions, "Imported").is_some()
        || condition_is(&conditions, "RetryLimitExceeded") == Some(true);
    if image.spec.source_type.as_deref() != Some("download") || ended {
        return Ok(());
    }
    let Some(began) = began(&image) else {
        return begin(world, key, failures(&image)).await;
    };
    let (scratch, claim) = scratch_claim(&image, key);
    if world.troubles().scratch_pending {
        inbox.later(
            Kind::VirtualMachineImage,
            key.clone(),
            after(world.clock.now(), PENDING),
        );
        if world.claims.create(&claim).await? {
            world
                .claims
                .patch_status(&scratch, &json!({"phase": "Pending"}))
                .await?;
        }
        return Ok(());
    }
    if world.claims.at(&scratch).is_some() {
        world.claims.delete(&scratch, false).await?;
        return begin(world, key, failures(&image)).await;
    }
    let total = world.durations.iso_import;
    let step = total / STEPS;
    let elapsed = u64::try_from(world.clock.now().duration_since(began).as_secs()).unwrap_or_default();
    if elapsed < total.as_secs() {
        // Whole steps only: the progress moves when it is looked at in time.
        let done = u32::try_from(elapsed / step.as_secs().max(1))
            .unwrap_or(STEPS)
            .min(STEPS - 1);
        let progress = i64::from(done * 100 / STEPS);
        if image.status.progress != Some(progress) {
            world.images.patch_status(key, &json!({ "progress": progress })).await?;
        }
        let next = after(began, step * (done + 1)).min(after(began, total));
        inbox.later(
            Kind::VirtualMachineImage,
            key.clone(),
            next.max(after(world.clock.now(), Duration::from_millis(1))),
        );
        return Ok(());
    }
    let failed = failures(&image);
    if failed >= u64::from(world.troubles().iso_failures) {
        return finish(world, &image, key).await;
    }
    let retries = u64::try_from(image.spec.retry.unwrap_or(0)).unwrap_or_default();
    if failed >= retries {
        let message = "failed to download: connection reset by peer";
        let status = json!({
            "failed": failed + 1, "lastFailedTime": world.stamp(),
            "conditions": [
                condition(world, "Initialized", "True", "", ""),
                condition(world, "Imported", "False", "ImportFailed", message),
                condition(world, "RetryLimitExceeded", "True", "", message),
            ],
        });
        return world.images.patch_status(key, &status).await.map(drop);
    }
    begin(world, key, failed + 1).await
}

/// The claim that an importer writes to on its way. Its pod does not start before the claim is bound.
fn scratch_claim(image: &VirtualMachineImage, key: &Key) -> (Key, Value) {
    let uid = image.metadata.uid.as_deref().unwrap_or_default();
    let name = format!("prime-{uid}-scratch");
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": key.0, "ownerReferences": controlled_by(image)},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": ISO_BYTES.to_string()}}},
    });
    ((key.0.clone(), name), claim)
}

async fn begin(world: &Context, key: &Key, failed: u64) -> Result<()> {
    let failed = if failed == 0 { Value::Null } else { json!(failed) };
    let status = json!({
        "progress": 0, "failed": failed,
        "conditions": [condition(world, "Initialized", "True", "", "")],
    });
    world.images.patch_status(key, &status).await.map(drop)
}

async fn finish(world: &Context, image: &VirtualMachineImage, key: &Key) -> Result<()> {
    let class = image
        .spec
        .target_storage_class_name
        .as_deref()
        .unwrap_or("longhorn-static");
    // The older backend keeps a BackingImage of Longhorn, and no claim.
    if image.spec.backend.as_deref() == Some("cdi") {
        // Without the annotation CDI takes what the storage class says first, which for Longhorn's is a block device.
        let marked = annotation(&image.metadata, annotations::OS_UPGRADE_IMAGE) == Some("True");
        let (access, mode) = if marked {
            ("ReadWriteMany", "Filesystem")
        } else {
            ("ReadWriteOnce", "Block")
        };
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": key.1, "namespace": key.0, "ownerReferences": controlled_by(image)},
            "spec": {
                "accessModes": [access], "volumeMode": mode, "storageClassName": class,
                "resources": {"requests": {"storage": ISO_BYTES.to_string()}},
            },
        });
        if world.claims.create(&claim).await? {
            world.claims.patch_status(key, &json!({"phase": "Bound"})).await?;
        }
    }
    let status = json!({
        "progress": 100, "size": ISO_BYTES, "virtualSize": ISO_BYTES,
        "conditions": [
            condition(world, "Initialized", "True", "", ""),
            condition(world, "Imported", "True", "", ""),
        ],
    });
    world.images.patch_status(key, &status).await.map(drop)
}

fn condition(world: &Context, type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": message, "lastUpdateTime": world.stamp(),
    })
}
