//! Writes what was decided about an addon, and waits a while for it.

use std::time::Duration;

use api::{annotations::ADDON_DEFAULTS, foreign::harvester::Addon};
use kube::{ResourceExt, runtime::watcher};
use serde_json::{Value, json};

use crate::{
    cluster::context::Context,
    error::Result,
    report::{Look, Waiting},
    step::Pace,
};

use super::plan::{Change, is_deployed, wait_for};

const PATIENCE: Duration = Duration::from_secs(300);
/// An addon that was changed a moment ago still says that it is deployed.
const STEADY: Duration = Duration::from_secs(10);

/// Installs an addon as its manifest has it: not enabled.
pub(super) async fn install(context: &Context, manifest: &Value, namespace: &str, name: &str) -> Result<()> {
    let mut object = manifest.clone();
    object["metadata"]["namespace"] = json!(namespace);
    if let Some(defaults) = manifest["spec"]["valuesContent"].as_str() {
        object["metadata"]["annotations"][ADDON_DEFAULTS] = json!(defaults);
    }
    context
        .namespaced::<Addon>(namespace)
        .apply(name, &object)
        .await
        .map(drop)
}

/// Changes an addon, and waits when it ran before.
pub(super) async fn change(
    context: &Context,
    pace: Pace<'_>,
    namespace: &str,
    name: &str,
    current: &Addon,
    change: &Change<'_>,
) -> Result<()> {
    let addons = context.namespaced::<Addon>(namespace);
    let patch = change.patch(current);
    if let Some(patch) = &patch {
        addons.merge(name, patch).await?;
    }
    if !wait_for(current, patch.is_some()) {
        return Ok(());
    }
    let called = addons.called(name);
    let one = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut since = None;
    let deployed = addons.watch(pace, one, Some(Duration::from_secs(5)), |found| {
        let now = context.clock.now();
        let addon = found.iter().find(|addon| addon.name_any() == name);
        since = addon.filter(|addon| is_deployed(addon)).map(|_| since.unwrap_or(now));
        if since.is_some_and(|since| now.duration_since(since).unsigned_abs() >= STEADY) {
            return Look::Done;
        }
        let status = addon.and_then(|addon| addon.status.status.clone()).unwrap_or_default();
        let message = format!("{called} is not deployed yet; it says {status}");
        Look::Wait(vec![Waiting {
            what: "Addon",
            object: called.clone(),
            message,
        }])
    });
    if !context.at_most(PATIENCE, deployed).await? {
        context.note(format!(
            "{called} is not deployed {} seconds after its upgrade",
            PATIENCE.as_secs()
        ));
    }
    Ok(())
}
