//! Writes what was decided about an addon, and waits a while for it.

use std::time::Duration;

use api::{annotations::ADDON_DEFAULTS, foreign::harvester::Addon};
use kube::{ResourceExt, runtime::watcher};
use serde_json::{Value, json};

use crate::context::Context;
use program::{error::Result, step::StepContext};

use super::plan::{Change, Deployment, wait_for};

/// How long an addon is waited for.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often it is looked at though nothing has changed, since being deployed takes a while to count.
const TICK: Duration = Duration::from_secs(5);

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
    ctx: StepContext<'_>,
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
    let mut deployment = Deployment::of(&called, context.pauses.addon);
    let deployed = addons.watch(ctx, one, Some(TICK), |found| {
        let addon = found.iter().find(|addon| addon.name_any() == name);
        deployment.look(context.clock.now(), addon.map(AsRef::as_ref))
    });
    if !context.at_most(PATIENCE, deployed).await? {
        context.note(format!(
            "{called} is not deployed {} seconds after its upgrade",
            PATIENCE.as_secs()
        ));
    }
    Ok(())
}
