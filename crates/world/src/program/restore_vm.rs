//! Starts the VMs again that were stopped because they could not leave their node.

use api::{names, reasons};
use serde_json::json;

use crate::{
    error::Result,
    events::{Report, record},
};

use super::Call;

pub(super) async fn run(call: &Call<'_>) -> Result<()> {
    let list = call
        .world
        .config_maps
        .get(names::HARVESTER_NAMESPACE, &names::restore_config_map(call.plan));
    let report = |warning, reason, message| Report {
        plan: call.plan,
        node: call.node,
        source: reasons::SOURCE_RESTORE_VM,
        warning,
        reason,
        message,
    };
    let Some(list) = list else {
        return record(
            call.world,
            &report(true, reasons::RESTORE_VM_FAILED, "ConfigMap not found"),
        )
        .await;
    };
    call.take(call.world.durations.restore_vm).await;
    let text = list
        .data
        .as_ref()
        .and_then(|data| data.get(call.node))
        .cloned()
        .unwrap_or_default();
    let entries: Vec<&str> = text
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .collect();
    let (mut started, mut failed) = (0, 0);
    for (namespace, name) in entries.iter().filter_map(|entry| entry.split_once('/')) {
        let key = (namespace.to_owned(), name.to_owned());
        match call
            .world
            .vms
            .patch(&key, &json!({"spec": {"runStrategy": "Always"}}))
            .await?
        {
            Some(_) => started += 1,
            None => failed += 1,
        }
    }
    let message = format!(
        "Restored {} VMs for node {} during upgrade {}, success: {started}, failed: {failed}",
        entries.len(),
        call.node,
        call.plan
    );
    record(call.world, &report(false, reasons::RESTORE_VM_COMPLETED, &message)).await
}
